"""Where straight-through masks are exact, and what they cost in variance."""

from __future__ import annotations

import torch
from torch import Tensor, nn

import contextual_dropout as cd
from contextual_dropout.nn.families import Bernoulli
from contextual_dropout.training.estimators import StraightThrough
from tests.exact.enumeration import FAILURE_RATE, assert_mean, exact_gradients, sampled_gradients

COPIES, REPEATS = 200, 50


def linear_problem(features: int) -> tuple[nn.Sequential, Tensor]:
    """One site under a linear layer, whose output is the reward: linear in every mask."""
    torch.manual_seed(0)
    site = cd.ContextualDropout(features, p=0.3, temperature=1.0, reduction=2)
    return nn.Sequential(site, nn.Linear(features, 1)).double(), torch.randn(3, features).double()


def test_masks_are_hard_to_the_last_bit() -> None:
    logits, noise = torch.randn(1000, requires_grad=True), torch.rand(1000)
    mask = StraightThrough().sampler(Bernoulli, logits, noise)
    assert torch.equal(mask, Bernoulli.sample(logits, noise))
    (slope,) = torch.autograd.grad(mask.sum(), logits)
    torch.testing.assert_close(slope, logits.sigmoid() * (-logits).sigmoid())


def test_exact_where_the_reward_is_linear_in_the_masks() -> None:
    model, x = linear_problem(4)
    _, expected = exact_gradients(model, [model[0]], lambda: model(x).squeeze(-1), 0.5)  # type: ignore[list-item]
    objective, many = cd.ELBO(model, "straight-through", 0.5), x.repeat(COPIES, 1)
    samples = sampled_gradients(model, lambda: objective(lambda: model(many).squeeze(-1)).loss, REPEATS)
    for name, gradient in expected.items():
        assert_mean(samples[name], gradient, FAILURE_RATE / len(expected), name)


def test_a_unit_is_answerable_for_its_own_part_only() -> None:
    """Without the noise that ARM has from the other units, a linear reward leaves no variance at all."""
    model, x = linear_problem(64)

    def variance(estimator: str) -> float:
        objective = cd.ELBO(model, estimator, 0.0)
        samples = sampled_gradients(model, lambda: objective(lambda: model(x).squeeze(-1)).loss, 30)
        return samples["0.encoder.expand_bias"].var(0).mean().item()

    assert variance("straight-through") < 1e-20
    assert variance("sequential-disarm") > 1e-4
