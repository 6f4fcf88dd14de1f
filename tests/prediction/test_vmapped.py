"""Samples as one batch: what vmap is trusted with, and that nothing but speed depends on what is private to torch."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import contextual_dropout as cd

SCRIPT = """
import torch
import torch._C._functorch
import torch._functorch.pyfunctorch

del torch._C._functorch.get_unwrapped
del torch._functorch.pyfunctorch.temporarily_pop_interpreter_stack
import contextual_dropout as cd
from torch import nn
import contextual_dropout.prediction.vmapped as vmapped

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.site, self.dropout = cd.ContextualDropout(50, 0.5), nn.Dropout(0.5)

    def forward(self, x):
        return self.site(x) + self.dropout(x)

assert not vmapped.AVAILABLE
prediction = cd.predict(Model(), torch.ones(2, 50), samples=6, task="regression")
distances = torch.cdist(prediction.samples.flatten(0, 1), prediction.samples.flatten(0, 1))
assert (distances + torch.eye(12) > 0).all()
"""


def test_without_the_private_names_samples_are_looped() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


SPLITTING: dict[str, Callable[[Tensor], Tensor]] = {
    "dropout": lambda x: F.dropout(x, 0.5),
    "dropout1d": lambda x: F.dropout1d(x[..., None], 0.5),
    "dropout2d": lambda x: F.dropout2d(x[..., None, None], 0.5),
    "dropout3d": lambda x: F.dropout3d(x[..., None, None, None], 0.5),
    "alpha_dropout": lambda x: F.alpha_dropout(x, 0.5, training=True),
    "feature_alpha_dropout": lambda x: F.feature_alpha_dropout(x[..., None], 0.5, training=True),
    "native_dropout": lambda x: torch.native_dropout(x, 0.5, True)[0],
    "attention": lambda x: F.scaled_dot_product_attention(*(x[None, None],) * 3, dropout_p=0.5),
    "gumbel_softmax": F.gumbel_softmax,
    "rand": lambda x: x + torch.rand(6, 8),
    "randn": lambda x: x + torch.randn(6, 8),
    "randint": lambda x: x + torch.randint(99, (6, 8)),
    "randperm": lambda x: x[torch.randperm(6)],
    "rand_like": torch.rand_like,
    "randn_like": torch.randn_like,
    "randint_like": lambda x: torch.randint_like(x, 99),
    "normal": lambda x: torch.normal(x, 1.0),
    "normal, by shape": lambda x: x + torch.normal(0.0, 1.0, (6, 8)),
    "bernoulli": lambda x: torch.bernoulli(x / 9),
    "multinomial": lambda x: torch.multinomial(x, 4),
    "poisson": torch.poisson,
    "bernoulli_": lambda x: torch.empty_like(x).bernoulli_(0.5),
    "normal_": lambda x: torch.empty_like(x).normal_(),
    "uniform_": lambda x: torch.empty_like(x).uniform_(),
    "exponential_": lambda x: torch.empty_like(x).exponential_(),
    "random_": lambda x: torch.empty_like(x).random_(99),
}


@pytest.mark.parametrize("given", ["for each sample", "for all samples"])
@pytest.mark.parametrize("name", SPLITTING)
def test_random_functions_that_vmap_splits(name: str, given: str) -> None:
    """Each sample has a draw of its own, or vmap refuses."""
    features = 1 + torch.rand(6, 8)

    def sample(spread: Tensor) -> Tensor:
        x = features + spread if given == "for each sample" else features
        return SPLITTING[name](x) + spread

    try:
        samples = torch.vmap(sample, randomness="different")(torch.zeros(8))
    except RuntimeError:
        return
    assert (torch.cdist(samples.flatten(1), samples.flatten(1)) + torch.eye(8) > 0).all()


def test_a_draw_that_is_not_known_to_split_is_looped() -> None:
    def model(x: Tensor) -> Tensor:
        return F.rrelu(-F.dropout(x, 0.5), 0.1, 0.9, training=True)

    samples = cd.predict(model, torch.ones(2, 50), samples=6, task="regression").samples
    assert (torch.cdist(samples.flatten(1), samples.flatten(1)) + torch.eye(6) > 0).all()
