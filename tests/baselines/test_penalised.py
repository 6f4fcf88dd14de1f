from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from contextual_dropout.baselines import PenalisedLikelihood, Penalty


class Fixed(Penalty):
    """Pays the square of its parameter."""

    def __init__(self, value: float) -> None:
        super().__init__()
        self.value = nn.Parameter(torch.tensor(value, dtype=torch.float64))

    def penalty(self) -> Tensor:
        return self.value.square()

    def forward(self, x: Tensor) -> Tensor:
        return x


def model() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 3), Fixed(2.0), nn.Sequential(Fixed(3.0))).double()


X, Y = torch.linspace(-1, 1, 20, dtype=torch.float64).reshape(5, 4), torch.tensor([0, 1, 2, 0, 1])


@pytest.mark.parametrize("weight", [1.0, 0.25, 0.0])
@pytest.mark.parametrize("examples", [1, 50])
def test_loss_is_minus_the_mean_likelihood_plus_an_nth_of_the_penalties(weight: float, examples: int) -> None:
    network = model()
    closure = lambda: -F.cross_entropy(network(X), Y, reduction="none")  # noqa: E731
    step = PenalisedLikelihood(network, examples, weight)(closure)
    expected = F.cross_entropy(network(X), Y) + weight * (4 + 9) / examples
    torch.testing.assert_close(step.loss, expected, rtol=1e-14, atol=0)
    torch.testing.assert_close(step.log_likelihood, closure().detach())
    assert torch.equal(step.kl, torch.full((5,), 13.0, dtype=torch.float64))
    assert step.kl_weight == weight / examples
    assert not step.kl.requires_grad
    assert not step.log_likelihood.requires_grad
    step.loss.backward()
    torch.testing.assert_close(network[1].value.grad, torch.tensor(2 * 2.0 * weight / examples, dtype=torch.float64))


def test_batches_of_an_epoch_add_up_to_the_whole() -> None:
    """The mean of the losses of equal batches is the loss of the whole set: every example pays an N-th."""
    network = model()
    objective = PenalisedLikelihood(network, examples=4)
    whole, *parts = [
        objective(lambda rows=rows: -F.cross_entropy(network(X[rows]), Y[rows], reduction="none")).loss
        for rows in (slice(0, 4), slice(0, 2), slice(2, 4))
    ]
    torch.testing.assert_close(torch.stack(parts).mean(), whole)


def test_without_penalties_it_is_the_likelihood() -> None:
    network = nn.Linear(4, 3).double()
    step = PenalisedLikelihood(network, 10)(lambda: -F.cross_entropy(network(X), Y, reduction="none"))
    torch.testing.assert_close(step.loss, F.cross_entropy(network(X), Y))
    assert torch.equal(step.kl, torch.zeros(5, dtype=torch.float64))


def test_bad_use() -> None:
    network = model()
    with pytest.raises(ValueError, match="size of the training set"):
        PenalisedLikelihood(network, 0)
    objective = PenalisedLikelihood(network, 10)
    with pytest.raises(ValueError, match=r"one log-likelihood per example, \(B,\), got \(\)"):
        objective(lambda: -F.cross_entropy(network(X), Y))
    with pytest.raises(ValueError, match=r"got \(5, 3\)"):
        objective(lambda: network(X))
    with pytest.raises(FloatingPointError, match="example 0"):
        objective(lambda: network(X).sum(1).log() * torch.nan)
