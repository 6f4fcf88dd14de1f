"""``make demo``: noisy digits, three kinds of dropout, and what each says about its own certainty.

Trains the paper's kind of MLP on scikit-learn's embedded digits with Gaussian noise on the pixels: with MC dropout
and with Bernoulli and Gaussian contextual dropout. Prints accuracy, predictive log-likelihood and PAvPU.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from sklearn.datasets import load_digits
from torch import Tensor, nn

import contextual_dropout as cd
from contextual_dropout.metrics import PAvPU, predictive_log_likelihood

NOISE = 0.5
DROP_RATE = 0.2
EPOCHS, BATCH, SEEDS, SAMPLES = 120, 128, 3, 20
HIDDEN = (300, 100)


@dataclass(frozen=True)
class Digits:
    """Pixels in [0, 1], (N, 64), and labels; the test pixels already have their noise."""

    x: Tensor
    y: Tensor
    test_x: Tensor
    test_y: Tensor


def noisy_digits() -> Digits:
    """scikit-learn's 1,797 digits, a third of them for testing, with fixed noise on the test images."""
    bunch = load_digits()
    x, y = torch.tensor(bunch.data / 16, dtype=torch.float32), torch.tensor(bunch.target)
    generator = torch.Generator().manual_seed(0)
    order = torch.randperm(len(x), generator=generator)
    train, test = order[600:], order[:600]
    noise = torch.randn(x[test].shape, generator=generator)
    return Digits(x[train], y[train], x[test] + NOISE * noise, y[test])


def network(dropout: Callable[[int], nn.Module]) -> nn.Sequential:
    """64-300-100-10 with dropout on the input of each linear layer."""
    first, second = HIDDEN
    return nn.Sequential(
        dropout(64),
        nn.Linear(64, first),
        nn.ReLU(),
        dropout(first),
        nn.Linear(first, second),
        nn.ReLU(),
        dropout(second),
        nn.Linear(second, 10),
    )


def mc_dropout_loss(model: nn.Module) -> Callable[[Tensor, Tensor], Tensor]:
    """Cross-entropy under sampled masks."""
    return lambda x, y: F.cross_entropy(model(x), y)


def elbo_loss(model: nn.Module) -> Callable[[Tensor, Tensor], Tensor]:
    """The variational objective."""
    objective = cd.ELBO(model)
    return lambda x, y: objective(lambda: -F.cross_entropy(model(x), y, reduction="none")).loss


METHODS = {
    "MC Bernoulli": (lambda features: nn.Dropout(DROP_RATE), mc_dropout_loss),
    "ctx. Bernoulli": (lambda features: cd.ContextualDropout(features, DROP_RATE), elbo_loss),
    "ctx. Gaussian": (lambda features: cd.ContextualDropout(features, DROP_RATE, family="gaussian"), elbo_loss),
}


def train(model: nn.Module, loss: Callable[[Tensor, Tensor], Tensor], data: Digits, tick: Callable[[], None]) -> None:
    """Adam on fresh noise in every step."""
    optimizer = torch.optim.Adam(model.parameters(), 1e-3, fused=True)
    model.train()
    for _ in range(EPOCHS):
        for rows in torch.split(torch.randperm(len(data.x)), BATCH):
            x = data.x[rows]
            optimizer.zero_grad()
            torch.autograd.backward(loss(x + NOISE * torch.randn_like(x), data.y[rows]))
            optimizer.step()
        tick()


def evaluate(model: nn.Module, data: Digits) -> dict[str, float]:
    """Accuracy and PAvPU in percent, log-likelihood in nats, on the noisy test digits."""
    prediction = cd.predict(model, data.test_x, samples=SAMPLES, seed=0)
    correct = prediction.label == data.test_y
    pavpu = PAvPU(threshold=0.05)
    pavpu.update(prediction.p_value, correct)
    return {
        "accuracy": 100 * correct.float().mean().item(),
        "log-lik.": predictive_log_likelihood(prediction.samples, data.test_y).mean().item(),
        "PAvPU": 100 * pavpu.compute().item(),
        "certain": 100 * prediction.certain(0.05).float().mean().item(),
        "…right": 100 * correct[prediction.certain(0.05)].float().mean().item(),
    }


def results_table(results: dict[str, list[dict[str, float]]]) -> Table:
    """Mean and standard deviation over seeds."""
    table = Table(title=f"Noisy digits: mean ± sd of {SEEDS} seeds, {SAMPLES} sampled masks")
    table.add_column("dropout", no_wrap=True)
    columns = list(next(iter(results.values()))[0])
    for column in columns:
        table.add_column(column, justify="right", no_wrap=True)
    for method, runs in results.items():
        digits = {column: 3 if column == "log-lik." else 1 for column in columns}
        values = {column: [run[column] for run in runs] for column in columns}
        cells = [
            f"{statistics.mean(values[c]):.{digits[c]}f}±{statistics.stdev(values[c]):.{digits[c]}f}" for c in columns
        ]
        table.add_row(method, *cells)
    return table


def main() -> None:
    """Train, evaluate, print."""
    console, start, data = Console(), time.time(), noisy_digits()
    torch.set_num_threads(1)  # small matrices: a second thread only waits
    results: dict[str, list[dict[str, float]]] = {method: [] for method in METHODS}
    with Progress(console=console, transient=True) as progress:
        bar = progress.add_task("training", total=len(METHODS) * SEEDS * EPOCHS)
        for seed in range(SEEDS):
            for method, (dropout, objective) in METHODS.items():
                progress.update(bar, description=f"{method}, seed {seed}")
                torch.manual_seed(seed)
                model = network(dropout)
                train(model, objective(model), data, lambda: progress.advance(bar))
                results[method].append(evaluate(model, data))
    console.print(results_table(results))
    console.print(
        "certain: the top class stands out at p < .05; …right: accuracy on those;\n"
        "PAvPU: share that is certain and right, or uncertain and wrong.\n"
        f"{len(data.test_y)} test digits, noise sd {NOISE}; {time.time() - start:.0f} s."
    )


if __name__ == "__main__":
    main()
