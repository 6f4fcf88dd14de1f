"""Blocks of ordinary layers, of dropout in its many forms, and of sites."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from contextual_dropout.baselines.concrete_dropout import ConcreteDropout
from tests.generated.plan import WIDTH, Block, Plan, channels_first

__all__ = ["Context", "Dense", "Drop", "Functional", "Norm", "PositionTable", "Widths"]


@dataclass(frozen=True)
class Drop(Block):
    """A site; or a dropout layer, which a conversion makes one of."""

    p: float
    kind: Literal["layer", "plain", "alpha", "channels", "concrete"] = "layer"

    def build(self, plan: Plan) -> nn.Module:
        if self.kind == "plain":
            return nn.Dropout(self.p)
        if self.kind == "concrete":
            return ConcreteDropout(self.p)
        if self.kind == "alpha":
            return plan.dropout(self.p, nn.AlphaDropout(self.p))
        channels = self.kind == "channels" and plan.length is not None  # of vectors, Dropout1d would drop whole rows
        return plan.dropout(self.p, _Channels(nn.Dropout1d(self.p)) if channels else None)


@dataclass(frozen=True)
class Dense(Block):
    """A linear layer and a smooth activation, so that no dependence is hidden by a zero."""

    kind: Literal["tanh", "gelu"] = "tanh"

    def build(self, plan: Plan) -> nn.Module:
        return nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh() if self.kind == "tanh" else nn.GELU())


@dataclass(frozen=True)
class Norm(Block):
    kind: Literal["layer", "group", "batch", "instance"] = "layer"

    def build(self, plan: Plan) -> nn.Module:
        if self.kind == "layer" or (self.kind == "instance" and plan.length in (None, 1)):
            return nn.LayerNorm(WIDTH)
        if self.kind == "group":
            layer: nn.Module = nn.GroupNorm(2, WIDTH)
        elif self.kind == "instance":
            layer = nn.InstanceNorm1d(WIDTH, affine=True)
        else:
            layer = nn.BatchNorm1d(WIDTH)
            layer.running_mean.normal_(0, 0.5)  # type: ignore[union-attr]
            layer.running_var.uniform_(0.5, 2)  # type: ignore[union-attr]
        return layer if plan.length is None else _Channels(layer)


class _Channels(nn.Module):
    """A layer that wants its features on the second axis."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> Tensor:
        return channels_first(self.layer(channels_first(x)))


@dataclass(frozen=True)
class Functional(Block):
    """``F.dropout`` that follows the training flag of its module: as an argument, or by a condition around it."""

    p: float
    kind: Literal["dropout", "alpha", "guarded"] = "dropout"

    def build(self, plan: Plan) -> nn.Module:
        return _Guarded(self.p) if self.kind == "guarded" else _Functional(self.p, _FUNCTIONS[self.kind])


_FUNCTIONS = {"dropout": F.dropout, "alpha": F.alpha_dropout}


class _Functional(nn.Module):
    def __init__(self, p: float, function: Any) -> None:
        super().__init__()
        self.p, self.function = p, function
        self.linear = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        dropped: Tensor = self.function(self.linear(x), self.p, self.training)
        return dropped


class _Guarded(nn.Module):
    def __init__(self, p: float) -> None:
        super().__init__()
        self.p, self.linear = p, nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        hidden: Tensor = self.linear(x)
        if self.training:
            hidden = F.dropout(hidden, self.p)
        return hidden


@dataclass(frozen=True)
class Widths(Block):
    """One dropout layer at two widths."""

    p: float

    def build(self, plan: Plan) -> nn.Module:
        return _Widths(nn.Dropout(self.p))


class _Widths(nn.Module):
    def __init__(self, dropout: nn.Module) -> None:
        super().__init__()
        self.dropout = dropout
        self.wide, self.narrow = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.dropout(torch.tanh(self.wide(self.dropout(x))))
        out: Tensor = self.narrow(hidden)
        return out


@dataclass(frozen=True)
class Context(Block):
    """A site that reads another tensor than it masks; ``calls`` of them on one tensor, each with its own context."""

    p: float
    kind: Literal["features", "pooled"] = "features"
    calls: int = 1

    def build(self, plan: Plan) -> nn.Module:
        if not plan.placed:
            return nn.Dropout(self.p)
        pooled = self.kind == "pooled" and not (plan.positions and plan.length is not None)
        return _Context(plan.dropout(self.p), self.calls, pooled)


class _Context(nn.Module):
    def __init__(self, site: nn.Module, calls: int, pooled: bool) -> None:
        super().__init__()
        self.site, self.pooled = site, pooled
        self.read = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(calls))
        self.mix = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(calls))

    def forward(self, x: Tensor) -> Tensor:
        contexts = [2 * read(x) for read in self.read]
        if self.pooled and x.ndim == 3:
            contexts = [context.mean(1) for context in contexts]
        outs = [mix(self.site(x, context)) for mix, context in zip(self.mix, contexts, strict=True)]
        return sum(outs[1:], outs[0])


@dataclass(frozen=True)
class PositionTable(Block):
    """Dropout of a table of positions, which has no axis of samples."""

    p: float
    kind: Literal["table", "row"] = "table"

    def build(self, plan: Plan) -> nn.Module:
        assert plan.length is not None
        one = plan.placed and self.kind == "table"
        dropout = plan.site(WIDTH, self.p, batch_dim=-1) if one else nn.Dropout(self.p)
        return _PositionTable(plan.length, dropout, self.kind == "row")


class _PositionTable(nn.Module):
    def __init__(self, length: int, dropout: nn.Module, row: bool) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.randn(*((1,) if row else ()), length, WIDTH))
        self.dropout = dropout

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = x + self.dropout(self.table)
        return out
