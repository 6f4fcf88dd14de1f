"""Random networks, and what must hold for each of them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import count

import pytest

from tests.generated.strategies import INGREDIENTS
from tests.generated.tester import Examiner, examine
from tests.reliability.record import budget, record

NETWORKS = budget(300, 5_000)
FIRST_SEED = 0


def seeds(examiner: Examiner) -> Iterator[int]:
    """One after the other until there are enough networks."""
    for seed in count(FIRST_SEED):
        if len(examiner.seen) >= NETWORKS:
            print(f"seeds {FIRST_SEED} to {seed - 1}")
            return
        yield seed


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_whatever_the_network_it_is_right_or_refused() -> None:
    examiner, started = Examiner(), time.monotonic()
    examine(examiner, seeds(examiner))
    assert len(INGREDIENTS - set(examiner.ingredients)) <= budget(10, 0)
    record(
        "networks",
        "networks",
        "Random small networks: predictions on every path have the distribution of a plain loop and leave the network "
        "as it was; no output depends on an input that it did not depend on before the conversion; gradients are the "
        "same with and without replay; stripped, a network is what it was, bit by bit; saved sites load. Or the "
        "library says clearly that it cannot.",
        examiner.figures() | {"seconds": round(time.monotonic() - started)},
    )
