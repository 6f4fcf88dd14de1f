"""How the passes are run: every way has the distribution of a plain loop."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import contextual_dropout as cd
from contextual_dropout.prediction import passes as passes_module
from tests.networks import NETWORKS, batch, build
from tests.predictions import assert_same_distribution, assert_unchanged, by_hand, numpy_state, snapshot


class Spy:
    """Counts in which way passes were run."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.ways: list[str] = []
        for name in ("_folded", "_batched", "_looped", "_plain"):
            monkeypatch.setattr(passes_module, name, self._wrap(name, getattr(passes_module, name)))

    def _wrap(self, name: str, function: Callable[..., Tensor]) -> Callable[..., Tensor]:
        def wrapped(*args: Any) -> Tensor:
            out = function(*args)
            self.ways.append(name)  # only if it came to an end
            return out

        return wrapped


@pytest.fixture
def spy(monkeypatch: pytest.MonkeyPatch) -> Spy:
    return Spy(monkeypatch)


@pytest.mark.parametrize("family", ["bernoulli", "gaussian"])
@pytest.mark.parametrize("name", NETWORKS)
def test_every_way_has_the_distribution_of_a_loop_by_hand(name: str, family: str, spy: Spy) -> None:
    model = build(name, family, family).eval()
    x, _ = batch(3)
    torch.manual_seed(0)
    expected = by_hand(model, x, samples=1000)
    for rows in (1, 60, 3000):  # one by one; 50 chunks of 20; all at once
        samples = cd.predict(model, x, samples=1000, seed=rows, rows=rows).samples
        torch.testing.assert_close(samples.sum(-1), torch.ones(1000, 3, dtype=torch.float64))
        assert_same_distribution(samples, expected)
    if name == "mlp":  # a chain of known layers
        assert spy.ways == ["_folded"] * 3
        return
    if name == "remembering":  # it puts another tensor in the place of a buffer
        assert spy.ways == ["_plain"] * 3
        return
    assert spy.ways[0] == "_looped"
    # vmap follows neither an in-place change of a tensor of the prefix nor control flow on values
    loops = name in ("inplace", "attention")
    assert spy.ways[1:] == ["_looped" if loops else "_batched"] * 2


class Unknown(nn.Module):
    """A network of which nothing is known."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: Tensor) -> Tensor:
        return self.network(x)  # type: ignore[no-any-return]


@pytest.mark.parametrize("wrap", [nn.Sequential, Unknown])
@pytest.mark.parametrize("rows", [1, 12, 1000])
@pytest.mark.parametrize("family", ["bernoulli", "gaussian", "dropout"])
def test_samples_and_rows_are_independent(family: str, rows: int, wrap: Callable[[nn.Module], nn.Module]) -> None:
    """All K samples differ, and so do the rows of one batch, although the inputs are equal."""
    layer = nn.Dropout(0.5) if family == "dropout" else cd.ContextualDropout(40, 0.5, family=family)  # type: ignore[arg-type]
    model = wrap(nn.Sequential(nn.Linear(5, 40), layer, nn.Linear(40, 3)))
    samples = cd.predict(model, torch.ones(4, 5), samples=12, rows=rows).samples.flatten(0, 1)
    distances = F.pdist(samples)  # exact for near rows, where cdist's matrix product rounds to 0
    assert (distances > 0).all()


@pytest.mark.parametrize("rows", [1, 1000])
def test_the_prefix_is_computed_once(rows: int) -> None:
    class Prefix(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            out = torch.tanh(x)
            return out

    count = 0
    model = nn.Sequential(nn.Linear(3, 8), Prefix(), cd.ContextualDropout(8), nn.Linear(8, 2))

    class Count(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            nonlocal count
            count += func is torch.ops.aten.tanh.default
            return func(*args, **(kwargs or {}))

    with Count():
        cd.predict(model, torch.randn(2, 3), samples=6, rows=rows)
    assert count == 1


def layers_with_dropout() -> dict[str, tuple[nn.Module, tuple[int, ...]]]:
    class Last(nn.Module):
        def forward(self, x: Any) -> Tensor:
            x = x[0] if isinstance(x, tuple) else x
            return x.mean(1)  # type: ignore[no-any-return]

    encoder = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.3, batch_first=True)
    fused = nn.TransformerEncoder(encoder, 2, enable_nested_tensor=False)
    return {
        "dropout": (nn.Sequential(nn.Linear(8, 50), nn.Dropout(0.5), nn.Linear(50, 3)), (8,)),
        "dropout2d, in place": (
            nn.Sequential(nn.Conv2d(2, 9, 3), nn.Dropout2d(0.5, inplace=True), nn.Flatten(), nn.Linear(81, 3)),
            (2, 5, 5),
        ),
        "alpha": (nn.Sequential(nn.Linear(8, 50), nn.SELU(), nn.AlphaDropout(0.3), nn.Linear(50, 3)), (8,)),
        "transformer": (nn.Sequential(fused, Last(), nn.Linear(8, 3)), (5, 8)),
        "lstm": (nn.Sequential(nn.LSTM(8, 6, 2, batch_first=True, dropout=0.4), Last(), nn.Linear(6, 3)), (5, 8)),
    }


@pytest.mark.parametrize("wrap", [nn.Sequential, Unknown])
@pytest.mark.parametrize("rows", [1, 1000])
@pytest.mark.parametrize("name", layers_with_dropout())
def test_ordinary_dropout_is_sampled_too(name: str, rows: int, wrap: Callable[[nn.Module], nn.Module]) -> None:
    torch.manual_seed(0)
    network, shape = layers_with_dropout()[name]
    model = wrap(network).eval()
    x = torch.randn(3, *shape)
    samples = cd.predict(model, x, samples=600, rows=rows, seed=1).samples.double()
    assert (samples.std(0) > 0).all()
    assert_same_distribution(samples, by_hand(model, x, samples=600).double())
    assert torch.backends.mha.get_fastpath_enabled()


class HostNoise(nn.Module):
    """Draws from Python's generator or numpy's, or from one of its own."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind, self.dropout = kind, nn.Dropout(0.1)
        self.generator = torch.Generator().manual_seed(0)

    def forward(self, x: Tensor) -> Tensor:
        if self.kind == "own":
            return self.dropout(x) + torch.rand(len(x), 1, generator=self.generator)  # type: ignore[no-any-return]
        noise = np.random.randn() if self.kind == "numpy" else random.random()
        return self.dropout(x) + noise  # type: ignore[no-any-return]


@pytest.mark.parametrize("rows", [1, 1000])
@pytest.mark.parametrize("kind", ["python", "numpy", "own"])
def test_other_generators_are_not_shared_by_the_samples(kind: str, rows: int) -> None:
    model, x = HostNoise(kind), torch.zeros(2, 3)
    before = snapshot(model)
    samples = cd.predict(model, x, samples=10, task="regression", rows=rows, seed=1).samples
    assert samples[:, 0, 0].unique().numel() == 10
    assert_unchanged(before, model)
    if kind != "own":
        assert torch.equal(samples, cd.predict(model, x, samples=10, task="regression", rows=rows, seed=1).samples)


@pytest.mark.parametrize("rows", [1, 1000])
def test_a_spare_normal_number_of_numpy(rows: int) -> None:
    """numpy draws normal numbers in pairs: the second is drawn without a move of the generator."""
    np.random.seed(0)
    np.random.randn()
    expected = numpy_state()
    first = cd.predict(HostNoise("numpy"), torch.zeros(2, 3), samples=5, task="regression", rows=rows, seed=1).samples
    assert first[:, 0, 0].unique().numel() == 5
    assert numpy_state() == expected
    np.random.randn()
    second = cd.predict(HostNoise("numpy"), torch.zeros(2, 3), samples=5, task="regression", rows=rows, seed=1).samples
    assert torch.equal(first, second)


def test_another_global_generator_of_numpy() -> None:
    usual, other = np.random.get_bit_generator(), np.random.PCG64(3)
    try:
        np.random.set_bit_generator(other)
        for samples in (1, 5):
            before = other.state
            prediction = cd.predict(HostNoise("numpy"), torch.zeros(2, 3), samples=samples, task="regression", seed=1)
            assert prediction.samples[:, 0, 0].unique().numel() == samples
            assert np.random.get_bit_generator() is other
            assert other.state == before
    finally:
        np.random.set_bit_generator(usual)


class BatchStatistics(nn.Module):
    """Calls batch normalisation in a way that updates the layer's buffers in eval mode too."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.dropout = nn.BatchNorm1d(3), nn.Dropout(0.5)

    def forward(self, x: Tensor) -> Tensor:
        x = F.batch_norm(x, self.norm.running_mean, self.norm.running_var, training=True)
        return self.norm(self.dropout(x))  # type: ignore[no-any-return]


@pytest.mark.parametrize("rows", [1, 8, 1000])
def test_buffers_of_normalisation_layers_are_as_before(rows: int) -> None:
    """And every sample is one of the model with the buffers that it had."""
    model, x = BatchStatistics().eval(), torch.randn(4, 3) + 5
    before, once = snapshot(model), copy.deepcopy(model)
    samples = cd.predict(model, x, samples=6, rows=rows, task="regression").samples
    assert_unchanged(before, model)
    with torch.no_grad():
        once(x)  # its second normalisation reads what its first has written
        kept, dropped = once.norm(2 * F.batch_norm(x, None, None, training=True)), once.norm(torch.zeros(4, 3))
    assert torch.minimum((samples - kept).abs(), (samples - dropped).abs()).max() < 1e-5


def test_hidden_random_calls() -> None:
    """Random numbers in scripted code, and in a custom autograd function, are out of a torch function mode's sight."""

    class Noise(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return x + torch.rand_like(x)

    class Model(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.tanh(Noise.apply(torch.tanh(x)))  # type: ignore[no-any-return, no-untyped-call]

    for rows in (1, 1000):
        samples = cd.predict(Model(), torch.zeros(2, 3), samples=5, rows=rows).samples
        assert samples[:, 0, 0].unique().numel() == 5


def test_a_tensor_of_the_prefix_that_is_changed_later() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.dropout = nn.Dropout(0.5)

        def forward(self, x: Tensor) -> Tensor:
            u = x + 1
            out: Tensor = self.dropout(u) * 0 + u
            u.mul_(2)
            return out + u

    for rows in (1, 4, 1000):
        samples = cd.predict(Model(), torch.zeros(2, 3), samples=6, rows=rows, task="regression").samples
        assert torch.equal(samples, torch.full((6, 2, 3), 3.0))


@pytest.mark.parametrize("batch_size", [1, 32])
def test_lists_that_the_network_changes_are_its_own(batch_size: int) -> None:
    """A list that a call before the first random one returned, and that is changed then, is a new one in each pass."""

    class Reversing(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.drop = nn.Dropout(0.5)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            order = torch.arange(4).tolist()
            order.reverse()
            return self.drop(x) * 0 + torch.tensor(order, dtype=x.dtype)

    samples = cd.predict(Reversing(), torch.ones(batch_size, 4), samples=6, task="regression").samples
    assert (samples == torch.tensor([3.0, 2.0, 1.0, 0.0])).all()
