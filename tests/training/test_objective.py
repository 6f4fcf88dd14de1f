from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import contextual_dropout as cd
from contextual_dropout.training.estimators import MovingAverage, Reinforce
from tests.networks import batch, build, log_likelihood, site


def model_and_closure(*families: str) -> tuple[nn.Module, Any]:
    model = build("mlp", *(families or ("bernoulli", "bernoulli")))
    return model, log_likelihood(model, *batch())


def test_step_reports_what_the_loss_is_made_of() -> None:
    model, closure = model_and_closure()
    step = cd.ELBO(model, kl_weight=0.3)(closure)
    assert step.log_likelihood.shape == step.kl.shape == (7,)
    assert not step.log_likelihood.requires_grad
    assert not step.kl.requires_grad
    assert step.kl_weight == 0.3
    torch.testing.assert_close(step.loss.detach(), -(step.log_likelihood - 0.3 * step.kl).mean())


def test_kl_is_the_sum_over_units_and_sites() -> None:
    model, closure = model_and_closure("gaussian", "gaussian")
    model.eval()
    sites = [module for module in model if isinstance(module, cd.ContextualDropout)]  # type: ignore[attr-defined]
    inputs: list[Tensor] = []
    for layer in sites:
        layer.train()
        layer.register_forward_pre_hook(lambda module, args: inputs.append(args[0].detach()))
    step = cd.ELBO(model)(closure)
    expected = torch.zeros(7, dtype=torch.float64)
    for layer, u in zip(sites, inputs, strict=True):
        scale = (-layer.logits(u) / 2).exp()
        prior = torch.distributions.Normal(1.0, (-layer.prior_logit / 2).exp())
        expected += torch.distributions.kl_divergence(torch.distributions.Normal(1.0, scale), prior).sum(-1).detach()
    torch.testing.assert_close(step.kl, expected)


def test_a_fixed_prior_is_not_trained() -> None:
    model = nn.Sequential(cd.ContextualDropout(4, prior="fixed"), nn.Linear(4, 2))
    x, y = torch.randn(5, 4), torch.tensor([0, 1, 0, 1, 0])
    cd.ELBO(model)(log_likelihood(model, x, y)).loss.backward()
    assert model[0].prior_logit.grad is None
    assert model[0].encoder.expand_bias.grad is not None


@pytest.mark.parametrize("family", ["bernoulli", "gaussian"])
def test_training_raises_the_elbo(family: str) -> None:
    """A network that must look at one feature learns to keep it, and the prior follows."""
    torch.manual_seed(0)
    model = nn.Sequential(cd.ContextualDropout(4, family=family, temperature=1.0, p=0.4), nn.Linear(4, 2))
    x = torch.randn(512, 4)
    y = (x[:, 0] > 0).long()
    objective, optimizer = cd.ELBO(model), torch.optim.Adam(model.parameters(), 0.02)
    first = last = 0.0
    for step_number in range(300):
        optimizer.zero_grad()
        step = objective(log_likelihood(model, x, y))
        step.loss.backward()
        optimizer.step()
        first = step.loss.item() if step_number == 0 else first
        last = step.loss.item()
    assert last < 0.7 * first
    keep = model[0].keep_probability(x).mean(0)
    assert keep[0] == keep.max()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("family", ["bernoulli", "gaussian"])
@pytest.mark.parametrize("network", ["mlp", "residual"])
def test_autocast(network: str, dtype: torch.dtype, family: str) -> None:
    model = build(network, family, family).float()
    x, y = batch()
    objective = cd.ELBO(model)

    def closure() -> Tensor:
        with torch.autocast("cpu", dtype=dtype):
            logits = model(x.float())
        assert logits.dtype is dtype
        return -F.cross_entropy(logits.float(), y, reduction="none")

    objective(closure).loss.backward()
    for parameter in model.parameters():
        assert parameter.grad is not None
        assert parameter.grad.dtype is torch.float32
        assert parameter.grad.isfinite().all()


def test_several_inputs_and_keyword_arguments() -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.left, self.right, self.site = nn.Linear(3, 6), nn.Linear(5, 6), site(6)
            self.head = nn.Linear(6, 4)

        def forward(self, a: Tensor, *, b: Tensor) -> dict[str, Tensor]:
            return {"logits": self.head(self.site(self.left(a) * self.right(b), context=self.left(a)))}

    model = Two()
    a, b, y = torch.randn(7, 3), torch.randn(7, 5), torch.randint(4, (7,))
    cd.ELBO(model)(lambda: -F.cross_entropy(model(a, b=b)["logits"], y, reduction="none")).loss.backward()
    assert all(p.grad is not None for p in model.parameters())


# --- schedules and state ---------------------------------------------------------------------------------------


def test_a_schedule_moves_with_training_steps_only() -> None:
    model, closure = model_and_closure()
    objective = cd.ELBO(model, kl_weight=cd.schedules.LinearWarmup(4))
    with torch.no_grad():
        assert objective(closure).kl_weight == 0
    assert [objective(closure).kl_weight for _ in range(6)] == [0, 0.25, 0.5, 0.75, 1, 1]


def test_state_goes_on_where_it_was() -> None:
    model, closure = model_and_closure()

    def objective() -> cd.ELBO:
        return cd.ELBO(model, Reinforce(MovingAverage()), cd.schedules.LinearWarmup(10))

    def losses(elbo: cd.ELBO, steps: int) -> list[Tensor]:
        values = []
        for _ in range(steps):
            model.zero_grad()
            elbo(closure).loss.backward()
            values.append(torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None]))
        return values

    torch.manual_seed(0)
    whole = losses(objective(), 6)
    torch.manual_seed(0)
    first, second = objective(), objective()
    part = losses(first, 3)
    second.load_state_dict(first.state_dict())
    part += losses(second, 3)
    assert all(torch.equal(a, b) for a, b in zip(whole, part, strict=True))


@pytest.mark.parametrize("weight", [-1.0, float("nan"), float("inf")])
def test_bad_kl_weight(weight: float) -> None:
    with pytest.raises(ValueError, match="kl_weight must be a finite number that is not negative"):
        cd.ELBO(nn.Linear(1, 1), kl_weight=weight)


# --- bad input -------------------------------------------------------------------------------------------------


def test_unknown_estimator_and_kl() -> None:
    with pytest.raises(ValueError, match="unknown estimator 'arm': expected one of auto, reparameterized"):
        cd.ELBO(nn.Linear(1, 1), "arm")
    with pytest.raises(ValueError, match="unknown kl 'exact'"):
        cd.ELBO(nn.Linear(1, 1), kl="exact")  # type: ignore[arg-type]


@pytest.mark.parametrize("reduce", [Tensor.mean, lambda v: v.unsqueeze(-1), lambda v: v.mean().item()])
def test_closure_must_return_one_value_per_example(reduce: Any) -> None:
    model, closure = model_and_closure()
    with pytest.raises(ValueError, match=r"one log-likelihood per example, shape \(7,\).*reduction='none'"):
        cd.ELBO(model)(lambda: reduce(closure()))


def test_closure_of_the_wrong_length() -> None:
    model, closure = model_and_closure()
    with pytest.raises(
        ValueError, match=r"site '4' drew masks of shape \(7, 6\).*returned 3 log-likelihoods.*batch_dim"
    ):
        cd.ELBO(model)(lambda: closure()[:3])


def test_no_site_is_called() -> None:
    model, closure = model_and_closure()
    with pytest.raises(RuntimeError, match="none of the model's 2 sites was called"):
        cd.ELBO(model)(lambda: torch.zeros(7))
    with pytest.raises(RuntimeError, match=r"call model\.train\(\)"):
        cd.ELBO(model.eval())(closure)
    with pytest.raises(RuntimeError, match="the model has no contextual dropout site"):
        cd.ELBO(nn.Linear(3, 2))(closure)
    other, _ = model_and_closure()
    with pytest.raises(RuntimeError, match="not part of the model"):
        cd.ELBO(other)(model_and_closure()[1])


def test_reparameterized_needs_pathwise_sites() -> None:
    model, closure = model_and_closure("gaussian", "bernoulli")
    with pytest.raises(
        ValueError, match=r"site '7' \(6 features, draw 1 of the pass\).*'bernoulli'.*sequential-disarm"
    ):
        cd.ELBO(model, "reparameterized")(closure)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_a_log_likelihood_that_is_not_finite_changes_nothing(value: float) -> None:
    model, closure = model_and_closure()
    before = [p.clone() for p in model.parameters()]

    def broken() -> Tensor:
        return closure() + torch.tensor([0, 0, 0, value, 0, value, 0])

    with pytest.raises(FloatingPointError, match=r"example 3 of the batch is -?(nan|inf) \(2 of 7 are not finite\)"):
        cd.ELBO(model)(broken)
    assert all(p.grad is None for p in model.parameters())
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))


def test_a_site_without_autograd_is_named() -> None:
    model, _ = model_and_closure()
    x, y = batch()
    message = "site '4' ran without autograd.*use_reentrant=False"
    with pytest.raises(RuntimeError, match=message):
        cd.ELBO(model)(lambda: -F.cross_entropy(torch.no_grad()(model)(x), y, reduction="none"))
    x = x.requires_grad_()
    with pytest.raises(RuntimeError, match=message):
        cd.ELBO(model)(lambda: -F.cross_entropy(checkpoint(model, x, use_reentrant=True), y, reduction="none"))


@pytest.mark.parametrize(("bias", "word"), [(-1000.0, "collapsed"), (1000.0, "saturated")])
def test_saturation_is_reported_once(bias: float, word: str) -> None:
    model, closure = model_and_closure()
    nn.init.constant_(model[4].encoder.expand_bias, bias)
    objective = cd.ELBO(model)
    with pytest.warns(cd.SaturationWarning, match=f"site '4' has {word}"):
        objective(closure)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(201):
            with torch.no_grad():
                objective(closure)


def test_an_infinite_log_likelihood_of_a_pseudo_pass_is_an_error_too() -> None:
    model = nn.Sequential(site(4))
    calls = 0

    def closure() -> Tensor:
        nonlocal calls
        calls += 1
        return model(torch.ones(3, 4)).sum(-1) + (torch.tensor([0, float("inf"), 0]) if calls > 1 else 0)

    with pytest.raises(FloatingPointError, match="example 1 of the batch, under another mask at site '0', is inf"):
        cd.ELBO(model, "sequential-arm")(closure)
    assert model[0].encoder.expand_bias.grad is None


def test_a_site_that_gets_the_wrong_features_is_named() -> None:
    model = nn.Sequential(nn.Linear(4, 5), site(6))
    with pytest.raises(ValueError, match=r"site '1': .*shape \(3, 5\) with 5 features.*features=6"):
        cd.ELBO(model)(lambda: model(torch.randn(3, 4)).sum(-1))


def test_an_estimator_class_is_not_an_estimator() -> None:
    with pytest.raises(TypeError, match=r"such as SampledARM\(\)"):
        cd.ELBO(nn.Linear(1, 1), Reinforce)  # type: ignore[arg-type]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_models_have_single_precision_masks_and_kl(dtype: torch.dtype) -> None:
    model = nn.Sequential(cd.ContextualDropout(784, p=0.01, initialisation="zero"), nn.Linear(784, 2)).to(dtype)
    x, y = torch.randn(6, 784, dtype=dtype), torch.tensor([0, 1] * 3)
    step = cd.ELBO(model)(lambda: -F.cross_entropy(model(x).float(), y, reduction="none"))
    step.loss.backward()
    assert step.kl.dtype is torch.float32
    assert (step.kl.abs() < 1e-2).all()  # the posterior is the prior, up to the rounding of the encoder's bias


def test_arguments_of_another_type_are_named() -> None:
    model = nn.Sequential(nn.Linear(4, 3), cd.ContextualDropout(3))
    for weight in (None, "0.1", {"weight": 1}):
        with pytest.raises(TypeError, match="kl_weight must be a number or a schedule"):
            cd.ELBO(model, kl_weight=weight)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"unknown kl .*: expected one of 'closed-form'"):
        cd.ELBO(model, kl={"sampled"})  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="the closure must be a function without arguments, got a Tensor"):
        cd.ELBO(model)(model(torch.randn(2, 4)).log_softmax(-1)[:, 0])
