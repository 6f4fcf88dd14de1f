"""Several rows of an example, and rows that act on one another: unbiased all the same, against all masks enumerated."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import contextual_dropout as cd
from contextual_dropout.training.estimators import LeaveOneOut, MovingAverage, Reinforce
from tests.exact.enumeration import FAILURE_RATE, assert_mean, exact_gradients, sampled_gradients

KL_WEIGHT = 0.7
COPIES, REPEATS = 400, 100
UNBIASED = {
    **{name: name for name in ("auto", "sequential-arm", "sequential-disarm", "sampled-arm", "sampled-disarm")},
    "reinforce-moving": Reinforce(MovingAverage(0.8)),
    "reinforce-leave-one-out": Reinforce(LeaveOneOut(2)),
}
OPTIONS = {"temperature": 1.3, "reduction": 1, "p": 0.35, "negative_slope": 0.2}


def spread_weights(model: nn.Module) -> None:
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "weight" in name:
                parameter.copy_(parameter.sign() * torch.empty_like(parameter).uniform_(0.6, 1.0))


LAYOUTS: dict[str, dict[str, Any]] = {
    "positions": {"batch_dim": (0, 1)},
    "folded": {"folded": True},
    "time first": {"batch_dim": (1, 0)},
    "time first, pooled": {"batch_dim": 1},
}
UNITS = {"positions": 4, "folded": 4, "time first": 4, "time first, pooled": 2}


class Tokens(nn.Module):
    """Two sites on T = 2 tokens, which mix between them; the tokens may be on the first axis, or rows of the batch."""

    def __init__(self, layout: str) -> None:
        super().__init__()
        self.layout, axes = layout, LAYOUTS[layout]
        self.inputs, self.outputs = nn.Linear(2, 2), nn.Linear(2, 3)
        self.sites = nn.ModuleList(cd.ContextualDropout(2, **OPTIONS, **axes) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        x = self._drop(torch.tanh(self.inputs(x)) + 1, self.sites[0])
        x = torch.tanh(x + x.flip(1))
        logits: Tensor = self.outputs(self._drop(x + 1, self.sites[1])).mean(1)
        return logits

    def _drop(self, x: Tensor, site: nn.Module) -> Tensor:
        if self.layout == "folded":
            return site(x.flatten(0, 1)).view(x.shape)  # type: ignore[no-any-return]
        return site(x.transpose(0, 1)).transpose(0, 1) if "time" in self.layout else site(x)  # type: ignore[no-any-return]


class Graph(nn.Module):
    """Nodes in a ring of four, whose features spread to their neighbours behind each site."""

    def __init__(self) -> None:
        super().__init__()
        self.sites = nn.ModuleList(cd.ContextualDropout(1, **OPTIONS) for _ in range(2))  # type: ignore[arg-type]
        self.inputs, self.hidden, self.outputs = nn.Linear(2, 1), nn.Linear(1, 1), nn.Linear(1, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self._spread(self.sites[0](torch.tanh(self.inputs(x)) + 1))
        x = self._spread(self.sites[1](torch.tanh(self.hidden(x)) + 1))
        logits: Tensor = self.outputs(x)
        return logits

    @staticmethod
    def _spread(x: Tensor) -> Tensor:
        return x + 0.8 * x.roll(1, 0) + 0.8 * x.roll(-1, 0)


def log_likelihood(model: nn.Module, x: Tensor, y: Tensor) -> Callable[[], Tensor]:
    return lambda: -3 * F.cross_entropy(model(x), y, reduction="none")


def check(model: nn.Module, step: Callable[[], Tensor], expected: dict[str, Tensor], repeats: int = REPEATS) -> None:
    found = sampled_gradients(model, step, repeats)
    for name, gradient in expected.items():
        assert_mean(found[name], gradient, FAILURE_RATE / len(expected), name)


@pytest.mark.parametrize("kl", ["closed-form", "sampled"])
@pytest.mark.parametrize("estimator", UNBIASED)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_position_has_its_examples_reward(layout: str, estimator: str, kl: str) -> None:
    torch.manual_seed(3)
    model = Tokens(layout).double()
    spread_weights(model)
    x, y = torch.randn(2, 2, 2).double(), torch.tensor([0, 2])
    _, expected = exact_gradients(model, list(model.sites), log_likelihood(model, x, y), KL_WEIGHT, units=UNITS[layout])
    closure = log_likelihood(model, x.repeat(COPIES, 1, 1), y.repeat(COPIES))
    objective = cd.ELBO(model, UNBIASED[estimator], KL_WEIGHT, kl=kl)  # type: ignore[arg-type]
    check(model, lambda: objective(closure).loss, expected)


def test_positions_and_folded_rows_are_the_same_sites() -> None:
    """With the same weights and noise, tokens on an axis of their own and tokens folded into the batch agree."""
    models = [Tokens(layout) for layout in ("positions", "folded")]
    models[1].load_state_dict(models[0].state_dict())
    x, y = torch.randn(5, 2, 2), torch.randint(3, (5,))
    steps = []
    for model in models:
        torch.manual_seed(0)
        steps.append(cd.ELBO(model, "sequential-disarm")(log_likelihood(model, x, y)))
        steps[-1].loss.backward()
    torch.testing.assert_close(steps[0].kl, steps[1].kl)
    torch.testing.assert_close(steps[0].log_likelihood, steps[1].log_likelihood)
    for (name, one), other in zip(models[0].named_parameters(), models[1].parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad, msg=name)


@pytest.mark.parametrize(
    ("estimator", "values"), [*((name, "nodes") for name in UNBIASED), ("sampled-disarm", "batch")]
)
def test_coupled_rows_are_credited_with_the_whole_batch(estimator: str, values: str) -> None:
    torch.manual_seed(5)
    model = Graph().double()
    spread_weights(model)
    x, y = torch.randn(4, 2).double(), torch.tensor([0, 2, 1, 1])
    nodes = log_likelihood(model, x, y)
    _, expected = exact_gradients(model, list(model.sites), lambda: nodes().sum().view(1), KL_WEIGHT, units=4)
    closure = nodes if values == "nodes" else lambda: nodes().sum()
    objective = cd.ELBO(model, UNBIASED[estimator], KL_WEIGHT, rows="coupled")  # type: ignore[arg-type]
    scale = 4 if values == "nodes" else 1  # the loss is the mean of what the closure returns
    check(model, lambda: scale * objective(closure).loss, expected, repeats=1000)


def test_without_being_told_the_bias_is_large_and_said() -> None:
    torch.manual_seed(5)
    model = Graph().double()
    spread_weights(model)
    x, y = torch.randn(4, 2).double(), torch.tensor([0, 2, 1, 1])
    nodes = log_likelihood(model, x, y)
    _, expected = exact_gradients(model, list(model.sites), lambda: nodes().sum().view(1), KL_WEIGHT, units=4)
    objective = cd.ELBO(model, "sequential-disarm", KL_WEIGHT)
    with pytest.warns(cd.CoupledRowsWarning, match="rows='coupled'"):
        objective(nodes)
    found = sampled_gradients(model, lambda: 4 * objective(nodes).loss, 1000)
    phi = [name for name in expected if "encoder" in name]
    wrong = torch.cat([(found[name].mean(0) - expected[name]).flatten() for name in phi]).norm()
    assert wrong > 0.3 * torch.cat([expected[name].flatten() for name in phi]).norm()


@pytest.mark.parametrize("layout", LAYOUTS)
def test_no_alarm_where_rows_are_apart(layout: str) -> None:
    model = Tokens(layout)
    closure = log_likelihood(model, torch.randn(5, 2, 2), torch.randint(3, (5,)))
    for estimator in UNBIASED.values():
        cd.ELBO(model, estimator)(closure)  # type: ignore[arg-type]  # a warning would be an error here
