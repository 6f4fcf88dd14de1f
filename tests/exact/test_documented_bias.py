"""The toy problem of two dependent Bernoulli variables on which independent ARM goes wrong.

z1 ~ Bernoulli(sigmoid(a)), z2 ~ Bernoulli(sigmoid(c + d z1)) and a reward f[z1][z2]; d is what makes z2 contextual.
"""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from torch import Tensor, nn

import contextual_dropout as cd
from tests.exact.enumeration import FAILURE_RATE, assert_mean, sampled_gradients

A, C, D = 0.4, -0.6, 1.3
REWARD = torch.tensor([[0.3, 1.7], [2.1, -0.4]], dtype=torch.float64)
COPIES, REPEATS = 4000, 100


class Toy(nn.Module):
    """Site 1 has the logit a whatever it reads; site 2 reads z1 and has the logit c + d z1."""

    def __init__(self) -> None:
        super().__init__()
        self.first = cd.ContextualDropout(1, temperature=1.0, initialisation="zero")
        self.second = cd.ContextualDropout(1, temperature=1.0)
        with torch.no_grad():
            self.first.encoder.expand_bias.fill_(A)
            self.second.encoder.reduce_weight.fill_(1.0)
            self.second.encoder.expand_weight.fill_(D)
            self.second.encoder.expand_bias.fill_(C)

    def forward(self, ones: Tensor) -> tuple[Tensor, Tensor]:
        z1 = self.first(ones)
        return z1, self.second(ones, context=z1)


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def exact_gradient_of_d() -> float:
    """P(z1 = 1) keep2 (1 - keep2) (f[1][1] - f[1][0]), as z1 = 0 leaves d without effect."""
    keep2 = sigmoid(C + D)
    return sigmoid(A) * keep2 * (1 - keep2) * (REWARD[1, 1] - REWARD[1, 0]).item()


def mean_gradient_of_d(estimator: str) -> Tensor:
    torch.manual_seed(0)
    toy = Toy().double()
    ones = torch.ones(COPIES, 1, dtype=torch.float64)
    objective = cd.ELBO(toy, estimator, kl_weight=0.0)

    def reward() -> Tensor:
        z1, z2 = toy(ones)
        # A value that depends on theta by nothing, so the loss's gradient is the estimators' alone.
        return REWARD[z1.detach().long().squeeze(-1), z2.detach().long().squeeze(-1)]

    gradients = sampled_gradients(toy, lambda: -objective(reward).loss, REPEATS)
    return gradients["second.encoder.expand_weight"].flatten()


def test_the_exact_value() -> None:
    assert exact_gradient_of_d() == pytest.approx(-0.3318, abs=5e-5)


@pytest.mark.parametrize(
    "estimator", ["sequential-arm", "sequential-disarm", "sampled-arm", "sampled-disarm", "reinforce"]
)
def test_unbiased_estimators_find_it(estimator: str) -> None:
    assert_mean(mean_gradient_of_d(estimator), torch.tensor(exact_gradient_of_d()), FAILURE_RATE, estimator)


def test_independent_arm_has_its_documented_bias() -> None:
    gradients = mean_gradient_of_d("independent-arm")
    assert_mean(gradients, torch.tensor(independent_arm_expectation()), FAILURE_RATE, "independent-arm")
    assert independent_arm_expectation() == pytest.approx(-0.1564, abs=5e-5)


def independent_arm_expectation() -> float:
    """E[(f(true) - f(pseudo)) (1/2 - pi_2) z1], integrated over both uniforms; all integrands are piecewise constant
    or linear between the thresholds."""
    keep1 = sigmoid(A)
    thresholds1 = sorted({0.0, keep1, 1 - keep1, 1.0})
    thresholds2 = sorted({0.0, 1.0} | {t for z in (0, 1) for t in (sigmoid(C + D * z), 1 - sigmoid(C + D * z))})
    total = 0.0
    for low1, high1 in itertools.pairwise(thresholds1):
        middle1 = (low1 + high1) / 2
        z1, pseudo1 = int(middle1 < keep1), int(middle1 > 1 - keep1)
        for low2, high2 in itertools.pairwise(thresholds2):
            middle2 = (low2 + high2) / 2
            z2 = int(middle2 < sigmoid(C + D * z1))
            pseudo2 = int(middle2 > 1 - sigmoid(C + D * pseudo1))
            difference = (REWARD[z1, z2] - REWARD[pseudo1, pseudo2]).item()
            total += (high1 - low1) * (high2 - low2) * difference * (0.5 - middle2) * z1
    return total
