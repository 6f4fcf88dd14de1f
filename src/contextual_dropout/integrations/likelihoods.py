"""Log-likelihoods of labels, one number per example, as the closure of :class:`~contextual_dropout.ELBO` returns."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from contextual_dropout.prediction.outputs import Task

__all__ = [
    "IGNORED",
    "LOG_LIKELIHOODS",
    "binary_log_likelihood",
    "class_axis",
    "class_log_likelihood",
    "logits_of_yes",
    "multilabel_log_likelihood",
]

#: The label of positions that do not count, as in torch and ``transformers``.
IGNORED = -100


def class_log_likelihood(logits: Tensor, labels: Tensor, class_dim: int | None = -1) -> Tensor:
    """log p(labels | x, z), the sum over an example's positions.

    Args:
        logits: (B, C), or with one distribution for each position (B, T, C), (B, C, T), (B, C, H, W) and so on.
        labels: (B,), (B, T), (B, H, W); positions with :data:`IGNORED` do not count.
        class_dim: which axis has the classes; None: the one that the labels do not have.

    Returns:
        (B,).

    Example:
        >>> import torch
        >>> class_log_likelihood(torch.zeros(1, 3, 2), torch.tensor([[0, 1, -100]]))
        tensor([-1.3863])
        >>> class_log_likelihood(torch.zeros(1, 2, 3, 3), torch.zeros(1, 3, 3, dtype=torch.long), class_dim=1)
        tensor([-6.2383])
    """
    logits = logits.movedim(class_axis(logits, labels, class_dim), -1)
    if labels.is_floating_point():
        raise ValueError(f"labels are {labels.dtype}: expected class indices; {_OWN}")
    losses = F.cross_entropy(logits.flatten(0, -2), labels.flatten(), ignore_index=IGNORED, reduction="none")
    return -losses.view(len(labels), -1).sum(1)


def class_axis(logits: Tensor, labels: Tensor, class_dim: int | None = None) -> int:
    """The axis of the classes: the last, as in ``transformers``, or the second, as for torch's ``cross_entropy``.

    Args:
        logits: (B, C), (B, T, C), (B, C, T), (B, C, H, W)...
        labels: one for each position.
        class_dim: the only axis to consider, if given.

    Raises:
        ValueError: neither axis fits the labels, or both do.

    Example:
        >>> import torch
        >>> class_axis(torch.zeros(5, 3, 8, 8), torch.zeros(5, 8, 8))
        1
    """
    if logits.ndim < 2:
        raise ValueError(f"logits of shape {tuple(logits.shape)} have no classes: give task='binary' or 'regression'")
    tried = (-1, 1) if class_dim is None else (class_dim,)
    fit = [axis for axis in tried if _without(logits, axis) == labels.shape]
    if not fit:
        expected = " or ".join(dict.fromkeys(str(tuple(_without(logits, axis))) for axis in tried))
        raise ValueError(
            f"logits of shape {tuple(logits.shape)} need labels {expected}, got {tuple(labels.shape)}; {_OWN}"
        )
    if len(fit) > 1 and logits.ndim > 2:
        raise ValueError(
            f"logits of shape {tuple(logits.shape)} may have their classes in the second or in the last axis: give "
            "class_dim=1 or class_dim=-1"
        )
    return fit[0]


def multilabel_log_likelihood(logits: Tensor, labels: Tensor) -> Tensor:
    """The log-likelihood of labels that an example (or a position) has or has not, summed over all of them, (B,).

    Args:
        logits: (B, C), or of any shape that begins with B.
        labels: of the same shape, from 0 to 1.

    Example:
        >>> import torch
        >>> multilabel_log_likelihood(torch.zeros(1, 2), torch.tensor([[0.0, 1.0]]))
        tensor([-1.3863])
    """
    if logits.shape != labels.shape:
        raise ValueError(
            f"logits of shape {tuple(logits.shape)} need labels of the same shape, 0 or 1 for each, got "
            f"{tuple(labels.shape)}; {_OWN}"
        )
    losses = F.binary_cross_entropy_with_logits(logits, labels.to(logits.dtype), reduction="none")
    return -losses.flatten(1).sum(1)


def binary_log_likelihood(logits: Tensor, labels: Tensor) -> Tensor:
    """The log-likelihood of yes or no, the sum over an example's positions, (B,).

    Args:
        logits: of the positive class: (B,) or (B, 1), or one for each position, (B, T), (B, 1, H, W)...
        labels: 0 or 1 for each; positions with :data:`IGNORED` do not count.

    Example:
        >>> import torch
        >>> binary_log_likelihood(torch.zeros(2, 1), torch.tensor([0, 1]))
        tensor([-0.6931, -0.6931])
    """
    logits = logits_of_yes(logits, labels)
    counted = labels != IGNORED
    targets = torch.where(counted, labels, 0).to(logits.dtype)
    losses = counted * F.binary_cross_entropy_with_logits(logits, targets, reduction="none")
    return -losses.reshape(len(labels), -1).sum(1)


def logits_of_yes(logits: Tensor, labels: Tensor) -> Tensor:
    """The logits in the shape of the labels: axes of length one, where a channel may be, do not count."""
    shapes = [(*tensor.shape[:1], *(size for size in tensor.shape[1:] if size != 1)) for tensor in (logits, labels)]
    if shapes[0] != shapes[1]:
        raise ValueError(
            f"logits of shape {tuple(logits.shape)} need one label each, 0 or 1, got labels {tuple(labels.shape)}; "
            f"two logits for each are task='multiclass'; {_OWN}"
        )
    return logits.reshape(labels.shape)


def _without(logits: Tensor, axis: int) -> tuple[int, ...]:
    sizes = list(logits.shape)
    del sizes[axis]
    return tuple(sizes)


_OWN = "give a log_likelihood of your own for another kind of labels"

#: The usual log-likelihood of a task; other tasks have none.
LOG_LIKELIHOODS: dict[Task, Callable[[Tensor, Tensor], Tensor]] = {
    "multiclass": class_log_likelihood,
    "multilabel": multilabel_log_likelihood,
    "binary": binary_log_likelihood,
}
