"""Gaussian sites: the loss's gradient under fixed noise is the derivative of its value."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import contextual_dropout as cd
from contextual_dropout.nn.site import masked
from contextual_dropout.nn.stop_gradient import Gate
from tests.exact.test_unbiased import log_likelihood, problem


def loss(objective: cd.ELBO, closure: Any) -> Tensor:
    torch.manual_seed(5)
    return objective(closure).loss


@pytest.mark.parametrize("kl", ["closed-form", "sampled"])
@pytest.mark.parametrize(
    ("estimator", "families"),
    [("reparameterized", ("gaussian",) * 3), ("concrete", ("bernoulli", "gaussian", "bernoulli"))],
)
def test_phi_and_eta_by_finite_differences(estimator: str, families: tuple[str, ...], kl: str) -> None:
    model, x, y = problem(*families)
    objective = cd.ELBO(model, estimator, 0.7, kl=kl)  # type: ignore[arg-type]
    closure = log_likelihood(model, x, y)
    loss(objective, closure).backward()
    h = 1e-6
    for name, parameter in model.named_parameters():
        if "sites" not in name:
            continue
        assert parameter.grad is not None
        for index in range(parameter.numel()):
            with torch.no_grad():
                entry = parameter.view(-1)[index]
                entry += h
                above = loss(objective, closure)
                entry -= 2 * h
                below = loss(objective, closure)
                entry += h
            difference = (above - below).item() / (2 * h)
            assert parameter.grad.view(-1)[index].item() == pytest.approx(difference, rel=1e-5, abs=1e-7), name


class _FixedMasks(torch.overrides.TorchFunctionMode):
    """Gives the sites the masks of another pass, as constants."""

    def __init__(self, masks: list[Tensor]) -> None:
        super().__init__()
        self.masks = iter(masks)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is masked:
            site, u, _ = args
            return site.apply_mask(u, next(self.masks))
        return func(*args, **(kwargs or {}))


class _Masks(_FixedMasks):
    """Notes the masks that the same seed gives."""

    def __init__(self) -> None:
        super().__init__([])
        self.drawn: list[Tensor] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is masked:
            site, u, context = args
            logits = site.logits(u, context, Gate(open=False))
            self.drawn.append(site.family.sample(logits, site.family.noise(logits)).detach())
            return site.apply_mask(u, self.drawn[-1])
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("kl_weight", [0.0, 50.0])
@pytest.mark.parametrize("kl", ["closed-form", "sampled"])
@pytest.mark.parametrize(
    ("estimator", "families"),
    [
        ("reparameterized", ("gaussian", "gaussian")),
        ("truncated-reparameterized", ("gaussian", "gaussian")),
        ("sequential-arm", ("bernoulli", "bernoulli")),
        ("independent-disarm", ("bernoulli", "gaussian")),
        ("reinforce", ("gaussian", "bernoulli")),
    ],
)
def test_nothing_of_q_reaches_theta(estimator: str, families: tuple[str, ...], kl: str, kl_weight: float) -> None:
    """theta's gradient is that of the log-likelihood with the masks held fixed, to the last bit, whatever the KL."""
    model, x, y = problem(*families)
    closure = log_likelihood(model, x, y)
    torch.manual_seed(5)
    with _Masks() as masks:
        closure()
    with _FixedMasks(masks.drawn):
        (-closure().sum() / len(y)).backward()
    expected = {n: p.grad for n, p in model.named_parameters() if p.grad is not None}
    assert not any("sites" in name for name in expected)
    model.zero_grad()
    loss(cd.ELBO(model, estimator, kl_weight, kl=kl), closure).backward()  # type: ignore[arg-type]
    for name, gradient in expected.items():
        actual = model.get_parameter(name).grad
        assert actual is not None
        assert torch.equal(actual, gradient), name
