"""What every estimator promises, on networks of every kind."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch
from torch import Tensor, nn

import contextual_dropout as cd
from contextual_dropout.training.estimators import LeaveOneOut, Reinforce, names
from tests.networks import NETWORKS, batch, build, log_likelihood

#: One of the networks, "remembering", normalises by a buffer that its rows have just updated.
pytestmark = pytest.mark.filterwarnings("ignore::contextual_dropout.CoupledRowsWarning")
BERNOULLI = [name for name in names() if "reparameterized" not in name]


def families_for(estimator: str) -> tuple[str, ...]:
    pathwise = "reparameterized" in estimator
    return ("gaussian", "gaussian", "gaussian") if pathwise else ("bernoulli", "gaussian", "bernoulli")


def gradients(model: nn.Module, estimator: object, seed: int = 3, *, replay: bool = True) -> dict[str, Tensor]:
    model.zero_grad()
    torch.manual_seed(seed)
    cd.ELBO(model, estimator, replay=replay)(log_likelihood(model, *batch())).loss.backward()  # type: ignore[arg-type]
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


def state(model: nn.Module) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("estimator", names())
def test_one_backward_fills_theta_phi_and_eta(estimator: str, network: str) -> None:
    model = build(network, *families_for(estimator))
    filled = gradients(model, estimator)
    assert set(filled) == {name for name, _ in model.named_parameters()}
    assert all(gradient.isfinite().all() for gradient in filled.values())
    for kind in ("encoder.expand_bias", "prior_logit"):
        assert any((gradient != 0).any() for name, gradient in filled.items() if kind in name)


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("estimator", ["auto", "sampled-arm", "independent-arm", "reinforce"])
def test_rows_that_act_on_one_another_are_noticed(
    estimator: str, network: str, recwarn: pytest.WarningsRecorder
) -> None:
    gradients(build(network, "bernoulli", "gaussian", "bernoulli"), estimator)
    noticed = any(issubclass(warning.category, cd.CoupledRowsWarning) for warning in recwarn)
    assert noticed == (network == "remembering")


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("estimator", [*BERNOULLI, "leave-one-out"])
def test_replay_changes_nothing(estimator: str, network: str) -> None:
    """The same seed gives the same gradients, buffers and random state with and without prefix replay."""
    chosen = Reinforce(LeaveOneOut(2)) if estimator == "leave-one-out" else estimator
    results = []
    for replay in (True, False):
        model = build(network, "bernoulli", "gaussian", "bernoulli")
        filled = gradients(model, chosen, replay=replay)
        results.append((filled, dict(model.named_buffers()), torch.get_rng_state()))
    (with_replay, buffers, random), (without, other_buffers, other_random) = results
    for name, gradient in with_replay.items():
        torch.testing.assert_close(gradient, without[name], rtol=1e-9, atol=1e-12, msg=name)
    for name, buffer in buffers.items():
        assert torch.equal(buffer, other_buffers[name]), name
    assert torch.equal(random, other_random)


@pytest.mark.parametrize("estimator", [*BERNOULLI, "leave-one-out"])
@pytest.mark.parametrize("replay", [True, False])
def test_pseudo_passes_leave_the_buffers_of_one_plain_pass(estimator: str, replay: bool) -> None:
    chosen = Reinforce(LeaveOneOut(2)) if estimator == "leave-one-out" else estimator
    model = build("residual", "bernoulli", "bernoulli")
    before = state(model)
    torch.manual_seed(3)
    if estimator == "concrete":
        with torch.no_grad():
            cd.ELBO(model, "concrete")(log_likelihood(model, *batch()))
    else:
        model(batch()[0])
    expected = state(model)
    assert any(not torch.equal(before[name], expected[name]) for name in before)
    model.load_state_dict(before)
    gradients(model, chosen, replay=replay)
    for name, tensor in state(model).items():
        assert torch.equal(tensor, expected[name]), name


@pytest.mark.parametrize("estimator", names())
def test_a_seed_fixes_the_step(estimator: str) -> None:
    model = build("mlp", *families_for(estimator))
    first, again, other = (gradients(model, estimator, seed) for seed in (3, 3, 4))
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert any(not torch.equal(first[name], other[name]) for name in first)


@pytest.mark.parametrize("estimator", names())
def test_nothing_is_kept_after_the_step(estimator: str) -> None:
    """No tape, hook or graph holds on to a batch once its loss is gone."""
    model = build("residual", *families_for(estimator))
    objective = cd.ELBO(model, estimator)

    def one_step() -> weakref.ref[Tensor]:
        x, y = batch()
        objective(log_likelihood(model, x, y)).loss.backward()
        return weakref.ref(x)

    reference = one_step()
    gc.collect()
    assert reference() is None


@pytest.mark.parametrize("estimator", names())
def test_an_empty_batch_is_a_step_of_nothing(estimator: str) -> None:
    model = build("mlp", *families_for(estimator))
    x, y = batch(0)
    step = cd.ELBO(model, estimator)(log_likelihood(model, x, y))
    step.loss.backward()
    assert step.loss.item() == 0
    assert step.kl.shape == (0,)
    assert all((p.grad == 0).all() for p in model.parameters() if p.grad is not None)


@pytest.mark.parametrize("estimator", names())
def test_frozen_encoders_cost_no_pseudo_pass(estimator: str) -> None:
    model = build("mlp", *families_for(estimator))
    for name, parameter in model.named_parameters():
        parameter.requires_grad_("encoder" not in name)
    calls = 0
    x, y = batch()

    def closure() -> Tensor:
        nonlocal calls
        calls += 1
        return log_likelihood(model, x, y)()

    cd.ELBO(model, estimator)(closure).loss.backward()
    assert calls == 1
    assert all((p.grad is None) == ("encoder" in name) for name, p in model.named_parameters())


@pytest.mark.parametrize("estimator", names())
def test_without_autograd_the_objective_is_evaluated_only(estimator: str) -> None:
    model = build("mlp", *families_for(estimator))
    with torch.no_grad():
        step = cd.ELBO(model, estimator)(log_likelihood(model, *batch()))
    assert not step.loss.requires_grad
    torch.testing.assert_close(step.loss, -(step.log_likelihood - step.kl).mean())
