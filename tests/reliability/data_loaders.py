"""The loaders of data sets."""

from __future__ import annotations

import gzip
import lzma
from pathlib import Path

import h5py
import numpy as np
import torch

from contextual_dropout_lab.data import load, read_folder, read_idx
from contextual_dropout_lab.data.formats.jpeg_png import decode
from contextual_dropout_lab.data.formats.tar import read_tar
from contextual_dropout_lab.data.image_folder import ANNOTATIONS
from contextual_dropout_lab.data.vqa import (
    Hdf5Features,
    daquar,
    easy_vqa,
    read_answers,
    read_questions,
    read_regions,
    read_vectors,
)
from contextual_dropout_lab.data.vqa.words import WordVocabulary
from tests.lab.data.files import idx_bytes
from tests.lab.data.pickled import NAMES, batch, pickled
from tests.lab.data.vqa.files import annotation, picture, question
from tests.reliability.loaders import Loader, only, part, value, written
from tests.reliability.mutations import as_json, checksummed_tar, in_zip, tar_of

ASKED, ANSWERED = {"questions": [question(1), question(2)]}, {"annotations": [annotation(1), annotation(2)]}
EASY = {"answers.txt": b"red\nblue", "test/images/0.png": picture(), "test/questions.json": b'[["what?", "red", 0]]'}
ROOMS = {
    "all_qa_pairs.txt": b"what is on the left in the image1 ?\ntable, chair\n",
    "test_images_list.txt": b"image1\n",
    "images_160x121.tar": tar_of({"images/image1.jpg": picture((160, 121), "JPEG")}),
}


def images() -> dict[str, Loader]:
    idx = idx_bytes(np.arange(24, dtype=np.int16).reshape(2, 3, 4))
    cifar, meta = batch(3)[0], pickled({"label_names": NAMES["cifar10"]})
    names = ("train/cat/1.png", "train/dog/1.jpg", "val/cat/2.png", "val/dog/2.jpg")
    archive = tar_of({name: picture(format="PNG" if name.endswith("png") else "JPEG") for name in names})
    sorted_by_list = {f"train/{name}/images/1.png": picture() for name in ("cat", "dog")} | {
        "val/images/1.png": picture()
    }
    pictures = (part("f", picture((30, 20))), part("f", picture((30, 20), "JPEG")))
    return {
        "idx": Loader((part("f", idx), part("f", gzip.compress(idx)), part("f", idx, gzip.compress)), only(read_idx)),
        "CIFAR pickle": Loader(
            (part("test_batch", cifar), part("test_batch", cifar, lzma.compress), part("batches.meta", meta)),
            lambda folder: load("cifar10", "test", folder),
            beside=(("test_batch", cifar), ("batches.meta", meta)),
        ),
        "image": Loader(pictures, only(lambda path: decode(path.read_bytes(), 16, "image"))),
        "tar archive": Loader((part("f", archive), part("f", archive, checksummed_tar)), only(read_tar)),
        "image folder": Loader(
            (part("f", archive, checksummed_tar), part("f", archive, lzma.compress)),
            only(lambda path: read_folder(path, "val", 8)),
        ),
        "annotations": Loader(
            (part(ANNOTATIONS, b"1.png\tdog\t0\t0\t62\t63\n"),),
            lambda folder: read_folder(folder, "val", 8),
            beside=tuple(sorted_by_list.items()),
        ),
    }


def questions() -> dict[str, Loader]:
    arrays = {"x": np.ones((16, 3), np.float32), "num_bbox": np.array(3), "bbox": np.zeros((3, 4))}
    npz = written(lambda folder: np.savez(folder / "f.npz", **arrays))  # type: ignore[arg-type]
    easy = tar_of(EASY)
    return {
        "VQA JSON": Loader(
            (value("q", ASKED), value("a", ANSWERED), part("q", as_json(ASKED)), part("a", as_json(ANSWERED))),
            lambda folder: read_questions(folder / "q", folder / "a"),
            beside=(("q", as_json(ASKED)), ("a", as_json(ANSWERED))),
        ),
        "answers": Loader(
            (value("f", {"yes": 0, "no": 1}), part("f", b'[{"yes": 0}, {"0": "yes"}]')), only(read_answers)
        ),
        "npz": Loader(
            (part("f", npz), part("f", *in_zip(npz, "x.npy")), part("f", *in_zip(npz, "num_bbox.npy"))),
            only(lambda path: read_regions(path, 16)),
        ),
        "HDF5": Loader((part("f", written(_hdf5)),), only(_read_hdf5)),
        "GloVe": Loader((part("f", b"red 1 0\nblue 0 -1\n"),), only(_read_glove)),
        "easy-VQA": Loader(
            (part("easy-vqa.tar", easy, checksummed_tar), part("easy-vqa.tar.gz", easy, gzip.compress)),
            lambda folder: easy_vqa("test", folder),
        ),
        "DAQUAR": Loader(
            tuple(part(name, content) for name, content in ROOMS.items()),
            lambda folder: daquar("test", folder),
            beside=tuple(ROOMS.items()),
        ),
    }


def _hdf5(folder: Path) -> None:
    with h5py.File(folder / "f", "w") as file:
        file["features"] = np.ones((2, 3, 4), np.float32)
        file["num_boxes"], file["image_ids"] = np.array([3, 2]), np.array([7, 9])


def _read_hdf5(path: Path) -> object:
    features = Hdf5Features(path, size=4, regions=2)
    return features.load(sorted(features.image_ids))


def _read_glove(path: Path) -> object:
    return read_vectors(path, WordVocabulary(("red", "blue")), torch.Generator(), size=2)
