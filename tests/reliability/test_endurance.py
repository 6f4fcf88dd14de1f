"""Thousands of steps, predictions and conversions hold no more memory than the first ones."""

from __future__ import annotations

import gc
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import contextual_dropout as cd
from tests.reliability.memory import anatomy, live_tensors, needs_proc, resident
from tests.reliability.record import budget, record

#: MiB that may come and go; one tensor that was kept in each of 10,000 steps would be 7.
SLACK = 4.0
ESTIMATORS = {
    "sequential-arm": "bernoulli",
    "sampled-arm": "bernoulli",
    "reparameterized": "gaussian",
    "straight-through": "bernoulli",
}


class Residual(nn.Module):
    """No chain of layers: its predictions are recorded, replayed and batched."""

    def __init__(self) -> None:
        super().__init__()
        self.inputs, self.hidden, self.outputs = nn.Linear(4, 8), nn.Linear(8, 8), nn.Linear(8, 3)
        self.site, self.dropout = cd.ContextualDropout(8), nn.Dropout(0.2)

    def forward(self, x: Tensor) -> Tensor:
        x = self.inputs(x).relu()
        out: Tensor = self.outputs(self.dropout(x + self.hidden(self.site(x))))
        return out


def chain(family: str = "bernoulli") -> nn.Sequential:
    sites = [cd.ContextualDropout(8, family=family) for _ in range(2)]  # type: ignore[arg-type]
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), sites[0], nn.Linear(8, 8), nn.ReLU(), sites[1], nn.Linear(8, 3))


def training(model: nn.Module, estimator: str) -> Callable[[], object]:
    x, y = torch.randn(4, 4), torch.randint(3, (4,))
    objective = cd.ELBO(model, estimator, cd.schedules.LinearWarmup(steps=1000, end=0.01))
    optimizer = torch.optim.Adam(cd.parameter_groups(model), 1e-3)

    def step() -> None:
        optimizer.zero_grad()
        objective(lambda: -F.cross_entropy(model(x), y, reduction="none")).loss.backward()
        optimizer.step()

    return step


def predicting(model: nn.Module) -> Callable[[], object]:
    x = torch.randn(3, 4)
    return lambda: cd.predict(model, x, samples=5)


def held(work: Callable[[], object], times: int) -> dict[str, int | float]:
    """What is held before and after; nothing more, but for what an allocator keeps in reserve."""
    for _ in range(min(times, 200)):
        work()
    gc.collect()
    gc.collect()  # what torch.compile left in earlier tests goes only with the second
    tensors, memory = live_tensors(), resident()
    for _ in range(times):
        work()
    gc.collect()
    figures = {"tensors at the start": tensors, "tensors at the end": live_tensors()}
    assert figures["tensors at the end"] == tensors
    after = resident()
    assert after - memory < SLACK
    return figures | {"memory at the start, MiB": round(memory, 1), "memory at the end, MiB": round(after, 1)}


def kept(model: nn.Module, work: Callable[[], object], times: int) -> dict[str, int | float]:
    """What is held, when all modules of the model have the hooks and attributes that they had after the first time."""
    work()
    before = anatomy(model)
    figures = held(work, times)
    assert anatomy(model) == before
    return figures


@pytest.mark.slow
@pytest.mark.timeout(1200)
@needs_proc
@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_training(estimator: str) -> None:
    steps = budget(60, 10_000)
    model = chain(ESTIMATORS[estimator])
    figures = kept(model, training(model, estimator), steps)
    claim = (
        f"Training with {estimator} holds as many tensors and hooks and as much memory after all steps as before them."
    )
    record("endurance", f"training-{estimator}", claim, {"steps": steps, **figures})


@pytest.mark.slow
@pytest.mark.timeout(1200)
@needs_proc
@pytest.mark.parametrize(("name", "build"), [("a chain of layers", chain), ("a residual network", Residual)])
def test_predictions(name: str, build: Callable[[], nn.Module]) -> None:
    count = budget(100, 10_000)
    figures = kept(model := build(), predicting(model), count)
    claim = f"Predictions with {name} hold as many tensors and hooks and as much memory after all of them as before."
    record("endurance", f"predictions-{build.__name__.lower()}", claim, {"predictions": count, **figures})


@pytest.mark.parametrize("rows", [None, 1])
@pytest.mark.parametrize("build", [chain, Residual])
def test_no_tensor_waits_for_the_garbage_collector(build: Callable[[], nn.Module], rows: int | None) -> None:
    """Which counts objects, not bytes: activations in a cycle would fill an accelerator before it comes."""
    model, x = build(), torch.randn(3, 4)
    works = [training(model, "sequential-arm"), lambda: cd.predict(model, x, samples=5, rows=rows)]
    for work in works:
        work()
    gc.collect()
    gc.disable()
    try:
        before = live_tensors()
        for work in works * 5:
            work()
        assert live_tensors() == before
    finally:
        gc.enable()
