"""Soft targets: how right every answer of the vocabulary would be."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from contextual_dropout_lab.data.vqa.answers import Prepare, Score, leave_one_out, normalized
from contextual_dropout_lab.data.vqa.vocabulary import AnswerVocabulary

__all__ = ["SoftTargets", "soft_targets"]


@dataclass(frozen=True, eq=False)
class SoftTargets:
    """The scores of N questions over A answers, at most M of which are not 0: 5 GB less for VQA v2 than (N, A).

    Attributes:
        answers: (N, M) int64, indices of answers.
        scores: (N, M) float32, theirs; 0 where a question has fewer than M.
        size: A.
    """

    answers: Tensor
    scores: Tensor
    size: int

    def __len__(self) -> int:
        return len(self.answers)

    def dense(self, rows: Tensor) -> Tensor:
        """The scores of the questions ``rows`` (B,) over all answers, (B, A)."""
        scores = self.scores[rows]
        return scores.new_zeros(len(scores), self.size).scatter_add_(1, self.answers[rows], scores)


def soft_targets(
    answers: Sequence[Sequence[str]],
    vocabulary: AnswerVocabulary,
    score: Score = leave_one_out,
    prepare: Prepare = normalized,
) -> SoftTargets:
    """``score(n_a, H)`` for every answer a that n_a of the H humans gave; answers outside the vocabulary are left out.

    Args:
        answers: those of the humans to each of N questions, as they are published.
        vocabulary: A normalised answers.
        score: :func:`~contextual_dropout_lab.data.vqa.leave_one_out` (0, 0.3, 0.6, 0.9, 1: the official one, and
            MCAN's), :func:`~contextual_dropout_lab.data.vqa.capped` (the paper's) or
            :func:`~contextual_dropout_lab.data.vqa.any_match` (one right answer).
        prepare: :func:`~contextual_dropout_lab.data.vqa.normalized` to train on, or
            :func:`~contextual_dropout_lab.data.vqa.evaluated` for the numbers of the official program.

    Returns:
        The targets; a question without a known answer has a row of zeros.

    Example:
        >>> humans = [["dog"] * 2 + ["A cat"] * 8, ["wolf"] * 10]
        >>> targets = soft_targets(humans, AnswerVocabulary(("cat", "cow", "dog")))
        >>> targets.dense(torch.tensor([0, 1]))
        tensor([[1.0000, 0.0000, 0.6000], [0.0000, 0.0000, 0.0000]])
    """
    rows = [_scores(prepare(humans), vocabulary.index, score) for humans in answers]
    width = max((len(row) for row in rows), default=0)
    padded = [list(row.items()) + [(0, 0.0)] * (width - len(row)) for row in rows]
    indices = torch.tensor([[index for index, _ in row] for row in padded], dtype=torch.int64)
    scores = torch.tensor([[value for _, value in row] for row in padded], dtype=torch.float32)
    return SoftTargets(indices.reshape(len(rows), width), scores.reshape(len(rows), width), len(vocabulary))


def _scores(humans: Sequence[str], index: dict[str, int], score: Score) -> dict[int, float]:
    counts = Counter(human for human in humans if human in index)
    return {index[answer]: score(count, len(humans)) for answer, count in counts.items()}
