"""Read JSON from untrusted files, and check its parts."""

from __future__ import annotations

import json
import os

from contextual_dropout_lab.data.data_error import DataError
from contextual_dropout_lab.data.formats.compressed import read_whole

__all__ = ["MAX_BYTES", "MalformedError", "number", "parse_json", "read_json", "string"]

#: Files of more bytes than this, decompressed, are refused: 1 GiB; the largest, VQA v2's train annotations, take 0.4.
MAX_BYTES = 2**30

#: So are those of more values, each of which takes far more memory than its two or three characters: 33 million;
#: the same file has 21.
MAX_VALUES = 2**25


class MalformedError(ValueError):
    """A record is not what it should be: the message says what was found and what was expected."""


def read_json(path: str | os.PathLike[str]) -> object:
    """The content of a JSON file, plain or compressed with gzip or xz.

    Raises:
        DataError: the file is missing, damaged, not JSON, or of more than :data:`MAX_BYTES` or :data:`MAX_VALUES`.
    """
    return parse_json(read_whole(path, MAX_BYTES), str(path))


def parse_json(content: bytes | bytearray | memoryview, name: str) -> object:
    """The JSON of some bytes; ``name`` is for messages.

    Example:
        >>> parse_json(b'{"a": [1]}', "a.json")
        {'a': [1]}
    """
    content = bytes(content)
    if (values := sum(map(content.count, (b"[", b"{", b",")))) > MAX_VALUES:
        raise DataError(f"{name} has about {values} values: expected at most {MAX_VALUES}; is it another file?")
    try:
        parsed: object = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{name} cannot be read as JSON ({error}): the file is damaged, get it again") from error
    return parsed


def number(record: object, key: str) -> int:
    """A whole number of at least 0 under a key.

    Example:
        >>> number({"image_id": 9}, "image_id")
        9
    """
    value = _value(record, key)
    if type(value) is not int or not 0 <= value < 2**63:
        raise MalformedError(f"has {key} = {_short(value)}: expected a whole number of at least 0")
    return value


def string(record: object, key: str) -> str:
    """A string under a key.

    Example:
        >>> string({"answer": "red"}, "answer")
        'red'
    """
    value = _value(record, key)
    if not isinstance(value, str):
        raise MalformedError(f"has {key} = {_short(value)}: expected a string")
    return value


def _value(record: object, key: str) -> object:
    if not isinstance(record, dict):
        raise MalformedError(f"is {_short(record)}: expected a map with {key}")
    if key not in record:
        raise MalformedError(f"has no {key}: expected one")
    value: object = record[key]
    return value


def _short(value: object) -> str:
    shown = repr(value)
    return shown if len(shown) <= 60 else f"{shown[:57]}..."
