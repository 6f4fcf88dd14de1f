from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from contextual_dropout.baselines import PenalisedLikelihood, concrete_dropout
from contextual_dropout.baselines.concrete_dropout import ConcreteDropout
from tests.baselines.problems import FAILURE_RATE
from tests.exact.enumeration import assert_mean


def layer_for(weights: Tensor, p: float = 0.3, length_scale: float = 0.5) -> tuple[ConcreteDropout, nn.Linear]:
    """A layer in front of a linear one with given weights."""
    linear = nn.Linear(weights.shape[1], weights.shape[0]).double()
    linear.weight.data.copy_(weights)
    dropout = ConcreteDropout(p, length_scale=length_scale).double()
    dropout.acts_on(linear)
    dropout(torch.zeros(2, weights.shape[1]).double())
    return dropout, linear


def formula(p: float, weights: Tensor, units: int, length_scale: float) -> float:
    entropy = -p * math.log(p) - (1 - p) * math.log(1 - p)
    return length_scale**2 * weights.square().sum().item() / (2 * (1 - p)) - units * entropy


def relaxed_mean(p: float, t: float) -> Tensor:
    """E[z], by the midpoint rule over pi."""
    pi = (torch.arange(1_000_000, dtype=torch.float64) + 0.5) / 1_000_000
    return 1 - torch.sigmoid((math.log(p) - math.log1p(-p) + pi.logit()) / t).mean()


@pytest.mark.parametrize("p", [0.05, 0.2, 0.6])
@pytest.mark.parametrize("t", [0.01, 0.1, 0.7])
def test_relaxed_masks_have_the_right_mean(p: float, t: float) -> None:
    """Fails at a rate of 2e-5."""
    z = (1 - p) * ConcreteDropout(p, t).double()(torch.ones(100_000, 1, dtype=torch.float64)).detach()
    assert ((z >= 0) & (z <= 1 + 1e-6)).all()
    assert_mean(z, relaxed_mean(p, t).reshape(1), FAILURE_RATE, "mask")
    if t == 0.01:
        assert abs(relaxed_mean(p, t) - (1 - p)) < 1e-4
        assert ((z > 0.01) & (z < 0.99)).double().mean() < 0.05  # nearly all are 0 or 1


def test_the_rate_gets_the_gradient_of_the_expectation() -> None:
    """Pathwise, against a difference of exact expectations; fails at a rate of 2e-5."""
    p, t, h = 0.3, 0.4, 1e-4
    dropout = ConcreteDropout(p, t).double()
    gradients = []
    for _ in range(400):
        out = dropout(torch.ones(200, 1, dtype=torch.float64)).square().mean()
        gradients.append(torch.autograd.grad(out, dropout.drop_logit)[0])
    pi = (torch.arange(200_000, dtype=torch.float64) + 0.5) / 200_000

    def expectation(a: float) -> Tensor:
        return ((1 - torch.sigmoid((a + pi.logit()) / t)) * (1 + math.exp(a))).square().mean()

    a = math.log(p / (1 - p))
    exact = (expectation(a + h) - expectation(a - h)) / (2 * h)
    assert_mean(torch.stack(gradients).reshape(-1, 1), exact.reshape(1), FAILURE_RATE, "gradient")


@pytest.mark.parametrize("p", [1e-4, 0.1, 0.5, 0.8])
def test_penalty_and_its_gradient_are_the_formula(p: float) -> None:
    weights, scale = torch.randn(3, 7, dtype=torch.float64), 0.5
    dropout, linear = layer_for(weights, p, scale)
    rate = dropout.drop_probability.item()
    penalty = dropout.penalty()
    assert penalty.item() == pytest.approx(formula(rate, weights, 7, scale), rel=1e-9)
    penalty.backward()
    slope = scale**2 * weights.square().sum().item() / (2 * (1 - rate) ** 2) - 7 * math.log((1 - rate) / rate)
    assert dropout.drop_logit.grad is not None
    assert dropout.drop_logit.grad.item() == pytest.approx(slope * rate * (1 - rate), rel=1e-9)
    torch.testing.assert_close(linear.weight.grad, scale**2 * weights / (1 - rate))


def test_penalty_is_the_papers_for_unscaled_masks() -> None:
    """l^2 (1 - p) ||M||^2 / 2 - K H(p), with the weights M = W / (1 - p) that see unscaled masks (eq. 3)."""
    weights, p, scale = torch.randn(3, 7, dtype=torch.float64), 0.3, 0.5
    dropout, _ = layer_for(weights, p, scale)
    unscaled = weights / (1 - p)
    paper = scale**2 * (1 - p) * unscaled.square().sum().item() / 2 + 7 * (p * math.log(p) + (1 - p) * math.log(1 - p))
    assert dropout.penalty().item() == pytest.approx(paper, rel=1e-6)


@pytest.mark.parametrize(
    ("layers", "shape", "units"),
    [
        ([nn.Dropout(), nn.Linear(6, 2)], (4, 6), 6),
        ([nn.Dropout(), nn.Linear(6, 2)], (4, 5, 6), 6),  # positions share the weights, as examples do
        ([nn.Dropout2d(), nn.Conv2d(6, 2, 3)], (4, 6, 5, 5), 6),
        ([nn.Dropout2d(), nn.Conv2d(6, 2, 3, groups=2)], (4, 6, 5, 5), 6),
        ([nn.Dropout2d(), nn.Flatten(), nn.Linear(24, 2)], (4, 6, 2, 2), 6),  # a channel's inputs go together
        ([nn.Dropout(), nn.Flatten(), nn.Linear(24, 2)], (4, 6, 2, 2), 24),
        ([nn.Identity(), nn.Dropout()], (4, 6), 6),  # nobody reads it
    ],
)
def test_units_that_the_entropy_counts(layers: list[nn.Module], shape: tuple[int, ...], units: int) -> None:
    model = concrete_dropout(nn.Sequential(*layers), length_scale=0.0)
    model(torch.randn(shape))
    dropout = next(module for module in model if isinstance(module, ConcreteDropout))
    assert dropout.penalty().item() == pytest.approx(-units * math.log(2), rel=1e-5)


@pytest.mark.parametrize("shared", [0, 2])
def test_channels_share_their_masks(shared: int) -> None:
    z = ConcreteDropout(0.3, temperature=5.0, shared=shared).double()(torch.ones(5, 3, 4, 4, dtype=torch.float64))
    assert z.detach().unique().numel() == (5 * 3 if shared else 5 * 3 * 16)


def test_each_rate_pays_for_the_next_weights() -> None:
    model = concrete_dropout(
        nn.Sequential(nn.Dropout(0.2), nn.Linear(4, 6), nn.ReLU(), nn.Dropout(0.4), nn.Linear(6, 3)), length_scale=1.0
    ).double()
    model(torch.randn(2, 4).double())
    for index, units in ((0, 4), (3, 6)):
        expected = formula(model[index].drop_probability.item(), model[index + 1].weight, units, 1.0)
        assert model[index].penalty().item() == pytest.approx(expected, rel=1e-9)
    assert [round(model[index].drop_probability.item(), 6) for index in (0, 3)] == [0.2, 0.4]


@pytest.mark.parametrize("p", [0.05, 0.9])
def test_the_penalty_alone_drives_the_rate_to_one_half(p: float) -> None:
    dropout, _ = layer_for(torch.zeros(3, 7).double(), p)
    optimizer = torch.optim.Adam(dropout.parameters(), lr=0.05)
    for _ in range(500):
        optimizer.zero_grad()
        dropout.penalty().backward()
        optimizer.step()
    assert dropout.drop_probability.item() == pytest.approx(0.5, abs=0.01)


def test_data_drives_the_rate_down_where_dropout_hurts() -> None:
    torch.manual_seed(0)
    model = concrete_dropout(nn.Sequential(nn.Dropout(0.5), nn.Linear(8, 1, bias=False)))
    nn.init.ones_(model[1].weight).requires_grad_(False)
    objective = PenalisedLikelihood(model, examples=100_000)
    optimizer = torch.optim.Adam([model[0].drop_logit], lr=0.05)
    for _ in range(200):
        x = torch.randn(64, 8)
        optimizer.zero_grad()
        objective(lambda x=x: -(model(x) - x.sum(1, keepdim=True)).square().sum(1)).loss.backward()
        optimizer.step()
    assert model[0].drop_probability.item() < 0.1


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_masks_are_not_coarse(dtype: torch.dtype) -> None:
    """A rate below the resolution of the uniforms of half precision still drops; fails at 2e-5."""
    dropout = ConcreteDropout(0.004, 0.01).to(dtype)
    kept = dropout(torch.ones(200_000, 1, dtype=dtype)).detach() > 0.5
    keep = (-dropout.drop_logit.detach().double()).sigmoid().reshape(1)
    assert_mean(kept.double(), keep, FAILURE_RATE / 2, "kept")


@pytest.mark.parametrize(
    ("options", "message"),
    [({"p": 0.0}, "initial drop rate"), ({"p": 1.0}, "initial drop rate"), ({"temperature": 0.0}, "temperature")],
)
def test_bad_options(options: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ConcreteDropout(**options)  # type: ignore[arg-type]
