"""Log-likelihoods of labels, one number an example: what :class:`~contextual_dropout.ELBO` wants of a closure."""

from __future__ import annotations

from collections.abc import Callable

import torch.nn.functional as F
from torch import Tensor

from contextual_dropout.tasks import Task

__all__ = ["IGNORED", "LOG_LIKELIHOODS", "class_log_likelihood", "multilabel_log_likelihood"]

#: The label of positions that do not count, as in torch and ``transformers``.
IGNORED = -100


def class_log_likelihood(logits: Tensor, labels: Tensor) -> Tensor:
    """log p(labels | x, z), the sum over an example's positions.

    Args:
        logits: (B, C), or with one distribution for each token (B, T, C).
        labels: (B,) or (B, T); positions with :data:`IGNORED` do not count.

    Returns:
        (B,).

    Example:
        >>> import torch
        >>> class_log_likelihood(torch.zeros(1, 3, 2), torch.tensor([[0, 1, -100]]))
        tensor([-1.3863])
    """
    if logits.shape[:-1] != labels.shape:
        raise ValueError(
            f"logits of shape {tuple(logits.shape)} need labels {tuple(logits.shape[:-1])}, got {tuple(labels.shape)}: "
            "give a log_likelihood of your own for another kind of labels"
        )
    losses = F.cross_entropy(logits.flatten(0, -2), labels.flatten(), ignore_index=IGNORED, reduction="none")
    return -losses.view(len(labels), -1).sum(1)


def multilabel_log_likelihood(logits: Tensor, labels: Tensor) -> Tensor:
    """The sum over C labels, each of which an example has or has not, (B,).

    Args:
        logits: (B, C).
        labels: (B, C) of 0 and 1, or between.

    Example:
        >>> import torch
        >>> multilabel_log_likelihood(torch.zeros(1, 2), torch.tensor([[0.0, 1.0]]))
        tensor([-1.3863])
    """
    return -F.binary_cross_entropy_with_logits(logits, labels.to(logits.dtype), reduction="none").sum(-1)


#: What labels usually mean; for other tasks there is no such thing.
LOG_LIKELIHOODS: dict[Task, Callable[[Tensor, Tensor], Tensor]] = {
    "multiclass": class_log_likelihood,
    "multilabel": multilabel_log_likelihood,
}
