from __future__ import annotations

import pytest
import torch
from torch import nn

import contextual_dropout as cd
from contextual_dropout.baselines import contextual_gating, gated_dropout
from contextual_dropout.baselines.contextual_gating import ContextualGate
from tests.baselines.problems import FAILURE_RATE
from tests.exact.enumeration import assert_mean

#: A dropout layer, an input for it, and the axis that gets gates.
SHAPES = [
    (nn.Dropout(0.3), (5, 6), 1),
    (nn.Dropout(0.3), (5, 4, 6), 2),
    (nn.Dropout(0.3), (5, 6, 4, 3), 1),
    (nn.Dropout1d(0.3), (5, 6, 4), 1),
    (nn.Dropout2d(0.3), (5, 6, 4, 3), 1),
    (nn.Dropout3d(0.3), (5, 6, 4, 3, 2), 1),
]


@pytest.mark.parametrize(("dropout", "shape", "axis"), SHAPES)
def test_a_gate_is_the_point_estimate_of_a_site(dropout: nn.Module, shape: tuple[int, ...], axis: int) -> None:
    """On the axis on which contextualize would put it, too."""
    options = {"temperature": 1.0, "reduction": 2, "initialisation": "he"}
    pooled = {"positions": "pooled", "rescale": False, "inplace": False}
    u = torch.rand(shape) + 0.5
    gated = contextual_gating(nn.Sequential(nn.Identity(), dropout), inplace=False, **options)
    site = cd.contextualize(nn.Sequential(nn.Identity(), dropout), example=u, **pooled, **options)
    gated(u)
    gated[1].encoder.load_state_dict(cd.sites(site.eval())["1"].encoder.state_dict())
    torch.testing.assert_close(gated(u), site(u))
    gates = (gated(u) / u).movedim(axis, 1).flatten(2) if len(shape) > 2 else (gated(u) / u).unsqueeze(-1)
    torch.testing.assert_close(gates, gates[..., :1].expand_as(gates))
    assert gates[..., 0].std(0).min() > 1e-4  # each sample has gates of its own


@pytest.mark.parametrize("p", [0.1, 0.4])
def test_gates_start_at_the_keep_probability(p: float) -> None:
    gate, u = ContextualGate(p, initialisation="zero"), torch.randn(4, 6)
    torch.testing.assert_close(gate(u), u * (1 - p))
    given = contextual_gating(nn.Sequential(nn.Dropout(p)), initialisation="zero")
    torch.testing.assert_close(given(u), u * (1 - p))


def test_gradients_flow_through_the_encoder_into_the_network() -> None:
    """Other than for a site, whose encoder reads without being felt."""
    gate, u = ContextualGate(0.3, temperature=1.0).double(), torch.randn(3, 6, dtype=torch.float64, requires_grad=True)
    gate(u)
    assert torch.autograd.gradcheck(gate, (u,))
    plain = torch.autograd.grad(gate(u).sum(), u)[0]
    assert not torch.allclose(plain, gate(u).detach() / u.detach())  # the gates' own dependence counts


def test_gated_dropout_drops_behind_the_gates() -> None:
    """Kept features are gated and rescaled; fails at a rate of 2e-5."""
    torch.manual_seed(0)
    model = gated_dropout(nn.Sequential(nn.Dropout(0.2)), drop=0.4, temperature=1.0)
    gate, dropout = model[0]
    u = torch.rand(20_000, 3) + 0.5
    out = model(u).detach()
    assert dropout.p == 0.4
    assert_mean((out != 0).double(), torch.full((3,), 0.6).double(), FAILURE_RATE, "kept")
    torch.testing.assert_close(out[out != 0], (gate(u).detach() / 0.6)[out != 0])
    torch.testing.assert_close(model.eval()(u), gate(u))


def test_gated_dropout_keeps_the_kind_and_rate_of_each_layer() -> None:
    model = gated_dropout(nn.Sequential(nn.Dropout(0.1), nn.Dropout2d(0.3)), exclude=None)
    assert [(type(part[1]), part[1].p) for part in model] == [(nn.Dropout, 0.1), (nn.Dropout2d, 0.3)]


@pytest.mark.parametrize("p", [0.0, 1.0])
def test_bad_rates(p: float) -> None:
    with pytest.raises(ValueError, match="strictly between 0 and 1"):
        ContextualGate(p)
