"""Pickles made to run code, and archives made to write elsewhere, do neither, whichever loader they are given to."""

from __future__ import annotations

import builtins
import io
import os
import pickle
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from contextual_dropout_lab.data import DataError, load, read_folder
from contextual_dropout_lab.data.formats.tar import read_tar
from contextual_dropout_lab.errors import ExperimentError
from contextual_dropout_lab.models import load_weights
from contextual_dropout_lab.store.files import load_tensors
from tests.lab.data.pickled import NAMES, pickled
from tests.lab.data.vqa.files import picture
from tests.reliability.mutations import in_zip
from tests.reliability.record import record

Make = Callable[[Any, int], bytes]


class Harm:
    """In a pickle, a call."""

    def __init__(self, function: Callable[..., object], *arguments: object) -> None:
        self.call = function, arguments

    def __reduce__(self) -> tuple[Any, ...]:
        return self.call


def harms(marker: Path) -> list[Harm]:
    """Calls that leave a file."""
    code = f"open({str(marker)!r}, 'w')"
    return [
        Harm(os.system, f"touch {marker}"),
        Harm(builtins.eval, code),
        Harm(builtins.exec, code),
        Harm(builtins.open, str(marker), "w"),
        Harm(os.mkdir, str(marker)),
        Harm(torch.save, 0, str(marker)),
    ]


def as_archive(content: Any, protocol: int) -> bytes:
    file = io.BytesIO()
    torch.save({"digest": torch.zeros(2)}, file)
    return in_zip(file.getvalue(), "archive/data.pkl")[1](pickle.dumps({"digest": content}, protocol))


def as_before_2020(content: Any, protocol: int) -> bytes:
    file = io.BytesIO()
    torch.save({"digest": content}, file, pickle_protocol=protocol, _use_new_zipfile_serialization=False)
    return file.getvalue()


#: The file's name, how it is made, how it is read, and what that promises to raise.
LOADERS: dict[str, tuple[str, Make, Callable[[Path], object], type[Exception]]] = {
    "checkpoint": ("f.pt", as_archive, load_tensors, ExperimentError),
    "checkpoint of before 2020": ("f.pt", as_before_2020, load_tensors, ExperimentError),
    "weights": ("f.pth", as_archive, lambda path: load_weights(nn.Linear(2, 2), path), ValueError),
    "weights of before 2020": ("f.pt", as_before_2020, lambda path: load_weights(nn.Linear(2, 2), path), ValueError),
    "CIFAR": ("test_batch", pickle.dumps, lambda path: load("cifar10", "test", path.parent), DataError),
}
#: Of the loaders that have held so far.
refused: dict[str, int] = {}


@pytest.mark.filterwarnings("ignore:Detected pickle protocol")
@pytest.mark.parametrize("loader", LOADERS)
def test_pickles_run_no_code(tmp_path: Path, loader: str) -> None:
    name, make, read, error = LOADERS[loader]
    marker, path, tried = tmp_path / "marker", tmp_path / "here" / name, 0
    path.parent.mkdir()
    (path.parent / "batches.meta").write_bytes(pickled({"label_names": NAMES["cifar10"]}))
    for harm in harms(marker):
        for content in (harm, [harm], {"data": (harm,)}):
            for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
                path.write_bytes(make(content, protocol))
                with pytest.raises(error):
                    read(path)
                assert not marker.exists()
                tried += 1
    pickle.loads(pickle.dumps(content))  # they are harmful indeed
    assert marker.exists()
    refused[loader] = tried
    if refused.keys() == LOADERS.keys():
        record(
            "files",
            "files-that-harm",
            "Pickles made to run code, given to the loaders of checkpoints, weights and CIFAR, are refused; none runs.",
            {"loaders": len(refused), "crafted pickles": sum(refused.values())},
        )


def packed(*members: tarfile.TarInfo) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        for member in members:
            content = picture() if member.isreg() else b""
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return file.getvalue()


def special(name: str, kind: bytes, target: str = "") -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type, member.linkname = kind, target
    return member


PLACE, ELSEWHERE = "train/cat/1.png", "/tmp/escaped-of-a-test.png"
ARCHIVES = {
    **{
        f"a path {path}": packed(tarfile.TarInfo(path), tarfile.TarInfo(PLACE))
        for path in (
            "../escaped.png",
            "/tmp/escaped-of-a-test.png",
            "train/cat/../../../escaped.png",
            "train/../../x.png",
        )
    },
    "a symbolic link": packed(special("train", tarfile.SYMTYPE, ".."), tarfile.TarInfo(PLACE)),
    "a hard link": packed(special("train/cat/2.png", tarfile.LNKTYPE, "/etc/passwd"), tarfile.TarInfo(PLACE)),
    "a device": packed(special("train/cat/2.png", tarfile.CHRTYPE), tarfile.TarInfo(PLACE)),
    "a pipe": packed(special("train/cat/2.png", tarfile.FIFOTYPE), tarfile.TarInfo(PLACE)),
}


READERS: dict[str, Callable[[Path], Any]] = {
    "tar archive": read_tar,
    "image folder": lambda path: read_folder(path, "train", 8),
}
#: Of the pairs of archive and reader that have held so far.
contained: set[tuple[str, str]] = set()


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("archive", ARCHIVES)
def test_archives_write_nothing(tmp_path: Path, archive: str, reader: str) -> None:
    (folder := tmp_path / "a" / "b").mkdir(parents=True)
    (folder / "f.tar").write_bytes(ARCHIVES[archive])
    try:
        found = READERS[reader](folder / "f.tar")
    except DataError:
        found = {}
    assert [path.name for path in sorted(tmp_path.rglob("*"))] == ["a", "b", "f.tar"]
    assert not Path(ELSEWHERE).exists()
    assert reader != "tar archive" or bytes(found[PLACE]) == picture()
    contained.add((archive, reader))
    if len(contained) == len(ARCHIVES) * len(READERS):
        record(
            "files",
            "files-that-escape",
            "Archives with paths that lead elsewhere, links, devices and pipes write nothing at all.",
            {"crafted archives": len(ARCHIVES), "loaders": len(READERS)},
        )
