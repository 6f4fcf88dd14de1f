"""What K = 20 predictive samples cost, relative to a plain loop of model calls."""

from __future__ import annotations

import copy
from collections.abc import Callable

import torch
from networks import Dropout, contextual, plain
from timing import interleaved
from torch import Tensor, nn

import contextual_dropout as cd

SAMPLES = 20
Predict = Callable[[], object]


def mlp(dropout: Dropout) -> nn.Module:
    """784-300-100-10 with the first site after the first layer."""
    return nn.Sequential(
        *(nn.Linear(784, 300), nn.ReLU(), dropout(300)),
        *(nn.Linear(300, 100), nn.ReLU(), dropout(100)),
        nn.Linear(100, 10),
    )


def late_cnn(dropout: Dropout) -> nn.Module:
    """Four convolutions and a classifier of two layers; sites on the classifier only."""
    return nn.Sequential(
        *(nn.Conv2d(3, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU()),
        *(nn.Conv2d(32, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(32, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU()),
        *(nn.Conv2d(64, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), dropout(1024), nn.Linear(1024, 256), nn.ReLU(), dropout(256), nn.Linear(256, 10)),
    )


def every_conv_cnn(dropout: Dropout) -> nn.Module:
    """The same convolutions, a site after each, and a linear classifier."""
    return nn.Sequential(
        *(nn.Conv2d(3, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), dropout(32)),
        *(nn.Conv2d(32, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2), dropout(32)),
        *(nn.Conv2d(32, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU(), dropout(64)),
        *(nn.Conv2d(64, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(2), dropout(64)),
        *(nn.Flatten(), nn.Linear(1024, 10)),
    )


#: Networks, the axis of their sites, the shape of an input, and the bars for B = 1 and B = 128.
CASES: dict[str, tuple[Callable[[Dropout], nn.Module], int, tuple[int, ...], dict[int, float]]] = {
    "mlp": (mlp, -1, (784,), {1: 0.30, 128: 0.60}),
    "cnn, late sites": (late_cnn, -1, (3, 16, 16), {1: 0.22, 128: 0.30}),
    "cnn, a site at every conv": (every_conv_cnn, 1, (3, 16, 16), {1: 0.50, 128: 0.95}),
}


def loop(model: nn.Module, x: Tensor) -> Predict:
    """What one writes without a library."""

    def run() -> Tensor:
        with torch.no_grad(), cd.sampling(model):
            return torch.stack([model(x).softmax(-1) for _ in range(SAMPLES)])

    return run


def library(model: nn.Module, x: Tensor, rows: int | None = None) -> Predict:
    return lambda: cd.predict(model, x, samples=SAMPLES, rows=rows)


def ratios(name: str, batch: int, rounds: int, family: str = "bernoulli") -> dict[str, float]:
    """Of every way to its own plain loop: contextual sites, and ordinary dropout with the peers."""
    build, dim, shape, _ = CASES[name]
    torch.manual_seed(0)
    x = torch.randn(batch, *shape)
    ours, ordinary = build(contextual(family, dim)).eval(), build(plain).eval()
    seconds = interleaved(
        {
            "loop, contextual": loop(ours, x),
            "cd.predict, contextual": library(ours, x),
            "loop, nn.Dropout": loop(ordinary, x),
            "cd.predict, nn.Dropout": library(ordinary, x),
            **peers(ordinary, x),
        },
        rounds,
    )
    base = {"contextual": seconds["loop, contextual"], "nn.Dropout": seconds["loop, nn.Dropout"]}
    return {
        way: value / base["contextual" if way.endswith("contextual") else "nn.Dropout"]
        for way, value in seconds.items()
        if not way.startswith("loop")
    }


def peers(model: nn.Module, x: Tensor) -> dict[str, Predict]:
    """MC dropout of other libraries, on copies of the same network, as far as they can be imported."""
    ways: dict[str, Predict] = {}
    try:
        from baal.bayesian.dropout import MCDropoutModule
        from baal.modelwrapper import ModelWrapper, TrainingArgs

        wrapper = ModelWrapper(MCDropoutModule(copy.deepcopy(model)), TrainingArgs(use_cuda=False))
        wrapper.predict_on_batch(x, iterations=SAMPLES)
        ways["baal, nn.Dropout"] = lambda: wrapper.predict_on_batch(x, iterations=SAMPLES).softmax(1)
    except Exception as error:
        print(f"  without baal: {error!r}")
    try:
        from torch_uncertainty.models import mc_dropout

        network = mc_dropout(copy.deepcopy(model), num_estimators=SAMPLES, on_batch=True).eval()
        ways["torch-uncertainty, nn.Dropout"] = lambda: _no_grad(network, x)
    except Exception as error:
        print(f"  without torch-uncertainty: {error!r}")
    return ways


def _no_grad(model: nn.Module, x: Tensor) -> Tensor:
    with torch.no_grad():
        return model(x).softmax(-1)  # type: ignore[no-any-return]
