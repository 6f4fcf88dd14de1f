"""The cost of a draw: its closed-form KL or the sampled log-ratio, per example and summed over units.

The ELBO is E_q[log p(y | x, z) - kl_weight * sum_l cost_l]. The closed form has already taken the expectation
over the draw's own mask, so a mask influences only the *later* costs; the log-ratio log q(z) - log p(z), which
the paper's ARM uses, depends on the draw's own mask too.
"""

from __future__ import annotations

from typing import Protocol

from torch import Tensor

from contextual_dropout.replay.recording import Draw

__all__ = ["ClosedForm", "Divergence", "LogRatio", "by_name"]


class Divergence(Protocol):
    """A form of KL(q || p)."""

    first_dependent: int
    """A draw's mask influences its own cost (0) or those of later draws only (1)."""

    def __call__(self, draw: Draw) -> Tensor:
        """The cost of a draw, (B,) nats; one number for each row of a folded site."""


class ClosedForm:
    """KL(q(z^l | z^<l) || p(z^l)), differentiable in the logits and in the prior."""

    first_dependent = 1

    def __call__(self, draw: Draw) -> Tensor:
        logits, prior = draw.logits, draw.prior_logit.to(draw.logits.dtype)
        if len(logits) > 1 and logits.stride(0) == 0:  # logits without a context: one row for all samples
            return draw.family.kl(logits[0], prior).sum().expand(len(logits))
        return _over_positions(draw.family.kl(logits, prior))


class LogRatio:
    """log q(z^l | z^<l) - log p(z^l) at the sampled mask.

    Where the mask is a score-function draw the logits are held fixed: the expectation of grad log q is zero
    (Appendix A of the paper).
    """

    first_dependent = 0

    def __call__(self, draw: Draw) -> Tensor:
        prior = draw.prior_logit.to(draw.logits.dtype)
        logits = draw.logits if draw.sampled.requires_grad else draw.logits.detach()
        ratio = draw.family.log_prob(draw.mask, logits) - draw.family.log_prob(draw.mask, prior)
        return _over_positions(ratio.sum(-1))


def _over_positions(costs: Tensor) -> Tensor:
    """(B, ...) to (B,): a sample's cost is the sum of those of its positions."""
    return costs if costs.ndim == 1 else costs.flatten(1).sum(1)


def by_name(name: str) -> Divergence:
    """The divergence called ``name``: ``"closed-form"`` or ``"sampled"``."""
    divergences: dict[str, Divergence] = {"closed-form": ClosedForm(), "sampled": LogRatio()}
    if not isinstance(name, str) or name not in divergences:
        raise ValueError(f"unknown kl {name!r}: expected one of {', '.join(map(repr, divergences))}")
    return divergences[name]
