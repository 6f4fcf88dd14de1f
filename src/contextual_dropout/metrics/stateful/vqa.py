"""The accuracy of visual question answering for each type of answer, over many batches."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torchmetrics import Metric

from contextual_dropout.metrics.vqa import soft_accuracy

__all__ = ["VQAAccuracy"]

#: The answer types of VQA v2 by their index.
TYPES = ("yes/no", "number", "other")


class VQAAccuracy(Metric):
    """The mean :func:`soft_accuracy` of all questions, and of those of each answer type.

    ``{"overall", "yes/no", "number", "other"}``, each in [0, 1]; NaN for a type without questions. With targets that
    leave out each of the ten annotators in turn (``soft_targets(..., score=leave_one_out, prepare=evaluated)`` of the
    lab's ``data.vqa``) it is the official accuracy; ``score=capped`` is the formula of the paper.

    Example:
        >>> metric = VQAAccuracy()
        >>> targets = torch.tensor([[0.3, 1.0], [0.6, 0.0], [1.0, 0.0]])
        >>> metric.update(torch.tensor([1, 0, 1]), targets, torch.tensor([0, 0, 2]))
        >>> {name: round(value.item(), 2) for name, value in metric.compute().items()}
        {'overall': 0.53, 'yes/no': 0.8, 'number': nan, 'other': 0.0}
    """

    is_differentiable = False
    higher_is_better = True
    full_state_update = False

    correct: Tensor
    count: Tensor

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        for state in ("correct", "count"):
            zeros = torch.zeros(len(TYPES), dtype=torch.float64)
            self.add_state(state, zeros, dist_reduce_fx="sum")

    def update(self, predicted: Tensor, targets: Tensor, answer_types: Tensor) -> None:
        """Count a batch.

        Args:
            predicted: (B,) indices of answers, or (B, A) floating point, whose highest entry is the answer.
            targets: (B, A) soft targets in [0, 1].
            answer_types: (B,) indices into ``("yes/no", "number", "other")``.
        """
        accuracy = soft_accuracy(predicted, targets)
        _check_types(answer_types, len(accuracy))
        self.correct.index_add_(0, answer_types.long(), accuracy)
        self.count.index_add_(0, answer_types.long(), torch.ones_like(accuracy))

    def compute(self) -> dict[str, Tensor]:
        """The overall accuracy and that of every type."""
        by_type = dict(zip(TYPES, self.correct / self.count, strict=True))  # 0 / 0 is NaN
        return {"overall": self.correct.sum() / self.count.sum(), **by_type}


def _check_types(answer_types: Tensor, batch: int) -> None:
    if answer_types.shape != (batch,) or answer_types.is_floating_point():
        raise ValueError(
            f"answer_types has shape {tuple(answer_types.shape)} and dtype {answer_types.dtype}: expected ({batch},) "
            f"whole numbers, indices of {TYPES}"
        )
    if batch and not 0 <= int(answer_types.min()) <= int(answer_types.max()) < len(TYPES):
        raise ValueError(
            f"answer_types range from {int(answer_types.min())} to {int(answer_types.max())}: expected 0 to "
            f"{len(TYPES) - 1}, indices of {TYPES}"
        )
