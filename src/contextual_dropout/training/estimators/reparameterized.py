"""Pathwise gradients: Algorithm 3, and what its stop-gradient leaves out.

A mask z^l = z(alpha^l, eps) acts on the ELBO through the network and, as later encoders read what the network
makes of it, through every later site's logits. The encoders' input is behind a stop-gradient so that nothing of q
reaches theta. Autograd through that stop, as Algorithm 3 is usually run, therefore loses the second kind of path:
its gradient for phi is biased as soon as a site's rates depend on an earlier mask. :func:`exact` lifts the stop
for one sweep that asks for the masks' gradients only; :func:`truncated` leaves it in place and costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from contextual_dropout.training.signals import Signal
from contextual_dropout.training.trial import Trial, sample

__all__ = ["Pathwise", "Reparameterized", "exact", "truncated"]

#: ``(trial, signals of the score-function draws) -> signals of the pathwise draws``.
Pathwise = Callable[[Trial, Sequence[Signal]], list[Signal]]


def exact(trial: Trial, signals: Sequence[Signal]) -> list[Signal]:
    """d ELBO / d z^l over all paths, by one more backward sweep without parameter gradients.

    The score-function signals take part: a Gaussian mask that moves a later Bernoulli site's logits gets the gradient
    of these logits too.
    """
    draws = trial.pathwise_draws
    if not draws:
        return []
    if any(draw.compiled for draw in draws):
        return _exact_in_compiled_code(trial)
    recording, outcome = trial.recording, trial.true
    elbo = outcome.log_likelihood.sum() - trial.kl_weight * torch.stack([cost.sum() for cost in outcome.costs]).sum()
    recording.encoder_gate.open = recording.mask_gate.open = True
    try:
        gradients = torch.autograd.grad(
            [elbo, *(signal.carrier for signal in signals)],
            [draw.mask for draw in draws],
            [torch.ones_like(elbo), *(signal.gradient for signal in signals)],
            retain_graph=True,
            allow_unused=True,
        )
    finally:
        recording.encoder_gate.open = recording.mask_gate.open = False
    pairs = zip(draws, gradients, strict=True)
    return [Signal(draw.sampled, gradient) for draw, gradient in pairs if gradient is not None]


def _exact_in_compiled_code(trial: Trial) -> list[Signal]:
    """Do the same in compiled code, with gradients handed to the encoders' and the priors' parameters themselves.

    Compiled code brings its backward pass along, where gates cannot be opened. So the gradients of phi and eta, KL and
    all, are taken from one more pass that is compiled with open gates, and the true pass is left with theta's.
    """
    recording = trial.recording
    if not recording.watch.repeatable:
        raise RuntimeError(
            f"site {recording.name_of(next(draw.site for draw in trial.draws if draw.compiled))!r} ran in a compiled "
            "function: to have exact pathwise gradients, compile the module that contains the sites "
            "(torch.compile(model) or model.compile()), or use estimator='truncated-reparameterized'"
        )
    parameters = {parameter for draw in trial.draws for parameter in draw.site.parameters() if parameter.requires_grad}
    gradients = torch.autograd.grad(trial.elbo_without_stops(), list(parameters), allow_unused=True)
    trial.true.costs = [cost.detach() for cost in trial.true.costs]
    pairs = zip(parameters, gradients, strict=True)
    return [Signal(parameter, gradient) for parameter, gradient in pairs if gradient is not None]


def truncated(trial: Trial, signals: Sequence[Signal]) -> list[Signal]:
    """Nothing to add: the loss's own backward runs through the masks and stops at the encoders' inputs."""
    return []


@dataclass(frozen=True)
class Reparameterized:
    """Pathwise gradients, for models whose sites are all Gaussian.

    Args:
        pathwise: :func:`exact` (unbiased) or :func:`truncated` (no extra sweep; the name
            ``"truncated-reparameterized"``).
    """

    pathwise: Pathwise = exact
    reruns = False
    sampler = staticmethod(sample)

    def __call__(self, trial: Trial) -> list[Signal]:
        """One signal per draw."""
        for index, draw in trial.score_draws:
            name = trial.recording.name_of(draw.site)
            raise ValueError(
                f"site {name!r} ({draw.site.features} features, draw {index} of the pass) is of family "
                f"{draw.family.name!r}, whose masks have no pathwise gradient: use estimator='auto', "
                "'straight-through' or 'sequential-disarm', or build the site with family='gaussian'"
            )
        return self.pathwise(trial, [])
