"""Read YAML from untrusted files: plain values only, and no more of them than can be seen in the file."""

from __future__ import annotations

from itertools import chain
from typing import Any

import yaml

from contextual_dropout_lab.errors import ConfigError

__all__ = ["MAX_CHARACTERS", "MAX_DIGITS", "MAX_VALUES", "parse_yaml"]

#: Files of more characters are refused: 128 Ki; those of the package have fewer than 6,000.
MAX_CHARACTERS = 2**17

#: Files of more values are refused too; the values behind an alias count wherever it is used.
MAX_VALUES = 2**16

#: And those with whole numbers of more digits: of some thousands, Python would not even show them.
MAX_DIGITS = 100


def parse_yaml(source: str, name: str) -> Any:
    r"""The value of a YAML document; ``name`` is for messages.

    Raises:
        ConfigError: it is not YAML, too long, or of more than :data:`MAX_VALUES` or :data:`MAX_DIGITS`.

    Example:
        >>> parse_yaml("base: &b {p: 0.1}\nother: {<<: *b, epochs: 3}", "some.yaml")
        {'base': {'p': 0.1}, 'other': {'p': 0.1, 'epochs': 3}}
    """
    if len(source) > MAX_CHARACTERS:
        raise ConfigError(f"{name} has {len(source)} characters: expected at most {MAX_CHARACTERS}")
    try:
        loader = yaml.SafeLoader(source)
        node = loader.get_single_node()  # aliases are not expanded yet
        if node is not None and (values := _size(node, {})) > MAX_VALUES:
            raise ValueError(f"its aliases stand for {values} values, more than {MAX_VALUES}")
        return None if node is None else loader.construct_document(node)
    except Exception as error:  # the parser raises whatever comes: ValueError of dates, RecursionError, ...
        raise ConfigError(f"{name} is not valid YAML: {error}") from error


def _size(node: yaml.Node, known: dict[int, int]) -> int:
    """The number of values that a node stands for."""
    if node.tag == "tag:yaml.org,2002:int" and len(node.value) > MAX_DIGITS:
        raise ValueError(f"it has a whole number of {len(node.value)} digits, more than {MAX_DIGITS}")
    if id(node) not in known:
        known[id(node)] = 0
        parts = chain.from_iterable(node.value) if isinstance(node, yaml.MappingNode) else node.value
        known[id(node)] = 1 + (0 if isinstance(node, yaml.ScalarNode) else sum(_size(part, known) for part in parts))
    if not known[id(node)]:
        raise ValueError("it has a value that contains itself")
    return known[id(node)]
