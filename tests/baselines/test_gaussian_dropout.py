from __future__ import annotations

import pytest
import torch
from torch import nn

from contextual_dropout.baselines import gaussian_dropout
from contextual_dropout.baselines.gaussian_dropout import GaussianDropout
from tests.baselines.problems import FAILURE_RATE
from tests.exact.enumeration import assert_mean


@pytest.mark.parametrize("p", [0.1, 0.2, 0.5])
def test_noise_has_mean_one_and_the_variance_of_dropout(p: float) -> None:
    """Normal of mean 1 and variance p / (1 - p), to the fourth moment; the three fail at 2e-5 together."""
    z = GaussianDropout(p)(torch.ones(200_000, 1, dtype=torch.float64))
    variance = torch.tensor([p / (1 - p)], dtype=torch.float64)
    assert_mean(z, torch.ones(1).double(), FAILURE_RATE / 3, "mean")
    assert_mean((z - 1).square(), variance, FAILURE_RATE / 3, "variance")
    assert_mean((z - 1) ** 4, 3 * variance.square(), FAILURE_RATE / 3, "fourth moment")


@pytest.mark.parametrize(("shared", "distinct"), [(0, 5 * 3 * 4 * 4), (1, 5 * 3 * 4), (2, 5 * 3)])
def test_trailing_axes_share_their_noise(shared: int, distinct: int) -> None:
    noise = GaussianDropout(0.3, shared)(torch.ones(5, 3, 4, 4, dtype=torch.float64))
    assert noise.unique().numel() == distinct
    if shared:
        flat = noise.flatten(-shared)
        assert torch.equal(flat, flat[..., :1].expand_as(flat))


def test_channel_dropout_becomes_channel_noise() -> None:
    model = gaussian_dropout(nn.Sequential(nn.Dropout(0.1), nn.Dropout1d(0.2), nn.Dropout2d(0.3), nn.Dropout3d(0.4)))
    assert [(layer.p, layer.shared) for layer in model] == [(0.1, 0), (0.2, 1), (0.3, 2), (0.4, 3)]
    assert [layer.p for layer in gaussian_dropout(nn.Sequential(nn.Dropout(0.1)), p=0.5)] == [0.5]


def test_the_point_estimate_is_the_identity() -> None:
    u = torch.randn(3, 4)
    assert torch.equal(GaussianDropout(0.3).eval()(u), u)
    assert torch.equal(GaussianDropout(0.0)(u), u)


def test_gradients_are_those_of_a_product() -> None:
    u = torch.randn(3, 4, requires_grad=True)
    out = GaussianDropout(0.3)(u)
    out.sum().backward()
    assert u.grad is not None
    torch.testing.assert_close(u.grad * u, out)


@pytest.mark.parametrize("p", [1.0, -0.1, float("nan")])
def test_bad_rates(p: float) -> None:
    with pytest.raises(ValueError, match="p is a drop rate"):
        GaussianDropout(p)
