"""Averages over batches of unequal size, and the spread of keep probabilities."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import contextual_dropout as cd
from contextual_dropout.integrations.monitoring import Averages, keep_summary


def step(log_likelihood: list[float], kl: list[float], weight: float) -> cd.Step:
    return cd.Step(torch.zeros(()), torch.tensor(log_likelihood), torch.tensor(kl), weight)


def test_averages_are_over_examples() -> None:
    averages = Averages()
    assert averages.take() == {}
    averages.add(step([-1.0, -2.0, -3.0], [0.1, 0.2, 0.3], 0.0))
    averages.add(step([-6.0], [1.0], 0.5))
    means = averages.take()
    assert means == pytest.approx({"log_likelihood": -3.0, "kl": 0.4, "kl_weight": 0.5})
    assert averages.take() == {}


def test_spread_is_over_examples_and_not_over_units() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(cd.ContextualDropout(4, encoder="global", p=0.3, prior_p=0.2, temperature=1.0))
    with torch.no_grad():
        model[0].encoder.expand_bias.copy_(torch.tensor([0.0, 1.0, 2.0, 3.0]))  # units differ, examples do not
    summary = keep_summary(model, torch.randn(5, 4))
    assert summary["keep_spread/0"] == pytest.approx(0, abs=1e-12)
    assert summary["keep/0"] == pytest.approx(torch.tensor([0.0, 1.0, 2.0, 3.0]).sigmoid().mean().item())
    assert summary["prior/0"] == pytest.approx(0.8)
