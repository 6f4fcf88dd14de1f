"""What tests of predictions compare: the state around a prediction, and its distribution."""

from __future__ import annotations

import random
import types
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from scipy import stats
from torch import Tensor, nn

import contextual_dropout as cd
from contextual_dropout.replay.buffers import BufferState, stateful_buffers

Snapshot = tuple[list[bool], list[Tensor], Tensor, Any, str]


def snapshot(model: nn.Module) -> Snapshot:
    flags = [module.training for module in model.modules()]
    flags += [module.sampling for module in model.modules() if isinstance(module, cd.ContextualDropout)]
    buffers = [buffer.clone() for buffer in model.buffers()]
    return flags, buffers, torch.get_rng_state(), random.getstate(), numpy_state()


def numpy_state() -> str:
    kind, words, *rest = np.random.get_state()
    return repr((kind, list(words), rest))


def assert_unchanged(before: Snapshot, model: nn.Module) -> None:
    after = snapshot(model)
    assert after[0] == before[0]
    assert all(torch.equal(a, b) for a, b in zip(after[1], before[1], strict=True))
    assert torch.equal(after[2], before[2])
    assert after[3:] == before[3:]


def by_hand(model: nn.Module, *inputs: Any, samples: int) -> Tensor:
    buffers, outs = BufferState(stateful_buffers(model.modules())), []
    with torch.no_grad(), cd.sampling(model):
        for _ in range(samples):
            outs.append(model(*inputs).softmax(-1))
            buffers.restore()  # every sample is one of the model that was given
    return torch.stack(outs)


def assert_same_distribution(a: Tensor, b: Tensor) -> None:
    """Means and variances of (K, ...) samples agree; all comparisons together fail by chance at a rate of 2e-5."""
    assert_same_means([(a, b), ((a - a.mean(0)).square(), (b - b.mean(0)).square())])


def assert_same_means(pairs: list[tuple[Tensor, Tensor]]) -> None:
    """Means of (K, ...) numbers agree; all comparisons together fail by chance at a rate of 2e-5."""
    bound = stats.norm.ppf(1 - 2e-5 / (2 * sum(x[0].numel() for x, _ in pairs)))
    for x, y in pairs:
        error = (x.var(0) / len(x) + y.var(0) / len(y)).sqrt()
        assert ((x.mean(0) - y.mean(0)).abs() <= bound * error + 1e-12).all()


def loop(model: Callable[..., Tensor], *inputs: Any, samples: int) -> Tensor:
    """Outputs (K, B, ...) of one call after another, each of the buffers and inputs that were given."""
    modules = list(model.modules()) if isinstance(model, nn.Module) else []
    buffers, outs = BufferState(stateful_buffers(modules)), []
    with torch.no_grad(), cd.sampling(nn.ModuleList(modules)):
        for _ in range(samples):
            outs.append(model(*(value.clone() if isinstance(value, Tensor) else value for value in inputs)).clone())
            buffers.restore()
    return torch.stack(outs)


def assert_same_passes(a: Tensor, b: Tensor) -> None:
    """As :func:`assert_same_distribution`; and rows of a sample, and samples next to each other, go together alike.

    Of products the means alone are compared: their variances are of the eighth order, far from normal at these K.
    """
    centred = [x - x.mean(0) for x in (a, b)]
    squares, rows, neighbours = (
        [x.square() for x in centred],
        [x[:, :1] * x[:, 1:] for x in centred],
        [x[0:-1:2] * x[1::2] for x in centred],
    )
    assert_same_means([(a, b), *((first, second) for first, second in (squares, rows, neighbours))])


class Net(nn.Module):
    """Any input, any output."""

    def __init__(self, form: str) -> None:
        super().__init__()
        self.form = form
        self.layers = nn.Sequential(nn.Linear(4, 20), nn.Dropout(0.5), nn.Linear(20, 3))

    def forward(self, x: Any, scale: Any = 1.0) -> Any:
        x = x["x"] if isinstance(x, dict) else x
        scale = scale[0]["s"] if isinstance(scale, list) else scale
        logits = self.layers(x) * scale
        hidden = torch.zeros(2)
        forms = {
            "tensor": logits,
            "tuple": (logits, hidden),
            "dict": {"hidden": hidden, "logits": logits},
            "object": types.SimpleNamespace(logits=logits),
            "nested": {"a": hidden, "b": [hidden, logits]},
        }
        return forms[self.form]
