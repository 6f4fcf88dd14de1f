"""Metrics of which two processes see a part each: any part, also none."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist

from contextual_dropout.metrics import RiskCoverage, risk_coverage_curve
from tests.distributed.ranks import Together
from tests.metrics.test_metrics import CASES, take
from tests.reliability.record import FULL, record

EXAMPLES = 40


def synchronise(splits: list[int]) -> None:
    """On each of two processes: what they have together is what one has of all."""
    for metric, case in CASES.items():
        batch = case()
        for split in splits:
            mine = take(batch, slice(None, split) if dist.get_rank() == 0 else slice(split, None))
            instance = metric()
            if len(mine[0]):  # a process may see no example at all
                instance.update(*mine)
            else:
                instance._update_count = 1  # silences torchmetrics' "compute before update"
            whole = metric(distributed_available_fn=lambda: False)
            whole.update(*batch)
            torch.testing.assert_close(instance.compute(), whole.compute())
            if isinstance(instance, RiskCoverage):
                torch.testing.assert_close(instance.curve(), risk_coverage_curve(*batch))
                assert len(instance.uncertainty) <= 1, "curve() left the states of all processes behind"


@pytest.mark.slow
def test_two_processes_equal_one(together: Together) -> None:
    splits = list(range(EXAMPLES + 1)) if FULL else [0, 13, 20, EXAMPLES]
    together(synchronise, splits)
    record(
        "processes",
        "metrics",
        "Metrics of which two processes see a part of the examples each, also all or none of them, have the value of a "
        "single process that sees them all.",
        {"metrics": len(CASES), "ways to divide the examples": len(splits)},
    )
