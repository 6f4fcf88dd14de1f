"""What the outputs of a model mean: from raw outputs (K, B, ...) to a prediction."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor

from contextual_dropout.prediction import MultilabelPrediction, Prediction
from contextual_dropout.regression import RegressionPrediction
from contextual_dropout.significance import TwoSampleTest

__all__ = ["TASKS", "AnyPrediction", "Task", "check_task", "interpret"]

Task = Literal["multiclass", "multilabel", "binary", "regression"]
AnyPrediction = Prediction | MultilabelPrediction | RegressionPrediction


def interpret(outputs: Tensor, task: Task, test: TwoSampleTest | None) -> AnyPrediction:
    """The prediction that the outputs (K, B, ...) of ``task`` stand for.

    Probabilities are computed in float32 at least: half precision could not tell p-values apart.

    Example:
        >>> interpret(torch.zeros(5, 2), "binary", None).samples.shape
        torch.Size([5, 2, 2])
    """
    check_task(task)
    options: dict[str, Any] = {} if test is None else {"test": test}
    if not outputs.is_floating_point():
        raise ValueError(f"the model's output is {outputs.dtype}: expected floating-point logits, not labels")
    return TASKS[task](outputs.to(torch.promote_types(outputs.dtype, torch.float32)), options)


def check_task(task: Any) -> None:
    """Raise unless it is one of :data:`TASKS`.

    Example:
        >>> check_task({"multiclass"})
        Traceback (most recent call last):
        ...
        TypeError: unknown task {'multiclass'}: expected one of 'multiclass', 'multilabel', 'binary', 'regression'
    """
    if isinstance(task, str) and task in TASKS:
        return
    kind = ValueError if isinstance(task, str) else TypeError
    raise kind(f"unknown task {task!r}: expected one of {', '.join(map(repr, TASKS))}")


def _multiclass(logits: Tensor, options: dict[str, Any]) -> Prediction:
    _check_classes(logits, "multiclass")
    if logits.shape[-1] == 1:
        raise ValueError("a single logit per input is no choice of classes: give task='binary' or 'regression'")
    return Prediction.from_logits(logits, **options)


def _multilabel(logits: Tensor, options: dict[str, Any]) -> MultilabelPrediction:
    _check_classes(logits, "multilabel")
    return MultilabelPrediction.from_logits(logits, **options)


def _binary(logits: Tensor, options: dict[str, Any]) -> Prediction:
    """The logit of the positive class, (K, B) or (K, B, 1), to probabilities of both, (K, B, 2)."""
    if logits.ndim == 3 and logits.shape[-1] == 1:
        logits = logits.squeeze(-1)
    if logits.ndim != 2:
        raise ValueError(
            f"task='binary' needs one logit per input, (B,) or (B, 1), got {_shape(logits)}: two logits per input are "
            "task='multiclass'"
        )
    return Prediction.from_logits(torch.stack((torch.zeros_like(logits), logits), -1), **options)


def _regression(outputs: Tensor, options: dict[str, Any]) -> RegressionPrediction:
    if options:
        raise ValueError("test compares classes: leave it out with task='regression'")
    return RegressionPrediction(outputs)


def _check_classes(logits: Tensor, task: str) -> None:
    if logits.ndim == 2:
        raise ValueError(
            f"task={task!r} needs logits (B, C), got {_shape(logits)}: if that is one number for each input, give "
            "task='binary' or 'regression'; if it is one input's logits, give the input a batch axis"
        )
    if logits.ndim != 3:
        raise ValueError(
            f"task={task!r} needs logits (B, C), got {_shape(logits)}. Where each position has classes of its own, "
            "give output= a function that makes each position an input: if the classes are the last axis, (B, T, C), "
            "output=lambda out: out.flatten(0, -2); if they are the second, (B, C, T) or (B, C, H, W), "
            "output=lambda out: out.movedim(1, -1).flatten(0, -2); with out.logits for out where the model returns an "
            "object that has logits. task='regression' gives the raw outputs"
        )


def _shape(outputs: Tensor) -> tuple[int, ...]:
    return tuple(outputs.shape[1:])


TASKS: dict[str, Callable[[Tensor, dict[str, Any]], AnyPrediction]] = {
    "multiclass": _multiclass,
    "multilabel": _multilabel,
    "binary": _binary,
    "regression": _regression,
}
