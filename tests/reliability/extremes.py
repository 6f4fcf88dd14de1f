"""Networks that cannot overflow by themselves, and everything extreme that may be put into them.

What a site makes of its features is squashed by a tanh, so that any NaN or infinity there is to be blamed on a site.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Literal

import torch
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import contextual_dropout as cd
from contextual_dropout.nn.attention_dropout import AttentionTensors, masked_attention
from tests.reliability.record import budget

KINDS = ("fully connected", "convolutional", "attention")
FAMILIES = ("bernoulli", "gaussian")
DTYPES = {
    "float32": torch.float32,
    "float64": torch.float64,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
    "autocast bfloat16": torch.float32,
    "autocast float16": torch.float32,
}
#: Where a sigmoid is 0 or 1, or just not: in float16, in float32, in float64, and far beyond.
LOGITS = (None, 0.0, 10.0, 16.6, 17.0, 36.7, 89.0, 104.0, 745.0, 1e4)
#: Of the inputs; where they are not numbers of the precision, a hundredth of the largest that is.
SCALES = (0.0, 1e-45, 1e-30, 1.0, 1e4, 1e15, 1e30)
CLASSES = 3


@dataclass(frozen=True)
class Case:
    """A network and a batch for it."""

    kind: str
    family: Literal["bernoulli", "gaussian"]
    precision: str
    batch: int
    features: int
    positions: int
    logit: float | None
    scale: float
    temperature: float
    rescale: bool
    seed: int

    @property
    def dtype(self) -> torch.dtype:
        """Of parameters and inputs."""
        return DTYPES[self.precision]

    def autocast(self) -> AbstractContextManager[Any]:
        """The precision of what is computed, if it is another one."""
        if not self.precision.startswith("autocast"):
            return nullcontext()
        return torch.autocast("cpu", dtype=getattr(torch, self.precision.split()[1]))

    def build(self) -> tuple[nn.Module, Tensor, Tensor]:
        """The network, inputs and labels."""
        torch.manual_seed(self.seed)
        model = Squashed(self).to(self.dtype)
        largest = torch.finfo(torch.float16 if "float16" in self.precision.split() else self.dtype).max / 100
        for site in cd.sites(model).values():
            if self.logit is not None:
                bias = self.logit / self.temperature
                nn.init.constant_(site.encoder.expand_bias, max(-largest, min(bias, largest)))
        shape = {"fully connected": (), "convolutional": (self.positions,) * 2, "attention": (self.positions,) * 2}
        x = torch.randn(self.batch, self.features, *shape[self.kind], dtype=torch.float64) * self.scale
        return model, x.clamp(-largest, largest).to(self.dtype), torch.randint(CLASSES, (self.batch,))


class Squashed(nn.Module):
    """A site on the inputs, one on what it makes of them, and a classifier."""

    def __init__(self, case: Case) -> None:
        super().__init__()
        options: dict[str, Any] = {
            "family": case.family,
            "temperature": case.temperature,
            "reduction": 2,
            "rescale": case.rescale,
        }
        self.attention = case.kind == "attention"
        self.inputs = cd.ContextualDropout(case.features, dim=1, attention_context="scores", **options)
        self.hidden = cd.ContextualDropout(case.features, **options)
        self.outputs = nn.Linear(case.features, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        u = masked_attention(self.inputs, AttentionTensors(x.softmax(-1), x, x)) if self.attention else self.inputs(x)
        pooled = u.tanh().flatten(2).mean(-1) if u.ndim > 2 else u.tanh()
        out: Tensor = self.outputs(self.hidden(pooled).tanh())
        return out


def cases(
    families: tuple[str, ...] = FAMILIES,
    precisions: tuple[str, ...] = tuple(DTYPES),
    scales: tuple[float, ...] = SCALES,
) -> st.SearchStrategy[Case]:
    """All of them, or some."""
    logits = [sign * logit if logit else logit for logit in LOGITS for sign in (1, -1)]
    return st.builds(
        Case,
        kind=st.sampled_from(KINDS),
        family=st.sampled_from(families),
        precision=st.sampled_from(precisions),
        batch=st.sampled_from([0, 1, 2, 5]),
        features=st.integers(1, 5),
        positions=st.integers(1, 3),
        logit=st.sampled_from(logits),
        scale=st.sampled_from(scales),
        temperature=st.sampled_from([0.01, 1.0, 100.0]),
        rescale=st.booleans(),
        seed=st.integers(0, 2**31),
    )


def thorough(small: int, full: int) -> settings:
    """As many examples, the same ones each time."""
    return settings(
        max_examples=budget(small, full),
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
