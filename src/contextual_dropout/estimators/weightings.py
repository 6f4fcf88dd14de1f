"""The two weightings of an antithetic difference: ARM and its Rao-Blackwellised form, DisARM.

Both multiply r(z_true) - r(z_pseudo) by a weight per unit whose expectation, given the difference, is the same.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from contextual_dropout.site import Draw

__all__ = ["Weighting", "arm", "disarm"]

#: ``(draw, pseudo mask) -> weight``, each (B, C).
Weighting = Callable[[Draw, Tensor], Tensor]


def arm(draw: Draw, pseudo: Tensor) -> Tensor:
    """1/2 - pi, as in the paper's Algorithms 1 and 2 (Yin and Zhou 2019)."""
    return 0.5 - draw.noise


def disarm(draw: Draw, pseudo: Tensor) -> Tensor:
    """E[1/2 - pi | z_true, z_pseudo] = (z_true - z_pseudo) sigmoid(abs(a)) / 2 (Dong et al. 2020).

    Zero for every unit whose two masks agree: the same passes, never more variance.
    """
    return 0.5 * (draw.mask - pseudo) * draw.logits.detach().abs().sigmoid()
