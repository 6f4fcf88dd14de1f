"""Examples of visual question answering, from small files in the official format."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch

from contextual_dropout_lab.data import DataError
from contextual_dropout_lab.data.vqa.region_features import FEATURES
from contextual_dropout_lab.errors import ConfigError
from contextual_dropout_lab.runs import questions
from contextual_dropout_lab.runs.config import RunConfig
from contextual_dropout_lab.runs.evaluation import evaluate
from contextual_dropout_lab.runs.methods import build_model
from contextual_dropout_lab.runs.questions import load_question_examples
from tests.lab.data.vqa.files import annotation, pack, picture, question, write_official

#: Nobody is right who answers "0" to these, and yet a network is to learn it: "none" is 0.
NONE = ("none",) * 9 + ("no-one",)
#: Two say cat: that is 2/3 by the paper's formula, and 0.6 by the official one.
TWO = ("cat",) * 2 + ("dog",) * 8


def config(**changes: object) -> RunConfig:
    values: dict[str, object] = {"data": "vqa-v2", "task": "soft-answers", "network": "mcan", "samples": 2}
    values |= {"network_options": {"size": "tiny", "words": 20}, "test_batch_size": 2, **changes}
    return RunConfig("vqa", "original", "mc-bernoulli", 0, **values)  # type: ignore[arg-type]


IMAGES = (9, 10)


def regions(image: int) -> np.ndarray:
    """Two regions of an image, (2, D)."""
    return np.full((2, FEATURES), image, np.float32)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Three questions on images 9, 9 and 10, to train on and to validate."""
    folder = tmp_path / "vqa-v2"
    for split, part in (("train", "train2014"), ("val", "val2014")):
        (folder / f"features-{split}").mkdir(parents=True)
        for image in IMAGES:
            np.savez(folder / f"features-{split}" / f"{image}.npz", x=regions(image).T)
        asked = [question(1), question(2), question(3, 10, "Where is it?")]
        given = [annotation(1), annotation(2, answers=NONE), annotation(3, 10, TWO)]
        paths = write_official(folder, asked, given)
        for path, name in zip(paths, ("v2_OpenEnded_mscoco_{}_questions", "v2_mscoco_{}_annotations"), strict=True):
            path.rename(folder / f"{name.format(part)}.json")
    answers = tmp_path / "vqa-v2-subset"
    answers.mkdir()
    (answers / "answer_dict.json").write_text(json.dumps([{"cat": 0, "0": 1}, {"0": "cat", "1": "0"}]))
    return tmp_path


def add_question_without_image(data: Path) -> None:
    for name, record in (("v2_OpenEnded_mscoco_{}_questions", question), ("v2_mscoco_{}_annotations", annotation)):
        path = data / "vqa-v2" / f"{name.format('val2014')}.json"
        content = json.loads(path.read_text())
        content[name.rpartition("_")[2]].append(record(4, 77))
        path.write_text(json.dumps(content))


def test_trained_on_normalised_answers_and_measured_by_the_official_rule(data: Path) -> None:
    examples = load_question_examples(config(), data)
    zero = examples.classes.index("0")
    trained, tested = (
        ((y[:, 0] == zero) * y[:, 1]).sum(1).tolist()  # how right "0" is
        for y in (examples.y, examples.test_y)
    )
    assert (trained, tested) == ([0, 1, 0], [0, 0, 0])


def test_trained_on_official_scores_and_measured_by_the_papers(data: Path) -> None:
    """MCAN's targets, which the paper's networks have, and the formula of its appendix C.2."""
    examples = load_question_examples(config(), data)
    cat = examples.classes.index("cat")
    trained, tested = (((y[2, 0] == cat) * y[2, 1]).sum().item() for y in (examples.y, examples.test_y))
    assert (trained, tested) == (pytest.approx(0.6), pytest.approx(2 / 3))


def test_features_of_one_file(data: Path) -> None:
    examples = load_question_examples(config(), data)
    expected = examples.x[:], examples.test_x[:]
    for split in ("train", "val"):
        shutil.rmtree(data / "vqa-v2" / f"features-{split}")
        with h5py.File(data / "vqa-v2" / f"features-{split}.h5", "w") as file:
            file["features"] = np.stack([regions(image) for image in IMAGES])
            file["num_boxes"], file["image_ids"] = np.array([2, 2]), np.array(IMAGES)
    found = load_question_examples(config(), data)
    assert torch.equal(found.x[:], expected[0])
    assert torch.equal(found.test_x[:], expected[1])
    assert found.x[:][:, :3, 0].tolist() == [[9, 9, 0], [9, 9, 0], [10, 10, 0]]


def test_validation_holds_images_out_of_the_training_part(data: Path) -> None:
    """Every fifth of them, with all questions on it; the part to test on is not read."""
    for path in data.glob("vqa-v2/*val*"):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    examples = load_question_examples(config(split="validation"), data)
    assert (examples.x[:][:, 0, 0].tolist(), examples.test_x[:][:, 0, 0].tolist()) == ([9, 9], [10])
    assert set(examples.sha256) == {"train", "validation"}


def test_questions_on_rooms(tmp_path: Path) -> None:
    """DAQUAR: one or several right answers, patches of 20 pixels from -1 to 1, what is beyond them cut off."""
    folder = tmp_path / "daquar"
    folder.mkdir()
    pairs = "what is in the image1 ?\nchair\nwhat is left of image2 ?\nred, chair\nwhat is in the image3 ?\nlamp\n"
    (folder / "all_qa_pairs.txt").write_text(pairs)
    (folder / "train_images_list.txt").write_text("image1\nimage2\n")
    (folder / "test_images_list.txt").write_text("image3\n")
    images = {f"images/image{number}.jpg": picture((41, 30), "JPEG", number) for number in (1, 2, 3)}
    pack(images, folder / "images_160x121.tar.xz")
    examples = load_question_examples(config(data="daquar"), tmp_path)
    assert examples.classes == ("chair", "red")
    right = [sorted(y[0][y[1] > 0].tolist()) for y in (*examples.y, *examples.test_y)]
    assert right == [[0], [0, 1], []]  # a lamp is nothing that was there to learn
    assert examples.x.shape == (2, 2, 3 * 20**2)
    assert -1 <= examples.x[:].min() < 0 < examples.x[:].max() <= 1
    model = build_model(config(data="daquar"), tuple(examples.x.shape[1:]), len(examples.classes))
    result, _ = evaluate(model, config(data="daquar"), examples)
    assert result["test"]["noise-0"]["accuracy"] == 0


def test_a_bad_record_is_an_error_or_counted_in_the_record(data: Path) -> None:
    add_question_without_image(data)
    with pytest.raises(DataError, match="question 4 is on image 77, which has no features"):
        load_question_examples(config(), data)
    sound = config(data="vqa-v2-sound")
    examples = load_question_examples(sound, data)
    assert len(examples.test_y) == 3
    model = build_model(sound, tuple(examples.x.shape[1:]), len(examples.classes))
    result, _ = evaluate(model, sound, examples)
    assert result["skipped"] == {"test": {"no image": 1}}


def test_some_of_the_questions(data: Path) -> None:
    examples = load_question_examples(config(test_examples=2), data)
    assert (len(examples.y), len(examples.test_y), len(examples.test_x)) == (3, 2, 2)


def test_more_than_fits_into_memory_is_refused_before_training(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    each = questions.BYTES * 2 * 2  # samples and answers
    monkeypatch.setattr(questions, "_memory", lambda: 2 * each)
    with pytest.raises(ConfigError, match=r"2 answers to 3 test questions .* set test_examples to 2 or less"):
        load_question_examples(config(), data)
    assert len(load_question_examples(config(test_examples=2), data).test_y) == 2


def test_of_the_full_size_it_is_what_the_paper_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    """214,354 questions and 3,129 answers."""
    monkeypatch.setattr(questions, "_memory", lambda: 64 * 10**9)
    with pytest.raises(ConfigError, match="take about 322 GB"):
        questions._require_memory(config(samples=20), 214_354, 3_129)
