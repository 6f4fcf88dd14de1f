from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn
from torch import distributions as D

import contextual_dropout as cd
from contextual_dropout.baselines import bayes_by_backprop
from contextual_dropout.baselines.bayes_by_backprop import BayesianLayer, ScaleMixture
from contextual_dropout_lab.models import mlp
from tests.baselines.problems import FAILURE_RATE
from tests.exact.enumeration import assert_mean

MIXTURES = [ScaleMixture(), ScaleMixture(0.5, math.exp(-1), math.exp(-7)), ScaleMixture(0.75, 2.0, 0.5)]


def reference(mixture: ScaleMixture) -> D.MixtureSameFamily:
    weights = torch.tensor([mixture.weight, 1 - mixture.weight], dtype=torch.float64)
    scales = torch.tensor([mixture.wide, mixture.narrow], dtype=torch.float64)
    return D.MixtureSameFamily(D.Categorical(weights), D.Normal(torch.zeros(2, dtype=torch.float64), scales))


def points() -> Tensor:
    """From the middle of the narrow part to far beyond the wide one."""
    positive = torch.logspace(-6, 6, 97, dtype=torch.float64)
    return torch.cat([-positive.flip(0), torch.zeros(1, dtype=torch.float64), positive])


@pytest.mark.parametrize("mixture", MIXTURES)
def test_scale_mixture_is_the_mixture_of_torch(mixture: ScaleMixture) -> None:
    w, same = points().requires_grad_(), points().requires_grad_()
    ours, theirs = mixture.log_prob(w), reference(mixture).log_prob(same)
    torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-10)
    gradient, expected = (torch.autograd.grad(value.sum(), leaf)[0] for value, leaf in ((ours, w), (theirs, same)))
    torch.testing.assert_close(gradient, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("mixture", MIXTURES)
def test_scale_mixture_is_precise_in_low_precision(mixture: ScaleMixture, dtype: torch.dtype) -> None:
    """The narrow part's precision is 1.6e5: to subtract it twice would leave nothing of the wide part's value."""
    w = points()[points().abs() < 100].to(dtype).requires_grad_()
    value = mixture.log_prob(w)
    gradient = torch.autograd.grad(value.sum(), w)[0]
    same = w.detach().double().requires_grad_()
    exact = reference(mixture).log_prob(same)
    torch.testing.assert_close(value.double(), exact, rtol=1e-5, atol=1e-4)
    expected = torch.autograd.grad(exact.sum(), same)[0]
    rounding = {torch.float16: 2e-3, torch.bfloat16: 1e-2, torch.float32: 1e-4}[dtype]
    # Between the parts the slope itself is a difference of large numbers.
    torch.testing.assert_close(gradient.double(), expected, rtol=rounding, atol=rounding)


def test_scale_mixture_has_finite_gradients_where_squares_overflow() -> None:
    w = torch.tensor([1e25, -1e25], requires_grad=True)
    gradient = torch.autograd.grad(ScaleMixture().log_prob(w).sum(), w)[0]
    torch.testing.assert_close(gradient, -w.detach())


def test_default_prior_and_bad_ones() -> None:
    assert ScaleMixture() == ScaleMixture(0.2, 1.0, math.exp(-6))
    for bad in ((0.0, 1.0, 0.1), (1.0, 1.0, 0.1), (0.5, 0.0, 0.1), (0.5, 1.0, -1.0)):
        with pytest.raises(ValueError, match="a weight strictly between 0 and 1"):
            ScaleMixture(*bad)


def layer_and_noise(seed: int = 3) -> tuple[BayesianLayer, dict[str, Tensor]]:
    """A layer after a pass, with scales that differ, and the noise that the pass drew."""
    torch.manual_seed(0)
    layer = BayesianLayer(nn.Linear(5, 3), ScaleMixture()).double()
    with torch.no_grad():
        for log_scale in layer.log_scale.values():
            log_scale.add_(torch.randn_like(log_scale))
    torch.manual_seed(seed)
    noise = {name: torch.randn_like(log_scale) for name, log_scale in layer.log_scale.items()}
    torch.manual_seed(seed)
    layer(torch.ones(2, 5).double())
    return layer, noise


def test_penalty_and_its_gradient_are_log_q_minus_log_p() -> None:
    layer, noise = layer_and_noise()
    expected = torch.zeros((), dtype=torch.float64)
    for name, mean in layer.layer.named_parameters():
        scale = layer.log_scale[name].exp()
        w = mean + scale * noise[name]
        expected = expected + (D.Normal(mean, scale).log_prob(w) - reference(layer.prior).log_prob(w)).sum()
    torch.testing.assert_close(layer.penalty(), expected, rtol=1e-10, atol=0)
    parameters = list(layer.parameters())
    pairs = zip(*(torch.autograd.grad(value, parameters) for value in (layer.penalty(), expected)), strict=True)
    for gradient, explicit in pairs:
        torch.testing.assert_close(gradient, explicit, rtol=1e-9, atol=1e-9)


def test_mean_penalty_is_the_kl() -> None:
    """Both parts equal: a Gaussian prior, whose KL is known; fails at a rate of 2e-5."""
    torch.manual_seed(0)
    layer = BayesianLayer(nn.Linear(5, 3), ScaleMixture(0.3, 0.5, 0.5), initial_scale=0.2).double()
    samples = []
    for _ in range(3000):
        layer(torch.ones(1, 5).double())
        samples.append(layer.penalty().detach())
    kl = torch.zeros((), dtype=torch.float64)
    for mean in layer.layer.parameters():
        prior = D.Normal(torch.zeros_like(mean), 0.5)
        kl = kl + D.kl_divergence(D.Normal(mean.detach(), 0.2), prior).sum()
    assert_mean(torch.stack(samples).reshape(-1, 1), kl.reshape(1), FAILURE_RATE, "penalty")


def test_outputs_have_the_mean_and_variance_of_gaussian_weights() -> None:
    """x mu + b and x^2 s^2 + s_b^2; fails at a rate of 2e-5."""
    torch.manual_seed(0)
    model = bayes_by_backprop(nn.Sequential(nn.Linear(4, 3)), initial_scale=0.3).double()
    x = torch.randn(2, 4, dtype=torch.float64)
    samples = cd.predict(model, x, samples=20_000, task="regression").samples
    mean = model.eval()(x).detach()
    torch.testing.assert_close(mean, model[0].layer(x).detach())
    assert_mean(samples, mean, FAILURE_RATE / 2, "mean")
    variance = 0.3**2 * (x.square().sum(1, keepdim=True) + 1).expand(2, 3)
    assert_mean((samples - mean).square(), variance, FAILURE_RATE / 2, "variance")


def test_one_draw_serves_the_whole_batch() -> None:
    layer = BayesianLayer(nn.Linear(4, 3), ScaleMixture())
    out = layer(torch.ones(5, 4))
    torch.testing.assert_close(out, out[:1].expand_as(out))
    assert not torch.allclose(out, layer(torch.ones(5, 4)))


def test_parameters_double() -> None:
    """The paper's 534K for the MLP of 267K."""
    model = bayes_by_backprop(mlp())
    assert sum(parameter.numel() for parameter in model.parameters()) == 2 * 266_610 == 533_220
    assert not any(isinstance(module, nn.Dropout) for module in model.modules())


def test_initial_scale() -> None:
    layer = BayesianLayer(nn.Linear(40, 30), ScaleMixture())
    for log_scale in layer.log_scale.values():
        torch.testing.assert_close(log_scale.exp(), torch.full_like(log_scale, 0.02))
    assert layer.layer.weight.std() > 0.02  # the signal is not drowned
    with pytest.raises(ValueError, match="initial_scale"):
        BayesianLayer(nn.Linear(4, 3), ScaleMixture(), 0.0)


def test_layers_can_be_chosen() -> None:
    model = bayes_by_backprop(nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(8, 3)), layers=nn.Linear)
    assert [type(part) for part in model] == [nn.Conv2d, nn.Flatten, BayesianLayer]
    with pytest.raises(ValueError, match="no layer was selected"):
        bayes_by_backprop(nn.Sequential(nn.Linear(2, 2)), layers=nn.Conv2d)


def test_a_shared_layer_stays_shared() -> None:
    linear, dropout = nn.Linear(3, 3), nn.Dropout()
    model = bayes_by_backprop(nn.Sequential(linear, dropout, nn.ReLU(), linear, dropout))
    assert model[0] is model[3]
    assert isinstance(model[0], BayesianLayer)
    assert not any(isinstance(module, nn.Dropout) for module in model.modules())


def test_penalty_before_any_pass_is_an_error() -> None:
    layer = BayesianLayer(nn.Linear(4, 3), ScaleMixture())
    with pytest.raises(RuntimeError, match="has not been called in training mode"):
        layer.penalty()
    with cd.sampling(layer):
        layer(torch.ones(1, 4))
    with pytest.raises(RuntimeError, match="has not been called in training mode"):
        layer.penalty()


def test_predicting_leaves_the_last_penalty_alone() -> None:
    model = bayes_by_backprop(nn.Sequential(nn.Linear(4, 3)))
    model(torch.ones(2, 4))
    before = model[0].penalty()
    cd.predict(model, torch.ones(2, 4), samples=3)
    assert model[0].penalty() is before


def test_keywords_reach_the_layer() -> None:
    layer = BayesianLayer(nn.Bilinear(2, 3, 4), ScaleMixture())
    inputs = {"input1": torch.ones(5, 2), "input2": torch.ones(5, 3)}
    assert layer(**inputs).shape == (5, 4)
    assert torch.equal(layer.eval()(**inputs), layer.layer(**inputs))
