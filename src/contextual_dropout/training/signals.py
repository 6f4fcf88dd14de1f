"""Handing estimated gradients to the backward pass."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

__all__ = ["Signal", "inject"]


@dataclass(frozen=True, slots=True)
class Signal:
    """An estimate of the gradient of sum_i ELBO(x_i, y_i) with respect to one tensor of the true pass.

    The rest of the chain rule is autograd's: grad_phi L = sum_l grad_{alpha^l} L grad_phi alpha^l
    (Appendix A of the paper).

    Attributes:
        carrier: logits or masks of a draw, attached to the encoder.
        gradient: of the same shape, detached.
    """

    carrier: Tensor
    gradient: Tensor


def inject(loss: Tensor, signals: Sequence[Signal], batch: int) -> Tensor:
    """``loss`` itself, except that its backward also hands ``-gradient / batch`` to every carrier.

    Example:
        >>> a = torch.zeros(2, requires_grad=True)
        >>> loss = inject(torch.tensor(5.0), [Signal(a, torch.tensor([1.0, 2.0]))], batch=2)
        >>> loss.backward()
        >>> loss.item(), a.grad
        (5.0, tensor([-0.5000, -1.0000]))
    """
    if not signals:
        return loss
    gradients = [signal.gradient for signal in signals]
    carriers = [signal.carrier for signal in signals]
    return _Inject.apply(loss, batch, gradients, *carriers)  # type: ignore[no-any-return, no-untyped-call]


class _Inject(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, loss: Tensor, batch: int, gradients: list[Tensor], *carriers: Tensor) -> Tensor:
        ctx.batch = batch
        ctx.save_for_backward(*gradients)
        return loss.view_as(loss)

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Any, ...]:
        factor = -upstream / max(ctx.batch, 1)
        return upstream, None, None, *(gradient * factor.to(gradient.dtype) for gradient in ctx.saved_tensors)
