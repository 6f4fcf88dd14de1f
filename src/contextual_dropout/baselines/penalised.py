"""The objective of methods without sites: the likelihood, less a penalty for each layer's distribution."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable

import torch
from torch import Tensor, nn

from contextual_dropout.training import checks
from contextual_dropout.training.objective import Step

__all__ = ["PenalisedLikelihood", "Penalty"]


class Penalty(nn.Module):
    """A layer with a penalty, in nats for the whole training set, on the distribution of its parameters."""

    @abstractmethod
    def penalty(self) -> Tensor:
        """KL(q || p), or a sample of log q - log p for the parameters of the last call: a scalar."""


class PenalisedLikelihood:
    """``L = mean log p(y | x, w) - penalty_weight * sum of penalties / N``, the ELBO of a distribution over weights.

    Unlike the masks of contextual dropout, weights are shared by all N examples of the training set, so that each
    example bears an N-th of their divergence. Without any :class:`Penalty` layer this is the plain likelihood.

    Args:
        model: the network.
        examples: N, the size of the training set.
        penalty_weight: 1 is the bound.

    Example:
        >>> import torch.nn.functional as F
        >>> import contextual_dropout as cd
        >>> model = cd.baselines.concrete_dropout(nn.Sequential(nn.Dropout(0.2), nn.Linear(4, 3)))
        >>> x, y = torch.randn(8, 4), torch.randint(3, (8,))
        >>> objective = PenalisedLikelihood(model, examples=8)
        >>> objective(lambda: -F.cross_entropy(model(x), y, reduction="none")).loss.backward()
    """

    def __init__(self, model: nn.Module, examples: int, penalty_weight: float = 1.0) -> None:
        if examples < 1:
            raise ValueError(f"examples is the size of the training set, at least 1, got {examples}")
        self.model = model
        self.weight = penalty_weight / examples

    def __call__(self, closure: Callable[[], Tensor]) -> Step:
        """Evaluate the objective; the closure is the same as for :class:`contextual_dropout.ELBO`."""
        log_likelihood = closure()
        if log_likelihood.ndim != 1:
            raise ValueError(
                f"the closure must return one log-likelihood per example, (B,), got {tuple(log_likelihood.shape)}: "
                "for a classifier return -F.cross_entropy(model(x), y, reduction='none')"
            )
        checks.finite("log-likelihood", log_likelihood)
        penalties = [module.penalty() for module in self.model.modules() if isinstance(module, Penalty)]
        penalty = torch.stack(penalties).sum() if penalties else log_likelihood.new_zeros(())
        loss = self.weight * penalty - log_likelihood.sum() / max(len(log_likelihood), 1)
        return Step(loss, log_likelihood.detach(), penalty.detach().expand_as(log_likelihood), self.weight)
