"""K passes with sampled masks."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from contextual_dropout.modes import sampling
from contextual_dropout.prediction import Prediction
from contextual_dropout.tape import RandomState

__all__ = ["predict"]


def predict(model: nn.Module, *inputs: Any, samples: int = 20, seed: int | None = None, **keywords: Any) -> Prediction:
    """Predict with ``samples`` sampled masks; works for any classifier with stochastic layers.

    The global random state, every module's mode and every buffer are as before afterwards.

    Args:
        model: gives logits (B, C).
        inputs: for the model's forward.
        samples: K.
        seed: makes the masks reproducible; fresh ones each time without it.
        keywords: for the model's forward.

    Example:
        >>> import contextual_dropout as cd
        >>> model = nn.Sequential(nn.Linear(4, 8), cd.ContextualDropout(8), nn.Linear(8, 3))
        >>> prediction = cd.predict(model, torch.randn(5, 4), samples=10, seed=0)
        >>> prediction.samples.shape, prediction.p_value.shape
        (torch.Size([10, 5, 3]), torch.Size([5]))
    """
    if samples < 1:
        raise ValueError(f"samples, the number of sampled passes, must be at least 1, got {samples}")
    with torch.no_grad(), _seeded(model, seed), sampling(model):
        passes: list[Tensor] = [model(*inputs, **keywords).softmax(-1) for _ in range(samples)]
    return Prediction(torch.stack(passes))


@contextmanager
def _seeded(model: nn.Module, seed: int | None) -> Iterator[None]:
    """Random numbers of their own inside, the global ones untouched."""
    device = next((parameter.device for parameter in model.parameters()), torch.device("cpu"))
    before = RandomState(device)
    try:
        torch.manual_seed(secrets.randbits(63) if seed is None else seed)
        yield
    finally:
        before.restore()
