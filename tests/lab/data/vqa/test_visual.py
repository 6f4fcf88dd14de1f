"""easy-VQA and DAQUAR, small and real."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch

from contextual_dropout_lab.data import DataError
from contextual_dropout_lab.data.vqa import VisualQuestions, daquar, easy_vqa, visual
from contextual_dropout_lab.data.vqa.visual import decode_whole, stack_images
from tests.lab.data.vqa.files import pack, picture


def easy_files(questions: Any = None) -> dict[str, bytes]:
    asked = [["what is it?", "circle", 10], ["is it red?", "yes", 2]] if questions is None else questions
    images = {f"easy-vqa/train/images/{number}.png": picture((8, 8), seed=number) for number in (0, 10, 2)}
    return images | {
        "easy-vqa/answers.txt": b"circle\nyes\nno",
        "easy-vqa/train/questions.json": json.dumps(asked).encode(),
    }


def daquar_files(folder: Path, pairs: str, listed: str = "image3\nimage1\n") -> Path:
    (folder / "daquar").mkdir(exist_ok=True)
    (folder / "daquar" / "all_qa_pairs.txt").write_text(pairs)
    (folder / "daquar" / "train_images_list.txt").write_text(listed)
    images = {f"images/image{number}.jpg": picture(format="JPEG", seed=number) for number in (1, 2, 3)}
    pack(images, folder / "daquar" / "images_160x121.tar.xz")
    return folder


def test_easy_vqa_packed_or_not(tmp_path: Path) -> None:
    pack(easy_files(), tmp_path / "easy-vqa.tar.xz")
    packed = easy_vqa("train", tmp_path)
    for name, content in easy_files().items():
        (tmp_path / "unpacked" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "unpacked" / name).write_bytes(content)
    assert easy_vqa("train", tmp_path / "unpacked").sha256 == packed.sha256
    assert packed.images.shape == (3, 3, 8, 8)
    assert (packed.questions, packed.answers) == (("what is it?", "is it red?"), (("circle",), ("yes",)))
    assert packed.answer_types.tolist() == [2, 0]
    expected = [decode_whole(picture((8, 8), seed=number), "") for number in (10, 2)]
    assert torch.equal(packed.images[packed.rows], torch.stack(expected))


@pytest.mark.parametrize(
    ("questions", "message"),
    [
        ({}, "is not a list"),
        ([["what?", "circle"]], "entry 0 of train/questions.json is"),
        ([["what?", "circle", 3]], "the id of an image"),
        ([["what?", "circle", "0"]], "the id of an image"),
        ([["what?", "square", 0]], "an answer of answers.txt"),
        ([["what?", "circle", 0], 7], "entry 1"),
    ],
)
def test_easy_vqa_refuses(tmp_path: Path, questions: Any, message: str) -> None:
    pack(easy_files(questions), tmp_path / "easy-vqa.tar.xz")
    with pytest.raises(DataError, match=message):
        easy_vqa("train", tmp_path)


@pytest.mark.parametrize("name", ["easy-vqa/answers.txt", "easy-vqa/train/questions.json"])
def test_easy_vqa_without_a_part_is_refused(tmp_path: Path, name: str) -> None:
    pack({key: content for key, content in easy_files().items() if key != name}, tmp_path / "easy-vqa.tar.xz")
    with pytest.raises(DataError, match=f"has no {name.removeprefix('easy-vqa/')}"):
        easy_vqa("train", tmp_path)


def test_images_that_are_damaged_or_of_another_size_are_named(tmp_path: Path) -> None:
    for content, message in ((b"no image", "cannot be decoded"), (picture((8, 9)), r"2\.png is \(3, 9, 8\): expected")):
        pack(easy_files() | {"easy-vqa/train/images/2.png": content}, tmp_path / "easy-vqa.tar.xz")
        with pytest.raises(DataError, match=message):
            easy_vqa("train", tmp_path)


def test_daquar_questions_lose_the_number_of_their_image(tmp_path: Path) -> None:
    pairs = "what is in the image1 ?\nchair\nhow many in the image2 ?\n2\nin image3 left of image3 ?\nred, two_chairs"
    data = daquar("train", daquar_files(tmp_path, pairs))
    assert data.questions == ("what is in the image ?", "in image left of image ?")
    assert data.answers == (("chair",), ("red", "two_chairs"))
    assert data.rows.tolist() == [1, 0]
    assert data.images.shape == (2, 3, 6, 8)
    assert torch.equal(data.images[0], decode_whole(picture(format="JPEG", seed=3), ""))


@pytest.mark.parametrize(
    ("pairs", "listed", "message"),
    [
        ("what is in the image1 ?\n", "image1", "has 1 lines: expected an even number"),
        ("what is it ?\nchair", "image1", "lines 1 and 2 are 'what is it [?]' and 'chair'"),
        ("image1 or image2 ?\nchair", "image1", "the name of one image"),
        ("in the image1 ?\n\n", "image1", "and answers"),
        ("in the image1 ?\nred, ", "image1", "and answers"),
        ("in the image1 ?\nred", "image1\nimage4", r"has no images/image4\.jpg, of train_images_list\.txt"),
        ("in the image1 ?\nred", "", "there are no images"),
    ],
)
def test_daquar_refuses(tmp_path: Path, pairs: str, listed: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        daquar("train", daquar_files(tmp_path, pairs, listed))


def test_many_large_images_are_refused_after_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(visual, "MAX_MEMORY", 1000)
    decoded = []

    def images() -> Iterator[torch.Tensor]:
        for number in range(10):
            decoded.append(number)
            yield torch.zeros(3, 10, 10, dtype=torch.uint8)

    with pytest.raises(DataError, match="10 images like 0 take 3000 bytes: expected at most 1000"):
        stack_images(images(), "0123456789")
    assert decoded == [0]
    assert stack_images(islice(images(), 3), "012").shape == (3, 3, 10, 10)


@pytest.mark.parametrize("read", [easy_vqa, daquar])
def test_sets_that_are_nowhere_and_other_splits_are_named(tmp_path: Path, read: Any) -> None:
    with pytest.raises(DataError, match=r"is in none of these places:(?s:.*)CONTEXTUAL_DROPOUT_DATA"):
        read("train", tmp_path)
    with pytest.raises(DataError, match="has no split 'all': expected one of train"):
        read("all", tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"images": torch.zeros(1, 1, 2, 2, dtype=torch.uint8)}, r"expected \(M, 3, H, W\)"),
        ({"images": torch.zeros(1, 3, 2, 2)}, "of torch.uint8"),
        ({"rows": torch.tensor([0, 1])}, "rows are 0 to 1: expected 0 to 0"),
        ({"rows": torch.tensor([0])}, "expected as many of each"),
        ({"rows": torch.tensor([0.0, 0.0])}, "rows of torch.int64"),
        ({"answers": (("yes",), ())}, "has no answer"),
    ],
)
def test_questions_that_do_not_fit_are_refused(change: dict[str, Any], message: str) -> None:
    sound: dict[str, Any] = {
        "images": torch.zeros(1, 3, 2, 2, dtype=torch.uint8),
        "rows": torch.tensor([0, 0]),
        "questions": ("is it?", "what?"),
        "answers": (("yes",), ("cat",)),
    }
    data = VisualQuestions(**sound)
    assert data.subset([1, 0]).questions == ("what?", "is it?")
    assert data.subset([]).rows.shape == (0,)
    assert data.subset([1, 0]).sha256 != data.sha256 == data.subset([0, 1]).sha256
    with pytest.raises(DataError, match=message):
        VisualQuestions(**sound | change)


REAL = {
    ("easy-vqa", "train"): ((4000, 3, 64, 64), 38_575, [28_407, 0, 10_168]),
    ("easy-vqa", "test"): ((1000, 3, 64, 64), 9_673, [7_136, 0, 2_537]),
    ("daquar", "train"): ((795, 3, 121, 160), 6_795, [0, 910, 5_885]),
    ("daquar", "test"): ((654, 3, 121, 160), 5_673, [0, 784, 4_889]),
}


@pytest.mark.parametrize(("name", "split"), REAL)
def test_the_stored_sets(real: Path, name: str, split: str) -> None:
    if not (real / name).is_dir():
        pytest.skip(f"no {name} here")
    data = {"easy-vqa": easy_vqa, "daquar": daquar}[name](split, real)
    assert (tuple(data.images.shape), len(data), data.answer_types.bincount().tolist()) == REAL[name, split]
