"""What a conversion did and what it could not do."""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ["CHILD", "Change", "Conversion", "ConversionWarning"]

#: The attribute under which a site lives inside a module.
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
    """What was changed, what was left and why, in which order the sites run where that is known, and what to know.

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
