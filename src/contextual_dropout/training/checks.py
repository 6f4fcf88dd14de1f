"""Checking a training step, with messages that say how to fix it."""

from __future__ import annotations

import math
import warnings
from collections.abc import Collection

import torch
from torch import Tensor

from contextual_dropout.nn.site import ContextualDropout
from contextual_dropout.replay.recording import Draw, Recording
from contextual_dropout.training.credit import Rows

__all__ = [
    "CoupledRowsWarning",
    "SaturationWarning",
    "closure_called_sites",
    "finite",
    "finite_rerun",
    "one_value_per_sample",
    "sites_can_learn",
    "warn_if_saturated",
    "warn_of_coupled_rows",
]

#: Mean keep probabilities outside of this range are reported.
HEALTHY_KEEP_PROBABILITY = (0.01, 0.999)


class SaturationWarning(UserWarning):
    """The keep probabilities of a site have all but reached 0 or 1."""


def closure_called_sites(sites: Collection[ContextualDropout], recording: Recording) -> None:
    """Raise unless a site has sampled, and every one that did belongs to the model."""
    if not sites:
        raise RuntimeError(
            "the model has no contextual dropout site: convert it with cd.contextualize(model), or build it with "
            "cd.ContextualDropout layers"
        )
    if not any(site.stochastic for site in sites):
        raise RuntimeError("all sites are in eval mode, where nothing is sampled: call model.train() first")
    if not recording.draws:
        raise RuntimeError(
            f"none of the model's {len(sites)} sites was called in the closure: it must call the model that was given "
            "to ELBO, and the sites must be on the path that computes its value"
        )
    for draw in recording.draws:
        if draw.site not in sites:
            raise RuntimeError(
                f"the closure called a site of {draw.site.features} features that is not part of the model given to "
                "ELBO: give ELBO the module that contains all sites of the closure"
            )


def one_value_per_sample(recording: Recording, log_likelihood: Tensor, rows: Rows) -> None:
    """Raise unless the closure's value is (B,), B being the sites' number of samples; any number for coupled rows."""
    samples = len(recording.draws[0].logits)
    if not isinstance(log_likelihood, Tensor) or log_likelihood.ndim != 1:
        got = f"shape {tuple(log_likelihood.shape)}" if isinstance(log_likelihood, Tensor) else repr(log_likelihood)
        raise ValueError(
            f"the closure must return one log-likelihood per example, shape ({samples},), got {got}: for a classifier "
            "return -F.cross_entropy(model(x), y, reduction='none')"
        )
    if rows == "coupled":
        return
    for draw in recording.draws:
        drawn, examples = len(draw.logits), len(log_likelihood)
        if drawn != examples and not (draw.site.folded and examples and drawn % examples == 0):
            raise ValueError(
                f"site {recording.name_of(draw.site)!r} drew masks of shape {tuple(draw.logits.shape)}, i.e. for "
                f"{drawn} samples, but the closure returned {examples} log-likelihoods: it must return one per sample. "
                "If the site's samples are on another axis, build it with batch_dim; if that axis holds several rows "
                "of each sample, with folded=True (cd.contextualize finds both with example=); if rows act on one "
                "another, as nodes of a graph do, give cd.ELBO rows='coupled'"
            )


def finite(what: str, values: Tensor, where: str = "") -> None:
    """Raise if an example's value is infinite or NaN."""
    if math.isfinite(values.sum().item()):  # one number decides in most cases
        return
    bad = torch.nonzero(~torch.isfinite(values)).flatten().tolist()
    if not bad:  # finite numbers with an infinite sum
        return
    raise FloatingPointError(
        f"the {what} of example {bad[0]} of the batch{where} is {values[bad[0]].item()} ({len(bad)} of {len(values)} "
        "are not finite); no gradient was computed, the parameters are as before: look at that input, at the learning "
        "rate and at the scale of the model's outputs"
    )


def finite_rerun(recording: Recording, draw: Draw, log_likelihood: Tensor) -> None:
    """Raise if an example's value is infinite or NaN under another mask of a draw."""
    if not math.isfinite(log_likelihood.sum().item()):
        where = f", under another mask at site {recording.name_of(draw.site)!r},"
        finite("log-likelihood", log_likelihood, where)


def sites_can_learn(recording: Recording) -> None:
    """Raise if an encoder has trainable parameters and autograd has not seen its logits."""
    for draw in recording.draws:
        if draw.site.encoder.trainable and not draw.logits.requires_grad:
            raise RuntimeError(
                f"site {recording.name_of(draw.site)!r} ran without autograd, so that its encoder cannot learn: do not "
                "call the model under torch.no_grad(), and give torch.utils.checkpoint use_reentrant=False"
            )


class CoupledRowsWarning(UserWarning):
    """A mask acts on the log-likelihoods of other examples, and is not credited with them."""


def warn_of_coupled_rows() -> None:
    """Warn that score-function gradients are biased, and say what to do."""
    warnings.warn(
        "the mask of one example moves the log-likelihood of another (as between nodes of a graph, or where rows of "
        "the batch are mixed): ARM, DisARM and REINFORCE credit a mask with its own example only, so that their "
        "gradients are biased. Give cd.ELBO rows='coupled', which credits it with the whole batch, or estimator="
        "'straight-through', whose gradient takes every path",
        CoupledRowsWarning,
        stacklevel=3,
    )


def warn_if_saturated(recording: Recording) -> bool:
    """Warn of the first site that keeps nearly nothing or nearly everything; True if there is one."""
    low, high = HEALTHY_KEEP_PROBABILITY
    for draw in recording.draws:
        keep = draw.logits.detach().sigmoid().mean().item() if draw.logits.numel() else low
        if keep < low or keep > high:
            state = "collapsed: it drops nearly everything" if keep < low else "saturated: it drops nearly nothing"
            warnings.warn(
                f"site {recording.name_of(draw.site)!r} has {state} (mean keep probability {keep:.4f}); try a smaller "
                "encoder learning rate or temperature, a KL warm-up (cd.schedules.LinearWarmup), or a fixed prior",
                SaturationWarning,
                stacklevel=4,
            )
            return True
    return False
