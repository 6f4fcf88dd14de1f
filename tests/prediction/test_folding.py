"""Rows that are said not to interact do not, and where it is not certain nobody says so."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

import contextual_dropout as cd
from contextual_dropout.prediction.folding import ROWWISE, folded
from tests.predictions import assert_same_distribution, by_hand, numpy_state


def layers() -> list[tuple[nn.Module, tuple[int, ...]]]:
    """One of each known type, with the shape of a row."""
    line, plane, space = (4, 6), (4, 6, 6), (4, 6, 6, 6)
    arguments: dict[type[nn.Module], tuple[tuple[Any, ...], tuple[int, ...]]] = {
        nn.Linear: ((6, 3), plane),
        nn.LayerNorm: ((6,), line),
        nn.GroupNorm: ((2, 4), plane),
        nn.Softmax: ((-1,), line),
        nn.LogSoftmax: ((1,), line),
        nn.PReLU: ((4,), plane),
        nn.BatchNorm1d: ((4,), line),
        nn.BatchNorm2d: ((4,), plane),
        nn.BatchNorm3d: ((4,), space),
        cd.ContextualDropout: ((6,), line),
    }
    found = []
    for kind in ROWWISE:
        name = kind.__name__
        shape = next((s for end, s in (("1d", line), ("2d", plane), ("3d", space)) if name.endswith(end)), plane)
        default: tuple[Any, ...] = (4, 5, 3) if "Conv" in name else (2,) if "Pool" in name else ()
        given, shape = arguments.get(kind, (default, shape))
        found.append((kind(*given), shape))
    return found


@pytest.mark.parametrize(("layer", "shape"), layers(), ids=lambda value: type(value).__name__)
def test_known_layers_treat_each_row_by_itself(layer: nn.Module, shape: tuple[int, ...]) -> None:
    x, others = torch.randn(3, *shape), 100 * torch.randn(5, *shape)
    layer.eval()
    with torch.no_grad():
        expected, out = layer(x.clone()), layer(torch.cat([others, x]))[-3:]
    torch.testing.assert_close(out, expected, atol=1e-4, rtol=1e-4)
    model = nn.Sequential(nn.Dropout(0.5), nn.Sequential(layer)).eval()
    with cd.sampling(model):
        chain = folded(model, x)
        assert chain is not None
        assert chain.run(4).shape == (4, *expected.shape)


ANY = [(6,), (4, 6), (4, 6, 6), (3, 4, 6, 6)]
#: Shapes of a row that each kind of dropout takes without a warning.
ROWS: dict[type[nn.Module], list[tuple[int, ...]]] = {
    nn.Dropout: ANY,
    nn.AlphaDropout: ANY,
    nn.FeatureAlphaDropout: ANY,
    nn.Dropout1d: [(6,), (4, 6)],
    nn.Dropout2d: [(4, 6, 6)],
    nn.Dropout3d: [(4, 6, 6), (3, 4, 6, 6)],
}


@pytest.mark.parametrize("examples", [1, 2])
@pytest.mark.parametrize(("kind", "shape"), [(kind, shape) for kind, shapes in ROWS.items() for shape in shapes])
def test_dropout_has_a_mask_for_each_row(kind: type[nn.Module], shape: tuple[int, ...], examples: int) -> None:
    """Also where torch takes an input for one without a batch axis."""
    torch.manual_seed(0)
    model = nn.Sequential(kind(0.5), nn.Flatten(), nn.Linear(torch.Size(shape).numel(), 2)).eval()
    x = torch.randn(examples, *shape)
    samples = cd.predict(model, x, samples=800, rows=10**6, seed=0).samples
    assert_same_distribution(samples.double(), by_hand(model, x, samples=800).double())


class Subclass(nn.Linear):
    """May do anything."""


class Centred(nn.Module):
    def forward(self, weight: Tensor) -> Tensor:
        return weight - weight.mean()


def altered(how: str) -> nn.Module:
    layer = nn.Linear(4, 4)
    if how == "hook":
        layer.register_forward_hook(lambda module, inputs, output: output - output.mean(0))
    elif how == "pre-hook":
        layer.register_forward_pre_hook(lambda module, inputs: inputs[0] - inputs[0].mean(0))
    elif how == "forward":
        layer.forward = lambda x: x - x.mean(0)  # type: ignore[method-assign]
    elif how == "parametrization":
        parametrize.register_parametrization(layer, "weight", Centred())
    return layer


REFUSED: dict[str, nn.Module] = {
    **{how: altered(how) for how in ("hook", "pre-hook", "forward", "parametrization")},
    "subclass": Subclass(4, 4),
    "softmax over rows": nn.Softmax(0),
    "softmax over anything": nn.Softmax(-2),
    "flattened rows": nn.Flatten(0),
    "flattened from the end": nn.Flatten(-2),
    "batch statistics": nn.BatchNorm1d(4, track_running_stats=False),
    "a site on the rows": cd.ContextualDropout(4, dim=0, batch_dim=1),
    "recurrent": nn.LSTM(4, 4),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_may_mix_rows_is_not_folded(name: str) -> None:
    model = nn.Sequential(nn.Dropout(0.5), nn.Sequential(REFUSED[name])).eval()
    with cd.sampling(model):
        assert folded(model, torch.randn(4, 4)) is None
        assert folded(model[0], torch.randn(4, 4)) is not None


def test_hooks_on_containers_and_inputs_without_rows_are_not_folded() -> None:
    x, model = torch.randn(4, 4), nn.Sequential(nn.Sequential(nn.Dropout(0.5)))
    assert folded(model, x) is not None
    for other in (x[0], x.to_sparse(), torch.nested.nested_tensor([x], layout=torch.jagged), [x], None):
        assert folded(model, other) is None
    handle = nn.modules.module.register_module_forward_hook(lambda *_: None)
    try:
        assert folded(model, x) is None
    finally:
        handle.remove()
    model[0].register_forward_hook(lambda module, inputs, output: output - output.mean(0))
    assert folded(model, x) is None


def test_batches_that_are_none_go_another_way() -> None:
    """(C, H, W) is one image to a convolution: its channels cannot be repeated."""
    model = nn.Sequential(nn.Conv2d(3, 5, 3), nn.Dropout(0.5), nn.Conv2d(5, 2, 3), nn.Flatten(1)).eval()
    x = torch.randn(3, 7, 7)
    samples = cd.predict(model, x, samples=300, task="regression", rows=1000, seed=0).samples
    assert samples.shape == (300, 2, 9)
    with torch.no_grad(), cd.sampling(model):
        expected = torch.stack([model(x) for _ in range(300)])
    assert_same_distribution(samples.double(), expected.double())


@pytest.mark.parametrize("rows", [1, 8, 1000])
def test_layers_that_work_in_place(rows: int) -> None:
    model = nn.Sequential(nn.ReLU(inplace=True), nn.Dropout(0.5, inplace=True), nn.LeakyReLU(inplace=True))
    x = torch.tensor([[-1.0, 1.0], [2.0, 3.0]])
    given = x.clone()
    samples = cd.predict(model, x, samples=40, task="regression", rows=rows).samples
    assert torch.equal(x, given)
    assert [sorted(set(column.tolist())) for column in samples.flatten(1).T] == [[0], [0, 2], [0, 4], [0, 6]]


@pytest.mark.parametrize("rows", [1, 8, 1000])
def test_the_output_is_picked_sample_by_sample(rows: int) -> None:
    model, x = nn.Sequential(nn.Linear(3, 9), nn.Dropout(0.5), nn.Linear(9, 4)), torch.randn(2, 3)
    options: dict[str, Any] = {"samples": 6, "seed": 0, "rows": rows, "task": "regression"}
    whole = cd.predict(model, x, **options).samples
    picked = cd.predict(model, x, output=lambda out: out - out.mean(), **options).samples
    torch.testing.assert_close(picked, whole - whole.mean((1, 2), keepdim=True))
    assert torch.equal(whole, cd.predict(model, x, **options).samples)


def test_a_function_that_picks_the_output_may_draw() -> None:
    model, x = nn.Sequential(nn.Dropout(0.5)), torch.zeros(2, 3)
    before = random.getstate(), numpy_state()

    def noisy(out: Tensor) -> Tensor:
        return out + random.random() + np.random.rand()

    one, two = (cd.predict(model, x, output=noisy, seed=3, task="regression").samples for _ in range(2))
    assert torch.equal(one, two)
    assert one.unique().numel() == 20
    assert (random.getstate(), numpy_state()) == before
