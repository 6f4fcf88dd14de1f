"""Small networks of every kind, for tests that hold for any model."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import contextual_dropout as cd

OPTIONS = {"temperature": 1.0, "reduction": 2, "p": 0.3}


def site(features: int, family: str = "bernoulli", dim: int = -1) -> cd.ContextualDropout:
    return cd.ContextualDropout(features, family=family, dim=dim, **OPTIONS)  # type: ignore[arg-type]


class Block(nn.Module):
    """Residual, with batch normalisation and other dropout."""

    def __init__(self, width: int, family: str) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(width)
        self.site = site(width, family, dim=1)
        self.dropout = nn.Dropout(0.2)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(width)

    def forward(self, x: Tensor) -> Tensor:
        u = self.site(F.relu(self.norm1(self.conv1(x))))
        return F.relu(x + self.norm2(self.conv2(self.dropout(u))))


def residual(*families: str) -> nn.Module:
    width = 6
    blocks = (Block(width, family) for family in families)
    return nn.Sequential(
        nn.Conv2d(3, width, 3, padding=1), *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 4)
    )


def mlp(*families: str) -> nn.Module:
    layers: list[nn.Module] = [nn.Flatten(), nn.Linear(3 * 5 * 5, 6)]
    for family in families:
        layers += [nn.Linear(6, 6), nn.Tanh(), site(6, family)]
    return nn.Sequential(*layers, nn.Linear(6, 4))


class Inplace(nn.Module):
    """Changes in place, after a site, a tensor that was made before it."""

    def __init__(self, *families: str) -> None:
        super().__init__()
        self.inputs = nn.Linear(3 * 5 * 5, 6)
        self.sites = nn.ModuleList(site(6, family) for family in families)
        self.outputs = nn.Linear(6, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = self.inputs(x.flatten(1)) * 1.0
        for layer in self.sites:
            x += layer(torch.tanh(x))
        out: Tensor = self.outputs(x)
        return out


class Recurrent(nn.Module):
    """An LSTM whose outputs and states are masked, by one site called several times."""

    def __init__(self, *families: str) -> None:
        super().__init__()
        self.lstm = nn.LSTM(15, 6, batch_first=True)
        self.sites = nn.ModuleList(site(6, family) for family in families)
        self.outputs = nn.Linear(6, 4)

    def forward(self, x: Tensor) -> Tensor:
        sequence, (state, _) = self.lstm(x.flatten(2).transpose(1, 2).reshape(len(x), 5, 15))
        total = state[0]
        for layer in self.sites:
            total = total + layer(sequence).mean(1) + layer(total)
        out: Tensor = self.outputs(total)
        return out


class Attention(nn.Module):
    """Multi-head attention with chunked projections, functional dropout and control flow on values."""

    def __init__(self, *families: str) -> None:
        super().__init__()
        self.inputs = nn.Linear(5, 6)
        self.qkv = nn.Linear(6, 18)
        self.sites = nn.ModuleList(site(2, family, dim=1) for family in families)
        self.norm = nn.LayerNorm(6)
        self.outputs = nn.Linear(6, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = self.inputs(x.flatten(1, 2))
        for layer in self.sites:
            q, k, v = (t.unflatten(-1, (2, 3)).transpose(1, 2) for t in self.qkv(self.norm(x)).chunk(3, -1))
            weights = (q @ k.transpose(-1, -2)).softmax(-1)
            x = x + F.dropout((layer(weights) @ v).transpose(1, 2).flatten(2), 0.1, self.training)
            if x.abs().max() > 1e6:
                x = x / 2
        out: Tensor = self.outputs(x.mean(1))
        return out


class Remembering(nn.Module):
    """Reads a buffer, then updates it in one of the many ways to do so."""

    def __init__(self, *families: str) -> None:
        super().__init__()
        self.inputs = nn.Linear(3 * 5 * 5, 6)
        self.sites = nn.ModuleList(site(6, family) for family in families)
        self.outputs = nn.Linear(6, 4)
        self.register_buffer("centre", torch.zeros(6))
        self.register_buffer("scale", torch.ones(6))
        self.register_buffer("count", torch.zeros((), dtype=torch.long))

    def forward(self, x: Tensor) -> Tensor:
        x = self.inputs(x.flatten(1))
        for layer in self.sites:
            x = torch.tanh(layer((x - self.centre.clone()) / self.scale.clone())) + x
            self.centre.data.lerp_(x.detach().mean(0), 0.3)
            self.scale = 0.9 * self.scale + 0.1 * x.detach().std(0)
            self.count += 1
        out: Tensor = self.outputs(x)
        return out


NETWORKS: dict[str, Callable[..., nn.Module]] = {
    "mlp": mlp,
    "residual": residual,
    "inplace": Inplace,
    "recurrent": Recurrent,
    "attention": Attention,
    "remembering": Remembering,
}


def batch(examples: int = 7) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(examples, 3, 5, 5, generator=generator, dtype=torch.float64)
    return x, torch.randint(4, (examples,), generator=generator)


def build(name: str, *families: str) -> nn.Module:
    torch.manual_seed(2)
    return NETWORKS[name](*families).double()


def log_likelihood(model: nn.Module, x: Tensor, y: Tensor) -> Callable[[], Tensor]:
    return lambda: -F.cross_entropy(model(x), y, reduction="none")
