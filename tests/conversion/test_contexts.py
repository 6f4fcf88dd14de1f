"""Contexts that are the same for every sample by construction: the sites read more than means, or it is said."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import contextual_dropout as cd


class Block(nn.Module):
    """A layer of MONAI's UNet: convolution, then norm, dropout and activation (its ADN)."""

    def __init__(self, norm: nn.Module) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, padding=1)
        self.adn = nn.Sequential()
        for name, layer in (("N", norm), ("D", nn.Dropout(0.2)), ("A", nn.PReLU())):
            self.adn.add_module(name, layer)
        self.head = nn.Conv2d(8, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.adn(self.conv(x)))  # type: ignore[no-any-return]


def varies(model: nn.Module, *inputs: Tensor) -> bool:
    """Whether keep probabilities of different samples differ by more than rounding."""
    for site in cd.sites(model).values():
        nn.init.normal_(site.encoder.expand_weight)
    (keep,) = cd.keep_probabilities(model.eval(), *inputs).values()
    return bool((keep.amax(0) - keep.amin(0)).max() > 1e-3)


@pytest.mark.parametrize("with_example", [True, False])
@pytest.mark.parametrize("norm", [nn.InstanceNorm2d(8), nn.InstanceNorm2d(8, affine=True), nn.GroupNorm(8, 8)])
def test_after_instance_normalisation_the_deviation_is_read(norm: nn.Module, with_example: bool) -> None:
    torch.manual_seed(0)
    x = torch.randn(4, 3, 9, 9).exp()
    model = cd.contextualize(Block(norm), temperature=1.0, **({"example": x[:1]} if with_example else {}))
    model(x)
    assert cd.sites(model)["adn.D"].pooling == "mean-deviation"
    assert varies(model, x)


def test_means_would_not_vary() -> None:
    torch.manual_seed(0)
    x = torch.randn(4, 3, 9, 9).exp()
    with pytest.warns(cd.ConversionWarning, match="adn.D: its context is the same for every sample"):
        model = cd.contextualize(Block(nn.InstanceNorm2d(8)), temperature=1.0, pooling="mean", example=x)
    assert not varies(model, x)


@pytest.mark.parametrize("norm", [nn.BatchNorm2d(8), nn.GroupNorm(2, 8), nn.Identity()])
def test_means_are_enough_elsewhere(norm: nn.Module) -> None:
    model = cd.contextualize(Block(norm), example=torch.randn(1, 3, 9, 9))
    assert cd.sites(model)["adn.D"].pooling == "mean"


class Weights(nn.Module):
    """Dropout on softmaxed attention weights, as a layer: rows sum to one, so that their mean over keys is constant."""

    def __init__(self) -> None:
        super().__init__()
        self.project, self.dropout, self.head = nn.Linear(8, 24), nn.Dropout(0.1), nn.Linear(8, 2)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.project(x).unflatten(-1, (3, 2, 4)).permute(2, 0, 3, 1, 4)
        weights = self.dropout((3 * q @ k.mT).softmax(-1))
        return self.head((weights @ v).transpose(1, 2).flatten(2).mean(1))  # type: ignore[no-any-return]


def test_the_mean_of_attention_weights() -> None:
    torch.manual_seed(0)
    x = torch.randn(4, 5, 8)
    model = cd.contextualize(Weights(), temperature=1.0, example=x)
    assert cd.sites(model)["dropout"].pooling == "mean-deviation"
    assert varies(model, x)


def test_a_context_that_cannot_vary_is_named() -> None:
    class Sign(nn.Module):
        """Features of which every sample has as many 1 as -1."""

        def forward(self, x: Tensor) -> Tensor:
            return torch.where(x.argsort(-1).argsort(-1) < x.shape[-1] // 2, -1.0, 1.0)

    model = nn.Sequential(nn.Conv1d(3, 4, 1), Sign(), nn.Dropout1d(0.2), nn.Flatten(), nn.Linear(24, 2))
    with pytest.warns(cd.ConversionWarning, match="2: its context is the same for every sample"):
        cd.contextualize(model, example=torch.randn(2, 3, 6))
    assert "note: its context is the same" in repr(cd.conversion_of(model))


def test_pooling_is_saved(tmp_path: Path) -> None:
    torch.manual_seed(0)
    x = torch.randn(2, 3, 9, 9)
    model = cd.contextualize(Block(nn.InstanceNorm2d(8)), initialisation="he", temperature=1.0, example=x).eval()
    plain = Block(nn.InstanceNorm2d(8)).eval()
    plain.load_state_dict({name: value for name, value in model.state_dict().items() if ".D." not in name})
    cd.save_sites(model, tmp_path / "sites")
    cd.load_sites(plain, tmp_path / "sites")
    torch.testing.assert_close(plain(x), model(x))
