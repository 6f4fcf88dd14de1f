from __future__ import annotations

import pytest
import torch
from torch import nn

import contextual_dropout as cd
from contextual_dropout.baselines import mc_dropout
from tests.baselines.problems import FAILURE_RATE
from tests.exact.enumeration import assert_mean


def rates(model: nn.Module) -> list[float]:
    return [module.p for module in model.modules() if isinstance(module, nn.Dropout | nn.Dropout2d)]


def test_rates_are_kept_or_set() -> None:
    model = nn.Sequential(nn.Dropout(0.1), nn.Linear(2, 2), nn.Dropout2d(0.3, inplace=True))
    assert rates(mc_dropout(model, inplace=False)) == [0.1, 0.3]
    changed = mc_dropout(model, p=0.5)
    assert rates(changed) == [0.5, 0.5]
    assert [type(layer) for layer in changed] == [nn.Dropout, nn.Linear, nn.Dropout2d]
    assert changed[2].inplace


def test_a_rate_outside_of_0_and_1_is_an_error() -> None:
    with pytest.raises(ValueError, match="between 0 and 1"):
        mc_dropout(nn.Sequential(nn.Dropout(0.1)), p=1.5)


@pytest.mark.parametrize("p", [0.1, 0.5])
def test_prediction_is_the_mean_over_ordinary_dropout(p: float) -> None:
    """Of features 1, kept ones are 1 / (1 - p); fails at a rate of 2e-5."""
    model = mc_dropout(nn.Sequential(nn.Identity(), nn.Dropout(0.3)), p=p)
    x = torch.ones(3, 4, dtype=torch.float64)
    samples = cd.predict(model, x, samples=20_000, task="regression").samples
    assert_mean((samples > 0).double(), torch.full_like(x, 1 - p), FAILURE_RATE, "kept")
    torch.testing.assert_close(samples[samples > 0], torch.full_like(samples[samples > 0], 1 / (1 - p)))
