"""Warning once of sites in a network that is trained without training them."""

from __future__ import annotations

import warnings
import weakref
from functools import partial

import torch
from torch import Tensor, nn

from contextual_dropout.nn.recomputation import during_backward

__all__ = ["UntrainedSitesWarning", "notice_backward", "warn_of_frozen_sites"]

#: The number of backward passes from which on this is training, and not a look at a gradient.
STEPS = 3
_BACKWARDS: weakref.WeakKeyDictionary[nn.Module, int] = weakref.WeakKeyDictionary()


class UntrainedSitesWarning(UserWarning):
    """The network is being trained, and its sites are not."""


def notice_backward(site: nn.Module, features: Tensor) -> None:
    """Warn if gradients flow back, again and again, to features that a site masked outside of any objective."""
    if features.requires_grad and torch.is_grad_enabled() and not during_backward():
        features.register_hook(partial(_count, site))  # type: ignore[no-untyped-call]


def warn_of_frozen_sites() -> None:
    """Warn that no site wants a gradient where other parameters do."""
    warnings.warn(
        "all parameters of the contextual dropout sites are frozen (requires_grad=False), so that their rates stay as "
        "they are while the network trains: peft freezes them when LoRA is added after converting. Call "
        "cd.unfreeze_sites(model) before making the optimizer, or add LoRA first and convert then",
        UntrainedSitesWarning,
        stacklevel=5,
    )


def _count(site: nn.Module, gradient: Tensor) -> None:
    _BACKWARDS[site] = _BACKWARDS.get(site, 0) + 1
    if _BACKWARDS[site] == STEPS:
        _warn_of_plain_loss()


def _warn_of_plain_loss() -> None:
    # The same text from the same place for all sites: Python's own filter then shows it once.
    warnings.warn(
        "a network with contextual dropout is trained on a plain loss, from which Bernoulli sites learn nothing and "
        "Gaussian ones no KL: compute the loss with cd.ELBO(model)(closure), or use ELBOTrainer in the place of "
        "transformers' Trainer, or ELBOMixin with Lightning; to train the network with rates that stay as they are, "
        "freeze the encoders (site.encoder.requires_grad_(False))",
        UntrainedSitesWarning,
        stacklevel=1,
    )
