"""Metrics of which two processes see a part each: any part, also none."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch.multiprocessing as mp

from tests.reliability.record import budget, record
from tests.test_metrics import CASES, synchronise

EXAMPLES = 40


@pytest.mark.slow
def test_two_processes_equal_one(tmp_path: Path) -> None:
    splits = list(range(0, EXAMPLES + 1, budget(20, 1)))
    mp.spawn(synchronise, (f"file://{tmp_path / 'store'}", splits), nprocs=2)
    record(
        "processes",
        "metrics",
        "Metrics of which two processes see a part of the examples each, also all or none of them, have the value of a "
        "single process that sees them all.",
        {"metrics": len(CASES), "ways to divide the examples": len(splits)},
    )
