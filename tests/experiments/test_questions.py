"""Examples of visual question answering, from small files in the official format."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from contextual_dropout.data import DataError
from contextual_dropout.data.vqa.features import FEATURES
from contextual_dropout.experiments import questions
from contextual_dropout.experiments.config import RunConfig
from contextual_dropout.experiments.errors import ConfigError
from contextual_dropout.experiments.evaluation import evaluate
from contextual_dropout.experiments.methods import build_model
from contextual_dropout.experiments.questions import load_question_examples
from tests.data.vqa.files import annotation, question, write_official

#: Nobody is right who answers "0" to these, and yet a network is to learn it: "none" is 0.
NONE = ("none",) * 9 + ("no-one",)


def config(**changes: object) -> RunConfig:
    values: dict[str, object] = {"data": "vqa-v2", "task": "soft-answers", "network": "mcan", "samples": 2}
    values |= {"network_options": {"size": "tiny", "words": 20}, "test_batch_size": 2, **changes}
    return RunConfig("vqa", "original", "mc-bernoulli", 0, **values)  # type: ignore[arg-type]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Three questions on image 9, to train on and to validate."""
    folder = tmp_path / "vqa-v2"
    for split, part in (("train", "train2014"), ("val", "val2014")):
        (folder / f"features-{split}").mkdir(parents=True)
        np.savez(folder / f"features-{split}" / "9.npz", x=np.ones((FEATURES, 2), np.float32))
        asked = [question(number) for number in (1, 2, 3)]
        given = [annotation(1), annotation(2, answers=NONE), annotation(3)]
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
