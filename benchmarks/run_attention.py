"""What a training step of MCAN costs with 62 sites: ``make benchmark-attention`` (a few minutes on one thread).

It fails, after writing down what was measured, if a step costs more than its bar.
"""

from __future__ import annotations

import sys
import time
import warnings

import record
import torch
from attention import mcan_steps

import contextual_dropout as cd

BATCH, ROUNDS = 8, 7
BARS = {"contextual bernoulli, sampled-arm (k=1)": 1.6}
#: The paper's sizes, in millions.
PAPER = {"plain": 58, "contextual": 61}


def main() -> None:
    warnings.simplefilter("ignore", cd.SaturationWarning)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    start = time.time()
    rows = mcan_steps(BATCH, ROUNDS)
    print(f"MCAN small, batch {BATCH}, relative to nn.Dropout")
    for variant, row in rows.items():
        bar = BARS.get(variant)
        verdict = "" if bar is None else f"   (bar {bar}: {'met' if row['step'] <= bar else 'MISSED'})"
        paper = PAPER["plain" if variant == "plain" else "contextual"]
        print(
            f"  {variant:42s} {row['parameters'] / 1e6:6.2f}M (paper {paper}M)  {row['sites']:2.0f} sites"
            f"  {row['step']:5.2f}{verdict}"
        )
    record.write("attention", start, steps=rows, bars=BARS)
    missed = [variant for variant, bar in BARS.items() if rows[variant]["step"] > bar]
    if missed:
        sys.exit(f"missed: {'; '.join(missed)}")


if __name__ == "__main__":
    main()
