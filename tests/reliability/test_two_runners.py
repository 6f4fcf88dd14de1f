"""Two processes at the same runs in the same folder: each run is done once, and none is lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.reliability.record import budget, record
from tests.reliability.runners import CONFIGS
from tests.reliability.scripts import script


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_no_result_is_lost_or_duplicated(tmp_path: Path) -> None:
    rounds = budget(1, 15)
    ended = script("runners", tmp_path, rounds)
    assert len(ended) == rounds
    for each in ended:
        assert each["trained"] == [1] * len(CONFIGS)
        assert each["ensemble"] == [config.seed for config in CONFIGS]
        assert each["same"]
    busy = sum(each["busy"] for each in ended)
    assert busy >= budget(0, 10)  # they did meet
    record(
        "interruption",
        "two-runners",
        "Two processes that do the same runs in the same folder at once train each run exactly once, find what the "
        "other has done, and end with the results of a single process, bit by bit.",
        {"rounds": rounds, "runs": rounds * len(CONFIGS), "times that one found the other at a run": busy},
    )
