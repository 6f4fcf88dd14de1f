"""The opening example of README.md against plain networks of the same size, all of them tuned alike.

By itself: ``OMP_NUM_THREADS=1 python benchmarks/run_opening.py`` (seeded and without timing; it may share the machine
with other work). Writes benchmarks/results/opening.json, of which README.md's table is made.

Two data sets. *Sensors* is the problem of README.md. *Digits* are scikit-learn's 8 x 8 digits with Gaussian noise of
sd 1 on one half of each image: left, right, top or bottom, drawn for each image.

Every method has the same six settings to choose from as the others (a drop rate or, of ours, a rate and a KL weight)
and the same moments to stop at; the validation log-likelihood, mean over the seeds, chooses. Test examples are scored
once with what was chosen.
"""

from __future__ import annotations

import argparse
import copy
import itertools
import math
import re
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import record
import torch
from torch import Tensor, nn

import contextual_dropout as cd

README = Path(__file__).parents[1] / "README.md"
STOPS = (25, 50, 100, 200, 300, 400)
RATES = (0.0, 0.05, 0.1, 0.2, 0.3, 0.5)
#: Of contextual dropout: the rate that it starts from and is held to, and the weight that holds it there.
HELD = tuple((p, weight) for p in (0.05, 0.2) for weight in (0.003, 0.01, 0.1))
SAMPLES = 20


@dataclass(frozen=True)
class Data:
    """Inputs and classes of the three parts."""

    train: tuple[Tensor, Tensor]
    validation: tuple[Tensor, Tensor]
    test: tuple[Tensor, Tensor]


def sensors(seed: int, test: int = 4000) -> Data:
    """README.md's problem: ten of twenty sensors are loud noise, and which ten only the example itself shows."""
    torch.manual_seed(seed)
    count = 1000 + test
    y = torch.randint(3, (count,))
    x = torch.randn(3, 20)[y] + torch.randn(count, 20)
    x[::2, :10], x[1::2, 10:] = 5 * torch.randn(2, count // 2, 10)
    return Data((x[:600], y[:600]), (x[600:1000], y[600:1000]), (x[1000:], y[1000:]))


def digits(seed: int) -> Data:
    """Scikit-learn's digits with one half of each under noise: 1,000 to train, 300 to validate, 497 to test."""
    from sklearn.datasets import load_digits

    torch.manual_seed(seed)
    found = load_digits()
    order = torch.randperm(len(found.target))
    x = torch.from_numpy(found.images).float()[order] / 16
    y = torch.from_numpy(found.target).long()[order]
    half = torch.randint(4, (len(x),))
    row, column = torch.arange(8)[:, None].expand(8, 8), torch.arange(8).expand(8, 8)
    noisy = torch.stack([row < 4, row >= 4, column < 4, column >= 4])[half]
    x = (x + noisy * torch.randn(x.shape)).flatten(1)
    return Data((x[:1000], y[:1000]), (x[1000:1300], y[1000:1300]), (x[1300:], y[1300:]))


def network(sizes: list[int], p: float) -> nn.Sequential:
    """Dropout in front of every linear layer, ReLU behind all but the last."""
    layers: list[nn.Module] = []
    for before, after in itertools.pairwise(sizes):
        layers += [nn.Dropout(p), nn.Linear(before, after), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def parameters(model: nn.Module) -> int:
    return sum(each.numel() for each in model.parameters() if each.requires_grad)


def same_size(sizes: Callable[[int], list[int]], target: int) -> list[int]:
    """The narrowest network of this shape with at least as many parameters."""
    return next(sizes(width) for width in range(1, 4096) if parameters(network(sizes(width), 0.0)) >= target)


@dataclass(frozen=True)
class Method:
    """How a network is built and trained for one setting."""

    build: Callable[[float], nn.Module]
    settings: tuple[tuple[float, float | None], ...]


def methods(features: int, hidden: int, classes: int) -> dict[str, Method]:
    sizes = [features, hidden, classes]
    example = torch.zeros(1, features)

    def contextual(p: float) -> nn.Module:
        return cd.contextualize(network(sizes, p), temperature=0.3, prior="fixed", example=example)

    def gate(p: float) -> nn.Module:
        model = cd.baselines.gated_dropout(network(sizes, p), p=0.2, temperature=0.3)
        model.eval()(example)
        return model.train()

    target = parameters(contextual(0.2))
    wide = same_size(lambda width: [features, width, classes], target)
    deep = same_size(lambda width: [features, width, width, classes], target)
    rates = tuple((p, None) for p in RATES)
    return {
        "plain": Method(lambda p: network(sizes, p), rates),
        "plain, wider": Method(lambda p: network(wide, p), rates),
        "plain, deeper": Method(lambda p: network(deep, p), rates),
        "gates": Method(gate, rates),
        "contextual": Method(contextual, HELD),
    }


def scores(model: nn.Module, part: tuple[Tensor, Tensor]) -> dict[str, float]:
    x, y = part
    with torch.random.fork_rng():
        if any(isinstance(each, nn.Dropout) and each.p > 0 for each in model.modules()) or cd.sites(model):
            mean = cd.predict(model, x, samples=SAMPLES, seed=0).mean
        else:
            with torch.no_grad():
                mean = model.eval()(x).softmax(-1)
    model.train()
    right = mean[torch.arange(len(y)), y]
    return {
        "accuracy": 100 * (mean.argmax(-1) == y).double().mean().item(),
        "log_likelihood": right.clamp_min(1e-12).log().double().mean().item(),
    }


def trained(
    method: Method, setting: tuple[float, float | None], data: Data, seed: int
) -> list[tuple[float, nn.Module]]:
    """The validation log-likelihood and the network as it is then, at each moment to stop at."""
    p, weight = setting
    torch.manual_seed(seed)
    model = method.build(p)
    x, y = data.train
    objective = None if weight is None else cd.ELBO(model, "straight-through", kl_weight=weight)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    found = []
    for step in range(1, STOPS[-1] + 1):
        optimizer.zero_grad()
        if objective is None:
            nn.functional.cross_entropy(model(x), y).backward()
        else:
            objective(lambda: -nn.functional.cross_entropy(model(x), y, reduction="none")).loss.backward()
        optimizer.step()
        if step in STOPS:
            optimizer.zero_grad()
            found.append((scores(model, data.validation)["log_likelihood"], copy.deepcopy(model)))
    return found


def tested(model: nn.Module, data: Data) -> dict[str, float]:
    """Scores on the test examples; of ours also with the context frozen at its mean over the training examples."""
    found = scores(model, data.test)
    if cd.sites(model):
        frozen = scores(cd.freeze_context(model, data.train[0]), data.test)
        found |= {f"frozen_{name}": value for name, value in frozen.items()}
    return found


def compared(make: Callable[[int], Data], hidden: int, seeds: int) -> dict[str, Any]:
    """Of each method: its size, what was chosen, and each seed's scores."""
    data = [make(seed) for seed in range(seeds)]
    x, y = data[0].train
    result: dict[str, Any] = {}
    for name, method in methods(x.shape[1], hidden, int(y.max()) + 1).items():
        best, chosen, models = -math.inf, {}, []
        for setting in method.settings:
            runs = [trained(method, setting, each, seed) for seed, each in enumerate(data)]
            for place, stop in enumerate(STOPS):
                value = statistics.mean(run[place][0] for run in runs)
                if value > best:
                    best, models = value, [run[place][1] for run in runs]
                    chosen = {"p": setting[0], "kl_weight": setting[1], "steps": stop}
        rows = [tested(model, each) for model, each in zip(models, data, strict=True)]
        size = parameters(models[0])
        result[name] = {"parameters": size, "chosen": chosen, "validation_log_likelihood": best, "seeds": rows}
        shown = {key: round(statistics.mean(row[key] for row in rows), 3) for key in rows[0]}
        print(f"  {name:14s} {size:6d} {chosen} {shown}", flush=True)
    return result


def example(chosen: dict[str, Any]) -> dict[str, float]:
    """How often README.md's code is right: in all, where it is certain, elsewhere, and with its context frozen.

    Args:
        chosen: rate and steps for a plain network with one more layer, which is scored on the same examples.
    """
    code = re.search(r"^```python\n(.*?)^```", README.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    assert code is not None
    names: dict[str, Any] = {"__name__": "README.md"}
    exec(compile(code[1], "README.md", "exec", dont_inherit=True), names)
    x, y, prediction = names["x"][600:], names["y"][600:], names["prediction"]
    frozen = cd.predict(cd.freeze_context(names["model"], x), x, samples=SAMPLES, seed=0)
    right, certain = prediction.label == y, prediction.certain(0.05)
    found = {"right": right, "certain": certain, "right_of_certain": right[certain], "right_of_others": right[~certain]}
    found["frozen"] = frozen.label == y
    scored = {name: 100 * each.double().mean().item() for name, each in found.items()}
    data = Data((names["x"][:600], names["y"][:600]), (x, y), (x, y))
    deeper = trained(methods(20, 64, 3)["plain, deeper"], (chosen["p"], None), data, seed=0)
    return scored | {"deeper": scores(deeper[STOPS.index(chosen["steps"])][1], data.test)["accuracy"]}


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--seeds", type=int, default=5)
    seeds = arguments.parse_args().seeds
    torch.set_num_threads(1)
    start = time.time()
    found: dict[str, Any] = {}
    for name, make, hidden in (("sensors", sensors, 64), ("digits", digits, 128)):
        print(name)
        found[name] = compared(make, hidden, seeds)
    shown = example(found["sensors"]["plain, deeper"]["chosen"])
    print("README.md's code, %:", {name: round(value, 1) for name, value in shown.items()})
    record.write("opening", start, example=shown, data=found)


if __name__ == "__main__":
    main()
