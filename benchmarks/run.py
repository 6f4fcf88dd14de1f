"""All benchmarks of the core in one run on one thread: ``make benchmark``.

Prints ratios (absolute times mean nothing on a shared machine) and writes them to benchmarks/results/core.json; then
bias and variance of the estimators, into benchmarks/results/variance.json.
"""

from __future__ import annotations

import time
import warnings

import record
import run_variance
import torch
from training_step import cnn_steps, mlp_steps, pseudo_passes

import contextual_dropout as cd

MLP_BARS = {"gaussian, truncated": 1.8, "gaussian, reparameterized": 1.8, "bernoulli, sequential-arm": 2.5}
BARS = {
    "mlp": MLP_BARS,
    "mlp, gamma 10": MLP_BARS,
    "cnn": {"bernoulli, sampled-arm (k=1)": 1.5},
    "pseudo": {"replayed": 0.58},
}
TITLES = {
    "mlp": "Training step of the MLP 784-300-100-10 (gamma 32, 311K parameters), batch 128, relative to nn.Dropout",
    "mlp, gamma 10": "The same with gamma 10 (410K parameters)",
    "cnn": "Training step of the 12-site residual CNN, relative to nn.Dropout",
    "pseudo": "The 12 pseudo passes on that CNN, relative to 12 naive forward passes",
}


def main() -> None:
    warnings.simplefilter("ignore", cd.SaturationWarning)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    start = time.time()
    ratios = {
        "mlp": mlp_steps(rounds=100, reduction=32),
        "mlp, gamma 10": mlp_steps(rounds=100, reduction=10),
        "cnn": cnn_steps(rounds=25),
        "pseudo": pseudo_passes(rounds=25),
    }
    for key, values in ratios.items():
        print(f"\n{TITLES[key]}")
        for name, value in values.items():
            bar = BARS[key].get(name)
            verdict = "" if bar is None else f"   (bar {bar}: {'met' if value <= bar else 'MISSED'})"
            print(f"  {name:36s} {value:5.2f}{verdict}")
    record.write("core", start, ratios=ratios, bars=BARS)
    run_variance.main()


if __name__ == "__main__":
    main()
