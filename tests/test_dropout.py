from __future__ import annotations

import pytest
import torch
from torch import nn

from contextual_dropout.dropout import ComparedDropout, dropped
from tests.baselines.problems import FAILURE_RATE
from tests.exact.enumeration import assert_mean


@pytest.mark.parametrize("p", [0.1, 0.5])
def test_units_are_dropped_at_the_rate_and_the_others_rescaled(p: float) -> None:
    kept = dropped(torch.ones(100_000, 2), p)
    assert_mean((kept > 0).double(), torch.full((2,), 1 - p, dtype=torch.float64), FAILURE_RATE, "kept")
    torch.testing.assert_close(kept[kept > 0], torch.full_like(kept[kept > 0], 1 / (1 - p)))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_gradients_pass_where_units_were_kept(dtype: torch.dtype) -> None:
    u = torch.randn(40, 30, dtype=dtype).requires_grad_()
    with ComparedDropout():
        out = nn.Dropout(0.25)(u)
    assert out.dtype == dtype
    out.sum().backward()
    kept = out != 0
    assert u.grad is not None
    torch.testing.assert_close(u.grad, kept.to(dtype) / 0.75)
    torch.testing.assert_close(out, u.detach() * u.grad)


def test_inputs_are_not_written_to_unless_asked() -> None:
    u = torch.ones(200)
    with ComparedDropout():
        assert (nn.Dropout(0.5)(u) == 0).any()
        assert (u == 1).all()
        assert nn.Dropout(0.5, inplace=True)(u) is u
    assert (u == 0).any()


@pytest.mark.parametrize(
    ("layer", "expected"), [(nn.Dropout(0.0), 1.0), (nn.Dropout(1.0), 0.0), (nn.Dropout().eval(), 1.0)]
)
def test_nothing_is_drawn_where_nothing_is_random(layer: nn.Module, expected: float) -> None:
    with ComparedDropout():
        assert (layer(torch.ones(50)) == expected).all()
