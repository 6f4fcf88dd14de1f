from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from contextual_dropout_lab.data import DataError
from contextual_dropout_lab.data.vqa import (
    AnswerVocabulary,
    build_answers,
    mcan_answers,
    normalize_answer,
    read_answers,
)


def test_all_stored_forms_are_the_same_vocabulary(tmp_path: Path) -> None:
    index = {"no": 1, "yes": 0, "": 2}
    forms: list[Any] = [["yes", "no", ""], index, [index, {str(number): name for name, number in index.items()}]]
    for form in forms:
        (tmp_path / "answers.json").write_text(json.dumps(form))
        assert read_answers(tmp_path / "answers.json").answers == ("yes", "no", "")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (3, "is not a vocabulary"),
        ({"yes": 0, "no": 2}, "is not a vocabulary"),
        ({"yes": 0, "no": 0}, "is not a vocabulary"),
        ({"yes": 0, "no": True}, "is not a vocabulary"),
        ({"yes": "0"}, "is not a vocabulary"),
        ([{"yes": 1}, {}], "is not a vocabulary"),
        (["yes", 1], "is not a vocabulary"),
        (["yes", "yes"], "'yes' is there twice"),
        ([], "there are no answers"),
        ({}, "there are no answers"),
    ],
)
def test_other_content_is_refused(tmp_path: Path, content: Any, message: str) -> None:
    (tmp_path / "answers.json").write_text(json.dumps(content))
    with pytest.raises(DataError, match=message):
        read_answers(tmp_path / "answers.json")


def test_a_vocabulary_is_built_of_normalised_answers_in_any_order() -> None:
    answers = ["Two", "2", "a cat.", "cat", "Dog", "no"] * 3
    built = build_answers(answers, min_count=6)
    assert built.answers == ("2", "cat")
    assert build_answers(answers[::-1], min_count=3).answers == ("2", "cat", "dog", "no")
    assert build_answers(["yes"] * 9 + ["no"] * 8).answers == ("yes",)
    with pytest.raises(DataError, match="is min_count too high"):
        build_answers(answers)


def test_indices_and_membership() -> None:
    vocabulary = AnswerVocabulary(("yes", "no"))
    assert [vocabulary.index[answer] for answer in vocabulary] == [0, 1]
    assert "no" in vocabulary
    assert 1 not in vocabulary


def test_the_3129_answers_are_normalised_and_those_of_lxmert(real: Path) -> None:
    folder = real / "vqa-v2-subset"
    if not folder.is_dir():
        pytest.skip("no vqa-v2-subset here")
    vocabulary = mcan_answers(real)
    assert len(vocabulary) == 3129
    assert vocabulary.answers[:4] == ("net", "pitcher", "orange", "yes")
    assert [normalize_answer(answer) for answer in vocabulary] == list(vocabulary)
    by_index, by_name = (read_answers(folder / f"trainval_{name}.json") for name in ("label2ans", "ans2label"))
    assert by_index == by_name != vocabulary
    assert set(by_index) == set(vocabulary)
