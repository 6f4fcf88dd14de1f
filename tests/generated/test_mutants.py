"""The tester notices when a mend is taken out, and how many networks it needs for that."""

from __future__ import annotations

from itertools import count, takewhile

import pytest

from tests.generated.case import Case, Wrong
from tests.generated.mutants import MUTANTS, Mutant
from tests.generated.tester import Examiner, examine
from tests.reliability.record import FULL, record

#: Where the search begins; hypothesis draws other networks from each.
STARTS = (0, 10_000, 20_000)
MOST = 2_000


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_known_network_shows_it(mutant: Mutant) -> None:
    Examiner()(mutant.case)
    with mutant.alive(), pytest.raises(Wrong):
        Examiner()(mutant.case)


def needed(mutant: Mutant, start: int) -> int:
    """How many random networks are checked until one is wrong without the mend and right with it."""
    examiner, noticed = Examiner(), list[int]()

    def check(case: Case) -> None:
        if noticed or case in examiner.seen:
            return
        try:
            with mutant.alive():
                examiner(case)
        except Wrong:
            Examiner()(case)
            noticed.append(len(examiner.seen))

    examine(check, takewhile(lambda _: not noticed and len(examiner.seen) < MOST, count(start)), shrink=False)
    assert noticed, f"{len(examiner.seen)} networks did not show that {mutant.name}"
    return noticed[0]


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.skipif(not FULL, reason="a search of minutes: make reliability")
def test_random_networks_show_it() -> None:
    numbers = {mutant.name: [needed(mutant, start) for start in STARTS] for mutant in MUTANTS}
    record(
        "networks",
        "mutations",
        "With any of these mends taken out, the tester finds a network that is wrong, and these are the numbers of "
        "networks that it needs, in three searches.",
        {name: ", ".join(map(str, found)) for name, found in numbers.items()},
    )
