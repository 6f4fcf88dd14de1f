"""What the parts of a network need to know of the whole when they are built."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import cycle
from typing import Any

from torch import Tensor, nn

import contextual_dropout as cd

__all__ = ["WIDTH", "Block", "Plan"]

#: D, of every tensor between two blocks: (B, D), or (B, T, D).
WIDTH = 4
FAMILIES = {"bernoulli": ("bernoulli",), "gaussian": ("gaussian",), "mixed": ("bernoulli", "gaussian")}


@dataclass
class Plan:
    """The network around a block.

    Attributes:
        length: T, or None where samples are vectors.
        placed: whether sites are placed by hand, instead of dropout that is to be converted.
        family: of sites placed by hand; "mixed" alternates.
        positions: whether sites placed by hand on sequences are position-wise.
    """

    length: int | None
    placed: bool
    family: str = "bernoulli"
    positions: bool = False
    _families: Iterator[Any] = field(init=False)

    def __post_init__(self) -> None:
        self._families = cycle(FAMILIES[self.family])

    def dropout(self, p: float, plain: nn.Module | None = None) -> nn.Module:
        """Dropout of features on the last axis: a site if they are placed by hand, else a layer."""
        if not self.placed:
            return nn.Dropout(p) if plain is None else plain
        own = self.positions and self.length is not None
        return self.site(WIDTH, p, batch_dim=(0, 1) if own else 0)

    def site(self, features: int, p: float, **options: Any) -> nn.Module:
        """A site of the network's family, whose context matters."""
        return cd.ContextualDropout(features, p, family=next(self._families), temperature=1.0, rescale=True, **options)


@dataclass(frozen=True)
class Block(ABC):
    """A part of a network, from (B, D) to (B, D) or from (B, T, D) to (B, T, D)."""

    @abstractmethod
    def build(self, plan: Plan) -> nn.Module:
        """The module, with weights of torch's present random state."""

    def ingredients(self) -> Iterator[str]:
        """The names under which the networks are counted that have it."""
        kind = getattr(self, "kind", "")
        yield f"{type(self).__name__.lower()} {kind}".strip()


def channels_first(x: Tensor) -> Tensor:
    """(B, T, D) to (B, D, T); vectors as they are."""
    return x.transpose(1, 2) if x.ndim == 3 else x
