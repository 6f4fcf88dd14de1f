"""A converted network is checked on its example: nothing sees what it did not see before, or it is said."""

from __future__ import annotations

import random
import warnings
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import contextual_dropout as cd


class OrderedTokens(nn.Module):
    """Drops whole positions in front of a recurrent layer: the axis of the features is that of time."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.drop = nn.Linear(4, 8), nn.Dropout1d(0.3)
        self.recur, self.head = nn.GRU(8, 8, batch_first=True), nn.Linear(8, 2)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(self.recur(self.drop(self.embed(x)))[0])
        return out


class Spectrogram(nn.Module):
    """Convolutions over frequency and, causally, over time: (B, 1, F, T) -> (B, 2, F, T)."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.drop, self.second = nn.Conv2d(1, 4, 3), nn.Dropout2d(0.3), nn.Conv2d(4, 2, 3)

    def forward(self, x: Tensor) -> Tensor:
        h = self.drop(F.relu(self.first(F.pad(x, (2, 0, 1, 1)))))
        out: Tensor = self.second(F.pad(h, (2, 0, 1, 1)))
        return out


class Pixels(nn.Module):
    """A PixelCNN: each pixel depends on those before it in reading order."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(1, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1)
        self.drop, self.head = nn.Dropout2d(0.3), nn.Conv2d(8, 2, 1)
        before = torch.ones(3, 3)
        before[1, 1:] = before[2] = 0
        self.register_buffer("before", before)
        self.register_buffer("so_far", before + torch.eye(3)[1].diag())

    def forward(self, x: Tensor) -> Tensor:
        h = F.relu(F.conv2d(x, self.first.weight * self.before, self.first.bias, padding=1))
        h = F.relu(F.conv2d(self.drop(h), self.second.weight * self.so_far, self.second.bias, padding=1))
        out: Tensor = self.head(h)
        return out


class TimeFirst(nn.Module):
    """One dropout on the inputs (T, B, C) and on each state (B, C) of a loop."""

    def __init__(self) -> None:
        super().__init__()
        self.drop, self.states, self.cell, self.head = (
            nn.Dropout(0.3),
            nn.Dropout(0.3),
            nn.GRUCell(6, 6),
            nn.Linear(6, 2),
        )

    def forward(self, x: Tensor) -> Tensor:
        h, out = x.new_zeros(x.shape[1], 6), []
        for step in self.drop(x):
            h = self.cell(step, h)
            out.append(self.head(self.states(h)))
        return torch.stack(out)


class Ordered(nn.Module):
    """A masked autoencoder (MADE): output i depends on the inputs before i."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.drop, self.second = nn.Linear(5, 20), nn.Dropout(0.3), nn.Linear(20, 5)
        degrees, places = torch.arange(20) % 5, torch.arange(5)
        self.register_buffer("reads", (degrees[:, None] >= places).float())
        self.register_buffer("writes", (places[:, None] > degrees).float())

    def forward(self, x: Tensor) -> Tensor:
        h = self.drop(F.relu(F.linear(x, self.first.weight * self.reads, self.first.bias)))
        return F.linear(h, self.second.weight * self.writes, self.second.bias)


class Causal1d(nn.Module):
    """Causal convolutions with nn.Dropout on (B, C, T)."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.drop, self.second = nn.Conv1d(3, 8, 3), nn.Dropout(0.3), nn.Conv1d(8, 2, 3)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.second(F.pad(self.drop(F.relu(self.first(F.pad(x, (2, 0))))), (2, 0)))
        return out


def movement(model: nn.Module, x: Tensor, axis: int) -> Tensor:
    """How far outputs move when the last entry of an input's axis changes, encoders being away from zero."""
    torch.manual_seed(0)
    for site in cd.sites(model).values():
        for parameter in site.encoder.parameters():
            parameter.data.add_(torch.randn_like(parameter) * (30 if parameter.ndim > 1 else 0))
    other = x.clone()
    other.narrow(axis, x.shape[axis] - 1, 1).normal_()
    model.eval()
    with torch.no_grad():
        moved: Tensor = (model(x) - model(other)).abs()
    return moved.movedim(axis, 0)


@pytest.mark.parametrize(("network", "shape", "axis"), [(Spectrogram, (3, 1, 6, 9), 3), (Pixels, (2, 1, 6, 6), 2)])
def test_causal_images_have_rates_of_their_own(network: type[nn.Module], shape: tuple[int, ...], axis: int) -> None:
    torch.manual_seed(1)
    x = torch.randn(shape)
    model = cd.contextualize(network(), example=x)
    assert [(site.dim, site.batch_dims) for site in cd.sites(model).values()] == [(1, (0, 2, 3))]
    assert movement(model, x, axis)[:-1].max() <= 1e-6


def test_other_images_are_pooled_as_before() -> None:
    plain = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.Dropout2d(0.3), nn.Conv2d(4, 2, 3, padding=1))
    model = cd.contextualize(plain, example=torch.randn(2, 1, 6, 6))
    assert [site.batch_dims for site in cd.sites(model).values()] == [(0,)]


@pytest.mark.parametrize("positions", [None, "own"])
@pytest.mark.parametrize(("network", "shape"), [(OrderedTokens, (3, 7, 4)), (Ordered, (3, 5))])
def test_an_order_that_a_site_breaks_is_named(network: type[nn.Module], shape: tuple[int, ...], positions: Any) -> None:
    x = torch.randn(shape)
    with pytest.warns(cd.ConversionWarning, match="drop: outputs would depend on later entries of axis 1") as found:
        model = cd.contextualize(network(), example=x, positions=positions)
    assert len(found) == 1
    assert movement(model, x, 1)[:-1].max() > 1e-3  # which is what was said
    cd.contextualize(network(), example=x, positions="pooled")  # as asked for


def test_features_that_do_not_act_on_one_another_are_not_an_order() -> None:
    cd.contextualize(nn.Sequential(nn.Dropout(0.3), nn.Tanh()), example=torch.randn(3, 5))


@pytest.mark.parametrize("length", [3, 7])
def test_time_on_the_first_axis_is_not_taken_for_samples(length: int) -> None:
    """Earlier points in time act on later ones and not the other way round; samples do neither."""
    x = torch.randn(length, 3, 6)
    model = cd.contextualize(TimeFirst(), example=x)
    assert {name: site.batch_dims[0] for name, site in cd.sites(model).items()} == {"drop": 1, "states": 0}
    assert movement(model, x, 1)[:-1].max() <= 1e-6
    shared = TimeFirst()
    shared.states = shared.drop
    with pytest.raises(ValueError, match="its calls have the samples on different axes, 0 and 1"):
        cd.contextualize(shared, example=x)


def test_axes_that_only_an_example_tells_are_said() -> None:
    for positions in (None, "own"):
        with pytest.warns(cd.ConversionWarning, match=r"(?s)nn.Conv1d.*is unknown without an example in drop"):
            cd.contextualize(Causal1d(), positions=positions)
    x = torch.randn(2, 3, 9)
    assert movement(cd.contextualize(Causal1d(), example=x), x, 2)[:-1].max() <= 1e-6


class Noisy(nn.Module):
    """A pointwise network with a generator of its own, from which it may or may not draw."""

    def __init__(self, source: Any) -> None:
        super().__init__()
        self.drop, self.head, self.source = nn.Dropout(0.3), nn.Linear(4, 2), source

    def forward(self, x: Tensor) -> Tensor:
        x = self.drop(x)
        number = (
            torch.rand((), generator=self.source).item()
            if isinstance(self.source, torch.Generator)
            else self.source.random()
        )
        out: Tensor = self.head(x + number if number < 0.7 else x)
        return out


@pytest.mark.parametrize("kind", ["torch", "python", "numpy", "legacy numpy"])
def test_passes_that_are_compared_draw_the_same_numbers_from_the_networks_generator(kind: str) -> None:
    source: Any = {
        "torch": torch.Generator,
        "python": lambda: random.Random(0),
        "numpy": np.random.default_rng,
        "legacy numpy": lambda: np.random.RandomState(0),
    }[kind]()
    x = torch.randn(2, 3, 4)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = cd.contextualize(Noisy(source), example=x)
    assert cd.sites(model)["drop"].batch_dims == (0, 1)


class LanguageModel(nn.Module):
    """A causal convolution over tokens, whose logits (B, T, V) go out in some form."""

    def __init__(self, form: Any = lambda y: y) -> None:
        super().__init__()
        self.embed, self.drop = nn.Embedding(20, 8), nn.Dropout(0.1)
        self.mix, self.head, self.form = nn.Conv1d(8, 8, 3), nn.Linear(8, 20), form

    def forward(self, ids: Tensor) -> Any:
        h = self.drop(self.embed(ids)).mT
        return self.form(self.head(self.mix(F.pad(h, (2, 0))).mT.relu()))


@pytest.mark.parametrize(
    "form",
    [
        lambda y: y.flatten(0, 1),
        lambda y: y.flatten(1),
        lambda y: y[:, :-1],
        lambda y: y[:, 2:],
        lambda y: y[:, ::2],
        lambda y: list(y.unbind(1)),
        lambda y: torch.cat([y.mean(1, keepdim=True), y], 1),
    ],
)
def test_outputs_need_not_have_the_positions_of_the_input(form: Any) -> None:
    model = cd.contextualize(LanguageModel(form), example=torch.randint(20, (4, 9)))
    assert cd.sites(model)["drop"].batch_dims == (0, 1)


@pytest.mark.parametrize("ids", [torch.zeros(1, 9).long(), torch.ones(1, 9).long(), torch.arange(18).view(2, 9) % 2])
def test_tokens_of_a_dummy_example_may_be_zeros_and_ones(ids: Tensor) -> None:
    model = cd.contextualize(LanguageModel(), example=ids)
    assert cd.sites(model)["drop"].batch_dims == (0, 1)


def test_examples_that_tell_nothing_are_said() -> None:
    ids = torch.randint(20, (4, 9))
    silent = LanguageModel()
    nn.init.zeros_(silent.head.weight)
    cases = [(LanguageModel(), ids[:, :1]), (silent, ids), (LanguageModel(lambda y: y.square().mean()), ids)]
    for model, example in cases:
        with pytest.warns(cd.ConversionWarning, match=r"whether the network is causal is unknown with this example"):
            cd.contextualize(model, example=example)


def test_an_axis_of_samples_that_is_taken_on_trust_is_said() -> None:
    class SamplesLast(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.drop = nn.Parameter(torch.randn(8, 5)), nn.Dropout(0.2)
            self.second = nn.Parameter(torch.randn(3, 8))

        def forward(self, x: Tensor) -> Tensor:
            return self.second @ self.drop(torch.relu(self.first @ x))

    with pytest.warns(cd.ConversionWarning, match="does not run with another number of samples"):
        cd.contextualize(SamplesLast(), example=torch.randn(5, 4))


def test_causal_attention_beside_convolutions() -> None:
    """The axis of the features, which convolutions may have for that of time, is not taken for the positions'."""

    class Both(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.drop, self.attend = nn.Dropout(0.3), nn.MultiheadAttention(4, 2, batch_first=True)
            self.mix, self.head = nn.Conv1d(4, 4, 3), nn.Linear(4, 2)

        def forward(self, x: Tensor) -> Tensor:
            x = self.drop(x)
            future = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1)
            x = self.attend(x, x, x, attn_mask=future, need_weights=False)[0]
            out: Tensor = self.head(self.mix(F.pad(x.mT, (2, 0))).mT)
            return out

    x = torch.randn(2, 3, 4)
    model = cd.contextualize(Both(), example=x)
    assert cd.sites(model)["drop"].batch_dims == (0, 1)
    assert movement(model, x, 1)[:-1].max() <= 1e-6
