"""Records how the tests ended with other versions, by the Python that ran them.

.. code-block:: bash

    python -m pytest --junit-xml tests.xml
    python -m tests.reliability.record_compatibility tests.xml

Of several reports the later ones count where they have the same tests: what failed, was mended and ran again.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree

from contextual_dropout_lab.store.provenance import provenance
from tests.reliability.record import keep

#: What a report notes inside of a test, and what that means; what is expected to fail, and does, is skipped there.
OUTCOMES = {"failure": "failed", "error": "failed", "skipped": "skipped"}


def outcomes(report: Path) -> dict[tuple[str | None, str | None], str]:
    """How every test of a JUnit report ended, as pytest writes it."""
    return {
        (case.get("classname"), case.get("name")): next(
            (OUTCOMES[note.tag] for note in case if note.tag in OUTCOMES), "passed"
        )
        for case in ElementTree.parse(report).iter("testcase")
    }


def main(reports: Sequence[Path], left_out: str | None = None) -> None:
    """Keep the record; ``left_out`` says which tests were not run."""
    found = [outcomes(report) for report in reports]
    last = {test: outcome for each in found for test, outcome in each.items()}
    counts = Counter(last.values())
    figures: dict[str, int | float | str] = {name: counts[name] for name in ("passed", "skipped", "failed")}
    if not figures["passed"]:
        sys.exit(f"{', '.join(map(str, reports))} has no test that passed: {figures}")
    if again := sum(map(len, found)) - len(last):
        figures["of these run again, after a fix"] = again
    if left_out:
        figures["left out"] = left_out
    python, torch = provenance()["python"], provenance()["versions"]["torch"].partition("+")[0]
    held = "pass" if not figures["failed"] else "do not all pass"
    claim = f"The tests {held} with Python {python} and torch {torch}."
    keep("compatibility", f"compatibility-{python}-{torch}", claim, figures)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Record how the tests ended with these versions.")
    parser.add_argument("reports", nargs="+", type=Path, help="of pytest --junit-xml, the latest last")
    parser.add_argument("--left-out", help="which tests were not run, in words")
    given = parser.parse_args()
    main(given.reports, given.left_out)
