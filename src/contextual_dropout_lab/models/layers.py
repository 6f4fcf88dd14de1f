"""The building blocks of the convolutional networks."""

from __future__ import annotations

from torch import nn

__all__ = ["check_drop_rate", "check_size", "convolution", "initialise"]


def convolution(before: int, after: int, kernel: int = 3, stride: int = 1) -> nn.Conv2d:
    """A convolution without bias (a batch normalisation follows or precedes it) that keeps H and W at stride 1.

    Shape:
        (B, before, H, W) to (B, after, ceil(H / stride), ceil(W / stride)) for odd kernels.

    Example:
        >>> convolution(3, 16, stride=2)
        Conv2d(3, 16, kernel_size=(3, 3), stride=(2, 2), padding=(1, 1), bias=False)
    """
    return nn.Conv2d(before, after, kernel, stride, padding=kernel // 2, bias=False)


def initialise(model: nn.Module) -> None:
    """Apply He initialisation to all convolutions, Var(w) = 2 / fan_out (He et al. 2015); other layers keep torch's.

    Example:
        >>> layer = convolution(64, 64)
        >>> initialise(layer)
        >>> round(layer.weight.std().item() / (2 / (64 * 9)) ** 0.5, 1)
        1.0
    """
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")


def check_size(name: str, value: int) -> None:
    """Raise unless an argument is a whole number above zero."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"{name} must be a positive whole number, got {value!r}")


def check_drop_rate(p: float) -> None:
    """Raise unless p is a drop rate: 0 drops nothing, 1 would leave nothing."""
    if isinstance(p, bool) or not isinstance(p, (int, float)) or not 0 <= p < 1:
        raise ValueError(f"p is a drop rate and must be in [0, 1), got {p!r}")
