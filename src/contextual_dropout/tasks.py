"""What the outputs of a model mean: from raw outputs (K, B, ...) to a prediction."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor

from contextual_dropout.prediction import MultilabelPrediction, Prediction
from contextual_dropout.regression import RegressionPrediction
from contextual_dropout.significance import TwoSampleTest

__all__ = ["TASKS", "AnyPrediction", "Task", "interpret"]

Task = Literal["multiclass", "multilabel", "binary", "regression"]
AnyPrediction = Prediction | MultilabelPrediction | RegressionPrediction


def interpret(outputs: Tensor, task: Task, test: TwoSampleTest | None) -> AnyPrediction:
    """The prediction that the outputs (K, B, ...) of ``task`` stand for.

    Probabilities are computed in float32 at least: half precision could not tell p-values apart.

    Example:
        >>> interpret(torch.zeros(5, 2), "binary", None).samples.shape
        torch.Size([5, 2, 2])
    """
    if task not in TASKS:
        raise ValueError(f"unknown task {task!r}: expected one of {', '.join(map(repr, TASKS))}")
    options: dict[str, Any] = {} if test is None else {"test": test}
    if not outputs.is_floating_point():
        raise ValueError(f"the model's output is {outputs.dtype}: expected floating-point logits, not labels")
    return TASKS[task](outputs.to(torch.promote_types(outputs.dtype, torch.float32)), options)


def _multiclass(logits: Tensor, options: dict[str, Any]) -> Prediction:
    _check_classes(logits, "multiclass")
    if logits.shape[-1] == 1:
        raise ValueError("a single logit per input is no choice of classes: give task='binary' or 'regression'")
    return Prediction(logits.softmax(-1), **options)


def _multilabel(logits: Tensor, options: dict[str, Any]) -> MultilabelPrediction:
    _check_classes(logits, "multilabel")
    return MultilabelPrediction(logits.sigmoid(), **options)


def _binary(logits: Tensor, options: dict[str, Any]) -> Prediction:
    """The logit of the positive class, (K, B) or (K, B, 1), to probabilities of both, (K, B, 2)."""
    if logits.ndim == 3 and logits.shape[-1] == 1:
        logits = logits.squeeze(-1)
    if logits.ndim != 2:
        raise ValueError(
            f"task='binary' needs one logit per input, (B,) or (B, 1), got {_shape(logits)}: two logits per input are "
            "task='multiclass'"
        )
    return Prediction(torch.stack((-logits, logits), -1).sigmoid(), **options)


def _regression(outputs: Tensor, options: dict[str, Any]) -> RegressionPrediction:
    if options:
        raise ValueError("test compares classes: leave it out with task='regression'")
    return RegressionPrediction(outputs)


def _check_classes(logits: Tensor, task: str) -> None:
    if logits.ndim != 3:
        raise ValueError(
            f"task={task!r} needs logits (B, C), got {_shape(logits)}: reshape them with output=, for example to "
            "(B * T, C) with lambda out: out.logits.flatten(0, 1), or give task='regression' to get raw outputs"
        )


def _shape(outputs: Tensor) -> tuple[int, ...]:
    return tuple(outputs.shape[1:])


TASKS: dict[str, Callable[[Tensor, dict[str, Any]], AnyPrediction]] = {
    "multiclass": _multiclass,
    "multilabel": _multilabel,
    "binary": _binary,
    "regression": _regression,
}
