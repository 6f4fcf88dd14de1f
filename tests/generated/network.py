"""A whole network: how it is described, built, converted and moved away from where it starts."""

from __future__ import annotations

import copy
import inspect
import random
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

import contextual_dropout as cd
from tests.generated.composition import Chain
from tests.generated.plan import WIDTH, Block, Plan

__all__ = ["Network"]

OUTPUTS = 2


@dataclass(frozen=True)
class Network:
    """Blocks, a linear head, and what is done with them.

    Attributes:
        blocks: one after the other.
        length: T, or None for vectors.
        sites: converted from the network's dropout layers, or placed by hand.
        family: of the sites.
        positions: of the sites: what a conversion is told, or whether those placed by hand are position-wise.
        form: what forward returns, and how the logits are picked.
        name: an attribute of the network under which it keeps layers.
        batch: B.
        seed: of weights and inputs.
    """

    blocks: tuple[Block, ...]
    length: int | None = None
    sites: Literal["converted", "placed"] = "converted"
    family: Literal["bernoulli", "gaussian", "mixed"] = "bernoulli"
    positions: Literal["own", "pooled"] | None = None
    form: Literal["tensor", "dict", "tuple", "second", "function"] = "tensor"
    name: Literal["members", "replaced", "contextual_dropout"] | None = None
    batch: int = 2
    seed: int = 0

    def plain(self) -> nn.Module:
        """The network before it is converted, in eval mode; the same each time."""
        torch.manual_seed(self.seed)
        plan = Plan(self.length, self.sites == "placed", self.family, self.positions == "own")
        body, head = Chain(self.blocks).build(plan), nn.Linear(WIDTH, OUTPUTS)
        assert isinstance(body, nn.Sequential)
        bare = self.form == "tensor" and self.name is None
        model = nn.Sequential(*body, head) if bare else _Root(body, head, self.form, self.name)
        return move(model, self.seed).eval()

    def built(self) -> nn.Module:
        """The network with its sites, whose encoders have left zero."""
        model = self.plain()
        return self.converted(model) if self.sites == "converted" else model

    def converted(self, model: nn.Module) -> nn.Module:
        """The plain network converted, and its encoders moved."""
        return move(self.contextualized(model), self.seed).eval()

    def contextualized(self, model: nn.Module) -> nn.Module:
        """The plain network converted, untrained; what conversions warn of is not looked at here."""
        family: Any = "bernoulli" if self.family == "mixed" else self.family
        options: dict[str, Any] = {"temperature": 1.0}
        if "positions" in inspect.signature(cd.contextualize).parameters:
            options["positions"] = self.positions
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", cd.ConversionWarning)
            return cd.contextualize(model, family=family, example=self.inputs(1), **options)

    def fresh(self, model: nn.Module, stream: int = 0) -> nn.Module:
        """A copy whose own generators, like the global ones, start at another place for each stream."""
        model, start = copy.deepcopy(model), self.seed * 100 + stream
        drawing = (module for module in model.modules() if hasattr(module, "source"))
        for number, module in enumerate(drawing, 1):
            source, own = module.source, start + number * 10**7  # none draws what another one does
            if isinstance(source, torch.Generator):
                source.manual_seed(own)
            elif isinstance(source, random.Random):
                source.seed(own)
            elif isinstance(source, np.random.Generator):
                module.source = np.random.default_rng(own)
        torch.manual_seed(start)
        np.random.seed(start)
        random.seed(start)
        return model

    def inputs(self, stream: int = 0) -> Tensor:
        """(B, D) or (B, T, D), another tensor for each ``stream``."""
        generator = torch.Generator().manual_seed(self.seed * 1000 + stream)
        sizes = (self.batch, WIDTH) if self.length is None else (self.batch, self.length, WIDTH)
        return torch.randn(*sizes, generator=generator)

    @property
    def output(self) -> Any:
        """The ``output`` of :func:`cd.predict` that picks the logits."""
        return {"second": 1, "function": _both}.get(self.form)

    def pick(self, returned: Any) -> Tensor:
        """The logits among what forward returned."""
        if self.form == "function":
            return _both(returned)
        picked: Tensor = {
            "tensor": lambda: returned,
            "dict": lambda: returned["logits"],
            "tuple": lambda: returned[0],
            "second": lambda: returned[1],
        }[self.form]()
        return picked

    @property
    def own_generators(self) -> bool:
        """Whether the network draws from generators that are parts of it."""
        return any(name in ("generator torch", "generator numpy", "generator python") for name in self.ingredients())

    def ingredients(self) -> Iterator[str]:
        """The names of all that it is made of."""
        yield from Chain(self.blocks).ingredients()
        yield f"sites {self.sites}"
        yield f"family {self.family}"
        if self.length is not None:
            yield f"positions {self.positions or 'by default'}"
        if self.form != "tensor":
            yield f"output {self.form}"
        if self.name is not None:
            yield f"named {self.name}"


class _Root(nn.Module):
    """A network with several outputs, or with layers under a name that the library might take for its own."""

    def __init__(self, body: nn.Module, head: nn.Module, form: str, name: str | None) -> None:
        super().__init__()
        self.body, self.head = body, head
        self.form, self.name = form, name
        if name is not None:
            setattr(self, name, nn.ModuleList([nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)]))

    def forward(self, x: Tensor) -> Any:
        hidden = self.body(x)
        if self.name is not None:
            hidden = hidden + sum(torch.tanh(layer(hidden)) for layer in getattr(self, self.name))
        logits = self.head(hidden)
        forms = {"dict": {"hidden": hidden, "logits": logits}, "tuple": (logits, hidden), "second": (hidden, logits)}
        return logits if self.form == "tensor" else forms.get(self.form, (logits, hidden))


def _both(returned: Any) -> Tensor:
    logits, hidden = returned
    total: Tensor = logits + hidden[..., :OUTPUTS]
    return total


def move(model: nn.Module, seed: int) -> nn.Module:
    """Give every site an encoder of visible effect, and rates of its own for each unit."""
    generator = torch.Generator().manual_seed(seed + 77)
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, cd.ContextualDropout):
                # Gaussian masks of large features would be huge in turn: their variance is exp(-logit).
                weights = 1.0 if module.family.name == "bernoulli" else 0.4
                for name, parameter in module.encoder.named_parameters():
                    spread = 0.7 if name == "expand_bias" else weights
                    parameter.add_(spread * torch.randn(parameter.shape, generator=generator))
    return model
