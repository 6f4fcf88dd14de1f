from __future__ import annotations

from typing import Literal

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import contextual_dropout as cd
from contextual_dropout.baselines import learnable_dropout
from contextual_dropout.nn.encoder import GlobalLogits
from contextual_dropout.replay.recording import Draw
from contextual_dropout.training.kl import ClosedForm
from tests.chain import images, keeps, plain
from tests.exact.enumeration import FAILURE_RATE, assert_mean, exact_gradients, sampled_gradients


def test_rates_begin_at_those_of_the_layers_and_never_depend_on_the_sample() -> None:
    model = learnable_dropout(plain(), example=images())
    for keep, expected, features in zip(keeps(model, images()), (0.7, 0.9), (4, 8), strict=True):
        torch.testing.assert_close(keep, torch.full((5, features), expected))
    with torch.no_grad():
        for site in cd.sites(model).values():
            site.encoder.expand_bias.add_(100 * torch.randn(site.features))
    for keep in keeps(model, 10 * images()):
        assert torch.equal(keep, keep[:1].expand_as(keep))
        assert keep.std(1).min() > 0  # but on the unit
    assert all(isinstance(site.encoder, GlobalLogits) for site in cd.sites(model).values())


def test_only_rates_and_priors_are_added() -> None:
    base = plain()
    before = sum(parameter.numel() for parameter in base.parameters())
    model = learnable_dropout(base, example=images())
    assert sum(parameter.numel() for parameter in model.parameters()) == before + (4 + 1) + (8 + 1)


class Network(nn.Module):
    """Two sites, the second of which reads what the first lets through."""

    def __init__(self) -> None:
        super().__init__()
        self.linear1, self.linear2, self.head = nn.Linear(2, 2), nn.Linear(2, 2), nn.Linear(2, 3)
        self.dropout1, self.dropout2 = nn.Dropout(0.35), nn.Dropout(0.2)

    def forward(self, x: Tensor) -> Tensor:
        x = self.dropout1(torch.tanh(self.linear1(x)) + 1)
        x = self.dropout2(torch.tanh(self.linear2(x)) + 1)
        out: Tensor = self.head(x)
        return out


@pytest.mark.parametrize("estimator", ["auto", "sequential-arm", "independent-arm", "independent-disarm"])
def test_gradients_are_exact_in_the_mean(estimator: str) -> None:
    """By enumeration, at a failure rate of 2e-5; independent ARM is unbiased too where no rate reads a mask."""
    torch.manual_seed(4)
    model = Network()
    nn.init.uniform_(model.head.weight, -2, 2)
    model = learnable_dropout(model, temperature=1.3, example=torch.zeros(1, 2)).double()
    x, y = torch.randn(3, 2).double(), torch.randint(3, (3,))
    with torch.no_grad():
        for site in cd.sites(model).values():
            site.encoder.expand_bias.add_(torch.tensor([0.5, -0.7]))
            site.prior_logit.add_(0.4)

    def closure(copies: int) -> Tensor:
        return -3 * F.cross_entropy(model(x.repeat(copies, 1)), y.repeat(copies), reduction="none")

    _, expected = exact_gradients(model, list(cd.sites(model).values()), lambda: closure(1), 0.7)
    objective = cd.ELBO(model, estimator, 0.7)
    samples = sampled_gradients(model, lambda: objective(lambda: closure(300)).loss, 100)
    for name, gradient in expected.items():
        assert_mean(samples[name], gradient, FAILURE_RATE / len(expected), name)
    rates = [name for name in expected if "encoder" in name]
    assert len(rates) == 2
    # The comparison means something only if the gradients stand out from their standard errors.
    assert all((samples[name].std(0) / 10 < 0.2 * expected[name].abs().max()).all() for name in rates)


def test_rates_learn_which_units_matter() -> None:
    """A unit that carries the signal is kept more, one that carries noise is dropped more."""
    torch.manual_seed(0)
    model = learnable_dropout(
        nn.Sequential(nn.Identity(), nn.Dropout(0.4)), temperature=1.0, prior="fixed", example=torch.zeros(1, 2)
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    objective = cd.ELBO(model, kl_weight=0.1)
    for _ in range(200):
        x = torch.randn(64, 2)
        optimizer.zero_grad()
        objective(lambda x=x: -2 * (model(x).sum(1) - x[:, 0] / 0.6).square()).loss.backward()
        optimizer.step()
    signal, noise = cd.sites(model)["1"].keep_probability(torch.zeros(1, 2))[0].tolist()
    assert signal > 0.8
    assert noise < 0.3


@pytest.mark.parametrize("family", ["bernoulli", "gaussian"])
def test_the_kl_of_logits_without_context_is_computed_once(family: Literal["bernoulli", "gaussian"]) -> None:
    """One row stands for all samples: the same values, and the same gradients of any weighting of them."""
    torch.manual_seed(0)
    site = cd.ContextualDropout(6, family=family)
    row, weights, mask = torch.randn(6, requires_grad=True), torch.rand(5), torch.ones(5, 6)
    found = []
    for logits in (row.expand(5, 6), row.expand(5, 6).clone()):
        kl = ClosedForm()(Draw(site, logits, mask, mask, mask))
        found.append((kl.detach(), *torch.autograd.grad((weights * kl).sum(), [row, site.prior_logit])))
    for shared, separate in zip(*found, strict=True):
        torch.testing.assert_close(shared, separate)
