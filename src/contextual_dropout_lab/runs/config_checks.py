"""Checks of a configuration, with messages that tell how to mend it."""

from __future__ import annotations

import math
import re
from typing import Any

from contextual_dropout_lab.errors import ConfigError

__all__ = ["PARTS", "check_name", "check_parts", "mapping", "short", "typed"]

#: The parts of an experiment's file.
PARTS = ("base", "settings", "methods", "presets")
#: More seeds of a setting are refused.
MAX_SEEDS = 10_000
#: Whole numbers beyond this, on either side of 0, are refused too.
MAX_NUMBER = 2**63


def check_parts(values: dict[str, Any], where: str) -> None:
    """Check what an experiment assumes about its parts; ``where`` they are is for messages, here and below."""
    for part in PARTS[1:]:
        for name in values[part]:
            mapping(values[part], name, f"{part} of {where}")
    for name, setting in values["settings"].items():
        place = f"settings: {name} of {where}"
        own, only = mapping(setting, "methods", place), setting.get("only") or []
        for method in own:
            mapping(own, method, f"methods: {method} of {place}")
        if not isinstance(only, list) or not all(isinstance(method, str) for method in only):
            raise ConfigError(f"only of {place} must be a list of methods, got {short(only)}")
    for name, preset in values["presets"].items():
        place = f"presets: {name} of {where}"
        mapping(preset, "base", place)
        for method, difference in mapping(preset, "methods", place).items():
            if not isinstance(difference, dict) or not isinstance(difference.get("like"), str):
                raise ConfigError(f"methods: {method} of {place} must be a mapping that says which method it is like")
        for setting, seeds in mapping(preset, "seeds", place).items():
            if type(seeds) is not int or not 0 <= seeds <= MAX_SEEDS:
                raise ConfigError(f"seeds: {setting} of {place} must be 0 to {MAX_SEEDS}, got {short(seeds)}")


def mapping(values: dict[str, Any], key: str, where: str) -> dict[str, Any]:
    """A mapping under a key; an empty one where there is nothing."""
    found = values.get(key, {})
    if not isinstance(found, dict) or not all(isinstance(name, str) for name in found):
        raise ConfigError(f"{key} of {where} must be a mapping, got {short(found)}")
    return found


def check_name(field: str, value: Any) -> None:
    """Check names, which become folders and must not lead anywhere else."""
    if not isinstance(value, str) or not re.fullmatch(r"[^/\\\x00-\x1f]+", value) or value.strip(". ") == "":
        raise ConfigError(f"{field} must be a name without slashes, got {short(value)}")


def short(value: Any) -> str:
    """The value, or its beginning, for a message."""
    try:
        shown = repr(value)
    except ValueError:  # Python shows no whole numbers of some thousands of digits
        shown = f"a value of type {type(value).__name__} that is too long to be shown"
    return shown if len(shown) <= 80 else f"{shown[:77]}..."


def typed(name: str, value: Any, kind: Any) -> Any:
    """The value as the field has it: tuples for lists, floats for whole numbers; else an error."""
    wanted = set(str(kind).replace("|", " ").split())
    if value is None and "None" in wanted:
        return None
    if str(kind).startswith("tuple") and isinstance(value, list | tuple):
        element = str(kind).removeprefix("tuple[").partition(",")[0]
        return tuple(typed(name, each, element) for each in value)
    if str(kind).startswith("dict") and isinstance(value, dict):
        if not _is_plain(value):
            raise ConfigError(
                f"{name} must have strings as keys, only values that JSON has, and numbers from -2**63 to 2**63, got "
                f"{short(value)}"
            )
        return value
    if isinstance(value, int) and abs(value) > MAX_NUMBER:
        raise ConfigError(f"{name} must be a number from -2**63 to 2**63, got {short(value)}")
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if "float" in wanted and number and math.isfinite(value):
        return float(value)
    if "int" in wanted and number and isinstance(value, int):
        if value < 0:
            raise ConfigError(f"{name} must not be negative, got {value}")
        return value
    if str(kind).startswith("Literal"):
        if value not in (choices := re.findall(r"""["']([^"']+)["']""", str(kind))):
            raise ConfigError(f"{name} must be one of {', '.join(choices)}, got {short(value)}")
        return value
    if "str" in wanted and isinstance(value, str):
        return value
    raise ConfigError(f"{name} must be of type {kind}, got {short(value)}")


def _is_plain(value: Any) -> bool:
    """Whether it can be written into a record, and read by anybody; dates, NaN, endless numbers and the like cannot."""
    if isinstance(value, dict):
        return all(isinstance(key, str) and _is_plain(inner) for key, inner in value.items())
    if isinstance(value, list | tuple):
        return all(map(_is_plain, value))
    if isinstance(value, int):
        return abs(value) <= MAX_NUMBER
    return value is None or isinstance(value, str) or (isinstance(value, float) and math.isfinite(value))
