"""What is known of a network of somebody else's package: how to build a small one, and what to give it."""

from __future__ import annotations

import functools
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from contextual_dropout.prediction.outputs import find_logits

__all__ = ["BATCH", "LENGTH", "Network", "arguments", "classes", "lively", "numbers", "pixels", "reals", "tokens"]

#: Prime, and unlike the heads and widths below: an axis that is taken for another one shows.
BATCH, LENGTH = 3, 7
WORDS = 50

Inputs = dict[str, Any] | tuple[Any, ...]


def numbers(outputs: Tensor) -> Tensor:
    """The log-likelihood of each example (B,) under a Gaussian around its outputs, for targets of any kind."""
    targets = torch.randn(outputs.shape, generator=torch.Generator().manual_seed(1))
    return -(outputs - targets).square().flatten(1).mean(1) / 2


def classes(outputs: Tensor) -> Tensor:
    """The log-likelihood of each example (B,) of logits whose last axis holds the classes; the second one is right."""
    return outputs.log_softmax(-1)[..., 1].unsqueeze(-1).flatten(1).mean(1)


@dataclass(frozen=True)
class Network:
    """One network.

    Attributes:
        name: as it stands in the table.
        package: the distribution that it comes from.
        build: makes a small one with random weights.
        inputs: makes a batch of texts so long, or images so large: keywords or a tuple, whose tensors hold one sample
            per row.
        size: of the batch that the network is converted with.
        other_size: another one that the plain network takes too.
        output: picks the tensor (B, ...) out of what the network returns.
        log_likelihood: of each example, given that tensor.
        causal: the input, by keyword or position, whose later entries on axis 1 no earlier output may depend on.
        coupled: whether the outputs of an example depend on others of its batch, as of nodes on their neighbours.
        failing: the checks that do not hold or are refused, each with a part of the message that says why; a test tells
            when one holds after all.
    """

    name: str
    package: str
    build: Callable[[], nn.Module]
    inputs: Callable[[int], Inputs]
    size: int = LENGTH
    other_size: int | None = None
    output: Callable[[Any], Tensor] = find_logits
    log_likelihood: Callable[[Tensor], Tensor] = classes
    causal: str | int | None = None
    coupled: bool = False
    failing: dict[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.name

    def plain(self) -> nn.Module:
        """The network before conversion, in eval mode, the same at every call."""
        random.seed(0)  # some packages draw from here
        torch.manual_seed(0)
        return self.build().eval()

    def example(self, seed: int = 0, size: int | None = None) -> Inputs:
        """A batch of inputs, the same at every call with the same seed."""
        torch.manual_seed(seed)
        return self.inputs(size or self.size)

    def run(self, model: nn.Module, inputs: Inputs) -> Tensor:
        """What a model makes of inputs."""
        given, keywords = arguments(inputs)
        return self.output(model(*given, **keywords))


def lively(build: Callable[[], nn.Module]) -> Callable[[], nn.Module]:
    """The network with weights of a size at which its outputs depend on its inputs: new ones hardly do."""

    @functools.wraps(build)
    def built() -> nn.Module:
        model = build()
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.ndim > 1 and parameter.requires_grad:
                    parameter.normal_(0, parameter[0].numel() ** -0.5)
        return model

    return built


def arguments(inputs: Inputs) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Inputs as positional and keyword arguments."""
    return ((), inputs) if isinstance(inputs, dict) else (inputs, {})


def tokens(length: int) -> Tensor:
    """Words (B, T)."""
    return torch.randint(5, WORDS, (BATCH, length))


def pixels(size: int, channels: int = 3) -> Tensor:
    """Images (B, C, H, W)."""
    return torch.randn(BATCH, channels, size, size)


def reals(*shape: int) -> Tensor:
    """Features (B, ...)."""
    return torch.randn(BATCH, *shape)
