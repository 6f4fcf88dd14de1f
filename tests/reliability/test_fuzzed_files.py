"""Every loader against mutated and truncated files: it loads, or says what is wrong; it never ends otherwise."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.reliability.confined import run_script
from tests.reliability.record import budget, record

#: By how much the memory in use may grow over all inputs of a loader; they are of a few kilobytes.
MEGABYTES = 100
SECONDS = 2.0


@pytest.mark.slow
def test_mutated_files_are_loaded_or_refused() -> None:
    inputs = budget(150, 5000)
    lines = run_script("tests.reliability.fuzz", str(inputs), seconds=budget(280, 3400))
    found = {each["name"]: each for each in lines}
    outcomes: Counter[str] = Counter()
    for name, each in found.items():
        assert "failure" not in each, f"{name}: {each['failure']}"
        assert each["megabytes"] < MEGABYTES, name
        assert each["value"]["slowest"] < SECONDS, name
        counts = Counter(each["value"]["outcomes"])
        assert counts.total() == inputs, name
        assert not counts["error without a message"], name
        assert 0 < counts["loaded"] < 0.7 * inputs, name  # mutants are neither hopeless nor harmless
        outcomes += counts
    record(
        "files",
        "files-fuzzed",
        "Mutated and truncated files are loaded or refused with a documented error by every loader: no other "
        "exception, no warning, no crash, no hang, no memory to speak of.",
        {
            "loaders": len(found),
            "inputs": outcomes.total(),
            "loaded all the same": outcomes["loaded"],
            **{f"refused with {kind}": count for kind, count in sorted(outcomes.items()) if kind != "loaded"},
            "slowest input, seconds": round(max(each["value"]["slowest"] for each in found.values()), 3),
            "most memory of a loader for all its inputs, MB": max(each["megabytes"] for each in found.values()),
        },
    )
