"""Predictions against a plain loop, on every path, and what they leave behind."""

from __future__ import annotations

import copy
import io
import random
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase

import contextual_dropout as cd
from tests.exact.enumeration import FAILURE_RATE
from tests.generated.case import Case, Refused, Wrong, refusal
from tests.generated.comparison import compare, features
from tests.generated.network import Network
from tests.generated.paths import taken

__all__ = ["check_predictions"]

#: Samples of the first look, and the rate at which it may be wrong; a second look, with samples of its own, decides.
FIRST, FIRST_RATE, SECOND = 192, 0.1, 4000


def check_predictions(case: Case, model: nn.Module, paths: Counter[str]) -> Counter[str]:
    """Predictions of the network have the distribution of a plain loop, and leave it as it was.

    Returns:
        How many looks there were, first and second ones.

    Raises:
        Wrong: they differ; by chance at a rate of 2e-5 for all paths together at most.
        Refused: the library says that it cannot predict with this network.
    """
    expected, ways, looks = looped(case, model, FIRST, 1), ["default", case.way, "sampling"], Counter[str]()
    for way in ways:
        with taken() as names:
            found = drawn(case, model, way, FIRST, 2)
        paths.update(names or ["sampling"])
        if found.shape != expected.shape:
            raise Wrong(f"samples ({way}) have the shape {tuple(found.shape)} instead of {tuple(expected.shape)}")
        looks["first"] += 1
        lag = _chunk(case.network, way, FIRST // case.calls)
        if compare(features(found), features(expected), FIRST_RATE, lag):
            looks["second"] += 1
            again, known = drawn(case, model, way, SECOND, 3), looped(case, model, SECOND, 4)
            lag = _chunk(case.network, way, SECOND // case.calls)
            difference = compare(features(again), features(known), FAILURE_RATE / len(ways), lag)
            if difference:
                raise Wrong(f"predictions ({way}; {', '.join(sorted(set(names)))}): {difference}")
    return looks


def looped(case: Case, model: nn.Module, samples: int, stream: int) -> Tensor:
    """What is right: whole passes one after the other, every layer in training mode but normalisation."""
    model = case.network.fresh(model, stream)
    for module in model.modules():
        module.training = not isinstance(module, _NormBase)
    return _passes(case.network, model, samples)


def drawn(case: Case, model: nn.Module, way: str, samples: int, stream: int) -> Tensor:
    """Samples (K, B, ...) by the library: by :func:`cd.predict`, or by a loop under :func:`cd.sampling`."""
    network, model = case.network, case.network.fresh(model, stream)
    if way == "sampling":
        with cd.sampling(model):
            return _passes(network, model, samples)
    predicted = [model, network.fresh(model, stream + 50)] if way == "ensemble" else model
    each = samples // case.calls
    rows = {"one": network.batch, "two": 2 * network.batch, "all": each * network.batch}.get(way)
    x, seeds = network.inputs(), range(network.seed + 10 * stream, network.seed + 10 * stream + case.calls)
    with _left_alone(network, model, x):
        try:
            predictions = [
                cd.predict(predicted, x, samples=each, seed=seed, task="regression", rows=rows, output=network.output)
                for seed in seeds
            ]
        except Exception as error:
            said = refusal(error)
            if said is None:
                raise Wrong(f"prediction ({way}) fails: {error!r}") from error
            raise Refused(said) from error
    return torch.cat([prediction.samples for prediction in predictions])


def _chunk(network: Network, way: str, samples: int) -> int:
    """How far apart those samples are that might be alike: of two chunks, or of two members."""
    return {"default": min(128 // network.batch, samples), "two": 2, "ensemble": samples // 2}.get(way, 1)


@torch.no_grad()
def _passes(network: Network, model: nn.Module, samples: int) -> Tensor:
    """Every pass is one of the model that was given: buffers and inputs are put back."""
    before = [
        (module, {k: v.clone() for k, v in module._buffers.items() if v is not None}) for module in model.modules()
    ]
    outs = []
    for _ in range(samples):
        outs.append(network.pick(model(network.inputs())).clone())
        for module, buffers in before:
            module._buffers.update({name: value.clone() for name, value in buffers.items()})
    return torch.stack(outs)


@contextmanager
def _left_alone(network: Network, model: nn.Module, x: Tensor) -> Iterator[None]:
    """Predicting leaves generators, modes, buffers and inputs as they were, and the model usable."""
    pickled, before = _pickled(model), _state(model, x)
    yield
    after = _state(model, x)
    for name, value in before.items():
        if not _equal(value, after[name]):
            raise Wrong(f"a prediction changed {name}")
    try:
        copied, saved = copy.deepcopy(model), _pickled(model)  # before a call, which may write over what was left
        with torch.no_grad():
            model(network.inputs())
            copied(network.inputs())
    except Exception as error:
        raise Wrong(f"after a prediction the model cannot be used: {error!r}") from error
    if pickled and not saved:
        raise Wrong("after a prediction the model cannot be pickled")


def _state(model: nn.Module, x: Tensor) -> dict[str, Any]:
    return {
        "torch's generator": torch.get_rng_state(),
        "Python's generator": random.getstate(),
        "numpy's generator": repr(np.random.get_state()),
        "the modes of modules": [module.training for module in model.modules()],
        "buffers": [buffer.clone() for buffer in model.buffers()],
        "the input": x.clone(),
    }


def _equal(a: Any, b: Any) -> bool:
    if isinstance(a, list):
        return len(a) == len(b) and all(map(_equal, a, b))
    return torch.equal(a, b) if isinstance(a, Tensor) else bool(a == b)


def _pickled(model: nn.Module) -> bool:
    try:
        torch.save(model, io.BytesIO())
    except Exception:
        return False
    return True
