"""Which tensor of a model's output are the logits."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import Any

from torch import Tensor

__all__ = ["Output", "find_logits", "picker", "summary"]

#: A key or an index into what the model returns, or a function of it; None finds the logits by itself.
Output = Hashable | Callable[[Any], Tensor] | None


def picker(output: Output) -> Callable[[Any], Tensor]:
    """A function that takes the logits out of what a model returned.

    Args:
        output: a key of a dictionary or Hugging Face ``ModelOutput``, an index into a tuple or list, or a function
            of the whole. Without it: a tensor as it is, the entry "logits" of a dictionary, the first item of a
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
    """What :func:`picker` finds by itself; a tensor is its own logits."""
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
