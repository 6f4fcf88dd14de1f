"""Ratios that hold on a noisy machine: all variants in turn, round after round, and medians."""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable


def interleaved(variants: dict[str, Callable[[], object]], rounds: int, warmup: int = 3) -> dict[str, float]:
    """Median CPU seconds of a call of each variant; the order turns from round to round."""
    names = list(variants)
    seconds: dict[str, list[float]] = {name: [] for name in names}
    for round_ in range(rounds + warmup):
        shift = round_ % len(names)
        for name in names[shift:] + names[:shift]:
            start = time.thread_time()
            variants[name]()
            if round_ >= warmup:
                seconds[name].append(time.thread_time() - start)
        if sys.stderr.isatty():
            print(f"\r  round {round_ + 1}/{rounds + warmup}", end="", file=sys.stderr)
    if sys.stderr.isatty():
        print("\r" + " " * 30 + "\r", end="", file=sys.stderr)
    return {name: statistics.median(values) for name, values in seconds.items()}
