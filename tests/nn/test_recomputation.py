"""Activation checkpointing: the gradients are those without it, whatever the estimator."""

from __future__ import annotations

import gc
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import contextual_dropout as cd
from contextual_dropout.nn import recomputation

BERNOULLI = [name for name in cd.estimators.names() if "reparameterized" not in name]


class Net(nn.Module):
    """Two blocks, the second of which has a checkpoint inside its own."""

    def __init__(self, family: str) -> None:
        super().__init__()
        torch.manual_seed(0)
        options = {"family": family, "temperature": 1.0, "reduction": 2}
        self.first = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), cd.ContextualDropout(16, **options))
        self.second = nn.Sequential(nn.Linear(16, 8), nn.Tanh(), cd.ContextualDropout(8, **options))
        self.last = nn.Linear(8, 3)
        self.checkpoints = False
        self.x, self.y = torch.randn(6, 8), torch.tensor([0, 1, 2, 0, 1, 2])

    def run(self, block: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
        out: Tensor = checkpoint(block, x, use_reentrant=False) if self.checkpoints else block(x)
        return out

    def forward(self, x: Tensor) -> Tensor:
        return self.run(lambda x: self.last(self.run(self.second, x)), self.run(self.first, x))

    def log_likelihood(self) -> Tensor:
        return -F.cross_entropy(self(self.x), self.y, reduction="none")


def gradients(model: Net, *estimators: str, kl: str = "closed-form", checkpoints: bool) -> dict[str, Tensor]:
    """Those of the sum of all losses, each of its own pass, in one backward."""
    model.zero_grad()
    model.checkpoints = checkpoints
    torch.manual_seed(3)
    objectives = [cd.ELBO(model, estimator, kl=kl) for estimator in estimators]  # type: ignore[arg-type]
    torch.stack([objective(model.log_likelihood).loss for objective in objectives]).sum().backward()
    return {name: parameter.grad for name, parameter in model.named_parameters() if parameter.grad is not None}


def assert_equal_gradients(model: Net, *estimators: str, kl: str = "closed-form") -> None:
    plain = gradients(model, *estimators, kl=kl, checkpoints=False)
    checkpointed = gradients(model, *estimators, kl=kl, checkpoints=True)
    assert plain.keys() == checkpointed.keys() >= {"first.0.weight", "last.bias"}
    for name, gradient in plain.items():
        assert torch.equal(gradient, checkpointed[name]), name


@pytest.mark.parametrize("kl", ["closed-form", "sampled"])
@pytest.mark.parametrize("estimator", BERNOULLI)
def test_bernoulli_gradients_are_equal_to_the_last_bit(estimator: str, kl: str) -> None:
    assert_equal_gradients(Net("bernoulli"), estimator, kl=kl)


@pytest.mark.parametrize("kl", ["closed-form", "sampled"])
@pytest.mark.parametrize("estimator", cd.estimators.names())
def test_gaussian_gradients_are_equal_to_the_last_bit(estimator: str, kl: str) -> None:
    assert_equal_gradients(Net("gaussian"), estimator, kl=kl)


def test_relaxed_masks_of_frozen_encoders_are_the_same_too() -> None:
    model = Net("bernoulli")
    for site in cd.sites(model).values():
        site.encoder.requires_grad_(False)
    assert_equal_gradients(model, "concrete")


def test_several_losses_may_wait_for_one_backward() -> None:
    assert_equal_gradients(Net("bernoulli"), "concrete", "straight-through", "sampled-arm")


def test_a_plain_pass_is_not_taken_for_a_recomputation() -> None:
    model = Net("bernoulli")
    step = cd.ELBO(model, "concrete")(model.log_likelihood)
    out = model.first[2](torch.ones(50, 16))
    assert set(out.unique().tolist()) == {0.0, 1.0}
    step.loss.backward()


def test_nothing_is_remembered_after_the_step() -> None:
    model = Net("bernoulli")
    gradients(model, "straight-through", checkpoints=True)
    gc.collect()
    before = len(recomputation._PASSES)
    step = cd.ELBO(model, "straight-through")(model.log_likelihood)
    assert len(recomputation._PASSES) == before + 1
    step.loss.backward()
    del step
    gc.collect()
    assert len(recomputation._PASSES) == before
