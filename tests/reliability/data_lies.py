"""Files of data sets that are more than they seem."""

from __future__ import annotations

import gzip
import io
import lzma
import struct
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
from PIL import Image

from tests.lab.data.scans import drawn_over
from tests.lab.data.vqa.files import picture
from tests.reliability.data_loaders import EASY
from tests.reliability.mutations import tar_of

#: The loader and the files, by what they declare.
Lies = dict[str, tuple[str, Callable[[], dict[str, bytes]]]]


def idx(*shape: int) -> bytes:
    return bytes([0, 0, 8, len(shape)]) + struct.pack(f">{len(shape)}I", *shape)


def npy(shape: tuple[int, ...], kind: str = "|u1") -> bytes:
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(file, {"descr": kind, "fortran_order": False, "shape": shape})
    return file.getvalue()


def zipped(**members: bytes) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(f"{name}.npy", content)
    return file.getvalue()


def png(width: int, height: int) -> bytes:
    """An image of 10 by 10 pixels that says otherwise."""
    content = bytearray(picture((10, 10)))
    content[16:24] = struct.pack(">II", width, height)
    content[29:33] = struct.pack(">I", zlib.crc32(content[12:29]))
    return bytes(content)


def blank(width: int, height: int) -> bytes:
    """An image that is as large as it says, of one colour."""
    file = io.BytesIO()
    Image.new("L", (width, height)).save(file, "PNG")
    return file.getvalue()


def chain(kind: bytes, length: int) -> bytes:
    """Headers that tarfile reads each inside of the one before it."""
    member = tarfile.TarInfo("chain")
    member.type, member.size = kind, 9
    link = member.tobuf(tarfile.GNU_FORMAT) + b"9 path=x\n".ljust(512, b"\0")
    return length * link + tar_of({"a": b"b"})


def declaring(size: int) -> bytes:
    member = tarfile.TarInfo("large")
    member.size = size
    return member.tobuf(tarfile.GNU_FORMAT) + bytes(4096)


def members(count: int) -> bytes:
    """A packed archive of so many empty files."""
    header = bytearray(tarfile.TarInfo("0000000").tobuf(tarfile.USTAR_FORMAT))
    content = bytearray()
    for number in range(count):
        header[:7], header[148:156] = b"%07d" % number, b" " * 8
        header[148:156] = b"%06o\0 " % sum(header)
        content += header
    return lzma.compress(bytes(content) + bytes(1024), preset=0)


def hdf5(images: int) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        with h5py.File(path := Path(folder, "f"), "w") as file:
            file.create_dataset("features", (images, 3, 4), "f4", chunks=(1, 3, 4))
            for name in ("num_boxes", "image_ids"):
                file.create_dataset(name, (images,), "i8", chunks=(1000,))
        return path.read_bytes()


QUICK: Lies = {
    "an idx file of 4 GB": ("idx", lambda: {"f": idx(4_000_000_000)}),
    "an idx file of 1 GB": ("idx", lambda: {"f": idx(2**30)}),
    "an idx file of 32 dimensions": ("idx", lambda: {"f": idx(*[2**32 - 1] * 32)}),
    "a gzip stream of 300 MB": ("idx", lambda: {"f": gzip.compress(idx(1000) + bytes(300_000_000), 1)}),
    "a PNG of 4 billion pixels": ("image", lambda: {"f": png(65_535, 65_535)}),
    "a PNG of 64 million pixels that ends early": ("image", lambda: {"f": png(8000, 8000)}),
    "a JPEG of 20,000 scans": ("image", lambda: {"f": drawn_over(20_000, (2000, 2000))}),
    "a tar member of 1 TB": ("tar archive", lambda: {"f": declaring(2**40)}),
    "a chain of 3,000 long names": ("tar archive", lambda: {"f": chain(tarfile.GNUTYPE_LONGNAME, 3000)}),
    "a chain of 3,000 extended headers": ("tar archive", lambda: {"f": chain(tarfile.XHDTYPE, 3000)}),
    "a chain of 3,000 global headers": ("tar archive", lambda: {"f": chain(tarfile.XGLTYPE, 3000)}),
    "JSON of a million brackets": ("VQA JSON", lambda: {"q": b"[" * 10**6}),
    "a number of 10,000 digits": ("answers", lambda: {"f": b'{"a": ' + b"9" * 10_000 + b"}"}),
    "a npz array of 128 TB": ("npz", lambda: {"f": zipped(x=npy((16, 10**12), "<f8"))}),
    "a npz array of 300 MB after its end": ("npz", lambda: {"f": zipped(x=npy((16, 9), "<f8") + bytes(300_000_000))}),
    "an HDF5 file of ten million images": ("HDF5", lambda: {"f": hdf5(10**7)}),
    "a npy array beyond all addresses": ("npz", lambda: {"f": zipped(x=npy((16, 10**20), "<f8"))}),
    "a line of 10 MB": ("GloVe", lambda: {"f": b"red " + b"1" * 10**7}),
    "500 images of 10 million pixels": (
        "easy-VQA",
        lambda: {"easy-vqa.tar.xz": lzma.compress(tar_of(EASY | _large(500)), preset=0)},
    ),
}
SLOW: Lies = {
    "an archive of more than 1 GiB": ("tar archive", lambda: {"f": lzma.compress(bytes(2**30 + 1024), preset=0)}),
    "an archive of 1 GiB of padding": ("tar archive", lambda: {"f": lzma.compress(_padded(2**30), preset=0)}),
    "an archive of 300,000 files": ("tar archive", lambda: {"f": members(300_000)}),
    "JSON of 40 million lists": ("VQA JSON", lambda: {"q": lzma.compress(b"[" + b"[]," * 40_000_000, preset=0)}),
}


def _large(count: int) -> dict[str, bytes]:
    image = blank(4000, 2500)
    return {f"test/images/{number}.png": image for number in range(count)}


def _padded(size: int) -> bytes:
    return tar_of({"a": b"b"}).ljust(size, b"\0")
