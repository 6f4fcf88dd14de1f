from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import contextual_dropout as cd
from contextual_dropout.replay.recording import Draw, Recording, Watch
from contextual_dropout.replay.rerun import CommonNoise, rerun
from contextual_dropout.training.trial import sample
from tests.networks import NETWORKS, batch, build, log_likelihood, site
from tests.predictions import numpy_state


def record(model: nn.Module, closure: object, replayable: bool = True) -> tuple[Recording, Tensor]:
    with Recording(model, sample, Watch(rerunnable=True, replayable=replayable)) as recording:
        value = closure()  # type: ignore[operator]
    return recording, value


def again(recording: Recording, closure: object, fork: int, mask: Tensor) -> tuple[Tensor, list[Draw]]:
    return rerun(recording, closure, fork, mask, sample, CommonNoise(recording))  # type: ignore[arg-type]


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("fork", [0, 1, 2])
@pytest.mark.parametrize("replayable", [True, False])
def test_the_true_mask_gives_the_true_value(network: str, fork: int, replayable: bool) -> None:
    model = build(network, "bernoulli", "gaussian", "bernoulli")
    closure = log_likelihood(model, *batch())
    recording, value = record(model, closure, replayable=replayable)
    repeated, draws = again(recording, closure, fork, recording.draws[fork].mask.detach())
    torch.testing.assert_close(repeated, value.detach())
    assert not repeated.requires_grad
    assert len(draws) == len(recording.draws) - fork
    for draw, true in zip(draws, recording.draws[fork:], strict=True):
        torch.testing.assert_close(draw.logits, true.logits.detach())


@pytest.mark.parametrize("network", [name for name in NETWORKS if name not in ("inplace", "remembering")])
def test_ordinary_networks_are_replayed(network: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """None of them falls back to a whole pass."""
    model = build(network, "bernoulli", "gaussian", "bernoulli")
    monkeypatch.setattr(CommonNoise, "begin_prefix", lambda self: pytest.fail("the whole pass was computed"))
    cd.ELBO(model, "sequential-arm")(log_likelihood(model, *batch()))


def test_only_the_suffix_is_computed() -> None:
    """Of four layers (a matrix product each, and two in each site's encoder) only those after the fork."""
    model = nn.Sequential(*(nn.Sequential(nn.Linear(4, 4), site(4)) for _ in range(4))).double()
    x = torch.randn(3, 4, dtype=torch.float64)

    def closure() -> Tensor:
        return model(x).sum(-1)

    recording, _ = record(model, closure)
    for fork in range(4):
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
            again(recording, closure, fork, 1 - recording.draws[fork].mask)
        products = sum(event.count for event in profile.key_averages() if event.key == "aten::addmm")
        assert products == 3 * (3 - fork)


def test_in_place_changes_of_the_prefix_are_noticed() -> None:
    model = build("inplace", "bernoulli", "bernoulli")
    closure = log_likelihood(model, *batch())
    recording, _ = record(model, closure)
    assert not recording.forks[0].intact(recording.mutations)
    plain = build("mlp", "bernoulli", "bernoulli")
    recording, _ = record(plain, log_likelihood(plain, *batch()))
    assert all(fork.intact(recording.mutations) for fork in recording.forks)


def test_relu_in_place_before_a_site_does_not_prevent_replay() -> None:
    relu = nn.ReLU(inplace=True)
    model = nn.Sequential(nn.Linear(4, 4), relu, site(4), relu, nn.Linear(4, 2)).double()
    x = torch.randn(3, 4, dtype=torch.float64)
    recording, value = record(model, lambda: model(x).sum(-1))
    assert recording.forks[0].intact(recording.mutations)
    repeated, _ = again(recording, lambda: model(x).sum(-1), 0, recording.draws[0].mask)
    torch.testing.assert_close(repeated, value.detach())


def test_changing_an_input_in_place_is_refused() -> None:
    class Normalising(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.site = site(4)

        def forward(self, x: Tensor) -> Tensor:
            u = self.site(x * 2)
            x += u.detach()
            return u + x

    model = Normalising().double()
    x = torch.randn(3, 4, dtype=torch.float64)
    with pytest.raises(RuntimeError, match=r"changes in place a tensor that it did not create.*clone"):
        cd.ELBO(model, "sequential-arm")(lambda: model(x).sum(-1))


def test_a_closure_that_does_something_else_each_time_is_refused() -> None:
    first, second = site(4).double(), site(4).double()
    model = nn.ModuleList([first, second])
    order = iter([first, second, second, first, second, first])
    x = torch.ones(3, 4, dtype=torch.float64)
    with pytest.raises(RuntimeError, match="in another order"):
        cd.ELBO(model, "sequential-arm")(lambda: next(order)(next(order)(x) + 1).sum(-1))


def test_code_that_takes_another_path_is_computed_whole() -> None:
    """A cache that the first pass fills makes the second one shorter: no replay, the right value."""

    class Caching(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear, self.site = nn.Linear(4, 4), site(4)
            self.table: Tensor | None = None

        def forward(self, x: Tensor) -> Tensor:
            if self.table is None:
                self.table = torch.arange(4.0, dtype=torch.float64).cos()
            return self.site(self.linear(x) * self.table)

    model = Caching().double()
    x = torch.randn(3, 4, dtype=torch.float64)
    recording, value = record(model, lambda: model(x).sum(-1))
    repeated, _ = again(recording, lambda: model(x).sum(-1), 0, recording.draws[0].mask)
    torch.testing.assert_close(repeated, value.detach())


@pytest.mark.parametrize("replayable", [True, False])
def test_other_random_calls_repeat_themselves(replayable: bool) -> None:
    model = nn.Sequential(nn.Dropout(0.5), site(40), nn.Dropout(0.5), site(40), nn.Dropout(0.5)).double()
    x = torch.rand(3, 40, dtype=torch.float64) + 0.5

    def closure() -> Tensor:
        return (model(x) + torch.randn(3, 40, dtype=torch.float64)).sum(-1)

    recording, value = record(model, closure, replayable=replayable)
    random = torch.get_rng_state()
    for fork in (0, 1):
        repeated, _ = again(recording, closure, fork, recording.draws[fork].mask)
        torch.testing.assert_close(repeated, value.detach())
    assert torch.equal(torch.get_rng_state(), random)


def test_batch_norm_uses_the_true_batch() -> None:
    """One example's counterfactual does not depend on what happens to the others' masks."""
    model = build("residual", "bernoulli", "bernoulli")
    closure = log_likelihood(model, *batch())
    recording, value = record(model, closure)
    mask = recording.draws[0].mask.clone()
    mask[2] = 1 - mask[2]
    repeated, _ = again(recording, closure, 0, mask)
    others = [i for i in range(len(value)) if i != 2]
    torch.testing.assert_close(repeated[others], value.detach()[others])
    assert not torch.isclose(repeated[2], value[2])


def test_instance_norm_and_spectral_norm_keep_their_buffers() -> None:
    model = nn.Sequential(
        nn.Conv2d(3, 4, 3),
        site(4, dim=1),
        nn.InstanceNorm2d(4, track_running_stats=True, affine=True),
        nn.utils.parametrizations.spectral_norm(nn.Conv2d(4, 4, 1)),
        nn.Flatten(),
    ).double()
    x, _ = batch()
    closure = lambda: model(x).sum(-1)  # noqa: E731
    recording, value = record(model, closure)
    buffers = {name: buffer.clone() for name, buffer in model.named_buffers()}
    repeated, _ = again(recording, closure, 0, recording.draws[0].mask)
    torch.testing.assert_close(repeated, value.detach())
    for name, buffer in model.named_buffers():
        assert torch.equal(buffer, buffers[name]), name


def test_an_error_in_the_closure_reaches_the_user_and_restores_the_generator() -> None:
    model = nn.Sequential(site(4)).double()
    calls = 0

    def closure() -> Tensor:
        nonlocal calls
        calls += 1
        if calls > 1:
            raise KeyError("mine")
        return F.relu(model(torch.ones(3, 4, dtype=torch.float64))).sum(-1)

    torch.manual_seed(0)
    with pytest.raises(KeyError, match="mine"):
        cd.ELBO(model, "sequential-arm")(closure)


def test_changing_a_tensor_of_outside_in_place_is_refused_though_it_has_a_history() -> None:
    backbone, model = nn.Linear(4, 4).double(), site(4).double()
    features = backbone(torch.randn(3, 4, dtype=torch.float64))

    def closure() -> Tensor:
        nonlocal features
        features += model(features * 2)
        return features.sum(-1)

    with pytest.raises(RuntimeError, match="changes in place a tensor that it did not create"):
        cd.ELBO(model, "sequential-arm")(closure)


@pytest.mark.parametrize("view", [lambda x: x[0], lambda x: x.view(-1), lambda x: x.detach(), lambda x: x.chunk(2)[0]])
def test_changing_an_input_through_a_view_is_refused(view: object) -> None:
    model = site(4).double()
    x = torch.randn(3, 4, dtype=torch.float64)

    def closure() -> Tensor:
        out = model(x * 2)
        view(x).add_(1)  # type: ignore[operator]
        return (out + x).sum(-1)

    with pytest.raises(RuntimeError, match="changes in place a tensor that it did not create"):
        cd.ELBO(model, "sequential-arm")(closure)


def test_writing_through_data_is_noticed() -> None:
    """Such a write does not count as a version; the true pass's graph must not be written to by a replay."""

    class Writing(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear, self.site = nn.Linear(4, 4), site(4)

        def forward(self, x: Tensor) -> Tensor:
            h = torch.tanh(self.linear(x))
            out = self.site(h * 2)
            h.data.add_(1)
            return out * h

    torch.manual_seed(0)
    model = Writing().double()
    x = torch.randn(3, 4, dtype=torch.float64)
    gradients = []
    for replay in (True, False):
        model.zero_grad()
        torch.manual_seed(1)
        cd.ELBO(model, "sequential-arm", replay=replay)(lambda: model(x).sum(-1)).loss.backward()
        gradients.append([p.grad.clone() for p in model.parameters() if p.grad is not None])
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
def test_code_that_torch_functions_do_not_show_is_not_replayed() -> None:
    """A scripted block recomputes its dropout in a replay; its result is then not the recorded one."""
    scripted = torch.jit.script(nn.Sequential(nn.Linear(4, 40), nn.Dropout(0.5)).double())
    model = nn.Sequential(scripted, site(40).double())
    x = torch.randn(3, 4, dtype=torch.float64)
    recording, value = record(model, lambda: model(x).sum(-1))
    repeated, _ = again(recording, lambda: model(x).sum(-1), 0, recording.draws[0].mask)
    torch.testing.assert_close(repeated, value.detach())


@pytest.mark.parametrize("draw", [random.random, np.random.random_sample])
def test_layers_skipped_by_other_generators_are_skipped_again(draw: Callable[[], float]) -> None:
    class Skipping(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(8))
            self.site = site(4)

        def forward(self, x: Tensor) -> Tensor:
            for layer in self.layers:
                x = torch.tanh(layer(x)) if draw() < 0.5 else x
            return self.site(x)

    model = Skipping().double()
    x = torch.randn(3, 4, dtype=torch.float64)
    for replayable in (True, False):
        recording, value = record(model, lambda: model(x).sum(-1), replayable=replayable)
        state = random.getstate(), numpy_state()
        repeated, _ = again(recording, lambda: model(x).sum(-1), 0, recording.draws[0].mask)
        torch.testing.assert_close(repeated, value.detach())
        assert (random.getstate(), numpy_state()) == state


def test_a_closure_with_a_generator_of_its_own_is_refused() -> None:
    model, generator = site(40).double(), torch.Generator().manual_seed(0)
    with pytest.raises(RuntimeError, match="gave a site other features"):
        cd.ELBO(model, "sequential-arm", replay=False)(
            lambda: model(torch.randn(3, 40, generator=generator, dtype=torch.float64)).sum(-1)
        )


def test_inference_tensors_are_fine() -> None:
    model = site(4)
    with torch.inference_mode():
        x = torch.randn(3, 4)
        assert cd.ELBO(model)(lambda: model(x).sum(-1)).kl.shape == (3,)
    cd.ELBO(model, "sequential-arm")(lambda: model(x.clone()).sum(-1)).loss.backward()


@pytest.mark.parametrize("write", ["numpy", "data"])
def test_writes_below_the_surface_cost_the_replay_not_the_gradient(write: str) -> None:
    """What is written through a tensor's memory does not show in its version."""

    class Writing(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inputs, self.site, self.outputs = nn.Linear(3, 6), cd.ContextualDropout(6, 0.5), nn.Linear(6, 3)

        def forward(self, x: Tensor) -> Tensor:
            h = self.inputs(x)
            dropped = self.site(h * 1)
            if write == "numpy":
                h.detach().numpy()[...] *= -2
            else:
                h.data.mul_(-2)
            out: Tensor = self.outputs(torch.tanh(dropped + h))
            return out

    model, x, y = Writing(), torch.randn(8, 3), torch.randint(3, (8,))
    found = []
    for replay in (True, False):
        model.zero_grad()
        torch.manual_seed(0)
        objective = cd.ELBO(model, "sequential-disarm", replay=replay)
        objective(lambda: -nn.functional.cross_entropy(model(x), y, reduction="none")).loss.backward()
        found.append(model.site.encoder.expand_weight.grad.clone())  # type: ignore[union-attr]
    torch.testing.assert_close(*found)
