"""The pickles of CIFAR as data: dictionaries of strings, numbers, lists and uint8 arrays. No code of theirs runs.

A pickle is a program that may call any function of any module. This reader knows the few instructions that the
published files are made of, and of functions the three names by which numpy wrote an array: those are recognised,
never called. Everything else is refused. Python's own unpickler would not do, even with its functions restricted: one
instruction of five bytes can make it reserve gigabytes for its memo.
"""

from __future__ import annotations

import enum
import math
import os
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from contextual_dropout_lab.data.data_error import DataError

__all__ = ["read_pickle"]

#: Pickles of more instructions than this are refused, for each may take memory; CIFAR-100's test file has 40,122.
MAX_INSTRUCTIONS = 2**20

T = TypeVar("T")


class _Name(enum.Enum):
    """The names that a pickle may contain; none of them is ever called."""

    RECONSTRUCT = "numpy.core.multiarray _reconstruct"
    NDARRAY = "numpy ndarray"
    DTYPE = "numpy dtype"


class _Mark:
    """The place on the stack at which a list, a tuple or a dictionary begins."""


@dataclass
class _Uint8:
    """The type of an array's items."""


@dataclass
class _Array:
    """An array; it has no items until its state has been read."""

    items: npt.NDArray[np.uint8] | None = None


class _RefusedError(ValueError):
    """A pickle that is not read; the message gives the reason."""


def read_pickle(content: bytes | bytearray | memoryview, path: str | os.PathLike[str]) -> dict[str, object]:
    r"""The contents of a pickled dictionary of CIFAR.

    Args:
        content: the bytes of the pickle.
        path: the file that they are from, for messages.

    Returns:
        The dictionary. Strings are taken as latin-1; arrays are read-only uint8 views of ``content``.

    Raises:
        DataError: it has anything that the files of CIFAR do not have, or is damaged.

    Example:
        >>> read_pickle(b"\x80\x02}(U\x06labels](K\x03K\x01eu.", "test_batch")
        {'labels': [3, 1]}
    """
    try:
        return _Machine(memoryview(content).toreadonly()).run()
    except _RefusedError as error:
        raise DataError(
            f"{path} is not a python batch of CIFAR: {error}. It is damaged or something else; no code in it was run"
        ) from error


class _Machine:
    """The stack, the memo and the position of a pickle that is being read."""

    def __init__(self, content: memoryview) -> None:
        self.content, self.at = content, 0
        self.stack: list[object] = []
        self.memo: dict[int, object] = {}

    def run(self) -> dict[str, object]:
        for _ in range(MAX_INSTRUCTIONS):
            code = bytes(self.take(1))
            if code == b".":
                return self.result()
            if code not in INSTRUCTIONS:
                raise _RefusedError(f"its instruction {code!r} at byte {self.at - 1} is not one that CIFAR has")
            INSTRUCTIONS[code](self)
        raise _RefusedError(f"it has more than {MAX_INSTRUCTIONS} instructions")

    def result(self) -> dict[str, object]:
        if self.at != len(self.content):
            raise _RefusedError(f"it has bytes after its end at byte {self.at}")
        items = self.pop(dict).items()
        return {key: value.items if isinstance(value, _Array) else value for key, value in items}

    def take(self, size: int) -> memoryview:
        if not 0 <= size <= len(self.content) - self.at:
            raise _RefusedError(f"{size} bytes were to follow byte {self.at}, but {len(self.content) - self.at} do")
        self.at += size
        return self.content[self.at - size : self.at]

    def number(self, form: str) -> int:
        value: int = struct.unpack(form, self.take(struct.calcsize(form)))[0]
        return value

    def line(self) -> str:
        line = bytes(self.content[self.at : self.at + 80]).partition(b"\n")[0]
        self.take(len(line) + 1)
        return line.decode("latin-1")

    def pop(self, kind: type[T]) -> T:
        value = self.stack.pop() if self.stack else None
        if not isinstance(value, kind):
            raise _RefusedError(f"byte {self.at} was to be preceded by a {kind.__name__.strip('_')}")
        return value

    def top(self, kind: type[T]) -> T:
        value = self.pop(kind)
        self.stack.append(value)
        return value

    def pop_value(self) -> object:
        if not self.stack or isinstance(self.stack[-1], _Mark):
            raise _RefusedError(f"byte {self.at} was to be preceded by a value")
        return self.stack.pop()

    def pop_to_mark(self) -> list[object]:
        values: list[object] = []
        while self.stack and not isinstance(self.stack[-1], _Mark):
            values.append(self.stack.pop())
        self.pop(_Mark)
        return values[::-1]


# The effects of the instructions, by name in Python's pickletools.


def _proto(machine: _Machine) -> None:
    if (version := machine.number("<B")) != 2:
        raise _RefusedError(f"its protocol is {version}, that of CIFAR is 2")


def _push(value: Callable[[_Machine], object]) -> Callable[[_Machine], None]:
    return lambda machine: machine.stack.append(value(machine))


def _put(form: str) -> Callable[[_Machine], None]:
    def put(machine: _Machine) -> None:
        machine.memo[machine.number(form)] = value = machine.pop_value()
        machine.stack.append(value)

    return put


def _get(form: str) -> Callable[[_Machine], None]:
    def get(machine: _Machine) -> None:
        if (index := machine.number(form)) not in machine.memo:
            raise _RefusedError(f"nothing was kept under {index}")
        machine.stack.append(machine.memo[index])

    return get


def _string(form: str) -> Callable[[_Machine], str | memoryview]:
    def string(machine: _Machine) -> str | memoryview:
        view = machine.take(machine.number(form))
        return str(view, "latin-1") if form == "<B" else view  # the long ones are the items of arrays: no copy

    return string


def _tuple(size: int) -> Callable[[_Machine], tuple[object, ...]]:
    return lambda machine: tuple([machine.pop_value() for _ in range(size)][::-1])


def _appends(machine: _Machine) -> None:
    values = machine.pop_to_mark()
    machine.top(list).extend(values)


def _setitems(machine: _Machine) -> None:
    values = machine.pop_to_mark()
    keys = [key for key in values[::2] if isinstance(key, str)]
    if 2 * len(keys) != len(values):
        raise _RefusedError(f"the dictionary before byte {machine.at} has a key that is not a string, or has no value")
    machine.top(dict).update(zip(keys, values[1::2], strict=True))


def _global(machine: _Machine) -> _Name:
    name = f"{machine.line()} {machine.line()}".replace("numpy._core", "numpy.core")  # as numpy 2 has it
    if name not in {known.value for known in _Name}:
        raise _RefusedError(f"it names {name.replace(' ', '.')!r}, which CIFAR does not")
    return _Name(name)


def _reduce(machine: _Machine) -> _Array | _Uint8:
    arguments, function = machine.pop(tuple), machine.pop(_Name)
    if function is _Name.RECONSTRUCT and len(arguments) == 3 and arguments[0] is _Name.NDARRAY:
        return _Array()
    if function is _Name.DTYPE and len(arguments) == 3 and isinstance(arguments[0], str) and arguments[0] == "u1":
        return _Uint8()
    raise _RefusedError(f"byte {machine.at} was to make something other than an array of uint8")


def _build(machine: _Machine) -> None:
    state, built = machine.pop(tuple), machine.pop_value()
    machine.stack.append(built)
    if isinstance(built, _Uint8):  # its state is the same for all uint8
        return
    if not isinstance(built, _Array) or len(state) != 5:
        raise _RefusedError(f"byte {machine.at} was to build something other than an array")
    _, shape, dtype, column_major, items = state
    if not isinstance(dtype, _Uint8) or column_major is not False or not isinstance(items, memoryview):
        raise _RefusedError(f"the array before byte {machine.at} is not a row-major one of uint8")
    built.items = np.frombuffer(items, np.uint8).reshape(_shape(shape, len(items)))


def _shape(shape: object, size: int) -> tuple[int, ...]:
    sizes = tuple(side for side in shape if isinstance(side, int) and side > 0) if isinstance(shape, tuple) else ()
    if not isinstance(shape, tuple) or len(sizes) != len(shape) or len(sizes) != 2 or math.prod(sizes) != size:
        raise _RefusedError(f"its array of {size} bytes does not have the two sides that it declares")
    return sizes


INSTRUCTIONS: dict[bytes, Callable[[_Machine], None]] = {
    b"\x80": _proto,
    b"}": _push(lambda _: {}),
    b"]": _push(lambda _: []),
    b"(": _push(lambda _: _Mark()),
    b"N": _push(lambda _: None),
    b"\x89": _push(lambda _: False),
    b"U": _push(_string("<B")),
    b"T": _push(_string("<i")),
    b"K": _push(lambda machine: machine.number("<B")),
    b"M": _push(lambda machine: machine.number("<H")),
    b"J": _push(lambda machine: machine.number("<i")),
    b"q": _put("<B"),
    b"r": _put("<I"),
    b"h": _get("<B"),
    b"j": _get("<I"),
    b"\x85": _push(_tuple(1)),
    b"\x86": _push(_tuple(2)),
    b"\x87": _push(_tuple(3)),
    b"t": _push(lambda machine: tuple(machine.pop_to_mark())),
    b"e": _appends,
    b"u": _setitems,
    b"c": _push(_global),
    b"R": _push(_reduce),
    b"b": _build,
}
