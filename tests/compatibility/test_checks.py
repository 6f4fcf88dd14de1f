"""The checks see what they are there for."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from tests.compatibility.checks import causal, examine, rows_apart, scores
from tests.compatibility.networks import Network, numbers, reals


def samples(seed: int) -> Tensor:
    return torch.randn(200, 3, 4, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize(
    ("other", "seen"), [(samples(1), False), (samples(1) + 0.6, True), (2 * samples(1), True), (samples(1)[:1], True)]
)
def test_another_mean_or_spread_is_seen(other: Tensor, seen: bool) -> None:
    found, loop = other.expand(200, 3, 4), samples(0)
    assert (scores(found, loop).max().item() > 4.9) is seen


class Coupled(nn.Module):
    """Every output reads the whole batch and all positions."""

    def __init__(self) -> None:
        super().__init__()
        self.drop = nn.Dropout(0.2)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.drop(x) + x.mean((0, 1))
        return out


def test_a_network_that_is_not_what_it_is_said_to_be() -> None:
    network = Network("coupled", "none", Coupled, lambda length: (reals(length, 4),), log_likelihood=numbers, causal=0)
    assert "other examples move" in examine(network, rows_apart).detail
    assert "the plain network is not causal" in examine(network, causal).detail
