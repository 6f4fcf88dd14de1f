"""Many threads, one model: each gets what it would have got alone."""

from __future__ import annotations

import random
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import contextual_dropout as cd
from tests.predictions import assert_unchanged, snapshot
from tests.reliability.record import budget, record

THREADS = 8
KINDS = 4
SEEDS = 5


class Network(nn.Module):
    """A site, ordinary dropout, batch normalisation, and a transformer layer, whose fused path has no dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.3, batch_first=True)
        self.site, self.norm, self.outputs = cd.ContextualDropout(8, p=0.4), nn.BatchNorm1d(8), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.outputs(self.norm(self.site(self.attention(x)[:, 0])))
        return out


def asked(model: nn.Module, data: TensorDataset, number: int) -> list[Tensor]:
    """One of the questions that threads ask, by its number."""
    kind, seed = number % KINDS, number // KINDS
    if kind == 0:
        return [cd.predict(model, data.tensors[0][:3], samples=4, seed=seed).samples]
    if kind == 1:
        loader: DataLoader[Any] = DataLoader(data, batch_size=4, shuffle=False)
        return [cd.predict_loader(model, loader, samples=3, seed=seed).samples]
    if kind == 2:
        generator = torch.Generator().manual_seed(seed)
        return [cd.predict(model, data.tensors[0], samples=3, generator=generator, rows=1).samples]
    return list(cd.keep_probabilities(model, data.tensors[0][seed : seed + 2]).values())


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_threads_get_what_one_gets() -> None:
    torch.manual_seed(0)
    model, data, count = Network().eval(), TensorDataset(torch.randn(12, 4, 8)), budget(400, 5_000)
    alone = [asked(model, data, number) for number in range(KINDS * SEEDS)]
    chance, met, before = random.Random(0), set[int](), snapshot(model)
    numbers = [chance.randrange(len(alone)) for _ in range(count)]

    def right(number: int) -> bool:
        met.add(threading.get_ident())
        return all(map(torch.equal, asked(model, data, number), alone[number]))

    with ThreadPoolExecutor(THREADS) as pool:
        wrong = sum(not each for each in pool.map(right, numbers))
    assert wrong == 0
    assert len(met) == THREADS
    assert_unchanged(before, model)
    record(
        "endurance",
        "threads",
        "Threads that predict (predict, predict_loader, keep_probabilities) with one model at once each get, bit by "
        "bit, what they get alone; afterwards modes, buffers and random states are as before.",
        {"threads": THREADS, "predictions": count, "wrong": wrong},
    )
