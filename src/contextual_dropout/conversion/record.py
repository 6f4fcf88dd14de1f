"""The record of a conversion, read from the marks that every placed site leaves at its module.

The marks are in the modules that were changed, not on the model that was given to ``cd.contextualize``: so the record
is found from any model around it or inside of it, however the network was wrapped or unwrapped since.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field, replace

from torch import nn

from contextual_dropout.nn.site import ContextualDropout

__all__ = [
    "CHILD",
    "Change",
    "Conversion",
    "ConversionWarning",
    "Mark",
    "conversion_of",
    "conversions",
    "is_marked",
    "join",
    "mark",
    "marked",
    "sites",
    "unmark",
]


#: The attribute of a module that holds its site.
CHILD = "contextual_dropout"


class ConversionWarning(UserWarning):
    """Some dropout of the model stays as it was."""


@dataclass(frozen=True)
class Change:
    """One module that got a site.

    Attributes:
        name: of the module in the model.
        kind: how the site sits there; see :mod:`contextual_dropout.conversion.placement`.
        module: what was there, as text.
        sites: the names of the new sites.
        aliases: further names of the same module.
    """

    name: str
    kind: str
    module: str
    sites: tuple[str, ...]
    aliases: tuple[str, ...] = ()


@dataclass
class Conversion:
    """The record of a conversion: changes, what was left and why, the order of the sites where it is known, and notes.

    Its text is a small table.
    """

    changes: list[Change] = field(default_factory=list)
    left: dict[str, str] = field(default_factory=dict)
    order: list[str] = field(default_factory=list)
    notes: dict[str, str] = field(default_factory=dict)

    def __repr__(self) -> str:
        rows = [(change.name or "(the model)", f"site {change.kind} {change.module}") for change in self.changes]
        rows += [(name or "(the model)", f"left: {reason}") for name, reason in self.left.items()]
        rows += [(name, f"note: {note}") for name, note in self.notes.items()]
        width = max((len(name) for name, _ in rows), default=0)
        head = f"{sum(len(change.sites) for change in self.changes)} contextual dropout sites"
        return "\n".join([head, *(f"  {name:<{width}}  {text}" for name, text in rows)])


#: The attribute of a module that holds its mark. Its value must be a :class:`Mark`: others may use the name too.
MARK = "_contextual_dropout_mark"


@dataclass(frozen=True, eq=False)
class Mark:
    """One placed site, or several that belong to one module.

    Attributes:
        record: of the conversion that placed it, shared by all its marks.
        change: what was done, with names as they were then.
    """

    record: Conversion
    change: Change


def mark(module: nn.Module, record: Conversion, change: Change) -> None:
    """Note at a module that a site was placed there."""
    vars(module)[MARK] = Mark(record, change)


def unmark(module: nn.Module) -> None:
    """Take the mark away."""
    vars(module).pop(MARK, None)


def is_marked(module: nn.Module) -> bool:
    """Whether a site was placed at this very module."""
    return isinstance(vars(module).get(MARK), Mark)


def marked(model: nn.Module) -> list[tuple[Mark, list[str]]]:
    """All marks inside a model in the order in which they were made, with the names that their modules have now."""
    names: dict[nn.Module, list[str]] = defaultdict(list)
    for name, module in model.named_modules(remove_duplicate=False):
        if is_marked(module):
            names[module].append(name)
    found = [(vars(module)[MARK], all_names) for module, all_names in names.items()]
    numbers = {id(change): n for made, _ in found for n, change in enumerate(made.record.changes)}
    return sorted(found, key=lambda pair: numbers.get(id(pair[0].change), len(numbers)))


def conversions(model: nn.Module) -> dict[str, Conversion]:
    """The records of all converted parts of a model by their names; "" is the model itself."""
    groups: dict[int, list[tuple[Mark, list[str]]]] = defaultdict(list)
    for made, names in marked(model):
        groups[id(made.record)].append((made, names))
    result: dict[str, Conversion] = {}
    for group in groups.values():
        part, record = _relative(group)
        result[part] = _joined(result.get(part), record)
    return result


def conversion_of(model: nn.Module) -> Conversion:
    """The record of what ``cd.contextualize`` did to a model or to parts of it; prints as a small table."""
    parts = conversions(model)
    if not parts:
        raise ValueError("the model was not converted by cd.contextualize")
    result: Conversion | None = None
    for part, record in parts.items():
        result = _joined(result, _prefixed(part, record))
    assert result is not None
    return result


def sites(model: nn.Module) -> dict[str, ContextualDropout]:
    """The model's sites by name, in call order where a conversion with an example knows it.

    Example:
        >>> import contextual_dropout as cd
        >>> list(sites(nn.Sequential(nn.Linear(2, 3), cd.ContextualDropout(3))))
        ['1']
    """
    found = {name: module for name, module in model.named_modules() if isinstance(module, ContextualDropout)}
    order = [join(part, name) for part, record in conversions(model).items() for name in record.order]
    return {name: found[name] for name in order} if set(order) == set(found) else found


def join(part: str, name: str) -> str:
    """The name in a model of the module that a part of it calls ``name``."""
    return f"{part}.{name}" if part and name else part or name


def _relative(group: list[tuple[Mark, list[str]]]) -> tuple[str, Conversion]:
    """The part of the model that was converted, and the record with the names inside that part."""
    record, prefixes = group[0][0].record, _prefixes(group)
    if prefixes is None:  # modules were moved: only the changes are left of the record
        return "", Conversion([_renamed(made.change, names[0], names[1:]) for made, names in group])
    part, outside = prefixes
    changes = [
        _renamed(
            made.change, _cut(made.change.name, outside), [_cut(name, part) for name in names if _is_in(name, part)]
        )
        for made, names in group
    ]
    present = {site for change in changes for site in change.sites}
    order = [_cut(name, outside) for name in record.order if _is_in(name, outside)]
    left = {_cut(name, outside): reason for name, reason in record.left.items() if _is_in(name, outside)}
    return part, Conversion(changes, left, [name for name in order if name in present], record.notes)


def _prefixes(group: list[tuple[Mark, list[str]]]) -> tuple[str, str] | None:
    """The prefix of all names now (a wrapper's name), and at the conversion (the name of what was unwrapped)."""
    differences = {_difference(now, made.change.name) for made, names in group for now in names}
    for part, outside in sorted(differences, key=lambda pair: (len(pair[1]), len(pair[0]))):
        if all(
            _is_in(made.change.name, outside) and join(part, _cut(made.change.name, outside)) in names
            for made, names in group
        ):
            return part, outside
    return None


def _difference(now: str, then: str) -> tuple[str, str]:
    """Both names without the end that they share."""
    a, b = (name.split(".") if name else [] for name in (now, then))
    while a and b and a[-1] == b[-1]:
        a.pop()
        b.pop()
    return ".".join(a), ".".join(b)


def _is_in(name: str, prefix: str) -> bool:
    return not prefix or name == prefix or name.startswith((prefix + ".", prefix + " "))


def _cut(name: str, prefix: str) -> str:
    return name[len(prefix) :].lstrip(". ") if prefix else name


def _renamed(change: Change, name: str, names: list[str]) -> Change:
    """A change whose module has another name now; ``names`` are all of its names."""
    sites = tuple(join(name, _cut(site, change.name)) for site in change.sites)
    return replace(change, name=name, sites=sites, aliases=tuple(other for other in names if other != name))


def _prefixed(part: str, record: Conversion) -> Conversion:
    changes = [
        _renamed(each, join(part, each.name), [join(part, name) for name in each.aliases]) for each in record.changes
    ]
    left = {join(part, name): reason for name, reason in record.left.items()}
    return Conversion(changes, left, [join(part, name) for name in record.order], record.notes)


def _joined(a: Conversion | None, b: Conversion) -> Conversion:
    return b if a is None else Conversion(a.changes + b.changes, a.left | b.left, a.order + b.order, a.notes | b.notes)
