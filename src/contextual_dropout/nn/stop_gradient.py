"""A stop-gradient that can be lifted.

The encoder of a site reads features that the network computed, and its gradient must not reach the network's
parameters ("we copy the values of theta into phi and stop the gradient", Section 2.4). Stopping it for good,
however, also cuts the path from an earlier site's mask through the network to a later site's encoder, which
the exact pathwise gradient of phi needs. So the stop is a gate: closed for the backward pass that fills theta,
open for the sweep in which the reparameterized estimator asks for nothing but the masks' gradients.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

__all__ = ["Gate"]


class Gate:
    """Identity forwards; backwards it passes the gradient on if it is open at that moment.

    Example:
        >>> x = torch.ones(1, requires_grad=True)
        >>> gate = Gate(open=True)
        >>> y = gate(3 * x)
        >>> torch.autograd.grad(y, x, retain_graph=True)
        (tensor([3.]),)
        >>> gate.open = False
        >>> torch.autograd.grad(y, x, allow_unused=True)
        (None,)
    """

    def __init__(self, *, open: bool) -> None:
        self.open = open

    def __call__(self, x: Tensor) -> Tensor:
        if torch.compiler.is_dynamo_compiling():  # compiled code has its backward pass already: this cannot change
            return x if self.open else x.detach()
        return _Gated.apply(x, self) if x.requires_grad else x  # type: ignore[no-untyped-call]


class _Gated(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, gate: Gate) -> Tensor:
        ctx.gate = gate
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, None]:
        return (gradient if ctx.gate.open else None), None
