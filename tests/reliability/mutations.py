"""Sound files made unsound: bits, bytes and numbers changed, parts cut off, taken out, doubled; the same for a seed.

What a checksum would refuse at once is mutated inside of it: see :data:`Pack`.
"""

from __future__ import annotations

import io
import json
import random
import struct
import tarfile
import zipfile
from collections.abc import Callable
from typing import Any

#: From what was mutated to a file, with whatever has to be right about it: lengths, checksums, compression.
Pack = Callable[[bytes], bytes]

#: Numbers on which programs stumble.
EDGES = (0, 1, 2, 127, 128, 255, 256, 2**15 - 1, 2**16 - 1, 2**31 - 1, 2**31, 2**32 - 1, 2**40, 2**63 - 1, 2**64 - 1)
FORMS = ("<B", "<H", ">H", "<I", ">I", "<Q", ">Q")
#: Stands for a number of more digits than Python shows, or writes itself.
LONG = "a number of 5,000 digits"
#: What may stand in a JSON or YAML file in the place of anything else.
VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1.5, 2**70, -(2**63), 1e308, float("nan"), float("inf"), "", "x", "../x", "\x00\ud800"),
    *(10**400, -(10**400), LONG),
    *([], {}, [[]], [None], {"": None}, [0, "a", None], {"a": {"b": []}}, "9" * 50),
)


def mutated(content: bytes, chance: random.Random) -> bytes:
    """A few changes of any kind."""
    changed = bytearray(content)
    for _ in range(chance.choice((1, 1, 1, 2, 3, 8))):
        chance.choice(CHANGES)(changed, chance)
    return bytes(changed)


def _flip(content: bytearray, chance: random.Random) -> None:
    if content:
        content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)


def _replace(content: bytearray, chance: random.Random) -> None:
    if content:
        content[chance.randrange(len(content))] = chance.randrange(256)


def _number(content: bytearray, chance: random.Random) -> None:
    """A number of a header, perhaps."""
    form = chance.choice(FORMS)
    size = struct.calcsize(form)
    at = chance.randrange(len(content) + 1)
    if chance.random() < 0.7:  # headers stand at the beginning
        at = min(at, chance.randrange(128))
    content[at : at + size] = struct.pack(form, chance.choice(EDGES) % 256**size)


def _digits(content: bytearray, chance: random.Random) -> None:
    """A number that is written out."""
    places = [at for at, byte in enumerate(content[:4096]) if 48 <= byte < 58]
    if places:
        at = chance.choice(places)
        content[at : at + 1] = str(chance.choice((*EDGES, -1, 10**30))).encode()


def _truncate(content: bytearray, chance: random.Random) -> None:
    del content[chance.randrange(len(content) + 1) :]


def _cut(content: bytearray, chance: random.Random) -> None:
    start = chance.randrange(len(content) + 1)
    del content[start : start + chance.choice((1, 4, 64, 512))]


def _double(content: bytearray, chance: random.Random) -> None:
    start = chance.randrange(len(content) + 1)
    content[start:start] = content[start : start + chance.choice((1, 4, 64, 512, 4096))]


def _insert(content: bytearray, chance: random.Random) -> None:
    start = chance.randrange(len(content) + 1)
    content[start:start] = chance.randbytes(chance.choice((1, 4, 64)))


def _overwrite(content: bytearray, chance: random.Random) -> None:
    """A part by another one."""
    if content:
        start, other, size = (chance.randrange(len(content)) for _ in range(3))
        content[start : start + size % 512] = content[other : other + size % 512]


CHANGES = (_flip, _replace, _number, _digits, _truncate, _cut, _double, _insert, _overwrite)


def mutated_value(value: Any, chance: random.Random) -> Any:
    """What JSON or YAML may hold, with something in it replaced, taken out, doubled or renamed."""
    if not isinstance(value, dict | list) or not value or chance.random() < 0.2:
        return chance.choice(VALUES)
    kept = list(value.items()) if isinstance(value, dict) else list(enumerate(value))
    at = chance.randrange(len(kept))
    key, inner = kept[at]
    how = chance.random()
    if how < 0.6:
        kept[at] = (key, mutated_value(inner, chance))
    elif how < 0.75:
        del kept[at]
    elif how < 0.85:
        kept.append((key if isinstance(key, int) else f"{key}x", inner))
    else:
        kept[at] = (chance.choice(("", "x", "__class__", "extends")), inner)
    return dict(kept) if isinstance(value, dict) else [inner for _, inner in kept]


def as_json(value: Any) -> bytes:
    return json.dumps(value).replace(f'"{LONG}"', 5000 * "9").encode()


def checksummed_tar(content: bytes) -> bytes:
    """The checksums of all headers made right, wherever one may stand."""
    changed = bytearray(content)
    for start in range(0, len(changed) - 511, 512):
        header = changed[start : start + 512]
        if any(header[:100]) and header[257:262] == b"ustar":
            header[148:156] = b" " * 8
            changed[start + 148 : start + 156] = b"%06o\0 " % sum(header)
    return bytes(changed)


def tar_of(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


def in_zip(archive: bytes, name: str) -> tuple[bytes, Pack]:
    """A member of a zip file, and how a zip file with another one in its place is made, as sound as before."""
    with zipfile.ZipFile(io.BytesIO(archive)) as source:
        members = {member.filename: source.read(member) for member in source.infolist()}

    def pack(content: bytes) -> bytes:
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w") as target:
            for other, kept in members.items():
                target.writestr(other, content if other == name else kept)
        return buffer.getvalue()

    return members[name], pack


def in_safetensors(file: bytes) -> tuple[bytes, Pack]:
    """The header of a safetensors file, and how a file with another header is made."""
    size = int.from_bytes(file[:8], "little")
    return file[8 : 8 + size], lambda header: len(header).to_bytes(8, "little") + header + file[8 + size :]
