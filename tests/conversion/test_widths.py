"""One dropout layer at several widths: a site for each."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import contextual_dropout as cd


class TwoWidths(nn.Module):
    """The idiom: one dropout for all layers."""

    def __init__(self, drop: nn.Module | None = None) -> None:
        super().__init__()
        self.first, self.second, self.head = nn.Linear(4, 16), nn.Linear(16, 32), nn.Linear(32, 3)
        self.drop = drop or nn.Dropout(0.2)

    def forward(self, x: Tensor) -> Tensor:
        x = self.drop(torch.relu(self.first(x)))
        x = self.drop(torch.relu(self.second(x)))
        out: Tensor = self.head(x)
        return out


def converted(x: Tensor, **options: Any) -> nn.Module:
    torch.manual_seed(0)
    return cd.contextualize(TwoWidths().eval(), example=x, **options)


def test_each_width_has_a_site_of_its_own(tmp_path: Path) -> None:
    x = torch.randn(5, 4)
    torch.manual_seed(0)
    plain = TwoWidths().eval()
    model = converted(x)
    assert {name: site.features for name, site in cd.sites(model).items()} == {"drop.16": 16, "drop.32": 32}
    assert cd.conversion_of(model).order == ["drop.16", "drop.32"]
    torch.testing.assert_close(model(x), plain(x))
    assert all(site.calls == 1 and site.spread > 0 for site in cd.probe(model, x).sites.values())
    assert len(cd.parameter_groups(model)[2]["params"]) == 2
    for site in cd.sites(model).values():
        nn.init.normal_(site.encoder.expand_weight)
    expected = model(x)
    cd.save_sites(model, tmp_path / "sites")
    loaded = cd.load_sites(copy.deepcopy(plain), tmp_path / "sites")
    for twin in (copy.deepcopy(model), pickle.loads(pickle.dumps(model)), loaded):
        assert torch.equal(twin(x), expected)
        assert list(cd.sites(twin)) == ["drop.16", "drop.32"]
    cd.load_sites(converted(x), tmp_path / "sites")
    cd.strip(model)
    assert isinstance(model.drop, nn.Dropout)
    assert torch.equal(model(x), plain(x))


@pytest.mark.parametrize("estimator", ["straight-through", "sequential-disarm"])
def test_both_train(estimator: Any) -> None:
    x = torch.randn(5, 4)
    model = converted(x).train()
    cd.ELBO(model, estimator)(lambda: model(x).log_softmax(-1)[:, 0]).loss.backward()
    for site in cd.sites(model).values():
        assert site.encoder.expand_bias.grad is not None
        assert site.encoder.expand_bias.grad.abs().max() > 0
    assert cd.predict(model.eval(), x, samples=20).samples.std(0).min() > 0


def test_without_an_example_it_is_refused_with_the_way_out() -> None:
    model = cd.contextualize(TwoWidths())
    with pytest.raises(ValueError, match=r"cd.contextualize\(model, example="):
        model(torch.randn(5, 4))


def test_a_width_that_the_example_did_not_have() -> None:
    model = converted(torch.randn(5, 4))
    with pytest.raises(ValueError, match=r"no site for an input of shape \(5, 7\).*widths 16, 32.*exclude="):
        model.drop(torch.randn(5, 7))  # type: ignore[operator]


class Pyramid(nn.Module):
    """Channels of images, then features: the second axis and the last."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.linear = nn.Conv2d(3, 8, 3), nn.Linear(8, 8)
        self.drop, self.act = nn.Dropout(0.2), nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        x = self.drop(self.act(self.conv(x)))
        return self.drop(self.act(self.linear(x.mean((2, 3)))))  # type: ignore[no-any-return]


def test_channels_and_features_are_told_apart(tmp_path: Path) -> None:
    x = torch.randn(2, 3, 6, 6)
    model = cd.contextualize(Pyramid().eval(), example=x)
    assert {name: site.dim for name, site in cd.sites(model).items()} == {"drop.8_channels": 1, "drop.8": -1}
    cd.save_sites(model, tmp_path / "sites")
    loaded = cd.load_sites(Pyramid().eval(), tmp_path / "sites")
    cd.probe(loaded, x)


def test_behind_one_activation_at_several_widths(tmp_path: Path) -> None:
    x = torch.randn(2, 3, 6, 6)
    model = cd.contextualize(Pyramid().eval(), replace=None, after=nn.ReLU, example=x)
    assert list(cd.sites(model)) == ["act.contextual_dropout.8_channels", "act.contextual_dropout.8"]
    cd.save_sites(model, tmp_path / "sites")
    cd.probe(cd.load_sites(Pyramid().eval(), tmp_path / "sites"), x)
    assert not cd.sites(cd.strip(model))


class Shared(nn.Module):
    """One module at two widths that calls dropout as a function."""

    def forward(self, x: Tensor) -> Tensor:
        return F.dropout(x, 0.2, self.training)


def test_calls_at_several_widths(tmp_path: Path) -> None:
    x = torch.randn(5, 4)
    model = cd.contextualize(TwoWidths(Shared()).eval(), example=x)
    names = ["drop.contextual_dropout.call_1_of_1.16", "drop.contextual_dropout.call_1_of_1.32"]
    assert list(cd.sites(model)) == names
    cd.save_sites(model, tmp_path / "sites")
    loaded = cd.load_sites(TwoWidths(Shared()).eval(), tmp_path / "sites")
    assert list(cd.probe(loaded, x).sites) == names


def test_other_axes_may_vary() -> None:
    """Positions have nothing to do with the width."""
    model = cd.contextualize(nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.1)), example=torch.randn(2, 5, 4))
    assert list(cd.sites(model)) == ["1"]
    assert model(torch.randn(3, 9, 4)).shape == (3, 9, 8)
