"""`cd.predict` samples what a plain loop samples, whatever the network does, and leaves nothing dead behind."""

from __future__ import annotations

import copy
import io
import itertools
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import contextual_dropout as cd
from tests.predictions import assert_same_passes, loop

Forward = Callable[[Any, Tensor], Tensor]
WIDTH, SAMPLES = 5, 400
GENERATOR, STORE, COUNTED = np.random.default_rng(0), [torch.zeros(1)], [0]


class Network(nn.Module):
    """Parts for a forward that is given."""

    def __init__(self, forward: Forward) -> None:
        super().__init__()
        self.enter, self.leave = nn.Linear(4, WIDTH), nn.Linear(WIDTH, 3)
        self.drop, self.alpha = nn.Dropout(0.4), nn.AlphaDropout(0.4)
        self.site, self.other = (spread_out(cd.ContextualDropout(WIDTH, p, reduction=1)) for p in (0.1, 0.5))
        self.norm = nn.BatchNorm1d(WIDTH, track_running_stats=False)
        self.numpy, self.python = np.random.default_rng(1), random.Random(1)
        self.own = torch.Generator().manual_seed(1)
        self.calls, self.kept, self.state = 0, [torch.zeros(1)], torch.zeros(WIDTH)
        self.noise = itertools.cycle([0.0, 0.0, 3.0])
        self.register_buffer("memory", torch.zeros(WIDTH))
        self._forward = forward

    def forward(self, x: Tensor) -> Tensor:
        return self._forward(self, x)


def spread_out(site: cd.ContextualDropout) -> cd.ContextualDropout:
    """With rates that differ between samples."""
    nn.init.normal_(site.encoder.expand_weight, std=100)
    return site


def two_sites_on_one_tensor(n: Any, x: Tensor) -> Tensor:
    h = n.enter(x)
    return n.leave(n.site(h)) + n.leave(n.other(h))  # type: ignore[no-any-return]


def two_contexts_of_one_tensor(n: Any, x: Tensor) -> Tensor:
    h = n.enter(x)
    return n.leave(n.other(h, context=h)) + n.leave(n.other(h, context=-3 * h))  # type: ignore[no-any-return]


def one_site_twice(n: Any, x: Tensor) -> Tensor:
    h = n.enter(x)
    return n.leave(n.site(h)) - n.leave(n.site(h))  # type: ignore[no-any-return]


def a_draw_by_shape_first(n: Any, x: Tensor) -> Tensor:
    return n.leave(n.site(torch.randn(len(x), WIDTH) + n.enter(x)))  # type: ignore[no-any-return]


def alpha_dropout_on_random_features(n: Any, x: Tensor) -> Tensor:
    return n.leave(n.alpha(n.drop(n.enter(x))))  # type: ignore[no-any-return]


def own_numpy_generator(n: Any, x: Tensor) -> Tensor:
    return n.leave(n.drop(n.enter(x) + torch.from_numpy(n.numpy.normal(size=WIDTH)).float()))  # type: ignore[no-any-return]


def own_python_generator_that_branches(n: Any, x: Tensor) -> Tensor:
    h = n.drop(n.enter(x))
    return n.leave(-h if n.python.random() < 0.2 else h)  # type: ignore[no-any-return]


def own_torch_generator(n: Any, x: Tensor) -> Tensor:
    return n.leave(n.drop(n.enter(x) + torch.randn(1, WIDTH, generator=n.own)))  # type: ignore[no-any-return]


def own_torch_generator_in_place(n: Any, x: Tensor) -> Tensor:
    return n.leave(n.drop(n.enter(x))) + torch.empty(3).normal_(generator=n.own)  # type: ignore[no-any-return]


def global_generator(n: Any, x: Tensor) -> Tensor:
    return n.leave(n.drop(n.enter(x))) * (3 if GENERATOR.random() < 0.2 else 1)  # type: ignore[no-any-return]


def seeded_within(n: Any, x: Tensor) -> Tensor:
    h = n.drop(n.enter(x))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        fixed = torch.randn(WIDTH)
    return n.leave(h * fixed)  # type: ignore[no-any-return]


def counter(n: Any, x: Tensor) -> Tensor:
    n.calls += 1
    return n.leave(n.drop(n.enter(x) * (1 if n.calls % 2 else 4)))  # type: ignore[no-any-return]


def global_counter(n: Any, x: Tensor) -> Tensor:
    COUNTED[0] += 1
    return n.leave(n.drop(n.enter(x))) * (1 if COUNTED[0] % 3 else 4)  # type: ignore[no-any-return]


def iterator(n: Any, x: Tensor) -> Tensor:
    return n.leave(n.drop(n.enter(x))) + next(n.noise)  # type: ignore[no-any-return]


def state_of_the_pass_before(n: Any, x: Tensor) -> Tensor:
    h = n.enter(x) + n.state
    n.state = 0.5 * h.mean(0)
    return n.leave(n.drop(h))  # type: ignore[no-any-return]


def tensor_that_is_changed_in_place(n: Any, x: Tensor) -> Tensor:
    n.state.add_(0.01)
    return n.leave(n.drop(n.enter(x)) + n.state)  # type: ignore[no-any-return]


def attribute(n: Any, x: Tensor) -> Tensor:
    n.last = n.drop(n.enter(x))
    return n.leave(n.last)  # type: ignore[no-any-return]


def list_attribute(n: Any, x: Tensor) -> Tensor:
    n.kept.append(n.drop(n.enter(x)))
    return n.leave(n.kept[-1])  # type: ignore[no-any-return]


def global_store(n: Any, x: Tensor) -> Tensor:
    STORE[0] = n.drop(n.enter(x))
    return n.leave(STORE[0])  # type: ignore[no-any-return]


def written_through_data(n: Any, x: Tensor) -> Tensor:
    h = n.enter(x)
    y = n.drop(h)
    h.data.mul_(1.5)
    return n.leave(y + h)  # type: ignore[no-any-return]


def input_written_through_data(n: Any, x: Tensor) -> Tensor:
    y = n.drop(n.enter(x))
    x.data.mul_(1.1)
    return n.leave(y) + x[:, :3]  # type: ignore[no-any-return]


def written_through_numpy(n: Any, x: Tensor) -> Tensor:
    h = n.enter(x)
    array = h.detach().numpy()
    y = n.drop(h)
    array += 1
    return n.leave(y + h)  # type: ignore[no-any-return]


def written_through_a_view(n: Any, x: Tensor) -> Tensor:
    h = n.enter(x)
    view, y = h[:, :2], n.drop(h)
    view.detach().add_(1)
    return n.leave(y + h)  # type: ignore[no-any-return]


def batch_statistics(n: Any, x: Tensor) -> Tensor:
    return n.leave(n.norm(n.site(n.enter(x))))  # type: ignore[no-any-return]


def rows_that_interact(n: Any, x: Tensor) -> Tensor:
    h = n.site(n.enter(x))
    return n.leave(h - 2 * h.mean(0))  # type: ignore[no-any-return]


def buffer_that_is_read_and_set(n: Any, x: Tensor) -> Tensor:
    y = n.drop(n.enter(x) + n.memory)
    n.memory = n.memory + y.mean(0)
    return n.leave(y + n.memory)  # type: ignore[no-any-return]


def functional_dropout(n: Any, x: Tensor) -> Tensor:
    return n.leave(F.dropout(n.drop(n.enter(x)), 0.5, n.training))  # type: ignore[no-any-return]


def functional_alpha_dropout(n: Any, x: Tensor) -> Tensor:
    return n.leave(F.alpha_dropout(n.drop(n.enter(x)), 0.3, training=n.training))  # type: ignore[no-any-return]


def control_flow_on_values(n: Any, x: Tensor) -> Tensor:
    h = n.drop(n.enter(x))
    return n.leave(h if h.sum() > 0 else -2 * h)  # type: ignore[no-any-return]


FORWARDS: list[Forward] = [
    *(two_sites_on_one_tensor, two_contexts_of_one_tensor, one_site_twice, a_draw_by_shape_first),
    *(alpha_dropout_on_random_features, own_numpy_generator, own_python_generator_that_branches),
    *(own_torch_generator, own_torch_generator_in_place, global_generator, seeded_within, counter, global_counter),
    *(iterator, state_of_the_pass_before, tensor_that_is_changed_in_place, attribute, list_attribute, global_store),
    *(written_through_data, input_written_through_data, written_through_numpy, written_through_a_view),
    *(batch_statistics, rows_that_interact, buffer_that_is_read_and_set),
    *(functional_dropout, functional_alpha_dropout, control_flow_on_values),
]


def network(forward: Forward) -> Network:
    torch.manual_seed(3)
    return Network(forward).eval()


@pytest.mark.parametrize("rows", [1, 60, 10**6])
@pytest.mark.parametrize("forward", FORWARDS, ids=lambda forward: forward.__name__)
def test_samples_are_those_of_a_loop(forward: Forward, rows: int) -> None:
    model, x = network(forward), torch.randn(3, 4, generator=torch.Generator().manual_seed(1))
    expected = loop(copy.deepcopy(model), x, samples=SAMPLES)
    samples = cd.predict(model, x, samples=SAMPLES, rows=rows, seed=1, task="regression").samples
    assert_same_passes(samples.double(), expected.double())


@pytest.mark.parametrize("forward", [attribute, list_attribute], ids=lambda forward: forward.__name__)
def test_what_a_model_keeps_can_be_used_afterwards(forward: Forward) -> None:
    model, x = network(forward), torch.randn(1, 4)
    cd.predict(model, x)
    model.noise = None  # type: ignore[assignment]  # an iterator cannot be saved
    copy.deepcopy(model)(x)
    torch.save(model, io.BytesIO())
    assert all((tensor + 1).isfinite().all() for tensor in (*model.kept, getattr(model, "last", x)))


@pytest.mark.parametrize("rows", [1, 1000])
@pytest.mark.parametrize("layer", [0, 1, 2])
def test_what_a_hook_keeps_are_ordinary_tensors(layer: int, rows: int) -> None:
    """Of a layer before the first random one, of that, and of one after it; one for each sample."""
    model = nn.Sequential(nn.Linear(4, 6), nn.Dropout(0.5), nn.Linear(6, 3))
    seen: list[Tensor] = []
    model[layer].register_forward_hook(lambda module, inputs, out: seen.append(out))
    samples = cd.predict(model, torch.randn(2, 4), samples=8, rows=rows, task="regression").samples
    assert len(seen) == 8
    if layer == 2:
        assert torch.equal(torch.stack(seen), samples)
    assert all(out.shape[0] == 2 and (out + 1).isfinite().all() for out in seen)


def test_a_store_in_a_closure() -> None:
    counted, store = 0, {}

    def forward(n: Any, x: Tensor) -> Tensor:
        nonlocal counted
        counted += 1
        store["last"] = n.drop(n.enter(x))
        return n.leave(store["last"]) * (1 if counted % 2 else 4)  # type: ignore[no-any-return]

    samples = cd.predict(network(forward), torch.randn(2, 4), samples=10, task="regression").samples
    assert counted == 10
    assert (store["last"] + 1).shape == (2, WIDTH)
    assert samples.shape == (10, 2, 3)


def test_a_model_with_members_is_a_network() -> None:
    class Committee(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.members = nn.ModuleList(nn.Linear(3, 2) for _ in range(2))
            self.drop = nn.Dropout(0.5)

        def forward(self, x: Tensor) -> Tensor:
            return self.drop(sum(member(x) for member in self.members)) * 0 + 7  # type: ignore[no-any-return]

    class Steps(nn.ModuleList):
        def forward(self, x: Tensor) -> Tensor:
            for step in self:
                x = step(x)
            return x

    x = torch.randn(2, 3)
    assert (cd.predict(Committee(), x, task="regression").samples == 7).all()
    model = Steps([nn.Dropout(0.5), nn.Linear(3, 2)])
    assert cd.predict(model, x, samples=6).samples.shape == (6, 2, 2)
    (batch,) = cd.predict_batches(Committee(), [x], task="regression")
    assert (batch[1].samples == 7).all()


@pytest.mark.parametrize("draw", [random.random, np.random.rand])
def test_members_of_an_ensemble_draw_from_streams_of_their_own(draw: Callable[[], float]) -> None:
    members = [lambda x: x + draw() for _ in range(3)]
    samples = cd.predict(members, torch.zeros(1, 2), samples=12, task="regression", seed=1).samples[:, 0, 0]
    assert samples.unique().numel() == 12
    again = cd.predict(members, torch.zeros(1, 2), samples=12, task="regression", seed=1).samples[:, 0, 0]
    assert torch.equal(samples, again)


@pytest.mark.parametrize("rows", [1, 1000])
def test_arrays_are_as_before(rows: int) -> None:
    """An array is the model's input as a tensor is, and a change of it shows in no other pass."""
    drop = nn.Dropout(0.5)

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.drop = drop

        def forward(self, array: Any) -> Tensor:
            x = torch.from_numpy(array)
            y = self.drop(x) * 0
            x.add_(1)
            return y + x  # type: ignore[no-any-return]

    array = np.zeros((2, 3), np.float32)
    samples = cd.predict(Model(), array, samples=5, rows=rows, task="regression").samples
    assert (samples == 1).all()
    assert (array == 0).all()


@pytest.mark.parametrize("rows", [1, 30, 10**6])
@pytest.mark.parametrize("chain", [True, False])
@pytest.mark.parametrize("options", [{"batch_dim": (0, 1)}, {"batch_dim": (0, -2)}, {"folded": True}])
def test_position_wise_and_folded_sites(options: dict[str, Any], chain: bool, rows: int) -> None:
    torch.manual_seed(0)
    site = spread_out(cd.ContextualDropout(WIDTH, 0.4, reduction=1, **options))
    layers = nn.Sequential(nn.Linear(4, WIDTH), nn.Tanh(), site, nn.Linear(WIDTH, 3), nn.Flatten())

    class Wrapped(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = layers

        def forward(self, x: Tensor) -> Tensor:
            return self.layers(x) + self.layers(0.5 * x)  # type: ignore[no-any-return]

    model, x = (layers if chain else Wrapped()).eval(), torch.randn(3, 2, 4)
    samples = cd.predict(model, x, samples=SAMPLES, rows=rows, seed=2, task="regression").samples
    assert_same_passes(samples.double(), loop(model, x, samples=SAMPLES).double())


@pytest.mark.parametrize("rows", [1, 10_000])
def test_a_seed_gives_the_same_samples_once_more_where_a_first_call_sets_something_up(rows: int) -> None:
    def set_up(n: Any, x: Tensor) -> Tensor:
        if n.calls == 0:
            n.calls, n.cache = 1, torch.ones(WIDTH)
        return n.leave(n.drop(n.enter(x)) * n.cache)  # type: ignore[no-any-return]

    model, x = Network(set_up), torch.randn(3, 4)
    first, second = (cd.predict(model, x, samples=6, seed=1, rows=rows).samples for _ in range(2))
    assert torch.equal(first, second)
