"""Reading files of ``torch.save`` that need not be trusted: tensors and plain values alone, in bounded memory.

``torch.load(weights_only=True)`` runs no code of a file. But it does not look at checksums, inflates what is compressed
without a limit, finds other parts in a crafted archive than Python does, lets a pickle ask for a ``bytearray`` of any
size, and lets a few bytes stand for any number of values. So it is given an archive that is packed here, of parts that
were looked at, and what it gives back is counted; tuples, whose hash takes as long as they are, before it gets them.
"""

from __future__ import annotations

import io
import mmap
import os
import pickletools
import warnings
import zipfile
from collections.abc import Iterable
from itertools import chain
from pathlib import Path
from typing import IO, Any

import torch
from torch import Tensor

__all__ = ["VALUES_PER_BYTE", "read_torch"]

#: Files with more values per byte, those repeated by a stride of 0 included, are refused; a value takes a byte or more.
VALUES_PER_BYTE = 4
#: The number of pickles before the numbers in files that torch wrote before version 1.6.
OLD_PICKLES = 5
_MARK = 0


def read_torch(path: str | os.PathLike[str]) -> Any:
    """Return the content of a file, on the CPU.

    Raises:
        Exception: of any kind; the caller says what was expected.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     torch.save({"a": torch.ones(2)}, f"{folder}/some.pt")
        ...     read_torch(f"{folder}/some.pt")
        {'a': tensor([1., 1.])}
    """
    path = Path(path)
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        if content.find(b"bytearray") >= 0:
            raise ValueError("it asks for memory of its own, a bytearray, which no tensor needs")
        size, archive = len(content), content[:4] == b"PK\3\4"  # as torch decides, too
    if archive:
        source: io.BytesIO | Path = _repacked(path, size)
    else:  # what torch wrote before version 1.6
        source = path
        with path.open("rb") as file:
            for _ in range(OLD_PICKLES):
                if file.peek(1):
                    _check_tuples(file, VALUES_PER_BYTE * size)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch refuses right after what it warns of (a TorchScript archive)
        state = torch.load(source, map_location="cpu", weights_only=True)
    if (values := _count(state, {})) > VALUES_PER_BYTE * size:
        raise ValueError(f"its {size} bytes stand for {values} values, more than {VALUES_PER_BYTE} each")
    return state


def _repacked(path: Path, size: int) -> io.BytesIO:
    """Pack an archive again, with its parts and nothing else: two readers of a crafted one may find different parts."""
    packed = io.BytesIO()
    with zipfile.ZipFile(path) as archive, zipfile.ZipFile(packed, "w") as target:
        members = archive.infolist()
        if len({member.filename for member in members}) != len(members):
            raise zipfile.BadZipFile("it has two parts of the same name")
        stored = all(member.compress_type == zipfile.ZIP_STORED for member in members)
        if not stored or sum(member.file_size for member in members) > size:
            raise zipfile.BadZipFile("its parts are compressed, or overlap, as torch never writes them")
        for member in members:
            content = archive.read(member)  # which compares the checksum
            if member.filename.endswith(".pkl"):
                _check_tuples(io.BytesIO(content), VALUES_PER_BYTE * size)
            target.writestr(member.filename, content)
    packed.seek(0)
    return packed


def _check_tuples(pickled: IO[bytes], most: int) -> None:
    """Refuse a pickle with a tuple of more than ``most`` values; shared values count wherever they occur.

    As the key of a dictionary, a tuple of one tuple twice, of one twice, and so on forty times, takes hours to hash.
    The unpickler of torch has no other way than the memo to have something twice.
    """
    stack: list[int] = []  # how many values each object is, as far as tuples go; a mark is 0
    memo: dict[Any, int] = {}
    for opcode, argument, _ in pickletools.genops(pickled):
        if "PUT" in opcode.name or opcode.name == "MEMOIZE":
            memo[len(memo) if argument is None else argument] = stack[-1]
            continue
        if "GET" in opcode.name:
            stack.append(memo[argument])
            continue
        taken, before = [], opcode.stack_before
        if pickletools.markobject in before:
            while (each := stack.pop()) != _MARK:
                taken.append(each)
            before = before[: before.index(pickletools.markobject)]
        taken += [stack.pop() for _ in before]
        values = 1 + sum(taken) if "TUPLE" in opcode.name else 1
        if values > most:
            raise ValueError(f"it has a tuple of {values} values, more than a file of its size has")
        stack += [_MARK if each is pickletools.markobject else values for each in opcode.stack_after]


def _count(value: Any, known: dict[int, int]) -> int:
    """The number of values in an object; shared values count wherever they occur."""
    if isinstance(value, Tensor):
        return value.numel()
    if not isinstance(value, dict | list | tuple | set | frozenset):
        return 1
    if id(value) not in known:
        known[id(value)] = 0
        parts: Iterable[Any] = chain.from_iterable(value.items()) if isinstance(value, dict) else value
        known[id(value)] = 1 + sum(_count(part, known) for part in parts)
    if not known[id(value)]:
        raise ValueError("it has a value that contains itself")
    return known[id(value)]
