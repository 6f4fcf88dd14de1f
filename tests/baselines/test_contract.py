"""What every baseline promises: method by property."""

from __future__ import annotations

import copy
import pickle
import random
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import contextual_dropout as cd
from contextual_dropout.nn.stochastic import Stochastic
from tests.baselines.problems import METHODS, NETWORKS, STOCHASTIC, batch, build, digits, log_likelihood, step
from tests.predictions import assert_same_distribution

EVERY = [(method, network) for method in METHODS for network in NETWORKS]
every = pytest.mark.parametrize(("method", "network"), EVERY)
every_stochastic = pytest.mark.parametrize(("method", "network"), [case for case in EVERY if case[0] in STOCHASTIC])


def kinds(model: nn.Module) -> list[tuple[str, type[nn.Module], bool]]:
    return [(name, type(module), module.training) for name, module in model.named_modules()]


def snapshot(model: nn.Module) -> tuple[Any, ...]:
    flags = [module.sampling for module in model.modules() if isinstance(module, Stochastic)]
    buffers = [buffer.tolist() for buffer in model.buffers()]
    return kinds(model), flags, buffers, torch.get_rng_state().tolist(), random.getstate()


def same_state(a: dict[str, Tensor], b: dict[str, Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


@every
def test_inplace_or_a_copy(method: str, network: str) -> None:
    verb, original = METHODS[method].verb, NETWORKS[network]()
    before, state = kinds(original), copy.deepcopy(original.state_dict())
    converted = verb(original, inplace=False)
    converted(batch()[0])
    step(method, converted).loss.backward()
    assert converted is not original
    assert kinds(original) == before
    assert same_state(original.state_dict(), state)
    assert all(parameter.grad is None for parameter in original.parameters())
    assert verb(original) is original
    if method != "mc_dropout":  # which only sets rates
        assert kinds(original) != before


@every
def test_training_mode_is_taken_over(method: str, network: str) -> None:
    model = METHODS[method].verb(NETWORKS[network]().eval())
    assert not any(module.training for module in model.modules() if not list(module.children()))


@every
def test_eval_is_deterministic_and_training_random(method: str, network: str) -> None:
    model, (x, _) = build(method, network), batch()
    assert torch.equal(model(x), model(x)) != METHODS[method].stochastic
    model.eval()
    assert torch.equal(model(x), model(x))
    with cd.sampling(model):
        assert torch.equal(model(x), model(x)) != METHODS[method].stochastic


@every
def test_one_step_gives_every_parameter_a_finite_gradient(method: str, network: str) -> None:
    model = build(method, network)
    result = step(method, model)
    result.loss.backward()
    assert result.loss.isfinite()
    assert result.log_likelihood.shape == result.kl.shape == (6,)
    torch.testing.assert_close(
        result.loss.detach(), -(result.log_likelihood - result.kl_weight * result.kl).mean(), rtol=1e-5, atol=1e-5
    )
    gradients = {name: p.grad for name, p in model.named_parameters() if p.requires_grad}
    assert gradients
    for name, gradient in gradients.items():
        assert gradient is not None, name
        assert gradient.isfinite().all(), name
    assert (
        sum(bool((gradient != 0).any()) for gradient in gradients.values() if gradient is not None) > len(gradients) / 2
    )


@every
def test_training_raises_the_likelihood(method: str, network: str) -> None:
    x, y = digits()
    model = build(method, network)
    objective = METHODS[method].objective(model, len(x))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    held_out = log_likelihood(model, x[-400:], y[-400:])

    def score() -> float:
        model.eval()
        with torch.no_grad():
            value = held_out().mean().item()
        model.train()
        return value

    before = score()
    for index in torch.randint(1397, (200, 64)):
        optimizer.zero_grad()
        objective(log_likelihood(model, x[index], y[index])).loss.backward()
        optimizer.step()
    assert score() > max(before, -2.3) + 1  # -log 10 is what a constant guess scores


@every_stochastic
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("rows", [1, 1000])
def test_predict_samples_and_leaves_no_trace(method: str, network: str, training: bool, rows: int) -> None:
    model, (x, _) = build(method, network).train(training), batch()
    before, state = snapshot(model), copy.deepcopy(model.state_dict())
    prediction = cd.predict(model, x, samples=12, rows=rows)
    assert snapshot(model) == before
    assert same_state(model.state_dict(), state)
    assert prediction.samples.shape == (12, 6, 10)
    assert (prediction.samples.std(0) > 0).all()
    torch.testing.assert_close(prediction.samples.sum(-1), torch.ones(12, 6))


@every_stochastic
def test_batched_and_looped_samples_have_the_same_distribution(method: str, network: str) -> None:
    """Means and variances fail by chance at a rate of 2e-5."""
    model, (x, _) = build(method, network), batch(examples=3)
    batched, looped = (cd.predict(model, x, samples=1500, rows=rows, seed=rows).samples for rows in (150, 1))
    assert_same_distribution(batched.double(), looped.double())


@pytest.mark.parametrize("network", NETWORKS)
def test_a_deterministic_method_predicts_one_sample_only(network: str) -> None:
    model, (x, _) = build("contextual_gating", network), batch()
    prediction = cd.predict(model, x, samples=1)
    torch.testing.assert_close(prediction.samples[0], model.eval()(x).softmax(-1))
    with pytest.raises(ValueError, match=r"nothing is sampled.*samples=1 gives the one deterministic output"):
        cd.predict(model, x, samples=2)


@every
def test_state_dict_round_trip(method: str, network: str) -> None:
    model, (x, _) = build(method, network), batch()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    step(method, model).loss.backward()
    optimizer.step()
    torch.manual_seed(1)
    fresh = METHODS[method].verb(NETWORKS[network]())
    fresh.load_state_dict(model.state_dict())
    for each in (model, fresh):
        each.eval()
    assert torch.equal(fresh(x), model(x))
    assert same_state(fresh.state_dict(), model.state_dict())


@every
def test_copies_are_independent(method: str, network: str) -> None:
    """Also in the middle of a step, when a layer may hold on to a graph."""
    model, (x, _) = build(method, network), batch()
    loss = step(method, model).loss
    copies = [copy.deepcopy(model), pickle.loads(pickle.dumps(model))]
    expected = model.eval()(x)
    loss.backward()
    for other in copies:
        assert torch.equal(other.eval()(x), expected)
        step(method, other.train()).loss.backward()
        with torch.no_grad():
            for parameter in other.parameters():
                parameter.add_(1)
        assert not torch.equal(other.eval()(x), expected)
    assert torch.equal(model(x), expected)


@every
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_the_precision_of_the_model_is_kept(method: str, network: str, dtype: torch.dtype) -> None:
    model, (x, _) = METHODS[method].verb(NETWORKS[network]().to(dtype)), batch(dtype)
    assert model(x).dtype is dtype
    assert model.eval()(x).dtype is dtype
    step(method, model.train(), dtype).loss.backward()
    for name, parameter in model.named_parameters():
        assert parameter.dtype is dtype, name
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name


@pytest.mark.parametrize("method", METHODS)
def test_an_unsuitable_model_is_an_error(method: str) -> None:
    model = nn.Sequential(nn.ReLU()) if method == "bayes_by_backprop" else nn.Sequential(nn.Linear(2, 3), nn.ReLU())
    with pytest.raises(ValueError, match=r"no dropout layers|no layer was selected|nothing in the model was selected"):
        METHODS[method].verb(model)
