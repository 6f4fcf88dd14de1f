"""Sites on the features of padded sequences: padding has no part in what they read."""

from __future__ import annotations

import math

import pytest
import torch

import contextual_dropout as cd
from contextual_dropout.nn.sequence_dropout import SequenceDropout, pooled_positions


def test_positions_by_hand() -> None:
    u = torch.tensor([[[1.0, 2.0], [3.0, 6.0], [50.0, 70.0]], [[1.0, 1.0]] * 3])
    padded = torch.tensor([[False, False, True], [True, True, True]])
    assert pooled_positions(u, padded).tolist() == [[2, 4], [0, 0]]
    assert pooled_positions(u[:, :2]).tolist() == [[2, 4], [1, 1]]


@pytest.mark.parametrize("wrong", [math.nan, math.inf])
def test_whatever_the_padding_holds(wrong: float) -> None:
    u = torch.tensor([[[1.0], [3.0], [wrong]]], requires_grad=True)
    mean = pooled_positions(u, torch.tensor([[False, False, True]]))
    assert mean.item() == 2
    (gradient,) = torch.autograd.grad(mean.sum(), u)
    assert gradient.flatten().tolist() == [0.5, 0.5, 0]


@pytest.mark.parametrize("padded", [None, torch.zeros(1, 500, dtype=torch.bool)])
def test_sums_beyond_half_precision(padded: torch.Tensor | None) -> None:
    """500 times 200 is more than float16 has, and 200.125 is between two of its numbers."""
    u = torch.full((1, 500, 1), 200.0)
    u[:, ::2] += 0.25
    assert pooled_positions(u.half(), padded).item() == pytest.approx(u.half().double().mean().item(), rel=1e-6)


def test_a_site_that_reads_no_padding() -> None:
    torch.manual_seed(0)
    layer = SequenceDropout(0.3).eval()
    u, padded = torch.randn(2, 4, 8), torch.tensor([[False, False, True, True]] * 2)
    assert torch.equal(layer(u, padded), u)
    options = {"positions": "pooled", "temperature": 1.0, "initialisation": "he"}
    cd.contextualize(layer, example=(u, padded), **options)
    torch.testing.assert_close(layer(u, padded)[:, :2], layer(u[:, :2]))
    assert not torch.allclose(layer(u)[:, :2], layer(u[:, :2]))  # told of no padding it would read it


def test_a_position_wise_site_reads_each_position_alone() -> None:
    torch.manual_seed(0)
    u, padded = torch.randn(2, 4, 8), torch.tensor([[False, False, True, True]] * 2)
    layer = cd.contextualize(SequenceDropout(0.3).eval(), positions="own", temperature=1.0, initialisation="he")
    together = layer(u, padded)
    for i in range(4):
        torch.testing.assert_close(together[:, i : i + 1], layer(u[:, i : i + 1]))


def test_deviations_of_real_positions() -> None:
    u, padded = torch.tensor([[[1.0], [4.0], [30.0]]]), torch.tensor([[False, False, True]])
    assert pooled_positions(u, padded, "mean-deviation").tolist() == [[2.5, 1.5]]
    layer = cd.contextualize(SequenceDropout(0.3), positions="pooled", pooling="mean-deviation")
    layer(u, padded)
    assert layer.dropout.encoder.context_features == 2
