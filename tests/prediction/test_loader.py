from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import contextual_dropout as cd
from tests.predictions import Net, assert_same_distribution, assert_unchanged, snapshot


def loader(examples: int = 50, size: int = 16) -> DataLoader[Any]:
    x = torch.randn(examples, 4, generator=torch.Generator().manual_seed(0))
    return DataLoader(TensorDataset(x, torch.arange(examples)), batch_size=size)


def test_predict_loader() -> None:
    model = nn.Sequential(nn.Linear(4, 30), nn.Dropout(0.2), nn.Linear(30, 3))
    before = snapshot(model)
    prediction = cd.predict_loader(model, loader(), samples=40, seed=0)
    assert_unchanged(before, model)
    assert isinstance(prediction, cd.Prediction)
    assert prediction.samples.shape == (40, 50, 3)
    assert torch.equal(prediction.samples, cd.predict_loader(model, loader(), samples=40, seed=0).samples)
    x = loader().dataset.tensors[0]  # type: ignore[attr-defined]
    assert_same_distribution(prediction.samples, cd.predict(model, x, samples=40).samples)  # in the loader's order
    with pytest.raises(ValueError, match="the loader gave no batch"):
        cd.predict_loader(model, [])


def test_a_batch_does_not_depend_on_those_before_it() -> None:
    model = nn.Sequential(nn.Linear(4, 30), nn.Dropout(0.2), nn.Linear(30, 3))
    a, b, other = torch.randn(3, 4), torch.randn(3, 4), torch.randn(9, 4)
    one, two = (
        [p.samples for _, p in cd.predict_batches(model, batches, seed=3)] for batches in ([a, b], [other, b, a])
    )
    assert torch.equal(one[1], two[1])
    same_input = [p.samples for _, p in cd.predict_batches(model, [a, a], seed=3)]
    assert not torch.equal(*same_input)


def test_batches_of_any_kind() -> None:
    model, x = Net("tensor"), torch.randn(2, 4)
    batches = {"tensor": x, "tuple": (x, 0), "list": [x, 0], "dict": {"x": x, "scale": 2.0}, "both": ({"x": x}, 0)}
    for one in batches.values():
        ((given, prediction),) = cd.predict_batches(model, [one], samples=3)
        assert given is one
        assert prediction.samples.shape == (3, 2, 3)
    prediction = cd.predict_loader(model, [(0, x, 2.0)], samples=3, inputs=lambda b: b[1:], task="multilabel")
    assert isinstance(prediction, cd.MultilabelPrediction)
    assert prediction.test is cd.significance.independent_t


def test_a_progress_bar_on_a_terminal(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("rich")
    model = nn.Sequential(nn.Linear(4, 3), nn.Dropout(0.2))
    cd.predict_loader(model, loader(), samples=2)
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert cd.predict_loader(model, loader(), samples=2).samples.shape == (2, 50, 3)
    assert "predicting" in capsys.readouterr().err


def test_threads_do_not_notice_one_another() -> None:
    """Loaders draw from the global generators, and were seen by the predictions of other threads, and the other way."""
    model = nn.Sequential(nn.Linear(4, 8), cd.ContextualDropout(8, p=0.5), nn.Linear(8, 3)).eval()
    before = snapshot(model)
    alone = [cd.predict_loader(model, loader(size=4), samples=5, seed=seed).samples for seed in range(4)]
    with ThreadPoolExecutor(4) as pool:
        seeds = [seed for _ in range(10) for seed in range(4)]
        found = list(pool.map(lambda seed: cd.predict_loader(model, loader(size=4), samples=5, seed=seed), seeds))
    assert all(torch.equal(each.samples, alone[seed]) for seed, each in zip(seeds, found, strict=True))
    assert_unchanged(before, model)


def test_a_loader_goes_on_drawing_where_it_stopped() -> None:
    """Apart from the global generators, but not from the same state for every batch."""
    model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 3))
    noise: list[torch.Tensor] = []

    def batches() -> Iterator[torch.Tensor]:
        for _ in range(3):
            noise.append(torch.cat([torch.rand(2), torch.tensor([random.random(), np.random.rand()])]))
            yield torch.zeros(2, 4)

    before = snapshot(model)
    cd.predict_loader(model, batches(), samples=3)
    assert_unchanged(before, model)
    assert len(torch.stack(noise).unique()) == 12
