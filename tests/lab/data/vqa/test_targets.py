from __future__ import annotations

from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from contextual_dropout_lab.data.vqa import (
    AnswerVocabulary,
    Score,
    answer_accuracy,
    any_match,
    capped,
    evaluated,
    leave_one_out,
    mcan_answers,
    soft_targets,
    vqa_v2_subset,
)

VOCABULARY = AnswerVocabulary(("cat", "2", "cow", "no", "t shirt"))


@pytest.mark.parametrize(
    ("score", "expected"),
    [
        (leave_one_out, [[0.9, 0.6, 0, 0.3, 0], [0, 1, 0, 0, 0], [0, 0, 0, 0, 0]]),
        (capped, [[1, 2 / 3, 0, 1 / 3, 0], [0, 1, 0, 0, 0], [0, 0, 0, 0, 0]]),
        (any_match, [[1, 1, 0, 1, 0], [0, 1, 0, 0, 0], [0, 0, 0, 0, 0]]),
    ],
)
def test_scores_by_hand(score: Score, expected: list[list[float]]) -> None:
    humans = [["cat"] * 2 + ["a cat"] + ["two", "2"] + ["no"] + ["dog"] * 4, ["Two"] * 10, ["dog"] * 10]
    targets = soft_targets(humans, VOCABULARY, score)
    torch.testing.assert_close(targets.dense(torch.arange(3)), torch.tensor(expected, dtype=torch.float32))
    torch.testing.assert_close(targets.dense(torch.tensor([2, 1])), torch.tensor(expected[:0:-1], dtype=torch.float32))


def test_questions_without_known_answers_and_no_questions() -> None:
    unknown = soft_targets([["dog"] * 10] * 2, VOCABULARY)
    assert unknown.dense(torch.tensor([1, 0])).tolist() == [[0.0] * 5] * 2
    none = soft_targets([], VOCABULARY)
    assert (len(none), none.dense(torch.tensor([], dtype=torch.int64)).shape) == (0, (0, 5))


@given(st.lists(st.lists(st.sampled_from(["cat", "two", "2", "t-shirt", "T-Shirt", "dog"]), min_size=10, max_size=10)))
def test_evaluated_targets_are_the_official_accuracies(humans: list[list[str]]) -> None:
    dense = soft_targets(humans, VOCABULARY, prepare=evaluated).dense(torch.arange(len(humans)))
    expected = [[answer_accuracy(answer, ten) for answer in VOCABULARY] for ten in humans]
    torch.testing.assert_close(dense, torch.tensor(expected).reshape(-1, 5))


def test_real_targets_are_the_official_accuracies(real: Path) -> None:
    if not (real / "vqa-v2-subset").is_dir():
        pytest.skip("no vqa-v2-subset here")
    data, vocabulary = vqa_v2_subset("test", real), mcan_answers(real)
    targets = soft_targets(data.answers, vocabulary, prepare=evaluated)
    dense = targets.dense(torch.arange(len(data)))
    assert dense.shape == (2_962, 3_129)
    frequent = [vocabulary.index[answer] for answer in ("yes", "no", "1", "2", "0", "white")]
    expected = [[answer_accuracy(vocabulary.answers[answer], ten) for answer in frequent] for ten in data.answers]
    torch.testing.assert_close(dense[:, frequent], torch.tensor(expected))
    best, answers = dense.max(1)
    given = [vocabulary.answers[answer] for answer in answers.tolist()]
    expected_best = [answer_accuracy(answer, ten) for answer, ten in zip(given, data.answers, strict=True)]
    torch.testing.assert_close(best, torch.tensor(expected_best))
