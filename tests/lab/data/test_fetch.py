from __future__ import annotations

import hashlib
import os
import stat
import time
from pathlib import Path

import pytest

from contextual_dropout_lab.data import DataError
from contextual_dropout_lab.data.fetch import fetch
from contextual_dropout_lab.data.sources import File
from tests.lab.data.server import Answer, closed_port, serving

CONTENT = bytes(range(256)) * 1000
FILE = File("some.gz", len(CONTENT), hashlib.sha256(CONTENT).hexdigest())


def test_a_file_is_fetched_and_its_progress_told(tmp_path: Path) -> None:
    told: list[tuple[str, int, int]] = []
    with serving({"/some.gz": Answer(CONTENT)}) as (url, _):
        path = fetch(FILE, url, tmp_path / "new" / "folder", lambda *step: told.append(step))
    assert path.read_bytes() == CONTENT
    assert os.listdir(path.parent) == ["some.gz"]
    assert told[0] == ("some.gz", 0, len(CONTENT))
    assert told[-1] == ("some.gz", len(CONTENT), len(CONTENT))
    assert [step[1] for step in told] == sorted(step[1] for step in told)


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (Answer(CONTENT[::-1]), "sent a file with SHA-256 .*: expected .*; nothing was kept"),
        (Answer(CONTENT[:-1]), f"sent {len(CONTENT) - 1} bytes: expected {len(CONTENT)}"),
        (Answer(CONTENT[:99_999], declared=len(CONTENT)), f"sent 99999 bytes: expected {len(CONTENT)}"),
        (Answer(b""), f"sent 0 bytes: expected {len(CONTENT)}"),
        (Answer(CONTENT + b"x"), f"sent more than {len(CONTENT)} bytes"),
        (Answer(CONTENT, endless=True), f"sent more than {len(CONTENT)} bytes"),
        (Answer(b"fffff\r\nabc", chunked=True), "cannot be fetched .*IncompleteRead"),
        (None, "answers 404 Not Found: expected the file"),
    ],
    ids=["changed", "short", "truncated", "empty", "long", "endless", "broken off", "missing"],
)
def test_nothing_stays_of_a_file_that_is_not_the_one(tmp_path: Path, answer: Answer | None, message: str) -> None:
    with (
        serving({"/some.gz": answer} if answer else {}) as (url, _),
        pytest.raises(DataError, match=message) as error,
    ):
        fetch(FILE, url, tmp_path)
    assert f"{url}some.gz" in str(error.value)
    assert os.listdir(tmp_path) == []


def test_nothing_stays_without_a_connection(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"some.gz cannot be fetched \(.*Connection refused"):
        fetch(FILE, closed_port(), tmp_path)
    assert os.listdir(tmp_path) == []


def test_a_failed_fetch_leaves_the_file_that_was_there(tmp_path: Path) -> None:
    (tmp_path / "some.gz").write_bytes(b"before")
    with serving({"/some.gz": Answer(CONTENT[:-1])}) as (url, _), pytest.raises(DataError):
        fetch(FILE, url, tmp_path)
    assert (tmp_path / "some.gz").read_bytes() == b"before"


def test_nothing_stays_after_an_interruption(tmp_path: Path) -> None:
    def interrupt(name: str, received: int, size: int) -> None:
        if received:
            raise KeyboardInterrupt

    with serving({"/some.gz": Answer(CONTENT)}) as (url, _), pytest.raises(KeyboardInterrupt):
        fetch(FILE, url, tmp_path, interrupt)
    assert os.listdir(tmp_path) == []


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(DataError, match=r"file/cache cannot be written to .*: set XDG_CACHE_HOME"):
        fetch(FILE, closed_port(), tmp_path / "file" / "cache")


def test_others_may_read_the_file_as_the_umask_says(tmp_path: Path) -> None:
    with serving({"/some.gz": Answer(CONTENT)}) as (url, _):
        path = fetch(FILE, url, tmp_path)
    (tmp_path / "ordinary").touch()
    assert stat.S_IMODE(path.stat().st_mode) == stat.S_IMODE((tmp_path / "ordinary").stat().st_mode)


def test_what_killed_downloads_left_goes_after_a_day(tmp_path: Path) -> None:
    for name, age in ((".fetch-old", 90_000), (".fetch-new", 60)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "some.gz").write_bytes(b"half")
        os.utime(tmp_path / name, 2 * (time.time() - age,))
    with serving({"/some.gz": Answer(CONTENT)}) as (url, _):
        fetch(FILE, url, tmp_path)
    assert sorted(os.listdir(tmp_path)) == [".fetch-new", "some.gz"]
