"""Checking the inputs of the metrics."""

from __future__ import annotations

from torch import Tensor

__all__ = ["check_labels", "check_per_example", "check_probabilities", "check_unit_interval"]

#: Softmax outputs exceed one by rounding, most in half precision.
SLACK = 1e-2


def check_probabilities(samples: Tensor) -> None:
    """Raise unless ``samples`` are (K, B, C) probabilities.

    Example:
        >>> import torch
        >>> check_probabilities(torch.full((2, 1, 1), 3.0))
        Traceback (most recent call last):
        ...
        ValueError: samples range from 3 to 3: expected probabilities in [0, 1]; apply a softmax or sigmoid first
    """
    if not isinstance(samples, Tensor):
        raise TypeError(
            f"samples is a {type(samples).__name__}: expected a tensor (K, B, C); of a prediction give its samples"
        )
    if samples.ndim != 3 or 0 in (len(samples), samples.shape[-1]):
        raise ValueError(
            f"samples has shape {tuple(samples.shape)}: expected (K, B, C), K >= 1 passes over B examples with C >= 1 "
            "classes; stack the passes along dim 0"
        )
    if samples.numel() and not bool(((samples >= -SLACK) & (samples <= 1 + SLACK)).all()):
        low, high = samples.min().item(), samples.max().item()
        raise ValueError(
            f"samples range from {low:g} to {high:g}: expected probabilities in [0, 1]; "
            "apply a softmax or sigmoid first"
        )


def check_labels(labels: Tensor, batch: int, classes: int) -> None:
    """Raise unless ``labels`` are (B,) class indices."""
    if not isinstance(labels, Tensor):
        raise TypeError(f"labels is a {type(labels).__name__}: expected a tensor ({batch},) of class indices")
    if labels.shape != (batch,) or labels.is_floating_point():
        raise ValueError(
            f"labels has shape {tuple(labels.shape)} and dtype {labels.dtype}: expected ({batch},) class indices, "
            "one integer an example; take the argmax of one-hot labels"
        )
    if labels.numel() and not 0 <= int(labels.min()) <= int(labels.max()) < classes:
        raise ValueError(
            f"labels range from {int(labels.min())} to {int(labels.max())}: expected class indices from 0 to "
            f"{classes - 1}; drop ignored examples first"
        )


def check_per_example(name: str, values: Tensor, other_name: str, other: Tensor) -> None:
    """Raise unless both tensors are (B,) and free of NaN."""
    if values.ndim != 1 or values.shape != other.shape:
        raise ValueError(
            f"{name} has shape {tuple(values.shape)} and {other_name} {tuple(other.shape)}: expected (B,) for both, "
            "one number an example; reduce or flatten them first"
        )
    for label, tensor in ((name, values), (other_name, other)):
        if bool(tensor.isnan().any()):
            index = int(tensor.isnan().nonzero()[0])
            raise ValueError(f"{label} is NaN at index {index}: expected a number for every example; drop or fix it")


def check_unit_interval(name: str, values: Tensor) -> None:
    """Raise unless all values are in [0, 1]."""
    if values.numel() and not bool(((values >= 0) & (values <= 1)).all()):
        raise ValueError(
            f"{name} range from {values.min().item():g} to {values.max().item():g}: expected [0, 1]; "
            "rescale them, or compare predictions with labels for a bool"
        )
