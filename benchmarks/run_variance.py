"""Bias and variance of the estimators, seeded and without timing: it may share the machine with other work.

``make benchmark`` runs it too; by itself: ``OMP_NUM_THREADS=1 python benchmarks/run_variance.py``. Writes
benchmarks/results/variance.json.
"""

from __future__ import annotations

import time
import warnings

import record
import torch
from exact import errors
from variance import gradient_variances

import contextual_dropout as cd


def main() -> None:
    warnings.simplefilter("ignore", cd.SaturationWarning)
    torch.set_num_threads(1)
    start = time.time()
    against_exact = errors(repeats=2000)
    print("\nError of phi's gradient against enumeration of all masks, relative to the gradient's length")
    print(f"  {'':32s} {'bias':>8} {'floor':>8} {'sd':>8} {'rmse':>8}")
    for name, row in against_exact.items():
        print(f"  {name:32s} " + " ".join(f"{row[key]:8.3f}" for key in ("bias", "floor", "sd", "rmse")))
    variances = gradient_variances(repeats=600)
    reference = variances["sequential-arm"]
    relative = {
        name: [value / base for value, base in zip(row, reference, strict=True)] for name, row in variances.items()
    }
    print("\nVariance of phi's gradient per site, relative to sequential-arm (MLP, batch 128)")
    for name, values in relative.items():
        print(f"  {name:32s} " + " ".join(f"{value:8.3f}" for value in values))
    record.write("variance", start, errors=against_exact, relative_variance=relative)


if __name__ == "__main__":
    main()
