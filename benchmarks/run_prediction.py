"""The cost of prediction in one run on one thread: ``python benchmarks/run_prediction.py``.

Prints ratios to a plain loop of model calls and writes them to benchmarks/results/prediction.json.
"""

from __future__ import annotations

import time
import warnings

import record
import torch
from prediction import CASES, ratios

BATCHES = {1: 40, 128: 9}  # rounds of each


def main() -> None:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    start = time.time()
    results: dict[str, dict[str, float]] = {}
    for name, (_, _, _, bars) in CASES.items():
        for batch, rounds in BATCHES.items():
            key = f"{name}, B={batch}"
            results[key] = ratios(name, batch, rounds)
            print(f"\n{key}: 20 samples, relative to a plain loop")
            for way, value in results[key].items():
                bar = bars.get(batch) if way == "cd.predict, contextual" else None
                verdict = "" if bar is None else f"   (bar {bar}: {'met' if value <= bar else 'MISSED'})"
                print(f"  {way:32s} {value:5.2f}{verdict}", flush=True)
    all_bars = {f"{name}, B={batch}": bar for name, case in CASES.items() for batch, bar in case[3].items()}
    record.write("prediction", start, ratios=results, bars=all_bars)


if __name__ == "__main__":
    main()
