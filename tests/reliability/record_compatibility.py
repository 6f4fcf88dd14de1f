"""Records how the tests ended with other versions, by the Python that ran them.

.. code-block:: bash

    python -m pytest --junit-xml tests.xml
    python -m tests.reliability.record_compatibility tests.xml
"""

from __future__ import annotations

import sys
from pathlib import Path
from xml.etree import ElementTree

from contextual_dropout.experiments.provenance import provenance
from tests.reliability.record import keep


def counts(report: Path) -> dict[str, int]:
    """Of a JUnit report as pytest writes it; what is expected to fail, and does, counts as skipped."""
    suites = list(ElementTree.parse(report).iter("testsuite"))
    tests, failures, errors, skipped = (
        sum(int(suite.get(name, 0)) for suite in suites) for name in ("tests", "failures", "errors", "skipped")
    )
    failed = failures + errors
    return {"passed": tests - failed - skipped, "skipped": skipped, "failed": failed}


def main(report: Path) -> None:
    figures = counts(report)
    if not figures["passed"]:
        sys.exit(f"{report} has no test that passed: {figures}")
    python, torch = provenance()["python"], provenance()["versions"]["torch"].partition("+")[0]
    held = "pass" if not figures["failed"] else "do not all pass"
    claim = f"The tests {held} with Python {python} and torch {torch}."
    keep("compatibility", f"compatibility-{python}-{torch}", claim, figures)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
