"""Finding the logits in a model's output, and turning outputs (K, B, ...) into a prediction."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import Any, Literal

import torch
from torch import Tensor

from contextual_dropout.prediction.classification import MultilabelPrediction, Prediction
from contextual_dropout.prediction.regression import RegressionPrediction
from contextual_dropout.significance import TwoSampleTest

__all__ = ["TASKS", "AnyPrediction", "Output", "Task", "check_task", "find_logits", "interpret", "picker", "summary"]


#: A key or an index into what the model returns, or a function of it; None finds the logits by itself.
Output = Hashable | Callable[[Any], Tensor] | None


def picker(output: Output) -> Callable[[Any], Tensor]:
    """Make a function that takes the logits out of what a model returned.

    Args:
        output: a key of a dictionary or Hugging Face ``ModelOutput``, an index into a tuple or list, or a function
            of the whole. By default a tensor as it is, the entry "logits" of a dictionary, or the first item of a
            tuple or list, if it is a tensor.

    Example:
        >>> import torch
        >>> returned = {"logits": torch.zeros(2), "hidden": torch.ones(2)}
        >>> picker(None)(returned), picker("hidden")(returned), picker(lambda out: out["hidden"] + 1)(returned)
        (tensor([0., 0.]), tensor([1., 1.]), tensor([2., 2.]))
    """
    if output is None:
        return find_logits
    if callable(output):
        return lambda returned: _checked(output(returned), returned, "the function given as output returned")
    return lambda returned: _checked(_entry(returned, output), returned, f"output={output!r} picks")


def find_logits(returned: Any) -> Tensor:
    """The logits that :func:`picker` finds by default; a tensor is its own logits."""
    if isinstance(returned, Tensor):
        return returned
    if isinstance(returned, Mapping):
        if isinstance(returned.get("logits"), Tensor):
            return returned["logits"]  # type: ignore[no-any-return]
    elif isinstance(returned, tuple | list) and returned and isinstance(returned[0], Tensor):
        return returned[0]
    elif isinstance(getattr(returned, "logits", None), Tensor):
        return returned.logits  # type: ignore[no-any-return]
    raise TypeError(
        f"cannot tell which part of the model's output are the logits: it returned {summary(returned)}; pick them "
        "with output= a key, an index, or a function of the output"
    )


def _entry(returned: Any, output: Any) -> Any:
    try:
        return returned[output]
    except (KeyError, IndexError, TypeError):
        raise TypeError(f"output={output!r} is not in the model's output: it returned {summary(returned)}") from None


def _checked(picked: Any, returned: Any, how: str) -> Tensor:
    if isinstance(picked, Tensor):
        return picked
    raise TypeError(f"{how} {summary(picked)} instead of a tensor; the model returned {summary(returned)}")


def summary(value: Any) -> str:
    """Names, types and shapes, two levels deep."""
    if isinstance(value, Mapping):
        return f"{type(value).__name__} with " + (", ".join(f"{k!r}: {_kind(v)}" for k, v in value.items()) or "no key")
    if isinstance(value, tuple | list):
        return f"{type(value).__name__} of " + (", ".join(map(_kind, value)) or "nothing")
    return _kind(value)


def _kind(value: Any) -> str:
    if isinstance(value, Tensor):
        return f"tensor {tuple(value.shape)}"
    return type(value).__name__


Task = Literal["multiclass", "multilabel", "binary", "regression"]
AnyPrediction = Prediction | MultilabelPrediction | RegressionPrediction


def interpret(outputs: Tensor, task: Task, test: TwoSampleTest | None) -> AnyPrediction:
    """Turn outputs (K, B, ...) into the prediction of ``task``.

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
        raise ValueError("a single logit per input is not a choice of classes: give task='binary' or 'regression'")
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
