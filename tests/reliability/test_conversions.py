"""Converted and stripped a thousand times, a model is what it was, in every bit and every hook."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import contextual_dropout as cd
from tests.reliability.memory import anatomy, needs_proc
from tests.reliability.record import budget, record
from tests.reliability.test_endurance import held


class Mixed(nn.Module):
    """Dropout of every kind: layers, inside attention, between the layers of a recurrent network."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.1, batch_first=True)
        self.recurrent = nn.LSTM(8, 8, 2, dropout=0.2, batch_first=True)
        self.head = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.3), nn.Linear(8, 3))
        self.head.register_forward_hook(lambda module, args, output: output)

    def forward(self, x: Tensor) -> Tensor:
        states, _ = self.recurrent(self.attention(x))
        out: Tensor = self.head(states[:, -1])
        return out


@pytest.mark.slow
@pytest.mark.timeout(1200)
@needs_proc
def test_round_trips() -> None:
    torch.manual_seed(0)
    model, x, times = Mixed().eval(), torch.randn(2, 5, 8), budget(30, 1_000)
    state = {name: value.clone() for name, value in model.state_dict().items()}
    parts, output = anatomy(model), model(x)

    def there_and_back() -> None:
        converted = cd.contextualize(model, after="head.0", example=x)
        assert len(cd.sites(converted)) == 7
        cd.probe(converted, x)
        cd.predict(converted, x, samples=2)
        assert cd.strip(converted) is model

    figures = held(there_and_back, times)
    assert anatomy(model) == parts
    assert list(model.state_dict()) == list(state)
    assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())
    assert torch.equal(model(x), output)
    record(
        "endurance",
        "conversions",
        "A model with dropout in layers, attention and a recurrent network that is converted, probed, used to predict "
        "and stripped again and again has the modules, hooks, parameters and buffers of the start, bit by bit.",
        {"round trips": times, "sites each time": 7, **figures},
    )
