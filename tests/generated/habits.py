"""Blocks with the habits that networks have: draws, generators of their own, state, hooks, writes in place."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from tests.generated.plan import WIDTH, Block, Plan

__all__ = ["Draw", "Generator", "Keeps", "Named", "Write"]


@dataclass(frozen=True)
class Draw(Block):
    """A random call of torch."""

    kind: Literal["shape", "like", "in-place", "bernoulli", "units", "rows", "distribution", "order", "choice"] = (
        "shape"
    )

    def build(self, plan: Plan) -> nn.Module:
        return _Draw(self.kind)


class _Draw(nn.Module):
    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind

    def forward(self, x: Tensor) -> Tensor:
        if self.kind == "bernoulli":
            return x * torch.bernoulli(torch.full_like(x, 0.6))
        if self.kind == "distribution":
            return torch.distributions.Normal(x, 0.5).rsample()
        if self.kind == "order":
            return x[..., torch.randperm(WIDTH)]
        if self.kind == "choice":
            return x + torch.nn.functional.gumbel_softmax(x, tau=0.5)
        noise = {
            "shape": lambda: torch.randn(*x.shape),
            "like": lambda: torch.randn_like(x),
            "in-place": lambda: torch.empty_like(x).normal_(),
            "units": lambda: torch.randn(WIDTH),  # one draw for all rows
            "rows": lambda: torch.rand(len(x), *[1] * (x.ndim - 1)) - 0.5,
        }[self.kind]()
        return x + 0.7 * noise


@dataclass(frozen=True)
class Generator(Block):
    """Draws from a generator that is not torch's: one of its own, or a global one."""

    kind: Literal["torch", "numpy", "python", "global numpy", "global python"] = "torch"
    gate: bool = False

    def build(self, plan: Plan) -> nn.Module:
        return _Generator(self.kind, self.gate)

    @property
    def own(self) -> bool:
        """Whether the generator is a part of the network."""
        return not self.kind.startswith("global")


class _Generator(nn.Module):
    """Noise, or a gate that turns the sign of what passes."""

    def __init__(self, kind: str, gate: bool) -> None:
        super().__init__()
        self.kind, self.gate = kind, gate
        start = int(torch.randint(2**31, ()))
        self.source: Any = {
            "torch": torch.Generator().manual_seed(start),
            "numpy": np.random.default_rng(start),
            "python": random.Random(start),
        }.get(kind)

    def forward(self, x: Tensor) -> Tensor:
        if self.gate:
            return x if self._uniform() < 0.7 else -x
        if self.kind == "torch":
            return x + 0.7 * torch.randn(x.shape, generator=self.source)
        return x + 2 * (self._uniform() - 0.5)

    def _uniform(self) -> float:
        if self.kind == "torch":
            return float(torch.rand((), generator=self.source))
        if self.kind == "global numpy":
            return float(np.random.random())
        return random.random() if self.source is None else float(self.source.random())


@dataclass(frozen=True)
class Keeps(Block):
    """State: buffers that count, attributes, lists and caches that are kept, hooks that store."""

    kind: Literal["count", "average", "attribute", "history", "cache", "hook"] = "attribute"

    def build(self, plan: Plan) -> nn.Module:
        return _Keeps(self.kind)


class _Keeps(nn.Module):
    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind
        self.linear = nn.Linear(WIDTH, WIDTH)
        self.register_buffer("calls", torch.zeros(()))
        self.register_buffer("mean", torch.zeros(WIDTH))
        self.last: Tensor | None = None
        self.table: Tensor | None = None
        self.seen: list[Tensor] = []
        if kind == "hook":
            self.linear.register_forward_hook(_Store(self.seen))

    def forward(self, x: Tensor) -> Tensor:
        if self.kind == "count":
            self.calls += 1
            return x * (1 + 0.5 * self.calls)
        if self.kind == "average":
            self.mean = 0.5 * self.mean + 0.5 * x.detach().reshape(-1, WIDTH).mean(0)
            return x + self.mean
        out: Tensor = torch.tanh(self.linear(x))
        if self.kind == "attribute":
            self.last = out
        if self.kind == "history":
            self.seen[:] = [*self.seen[-1:], out]
        if self.kind == "cache":
            if self.table is None or self.table.shape != x.shape[1:]:
                self.table = torch.linspace(-1, 1, x[0].numel()).view(x.shape[1:])
            out = out + self.table
        return out


class _Store:
    """A hook that keeps the last output."""

    def __init__(self, kept: list[Tensor]) -> None:
        self.kept = kept

    def __call__(self, module: nn.Module, args: Any, output: Tensor) -> None:
        self.kept[:] = [output]


@dataclass(frozen=True)
class Write(Block):
    """A tensor that is written to after a dropout has read it, and read again."""

    p: float
    kind: Literal["in-place", "out", "view", "data", "numpy", "input"] = "in-place"

    def build(self, plan: Plan) -> nn.Module:
        return _Write(plan.dropout(self.p), self.kind)


class _Write(nn.Module):
    def __init__(self, dropout: nn.Module, kind: str) -> None:
        super().__init__()
        self.dropout, self.kind = dropout, kind
        self.linear = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        hidden = x if self.kind == "input" else self.linear(x)
        dropped = 1 * self.dropout(hidden)  # in eval mode dropout returns the tensor itself
        if self.kind in ("in-place", "input"):
            hidden.mul_(-2)
        elif self.kind == "out":
            hidden = hidden.detach()
            torch.mul(hidden, -2, out=hidden)
        elif self.kind == "view":
            hidden[..., 0] = 2.0
        elif self.kind == "data":
            hidden.data.mul_(-2)
        else:
            hidden.detach().numpy()[...] *= -2
        return torch.tanh(dropped + hidden)


@dataclass(frozen=True)
class Named(Block):
    """Layers under a name that the library might take for its own."""

    kind: Literal["members", "replaced", "contextual_dropout", "sampling"] = "members"

    def build(self, plan: Plan) -> nn.Module:
        return _Named(self.kind)


class _Named(nn.Module):
    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name
        setattr(self, name, nn.ModuleList([nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)]))

    def forward(self, x: Tensor) -> Tensor:
        first, second = getattr(self, self.name)
        out: Tensor = x + torch.tanh(first(x)) * torch.tanh(second(x))
        return out
