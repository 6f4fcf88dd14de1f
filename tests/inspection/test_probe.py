"""A site that does nothing is found; chance is not taken for silence."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import contextual_dropout as cd
from tests.conversion.models import Functional, build
from tests.conversion.models import plain_mlp as mlp


def test_probe_names_a_site_that_never_ran() -> None:
    model = Functional()
    with pytest.warns(cd.ConversionWarning, match="its forward calls F.dropout: give example="):
        cd.contextualize(model)
    with pytest.raises(cd.SilentSiteError, match=r"site 'unused' never ran.*example="):
        cd.probe(model, torch.randn(3, 4))


def test_probe_names_a_site_without_spread() -> None:
    model = cd.contextualize(mlp(), example=torch.randn(1, 4))
    nn.init.constant_(cd.sites(model)["5"].encoder.expand_bias, 1e6)
    with pytest.raises(cd.SilentSiteError, match=r"site '5' drew the same mask.*keep probability is 1\.0000"):
        cd.probe(model, torch.randn(3, 4))
    silent = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.2))
    nn.init.zeros_(silent[0].weight)
    nn.init.zeros_(silent[0].bias)
    with pytest.raises(cd.SilentSiteError, match="its input is zero"):
        cd.probe(cd.contextualize(silent), torch.randn(3, 4))
    with pytest.raises(ValueError, match="no contextual dropout site"):
        cd.probe(mlp(), torch.randn(3, 4))


def test_probe_leaves_no_trace() -> None:
    model, inputs, options = build("residual")
    cd.contextualize(model, example=inputs, **options).train()
    before = [b.clone() for b in model.buffers()], [m.training for m in model.modules()], torch.get_rng_state()
    cd.probe(model, *inputs)
    assert all(torch.equal(a, b) for a, b in zip(before[0], model.buffers(), strict=True))
    assert before[1] == [m.training for m in model.modules()]
    assert torch.equal(before[2], torch.get_rng_state())


def test_probe_does_not_take_chance_for_silence() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(cd.ContextualDropout(2, p=0.01))
    for _ in range(20):
        cd.probe(model, torch.ones(1, 2), samples=2)
