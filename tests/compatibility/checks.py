"""What a converted network has to do, tried on one network.

Each check converts a network of its own and returns the numbers for the table, or raises what was wrong.
"""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from scipy import stats
from torch import Tensor, nn

import contextual_dropout as cd
from tests.compatibility.networks import Inputs, Network, arguments
from tests.exact.enumeration import FAILURE_RATE

__all__ = ["CHECKS", "NotApplicable", "Outcome", "converted", "examine"]

Family = Literal["bernoulli", "gaussian"]
#: How many sampled passes predict and the plain loop make each.
SAMPLES = 200
#: The largest movement of outputs, relative to their size, that is rounding.
ROUNDING = 1e-5


class NotApplicable(Exception):
    """The network has nothing that the check is about."""


@dataclass(frozen=True)
class Outcome:
    """How a check ended: whether it held (None: there was nothing to check), and its number or its reason."""

    holds: bool | None
    detail: str


def examine(network: Network, check: Callable[[Network], str]) -> Outcome:
    """Run one check."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return Outcome(True, check(network))
        except NotApplicable as reason:
            return Outcome(None, str(reason))
        except Exception as error:
            return Outcome(False, f"{type(error).__name__}: {error}")


def converted(network: Network, family: Family = "bernoulli", stirred: bool = True) -> nn.Module:
    """The network with sites, in eval mode; their rates differ between inputs if stirred."""
    model = cd.contextualize(network.plain(), example=network.example(), family=family)
    if stirred:
        torch.manual_seed(3)
        with torch.no_grad():
            for site in cd.sites(model).values():
                weight = site.encoder.expand_weight
                weight.normal_(0, weight.shape[1] ** -0.5 / site.encoder.temperature)
    return model


def size(a: Tensor, b: Tensor) -> float:
    """The largest difference between outputs, relative to the larger one of 1 and their size."""
    return ((a - b).abs().max() / max(1.0, b.abs().max().item())).item()


def within(value: float, bound: float, what: str) -> str:
    """The number as text, if it is small enough."""
    assert value <= bound, f"{what} by {value:.2g}, more than {bound:.0e}"
    return f"{value:.0e}" if value else "0"


@torch.no_grad()
def eval_unchanged(network: Network) -> str:
    """A conversion changes nothing in eval mode."""
    inputs = network.example()
    expected, found = (network.run(model, inputs) for model in (network.plain(), converted(network, stirred=False)))
    return within(size(found, expected), ROUNDING, "outputs move")


def probe(network: Network) -> str:
    """Every site samples, and its rates depend on the input."""
    given, keywords = arguments(network.example())
    found = cd.probe(converted(network), *given, **keywords).sites
    vary = sum(site.contextuality > 1e-6 for site in found.values())
    assert vary == len(found), f"the rates of {len(found) - vary} of {len(found)} sites do not depend on the input"
    return str(len(found))


@torch.no_grad()
def predict(network: Network) -> str:
    """Means and spreads of predicted samples are those of a plain loop."""
    model, inputs = converted(network), network.example()
    given, keywords = arguments(inputs)
    options: dict[str, Any] = {"samples": SAMPLES, "seed": 0, "task": "regression", "output": network.output}
    found = cd.predict(model, *given, **options, **keywords).samples
    torch.manual_seed(4)
    with cd.sampling(model):
        loop = torch.stack([network.run(model, inputs) for _ in range(SAMPLES)])
    assert found.shape == loop.shape, f"samples have shape {tuple(found.shape)}, those of a loop {tuple(loop.shape)}"
    all_scores = scores(found, loop)
    bound = stats.norm.ppf(1 - FAILURE_RATE / (2 * all_scores.numel()))
    worst = all_scores.max().item()
    assert worst <= bound, f"means or spreads differ by {worst:.1f} standard errors, more than {bound:.1f}"
    return f"{worst:.1f} of {bound:.1f}"


def directions(samples: Tensor) -> Tensor:
    """Weights for the outputs of one example (D, 3): all alike, and at random."""
    width = samples[0, 0].numel()
    generator = torch.Generator().manual_seed(0)
    weights = torch.randn(width, 3, generator=generator, dtype=torch.float64)
    weights[:, 0] = 1
    return weights / width**0.5


def scores(a: Tensor, b: Tensor) -> Tensor:
    """Differences of means and of variances of samples (K, B, ...) in standard errors, along some directions."""
    weights = directions(b)
    a, b = (samples.double().flatten(2) @ weights for samples in (a, b))
    rounding = ROUNDING * max(1.0, b.abs().max().item())
    rows = []
    for x, y in ((a, b), ((a - a.mean(0)).square(), (b - b.mean(0)).square())):
        error = (x.var(0) / len(x) + y.var(0) / len(y)).sqrt()
        rows.append(((x.mean(0) - y.mean(0)).abs() - rounding).clamp_min(0) / (error + 1e-300))
    return torch.stack(rows)


def straight_through(network: Network) -> str:
    """The default for Bernoulli sites reaches every encoder."""
    return _gradients(network, "bernoulli", "straight-through")


def reparameterized(network: Network) -> str:
    """The default for Gaussian sites reaches every encoder."""
    return _gradients(network, "gaussian", "reparameterized")


def _gradients(network: Network, family: Family, estimator: str) -> str:
    """Gradients of the log-likelihood alone, so that none comes from the KL; the KL is finite all the same."""
    model, inputs = converted(network, family).train(), network.example()
    torch.manual_seed(5)
    objective = cd.ELBO(model, estimator, kl_weight=0.0, rows="coupled" if network.coupled else "independent")
    step = objective(lambda: network.log_likelihood(network.run(model, inputs)))
    step.loss.backward()
    shapes = tuple(step.log_likelihood.shape), tuple(step.kl.shape)
    assert shapes[0] == shapes[1], "log-likelihoods of shape {}, KL of shape {}".format(*shapes)
    assert step.kl.isfinite().all(), "the KL is not finite"
    for name, parameter in model.named_parameters():
        assert parameter.grad is None or parameter.grad.isfinite().all(), f"the gradient of {name} is not finite"
    still = [
        name
        for name, site in cd.sites(model).items()
        if not any(p.grad is not None and p.grad.abs().max() > 0 for p in site.encoder.parameters())
    ]
    assert not still, f"the gradient is zero at {len(still)} sites: {', '.join(still)}"
    return "yes"


@torch.no_grad()
def save_and_load(network: Network) -> str:
    """Sites of a file, on a plain copy, give the same outputs."""
    model, again, inputs = converted(network), network.plain(), network.example()
    with tempfile.TemporaryDirectory() as folder:
        cd.save_sites(model, Path(folder) / "sites.safetensors")
        cd.load_sites(again, Path(folder) / "sites.safetensors")
    return within(size(network.run(again.eval(), inputs), network.run(model, inputs)), ROUNDING, "outputs differ")


@torch.no_grad()
def strip(network: Network) -> str:
    """Taking the sites away leaves the network that there was, bit by bit."""
    plain, inputs = network.plain(), network.example()
    model = cd.strip(converted(network))
    assert torch.equal(network.run(model, inputs), network.run(plain, inputs)), "outputs are not the same bits"
    before, after = plain.state_dict(), model.state_dict()
    assert before.keys() == after.keys(), "the names of parameters or buffers changed"
    assert all(torch.equal(before[name], after[name]) for name in before), "a parameter or buffer changed"
    assert repr(model) == repr(plain), "the layers are not the same"
    return "yes"


@torch.no_grad()
def causal(network: Network) -> str:
    """Changing the last entry of a causal network's input moves no earlier output, in eval mode and sampled."""
    if network.causal is None:
        raise NotApplicable
    model, inputs = converted(network), network.example()
    changed = _with_another_end(inputs, network.causal)
    plain = size(*(network.run(network.plain(), each)[:, :-1] for each in (inputs, changed)))
    assert plain <= ROUNDING, f"the plain network is not causal: earlier outputs move by {plain:.1g}"
    moved = [_moved(network, model, inputs, changed)]
    with cd.sampling(model):
        moved.append(_moved(network, model, inputs, changed))
    return within(max(moved), ROUNDING, "earlier outputs move")


def _moved(network: Network, model: nn.Module, inputs: Inputs, changed: Inputs) -> float:
    outputs = []
    for each in (inputs, changed):
        torch.manual_seed(6)
        outputs.append(network.run(model, each)[:, :-1])
    return size(*outputs)


def _with_another_end(inputs: Any, key: str | int) -> Inputs:
    """The inputs with another last entry on axis 1 of one tensor."""
    values = dict(inputs) if isinstance(inputs, dict) else list(inputs)
    tensor = values[key].clone()
    tensor[:, -1] = tensor[:, -1] + 1 if tensor.is_floating_point() else 5 + (tensor[:, -1] + 1) % 40
    values[key] = tensor
    return values if isinstance(values, dict) else tuple(values)


@torch.no_grad()
def rows_apart(network: Network) -> str:
    """No example moves with another one of its batch."""
    if network.coupled:
        raise NotApplicable
    inputs, other, model = network.example(), network.example(seed=1), converted(network)
    changed = _rows(lambda a, b: torch.cat([b[:1], a[1:]]), inputs, other)
    return within(size(*(network.run(model, each)[1:] for each in (inputs, changed))), ROUNDING, "other examples move")


@torch.no_grad()
def other_shapes(network: Network) -> str:
    """A conversion holds for one example alone, and for inputs of another size: unchanged, and sampled."""
    plain, model = network.plain(), converted(network, stirred=False)
    shapes = [] if network.coupled else [_rows(lambda a: a[:1], network.example())]
    shapes += [network.example(size=network.other_size)] if network.other_size else []
    if not shapes:
        raise NotApplicable
    moved = [size(network.run(model, inputs), network.run(plain, inputs)) for inputs in shapes]
    with cd.sampling(model):
        for inputs in shapes:
            assert not torch.equal(network.run(model, inputs), network.run(model, inputs)), "nothing is sampled"
    return within(max(moved), ROUNDING, "outputs move")


def _rows(change: Callable[..., Tensor], *inputs: Any) -> Any:
    """Inputs whose tensors are made of those of others by a function of their rows."""
    first = inputs[0]
    if isinstance(first, dict):
        return {key: _rows(change, *(each[key] for each in inputs)) for key in first}
    if isinstance(first, tuple):
        return tuple(_rows(change, *values) for values in zip(*inputs, strict=True))
    return change(*inputs)


CHECKS: dict[str, Callable[[Network], str]] = {
    "eval unchanged": eval_unchanged,
    "other shapes": other_shapes,
    "rows apart": rows_apart,
    "causal": causal,
    "probe": probe,
    "predict": predict,
    "straight-through": straight_through,
    "reparameterized": reparameterized,
    "save and load": save_and_load,
    "strip": strip,
}
