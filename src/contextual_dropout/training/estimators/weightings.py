"""The two weightings of an antithetic difference: ARM and its Rao-Blackwellised form, DisARM.

Both multiply r(z_true) - r(z_pseudo) by a weight per unit whose expectation, given the two masks, is the same.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from contextual_dropout.replay.recording import Draw
from contextual_dropout.training.credit import spread

__all__ = ["Weighting", "arm", "disarm"]

#: ``(draw, pseudo mask, difference of the rewards (B,) or ()) -> gradient for the draw's logits``; mask and gradient
#: have the shape of the logits.
Weighting = Callable[[Draw, Tensor, Tensor], Tensor]


def arm(draw: Draw, pseudo: Tensor, difference: Tensor) -> Tensor:
    """difference * (1/2 - pi), as in the paper's Algorithms 1 and 2 (Yin and Zhou 2019)."""
    column = spread(difference, pseudo)
    return torch.addcmul(0.5 * column, column, draw.noise, value=-1)


def disarm(draw: Draw, pseudo: Tensor, difference: Tensor) -> Tensor:
    """difference * E[1/2 - pi | z_true, z_pseudo] = difference * (z_true - z_pseudo) sigmoid(abs(a)) / 2.

    (Dong et al. 2020.) Zero for every unit whose two masks agree: the same passes, never more variance.
    """
    half = 0.5 * spread(difference, pseudo)
    return draw.logits.detach().abs().sigmoid_().mul_(draw.mask - pseudo).mul_(half)
