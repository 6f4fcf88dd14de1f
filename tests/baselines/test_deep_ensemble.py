from __future__ import annotations

import copy
import random

import pytest
import torch
from torch import Tensor, nn

import contextual_dropout as cd
from contextual_dropout.baselines import DeepEnsemble, deep_ensemble
from tests.baselines.problems import METHODS, batch, log_likelihood, mlp

X = torch.randn(6, 1, 8, 8, generator=torch.Generator().manual_seed(0))


def weights(ensemble: DeepEnsemble) -> list[Tensor]:
    return [member[2].weight for member in ensemble.members]  # type: ignore[index]


def test_members_begin_differently() -> None:
    ensemble = deep_ensemble(mlp, 4)
    assert len(ensemble.members) == 4
    assert len({tuple(weight.flatten().tolist()) for weight in weights(ensemble)}) == 4


def test_a_seed_fixes_the_members() -> None:
    first, again, other = (deep_ensemble(mlp, 3, seed=seed) for seed in (5, 5, 6))
    assert all(torch.equal(a, b) for a, b in zip(weights(first), weights(again), strict=True))
    # Not one in common, so that repeats of an experiment with seeds 5 and 6 are independent.
    assert not any(torch.equal(a, b) for a in weights(first) for b in weights(other))


def test_a_larger_ensemble_contains_the_smaller() -> None:
    small, large = (weights(deep_ensemble(mlp, members)) for members in (2, 5))
    assert all(torch.equal(a, b) for a, b in zip(small, large, strict=False))


def test_generators_are_as_before() -> None:
    state, python = torch.get_rng_state(), random.getstate()
    deep_ensemble(mlp, 2)
    assert torch.equal(torch.get_rng_state(), state)
    assert random.getstate() == python

    def fails() -> nn.Module:
        torch.rand(3)
        raise KeyError

    with pytest.raises(KeyError):
        deep_ensemble(fails)
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_forward_is_the_log_of_the_mean_probability(dtype: torch.dtype) -> None:
    ensemble = deep_ensemble(mlp, 3).to(dtype).eval()
    x = X.to(dtype)
    out = ensemble(x)
    mean = torch.stack([member(x).softmax(-1) for member in ensemble.members]).mean(0)
    assert out.dtype is dtype
    torch.testing.assert_close(out.exp(), mean, atol=2e-2 if dtype is torch.bfloat16 else 1e-6, rtol=0)


def test_forward_keeps_far_away_classes_finite() -> None:
    class Constant(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.tensor([[0.0, -500.0]])

    torch.testing.assert_close(DeepEnsemble([Constant(), Constant()])(X), torch.tensor([[0.0, -500.0]]))


def test_one_member_is_itself() -> None:
    ensemble = deep_ensemble(mlp, 1).eval()
    torch.testing.assert_close(ensemble(X), ensemble.members[0](X).log_softmax(-1))


@pytest.mark.parametrize("method", METHODS)
def test_members_of_every_kind_predict_together(method: str) -> None:
    """The samples are shared out; a deterministic member gives one."""
    verb, stochastic = METHODS[method].verb, METHODS[method].stochastic
    ensemble = deep_ensemble(lambda: verb(mlp()), 3)
    for member in ensemble.members:
        member.eval()(X)  # lazy layers get their shapes
    ensemble.train()
    before = torch.get_rng_state()
    samples = cd.predict(ensemble, X, samples=12).samples
    assert torch.equal(torch.get_rng_state(), before)
    assert all(module.training for module in ensemble.modules())
    assert samples.shape == (12 if stochastic else 3, 6, 10)
    assert (samples.std(0) > 0).all()
    if not stochastic:
        torch.testing.assert_close(samples.mean(0), ensemble.eval()(X).exp())


def test_members_train_by_themselves() -> None:
    ensemble = deep_ensemble(lambda: METHODS["mc_dropout"].verb(mlp()), 2)
    first, second = ensemble.members
    METHODS["mc_dropout"].objective(first, 100)(log_likelihood(first, *batch())).loss.backward()
    assert all(parameter.grad is not None for parameter in first.parameters())
    assert all(parameter.grad is None for parameter in second.parameters())


def test_state_dict_and_copies() -> None:
    ensemble, fresh = deep_ensemble(mlp, 3, seed=0).eval(), deep_ensemble(mlp, 3, seed=1).eval()
    assert not torch.equal(fresh(X), ensemble(X))
    fresh.load_state_dict(ensemble.state_dict())
    for other in (fresh, copy.deepcopy(ensemble)):
        assert torch.equal(other(X), ensemble(X))


def test_an_empty_ensemble_is_an_error() -> None:
    with pytest.raises(ValueError, match="at least one member"):
        deep_ensemble(mlp, 0)
