"""The soft accuracy of visual question answering."""

from __future__ import annotations

from torch import Tensor

from contextual_dropout.metrics.inputs import check_labels, check_unit_interval

__all__ = ["soft_accuracy"]


def soft_accuracy(predicted: Tensor, targets: Tensor) -> Tensor:
    """The score of the answer that was given: ``Acc_i = t_i[a_i]`` (C.2 of the paper), also for ``PAvPU``.

    Args:
        predicted: (B,) indices of answers, or (B, A) floating point, whose highest entry is the answer.
        targets: (B, A) soft targets in [0, 1].

    Returns:
        (B,) in float64.

    Example:
        >>> import torch
        >>> soft_accuracy(torch.tensor([1, 0]), torch.tensor([[0.3, 1.0], [0.6, 0.0]]))
        tensor([1.0000, 0.6000], dtype=torch.float64)
    """
    if targets.ndim != 2:
        raise ValueError(f"targets has shape {tuple(targets.shape)}: expected (B, A), a score for every answer")
    check_unit_interval("targets", targets)
    answers = _answers(predicted, targets)
    return targets.double().gather(1, answers[:, None]).squeeze(1)


def _answers(predicted: Tensor, targets: Tensor) -> Tensor:
    if predicted.ndim == 1:
        check_labels(predicted, *targets.shape)
        return predicted.long()
    if predicted.shape != targets.shape or not predicted.is_floating_point():
        raise ValueError(
            f"predicted has shape {tuple(predicted.shape)} and dtype {predicted.dtype}: expected ({len(targets)},) "
            f"indices of answers, or {tuple(targets.shape)} scores in floating point; average samples first"
        )
    if bool(predicted.isnan().any()):
        index = int(predicted.isnan().any(1).nonzero()[0])
        raise ValueError(f"predicted is NaN at index {index}: expected scores of every answer; look for an overflow")
    return predicted.argmax(1)
