"""Selecting modules of a model by type, by name, by regular expression or by predicate."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from torch import nn

__all__ = ["Selector", "matcher"]

Predicate = Callable[[str, nn.Module], bool]
#: A type, a regular expression for the whole name, a predicate of name and module, or several of these; a plain string
#: of letters, digits, dots and underscores is the end of a name ("fc1" selects "head.fc1").
Selector = type[nn.Module] | str | re.Pattern[str] | Predicate | Iterable["Selector"]


def matcher(selector: Selector | None) -> Predicate:
    r"""Make a predicate of any kind of selector; ``None`` selects nothing.

    Example:
        >>> is_head, layer = matcher(["head", nn.Conv2d]), nn.Linear(1, 1)
        >>> is_head("encoder.head", layer), is_head("stem", nn.Conv2d(1, 1, 1)), is_head("ahead", layer)
        (True, True, False)
        >>> matcher(r"layer[34]\..*conv1")("layer3.0.conv1", layer)
        True
    """
    if selector is None:
        return lambda name, module: False
    if isinstance(selector, type):
        return _by_type(selector)
    if isinstance(selector, str):
        return _by_suffix(selector) if re.fullmatch(r"[\w.]+", selector) else _by_pattern(re.compile(selector))
    if isinstance(selector, re.Pattern):
        return _by_pattern(selector)
    if isinstance(selector, Iterable):
        parts = [matcher(part) for part in selector]
        return lambda name, module: any(part(name, module) for part in parts)
    if callable(selector):
        return selector
    raise TypeError(f"cannot select layers by {selector!r}: give a type, a name, a regular expression or a predicate")


def _by_type(kind: type[nn.Module]) -> Predicate:
    if not issubclass(kind, nn.Module):
        raise TypeError(f"a type that selects layers must be an nn.Module, got {kind.__name__}")
    return lambda name, module: isinstance(module, kind)


def _by_suffix(suffix: str) -> Predicate:
    return lambda name, module: name == suffix or name.endswith("." + suffix)


def _by_pattern(pattern: re.Pattern[str]) -> Predicate:
    return lambda name, module: pattern.fullmatch(name) is not None
