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
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

__all__ = ["Bernoulli", "Family", "Gaussian", "by_name"]

#: The bound on Gaussian log-variances, on both sides, and on their excess over the prior's: variances and their ratios
#: stay finite in float32.
MAX_LOG_VARIANCE = 40.0


class Family(Protocol):
    """The interface of a family for sites, objectives and estimators; logits, noise and masks are (..., C)."""

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
    def kl(logits: Tensor, prior_logit: Tensor) -> Tensor:
        """KL(q || p) in nats, in closed form, summed over the last axis."""


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

    # Masks are rounded in place, as floating point: a tensor of booleans would be slow to convert, and a comparison
    # would silently make a mask of 0 of logits that are NaN.

    @staticmethod
    def noise(like: Tensor) -> Tensor:
        """pi ~ Uniform(0, 1)."""
        return torch.rand_like(like)

    @staticmethod
    def sample(logits: Tensor, noise: Tensor) -> Tensor:
        """z = 1[pi < sigmoid(a)], the true action."""
        return logits.detach().sigmoid().sub_(noise).ceil_().abs_()  # in (-1, 1]; -0.0 is not a mask

    @staticmethod
    def antithetic(logits: Tensor, noise: Tensor) -> Tensor:
        """z = 1[pi >= sigmoid(-a)] = 1[sigmoid(a) + pi >= 1], the pseudo action; pi may be 0, but not 1."""
        return logits.detach().sigmoid().add_(noise).floor_().clamp_max_(1)  # in [0, 2], the latter by rounding

    @staticmethod
    def mean(logits: Tensor) -> Tensor:
        """E[z] = sigmoid(a)."""
        return logits.sigmoid()

    @staticmethod
    def log_prob(mask: Tensor, logits: Tensor) -> Tensor:
        """log q(z) = z log sigmoid(a) + (1 - z) log sigmoid(-a)."""
        return mask * F.logsigmoid(logits) + (1 - mask) * F.logsigmoid(-logits)

    @staticmethod
    def kl(logits: Tensor, prior_logit: Tensor) -> Tensor:
        """sum keep log(keep / keep_0) + (1 - keep) log((1 - keep) / (1 - keep_0)), for a scalar prior."""
        if not _differentiated(logits, prior_logit):
            return _bernoulli_kl(logits, prior_logit)[0]
        return _BernoulliKL.apply(logits, prior_logit)  # type: ignore[no-any-return, no-untyped-call]


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
        if torch.compiler.is_dynamo_compiling():  # the compiler derives and fuses by itself
            return 1 + (-0.5 * logits).clamp(-MAX_LOG_VARIANCE / 2, MAX_LOG_VARIANCE / 2).exp() * noise
        if not _differentiated(logits):
            return _gaussian_sample(logits, noise)
        return _GaussianSample.apply(logits, noise)  # type: ignore[no-any-return, no-untyped-call]

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
        log_variance = (-logits).clamp(-MAX_LOG_VARIANCE, MAX_LOG_VARIANCE)
        return -0.5 * ((mask - 1).square() * (-log_variance).exp() + log_variance + math.log(2 * math.pi))

    @staticmethod
    def kl(logits: Tensor, prior_logit: Tensor) -> Tensor:
        """sum KL(N(1, v) || N(1, v_0)) = (v / v_0 - 1 - log(v / v_0)) / 2, for a scalar prior."""
        if not _differentiated(logits, prior_logit):
            return _gaussian_kl(logits, prior_logit)[0]
        return _GaussianKL.apply(logits, prior_logit)  # type: ignore[no-any-return, no-untyped-call]


def by_name(name: str) -> Family:
    """The family called ``name``."""
    families: dict[str, Family] = {"bernoulli": Bernoulli, "gaussian": Gaussian}
    if name not in families:
        raise ValueError(f"unknown family {name!r}: expected one of {', '.join(map(repr, families))}")
    return families[name]


def _differentiated(*tensors: Tensor) -> bool:
    return torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)


# The functions below have their derivatives in closed form. Masks are as large as activations, and autograd's
# chain through the elementary operations would touch each of them some twenty times in a training step.


class _BernoulliKL(torch.autograd.Function):
    """d/da = keep (1 - keep) (a - b), d/db = keep_0 - keep."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, prior_logit: Tensor) -> Tensor:
        value, rare, kept, difference = _bernoulli_kl(logits, prior_logit)
        slope = rare.addcmul_(rare, rare, value=-1).mul_(difference)
        prior_slope = prior_logit.to(slope.dtype).sigmoid() * slope.shape[-1] - kept
        ctx.save_for_backward(slope.to(logits.dtype), prior_slope.to(logits.dtype))
        return value

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor]:
        slope, prior_slope = ctx.saved_tensors
        return slope * gradient.unsqueeze(-1), (gradient * prior_slope).sum()


def _bernoulli_kl(logits: Tensor, prior_logit: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """sum softplus(-c) - softplus(-|a|) + rare (c - |a|), c being b, mirrored where a is negative.

    Where q and p agree, however surely, all terms are then small, and so is their rounding. The term for units whose
    likelier outcome is not that of p, softplus(-c) = softplus(-|b|) + |b|, is added by their count: to choose between
    two numbers for each unit would take longer than all the rest.

    Returns:
        The KL, and at least in single precision, as half of it cannot count to thousands: each unit's probability of
        its rarer outcome, the sum of the keep probabilities, and a - b.
    """
    precise = torch.promote_types(logits.dtype, torch.float32)
    bounded, prior_logit = _bounded(logits.to(precise)), prior_logit.to(precise)
    likely = torch.ge(bounded, 0, out=torch.empty_like(bounded))  # the likelier outcome, 0 or 1
    rare = bounded.abs().neg_().sigmoid_()
    minus_rare = rare.neg()
    signed = torch.addcmul(minus_rare, likely, rare, value=2)  # rare, with the sign of a
    ones, difference = likely.sum(-1), bounded.sub_(prior_logit)
    small = minus_rare.log1p_().add_(F.softplus(-prior_logit.abs())).addcmul_(signed, difference, value=-1).sum(-1)
    disagreeing = (ones - (prior_logit >= 0) * bounded.shape[-1]).abs_()
    value = small.addcmul_(prior_logit.abs(), disagreeing)
    return value.to(logits.dtype), rare, ones - signed.sum(-1), difference


def _bounded(logits: Tensor) -> Tensor:
    """The logits within bounds beyond which a unit is surely kept or dropped in any case."""
    largest = 0.9 * math.log(torch.finfo(logits.dtype).max)
    return logits.clamp(-largest, largest)


class _GaussianSample(torch.autograd.Function):
    """dz/da = -(z - 1) / 2."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, noise: Tensor) -> Tensor:
        mask = _gaussian_sample(logits, noise)
        ctx.save_for_backward(mask)
        return mask

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        (mask,) = ctx.saved_tensors
        return torch.addcmul(gradient, gradient, mask, value=-1).mul_(0.5), None


def _gaussian_sample(logits: Tensor, noise: Tensor) -> Tensor:
    deviation = (-0.5 * logits).clamp_(-MAX_LOG_VARIANCE / 2, MAX_LOG_VARIANCE / 2).exp_()
    return deviation.mul_(noise).add_(1)


class _GaussianKL(torch.autograd.Function):
    """d/db = -d/da = (exp(b - a) - 1) / 2."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, prior_logit: Tensor) -> Tensor:
        value, excess = _gaussian_kl(logits, prior_logit)
        ctx.save_for_backward(excess)
        return value

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor]:
        (excess,) = ctx.saved_tensors
        half = 0.5 * gradient
        return excess * half.neg().unsqueeze(-1), (half * excess.sum(-1)).sum()


def _gaussian_kl(logits: Tensor, prior_logit: Tensor) -> tuple[Tensor, Tensor]:
    """sum (exp(b - a) - 1 - (b - a)) / 2, and exp(b - a) - 1, by how much the ratio of the variances exceeds one."""
    log_ratio = (prior_logit - logits).clamp_(max=MAX_LOG_VARIANCE)
    excess = log_ratio.expm1()  # near 0 the rounding of exp would be larger than the KL
    return 0.5 * (excess - log_ratio).sum(-1), excess
