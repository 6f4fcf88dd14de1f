"""A disk that is full, at any moment of a run: the run says so, loses nothing, and ends well when there is room."""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from contextual_dropout_lab.errors import ExperimentError
from contextual_dropout_lab.runs import training
from contextual_dropout_lab.runs.run import run
from contextual_dropout_lab.store.files import load_tensors
from contextual_dropout_lab.store.results import Results
from tests.lab.runs.tiny import folders, tiny
from tests.reliability.record import FULL, budget, record
from tests.reliability.stress import files_of, outcome

CONFIG = tiny(epochs=4)
PAGE = 4096


@pytest.fixture(scope="module", autouse=True)
def often() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training, "CHECKPOINT_EVERY", 1)
        yield


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory) -> Results:
    results = folders(tmp_path_factory.mktemp("straight"))
    run(CONFIG, results)
    return results


def sizes(results: Results) -> dict[str, int]:
    """Of the files of a run, in the order in which they are written; the checkpoint is the first."""
    found = files_of(CONFIG, results).items()
    return {name: path.stat().st_size for name, path in sorted(found, key=lambda item: item[1].stat().st_mtime_ns)}


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    disk = tmp_path / "disk"
    disk.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(disk)]
    if shutil.which("mount") is None or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("a small disk cannot be mounted here: that takes root and its capabilities")
    yield disk
    subprocess.run(["umount", "--lazy", str(disk)], check=True)


def stopped(results: Results, hinder: Callable[[], None], epoch: int, relieve: Callable[[], None]) -> str:
    """The file that a run says it could not write, being hindered after so many epochs."""

    def progress(done: int) -> None:
        if done == epoch:
            hinder()

    try:
        with pytest.raises(ExperimentError, match=r"cannot be written .*: make room there, and") as caught:
            run(CONFIG, results, progress=progress)
    finally:
        relieve()
    checkpoint = results.work / CONFIG.name / "checkpoint.pt"
    if epoch > 0:  # the last one that was written is there, and whole
        assert load_tensors(checkpoint)["epoch"] == epoch
    assert not results.path(CONFIG).exists()
    assert not list(results.work.parent.rglob("*.tmp"))
    named = Path(str(caught.value).split(" cannot be written")[0])
    return str(named.relative_to(results.work.parent))


def goes_on(results: Results, straight: Results) -> None:
    run(CONFIG, results)
    assert outcome(CONFIG, results) == outcome(CONFIG, straight)


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_no_room(small_disk: Path, straight: Results) -> None:
    """With every amount of room that a file is too large for, before the first checkpoint and after each."""
    results, ballast = folders(small_disk / "results"), small_disk / "ballast"
    size = {name: -(-value // PAGE) * PAGE for name, value in sizes(straight).items()}
    checkpoint, *others = size.values()
    each = [sum(others[:count]) for count in range(len(others))]  # enough for all files before it
    trials = [
        *((0, room) for room in range(0, checkpoint, PAGE * budget(8, 1))),
        *((epoch, room) for epoch in (1, 3) for room in range(0, checkpoint, PAGE * budget(16, 1))),
        *((CONFIG.epochs, room) for room in (range(0, sum(others), PAGE) if FULL else each)),
    ]
    stopped_at = set()
    for epoch, room in trials:

        def fill(room: int = room) -> None:
            with open(ballast, "wb") as file:
                os.posix_fallocate(file.fileno(), 0, shutil.disk_usage(small_disk).free - room)

        stopped_at.add(stopped(results, fill, epoch, ballast.unlink))
        goes_on(results, straight)
        shutil.rmtree(small_disk / "results")
    assert stopped_at == set(size)
    record(
        "interruption",
        "full-disk",
        "When the disk is full, a run ends with a message that names the file and says to make room; the last "
        "checkpoint stays whole, and with room again the run ends as an uninterrupted one, bit by bit.",
        {"moments and amounts of room tried": len(trials), "kinds of files that did not fit": len(stopped_at)},
    )


@pytest.mark.slow
@pytest.mark.parametrize(("epoch", "number"), [(0, 0), (2, 0), (4, 1)])
def test_no_quota(tmp_path: Path, straight: Results, epoch: int, number: int) -> None:
    """The system lets no file become as large as it has to: a checkpoint, the first and a later one, or the network."""
    limits, results = resource.getrlimit(resource.RLIMIT_FSIZE), folders(tmp_path)
    name, size = list(sizes(straight).items())[number]

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (size // 2, limits[1]))

    said = stopped(results, limit, epoch, lambda: resource.setrlimit(resource.RLIMIT_FSIZE, limits))
    assert said == name
    goes_on(results, straight)
