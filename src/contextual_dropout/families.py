"""The two families of dropout masks, as pure functions of natural logits.

A site with encoder logits alpha and temperature t hands ``a = t * alpha`` to these functions, so that
``keep = sigmoid(a)`` is always the probability of keeping a unit (sigma_t(alpha) in the paper).

=========== ============================ ===========================
            Bernoulli                    Gaussian
=========== ============================ ===========================
mask z      1[pi < keep]                 1 + sqrt((1-keep)/keep) eps
noise       pi ~ Uniform(0, 1)           eps ~ N(0, 1)
E[z]        keep                         1
Var[z]      keep (1 - keep)              (1 - keep)/keep = exp(-a)
=========== ============================ ===========================

The Gaussian variance is that of the paper's Algorithm 3; its text has the inverse, which would make the
noise grow with the probability of keeping.
"""

from __future__ import annotations

import math
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

__all__ = ["Bernoulli", "Family", "Gaussian", "by_name"]

#: Gaussian log-variances are clipped here, so that the variance and its gradient stay finite in float32.
MAX_LOG_VARIANCE = 40.0


class Family(Protocol):
    """What a site, an objective and an estimator may ask of a family; every tensor is elementwise."""

    name: str
    pathwise: bool
    """Whether ``sample`` is differentiable in the logits for given noise."""

    @staticmethod
    def noise(like: Tensor) -> Tensor:
        """Fresh parameter-free noise with the shape, dtype and device of ``like``."""

    @staticmethod
    def sample(logits: Tensor, noise: Tensor) -> Tensor:
        """The mask z that the noise gives under these logits."""

    @staticmethod
    def antithetic(logits: Tensor, noise: Tensor) -> Tensor:
        """The mask z of the mirrored noise: the paper's pseudo action."""

    @staticmethod
    def mean(logits: Tensor) -> Tensor:
        """E[z], what a point estimate multiplies by."""

    @staticmethod
    def log_prob(mask: Tensor, logits: Tensor) -> Tensor:
        """log q(z) in nats."""

    @staticmethod
    def kl(logits: Tensor, prior_logits: Tensor) -> Tensor:
        """KL(q || p) in nats, in closed form."""


class Bernoulli:
    """z ~ Bernoulli(sigmoid(a)), the masks of ordinary dropout.

    Example:
        >>> import torch
        >>> a = torch.tensor([0.0, 2.0])
        >>> Bernoulli.mean(a)
        tensor([0.5000, 0.8808])
        >>> Bernoulli.sample(a, torch.tensor([0.7, 0.7])), Bernoulli.antithetic(a, torch.tensor([0.7, 0.7]))
        (tensor([0., 1.]), tensor([1., 1.]))
    """

    name = "bernoulli"
    pathwise = False

    @staticmethod
    def noise(like: Tensor) -> Tensor:
        """pi ~ Uniform(0, 1)."""
        return torch.rand_like(like)

    @staticmethod
    def sample(logits: Tensor, noise: Tensor) -> Tensor:
        """z = 1[pi < sigmoid(a)], the true action."""
        return _indicator_less(noise, logits.detach().sigmoid())

    @staticmethod
    def antithetic(logits: Tensor, noise: Tensor) -> Tensor:
        """z = 1[pi > sigmoid(-a)], the pseudo action."""
        return _indicator_less((-logits.detach()).sigmoid(), noise)

    @staticmethod
    def mean(logits: Tensor) -> Tensor:
        """E[z] = sigmoid(a)."""
        return logits.sigmoid()

    @staticmethod
    def log_prob(mask: Tensor, logits: Tensor) -> Tensor:
        """log q(z) = z log sigmoid(a) + (1 - z) log sigmoid(-a)."""
        return mask * F.logsigmoid(logits) + (1 - mask) * F.logsigmoid(-logits)

    @staticmethod
    def kl(logits: Tensor, prior_logits: Tensor) -> Tensor:
        """keep log(keep / keep_0) + (1 - keep) log((1 - keep) / (1 - keep_0)).

        Written with softplus, so that it is right for any logits and has no 0 * inf.
        """
        keep = logits.sigmoid()
        softplus = F.softplus(logits)  # -log(1 - keep); minus the logits it is -log(keep)
        prior_softplus = F.softplus(prior_logits)
        kept = (prior_softplus - prior_logits) - (softplus - logits)
        return keep * kept + (1 - keep) * (prior_softplus - softplus)


class Gaussian:
    """z ~ N(1, exp(-a)), the multiplicative noise of Gaussian dropout.

    Example:
        >>> import torch
        >>> Gaussian.sample(torch.tensor([0.0, 2.0]), torch.tensor([1.0, 1.0]))
        tensor([2.0000, 1.3679])
    """

    name = "gaussian"
    pathwise = True

    @staticmethod
    def noise(like: Tensor) -> Tensor:
        """eps ~ N(0, 1)."""
        return torch.randn_like(like)

    @staticmethod
    def sample(logits: Tensor, noise: Tensor) -> Tensor:
        """z = 1 + exp(-a / 2) eps."""
        return 1 + (_log_variance(logits) / 2).exp() * noise

    @staticmethod
    def antithetic(logits: Tensor, noise: Tensor) -> Tensor:
        """z = 1 - exp(-a / 2) eps."""
        return Gaussian.sample(logits, -noise)

    @staticmethod
    def mean(logits: Tensor) -> Tensor:
        """E[z] = 1."""
        return torch.ones_like(logits)

    @staticmethod
    def log_prob(mask: Tensor, logits: Tensor) -> Tensor:
        """log N(z; 1, exp(-a))."""
        log_variance = _log_variance(logits)
        return -0.5 * ((mask - 1).square() * (-log_variance).exp() + log_variance + math.log(2 * math.pi))

    @staticmethod
    def kl(logits: Tensor, prior_logits: Tensor) -> Tensor:
        """KL(N(1, v) || N(1, v_0)) = (v / v_0 - 1 - log(v / v_0)) / 2."""
        log_ratio = _log_variance(logits) - _log_variance(prior_logits)
        return 0.5 * (torch.expm1(log_ratio) - log_ratio)


def by_name(name: str) -> Family:
    """The family called ``name``."""
    families: dict[str, Family] = {"bernoulli": Bernoulli, "gaussian": Gaussian}
    if name not in families:
        raise ValueError(f"unknown family {name!r}: expected one of {', '.join(map(repr, families))}")
    return families[name]


def _indicator_less(left: Tensor, right: Tensor) -> Tensor:
    """1[left < right] as floating point; writing into a float avoids a bool tensor and its slow conversion."""
    return torch.lt(left, right, out=torch.empty_like(right))


def _log_variance(logits: Tensor) -> Tensor:
    return (-logits).clamp(-MAX_LOG_VARIANCE, MAX_LOG_VARIANCE)
