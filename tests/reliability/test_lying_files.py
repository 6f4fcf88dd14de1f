"""Files that declare, or unpack to, far more than they are: refused, before they take memory or time."""

from __future__ import annotations

import pytest

from tests.reliability.confined import run_script
from tests.reliability.record import FULL, budget, record

#: By how much the memory in use may grow, and for how long the processor may work, for a file of up to a few MB.
MEGABYTES, SECONDS = 100, 5.0
#: Archives are read into memory as a whole, up to a documented 1 GiB; images one by one, up to 64 million pixels.
DOCUMENTED = {
    "an archive of more than 1 GiB": 2200,
    "an archive of 1 GiB of padding": 2200,
    "an archive of 300,000 files": 800,
    "JSON of 40 million lists": 500,
    "500 images of 10 million pixels": 200,
}
#: What is no lie, only long.
SOUND = {"an archive of 1 GiB of padding"}


@pytest.mark.slow
def test_files_that_lie_are_refused_before_they_take_memory() -> None:
    how = "thorough" if FULL else "quick"
    found = {each["name"]: each for each in run_script("tests.reliability.lies", how, seconds=budget(280, 3400))}
    assert len(found) > 30
    for name, each in found.items():
        assert "failure" not in each, f"{name}: {each['failure']}"
        assert (each["value"]["answer"] is None) == (name in SOUND), name
        assert each["megabytes"] < DOCUMENTED.get(name, MEGABYTES), (name, each)
        assert each["seconds"] < (60 if name in DOCUMENTED else SECONDS), (name, each)
    small = [each for name, each in found.items() if name not in DOCUMENTED]
    record(
        "files",
        "files-that-lie",
        "Files whose headers declare far more than they hold, or that unpack to far more, are refused before they take "
        "memory or time; only archives take what is documented, up to 1 GiB for their content.",
        {
            "kinds of lies": len(found),
            "loaders that are lied to": len({each["loader"] for each in found.values()}),
            "most memory, MB": max(each["megabytes"] for each in small),
            "most memory of an archive, MB": max(found[name]["megabytes"] for name in DOCUMENTED if name in found),
            "longest, seconds of the processor": round(max(each["seconds"] for each in small), 2),
        },
    )
