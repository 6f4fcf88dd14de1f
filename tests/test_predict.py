from __future__ import annotations

import pytest
import torch
from scipy import stats
from torch import Tensor, nn

import contextual_dropout as cd
from tests.networks import batch, build


def snapshot(model: nn.Module) -> tuple[list[bool], list[Tensor], Tensor]:
    flags = [module.training for module in model.modules()]
    flags += [module.sampling for module in model.modules() if isinstance(module, cd.ContextualDropout)]
    return flags, [buffer.clone() for buffer in model.buffers()], torch.get_rng_state()


def assert_unchanged(before: tuple[list[bool], list[Tensor], Tensor], model: nn.Module) -> None:
    flags, buffers, random = snapshot(model)
    assert flags == before[0]
    assert all(torch.equal(a, b) for a, b in zip(buffers, before[1], strict=True))
    assert torch.equal(random, before[2])


@pytest.mark.parametrize("training", [True, False])
def test_predict_leaves_no_trace(training: bool) -> None:
    model = build("residual", "bernoulli", "gaussian").train(training)
    model[1].norm1.eval()
    before = snapshot(model)
    cd.predict(model, batch()[0], samples=3)
    assert_unchanged(before, model)


def test_predict_leaves_no_trace_of_an_error() -> None:
    model = build("residual", "bernoulli", "gaussian")
    before = snapshot(model)
    with pytest.raises(RuntimeError):
        cd.predict(model, torch.zeros(2, 5, 5, 5, dtype=torch.float64))
    assert_unchanged(before, model)


def test_a_seed_fixes_the_samples() -> None:
    model = build("mlp", "bernoulli")
    x, _ = batch()
    first, again, other, unseeded = (cd.predict(model, x, samples=4, seed=seed).samples for seed in (1, 1, 2, None))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert not torch.equal(unseeded, cd.predict(model, x, samples=4).samples)


def test_samples_are_probabilities_of_the_sampled_network() -> None:
    """Their mean over many masks is that of a loop written out by hand."""
    model = build("mlp", "bernoulli").eval()
    x, _ = batch(3)
    prediction = cd.predict(model, x, samples=4000, seed=0)
    with torch.no_grad(), cd.sampling(model):
        by_hand = torch.stack([model(x).softmax(-1) for _ in range(4000)])
    torch.testing.assert_close(prediction.samples.sum(-1), torch.ones(4000, 3, dtype=torch.float64))
    error = ((prediction.samples.var(0) + by_hand.var(0)) / 4000).sqrt()
    bound = stats.norm.ppf(1 - 2e-5 / (2 * error.numel()))
    assert ((prediction.mean - by_hand.mean(0)).abs() <= bound * error).all()


def test_ordinary_dropout_is_sampled_too() -> None:
    model = nn.Sequential(nn.Linear(4, 50), nn.Dropout(0.5), nn.Linear(50, 3)).eval()
    assert (cd.predict(model, torch.randn(2, 4), samples=10).samples.std(0) > 0).all()


def test_uncertainty_measures_by_hand() -> None:
    samples = torch.tensor([[[1.0, 0.0]], [[0.0, 1.0]], [[1.0, 0.0]], [[1.0, 0.0]]], dtype=torch.float64)
    prediction = cd.Prediction(samples)
    entropy = stats.entropy([0.75, 0.25])
    assert prediction.entropy.item() == pytest.approx(entropy)
    assert prediction.mutual_information.item() == pytest.approx(entropy)  # each sample is sure of itself
    assert prediction.variation_ratio.item() == pytest.approx(0.25)
    assert prediction.top_two.tolist() == [[0, 1]]
    expected = stats.ttest_rel(samples[:, 0, 0], samples[:, 0, 1]).pvalue
    assert prediction.p_value.item() == pytest.approx(expected)
    assert len(prediction) == 1


def test_bad_input() -> None:
    model = build("mlp", "bernoulli")
    with pytest.raises(ValueError, match="samples, the number of sampled passes, must be at least 1, got 0"):
        cd.predict(model, batch()[0], samples=0)
    with pytest.raises(ValueError, match="significance level between 0 and 1"):
        cd.predict(model, batch()[0], samples=2).certain(5)
