"""Blocks made of blocks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from torch import Tensor, nn

from tests.generated.plan import WIDTH, Block, Plan

__all__ = ["Branches", "Chain", "Repeated", "Residual"]


@dataclass(frozen=True)
class Chain(Block):
    """One after the other: an ``nn.Sequential``."""

    blocks: tuple[Block, ...]

    def build(self, plan: Plan) -> nn.Module:
        return nn.Sequential(*(block.build(plan) for block in self.blocks))

    def ingredients(self) -> Iterator[str]:
        for block in self.blocks:
            yield from block.ingredients()


@dataclass(frozen=True)
class Branches(Block):
    """Several blocks on one tensor, each with a linear head, summed."""

    blocks: tuple[Block, ...]

    def build(self, plan: Plan) -> nn.Module:
        return _Branches([block.build(plan) for block in self.blocks])

    def ingredients(self) -> Iterator[str]:
        yield "branches"
        for block in self.blocks:
            yield from block.ingredients()


class _Branches(nn.Module):
    def __init__(self, branches: list[nn.Module]) -> None:
        super().__init__()
        self.branches = nn.ModuleList(branches)
        self.heads = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in branches)

    def forward(self, x: Tensor) -> Tensor:
        outs = [head(branch(x)) for head, branch in zip(self.heads, self.branches, strict=True)]
        return sum(outs[1:], outs[0])


@dataclass(frozen=True)
class Residual(Block):
    block: Block

    def build(self, plan: Plan) -> nn.Module:
        return _Residual(self.block.build(plan))

    def ingredients(self) -> Iterator[str]:
        yield "residual"
        yield from self.block.ingredients()


class _Residual(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = x + self.inner(x)
        return out


@dataclass(frozen=True)
class Repeated(Block):
    """One module that is called twice: on its own output, or twice on one tensor."""

    block: Block
    kind: Literal["series", "parallel"] = "series"

    def build(self, plan: Plan) -> nn.Module:
        return _Repeated(self.block.build(plan), self.kind == "series")

    def ingredients(self) -> Iterator[str]:
        yield f"repeated {self.kind}"
        yield from self.block.ingredients()


class _Repeated(nn.Module):
    def __init__(self, inner: nn.Module, series: bool) -> None:
        super().__init__()
        self.inner, self.series = inner, series
        self.head = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        first = self.inner(x)
        out: Tensor = self.inner(first) if self.series else first + self.head(self.inner(x))
        return out
