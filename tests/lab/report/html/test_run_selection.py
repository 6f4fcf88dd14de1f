"""Runs are found by name, by part of a name, and by folder; each is read once."""

from __future__ import annotations

import json
import math
from html import escape
from pathlib import Path

import pytest

from contextual_dropout_lab.report import ReportError, summarise
from contextual_dropout_lab.report.html import Selection, html_page, select
from contextual_dropout_lab.store.results import Results
from tests.lab.report.records import ensemble, record, write, write_ensemble

ALL = [("noisy", "concrete"), ("noisy", "mc-gaussian"), ("original", "concrete")]


@pytest.fixture
def root(tmp_path: Path) -> Results:
    """Three methods and settings of two seeds, in folders that are called as those of ``make demo``."""
    found = Results(tmp_path / "demo" / "records", tmp_path / "demo" / "work")
    write(found, *(record(*each, seed, 86.0) for each in ALL for seed in (0, 1)))
    write_ensemble(found, "noisy", "concrete", {**ensemble(86.0), "seeds": [0, 1]})
    return found


def keys(selection: Selection) -> list[tuple[str, str]]:
    return list(selection.summary.runs)


@pytest.mark.parametrize(
    ("runs", "expected"),
    [
        (["mnist"], ALL),
        (["mnist/noisy"], ALL[:2]),
        (["mnist/noisy/concrete"], ALL[:1]),
        (["mnist/noisy/concrete", "mnist/original"], [ALL[0], ALL[2]]),
        (["mnist", "mnist/noisy"], ALL),
    ],
)
def test_by_name(root: Results, runs: list[str], expected: list[tuple[str, str]]) -> None:
    (found,) = select(runs, root)
    assert keys(found) == expected
    assert found.results == root
    assert not found.unfinished


@pytest.mark.parametrize(
    "run",
    [
        "work/mnist/noisy/concrete/seed-1",
        "work/mnist/noisy/concrete/seed-1/model.safetensors",
        "records/mnist/noisy/concrete/seed-1.json",
    ],
)
def test_a_run_by_its_folder_or_files(root: Results, tmp_path: Path, run: str) -> None:
    elsewhere = Results(tmp_path / "none", tmp_path / "neither")
    for results in (root, elsewhere):
        (found,) = select([str(root.work.parent / run)], results)
        assert keys(found) == ALL[:1]
        assert found.summary.runs[ALL[0]].seeds == [1]
        assert found.results.work.resolve() == root.work.resolve()


def test_a_folder_with_records_and_work(root: Results, tmp_path: Path) -> None:
    other = record("noisy", "concrete", 0, 86.0)
    other["config"]["experiment"] = "digits"
    write(root, other)
    found = select([str(root.work.parent)], Results(tmp_path / "none", tmp_path / "neither"))
    assert [each.summary.experiment for each in found] == ["digits", "mnist"]
    assert [keys(each) for each in found] == [ALL[:1], ALL]


def test_ensembles_only_of_members_that_are_there(root: Results) -> None:
    (whole,) = select(["mnist/noisy/concrete"], root)
    (part,) = select(["mnist/noisy/concrete/seed-0"], root)
    assert whole.summary.runs[ALL[0]].ensemble is not None
    assert part.summary.runs[ALL[0]].ensemble is None


def test_what_is_not_done_is_named(root: Results) -> None:
    (found,) = select(["mnist/noisy/concrete/seed-0", "mnist/noisy/gating/seed-0"], root)
    assert keys(found) == ALL[:1]
    assert found.unfinished == ("mnist/noisy/gating/seed-0",)


def test_names_are_compared_whole(root: Results) -> None:
    write(root, record("noisy", "concrete", 10, 86.0))
    (found,) = select(["mnist/noisy/concrete/seed-1"], root)
    assert found.summary.runs[ALL[0]].seeds == [1]


def test_nothing_is_an_error_that_says_what_there_is(root: Results, tmp_path: Path) -> None:
    with pytest.raises(ReportError, match=r"no records of mnist/noisy/gating in .*: there are those of mnist/noi"):
        select(["mnist/noisy/gating"], root)
    with pytest.raises(ReportError, match="run the experiment first"):
        select(["cifar10"], root)
    (tmp_path / "empty" / "records").mkdir(parents=True)
    with pytest.raises(ReportError, match="no records in"):
        select([str(tmp_path / "empty")], root)


@pytest.mark.parametrize("run", ["/does/not/exist", "../nothere", "mnist/../nothere"])
def test_a_folder_that_is_not_there_is_named(root: Results, run: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(root.work.parent)
    with pytest.raises(ReportError, match=f"there is no folder {run}: name an experiment"):
        select([run], root)


def test_a_folder_without_records_is_named(root: Results, tmp_path: Path) -> None:
    with pytest.raises(ReportError, match="has no `records` in it"):
        select([str(tmp_path)], root)


def broken(root: Results, fault: str) -> None:
    path = root.records / "mnist" / "noisy" / "concrete" / "seed-0.json"
    values = json.loads(path.read_text())
    if fault == "cut off":
        path.write_text(path.read_text()[:-9])
        return
    if fault == "no config":
        del values["config"]
    elif fault == "strange config":
        values["config"] = {"method": 3}
    elif fault == "no test":
        values["test"] = {}
    elif fault == "NaN":
        values["test"]["noise-1"]["accuracy"] = math.nan
    else:
        values = [values]
    path.write_text(json.dumps(values))


FAULTS = {
    "cut off": "is not valid JSON",
    "no config": "has no config",
    "strange config": "has no configuration of a run",
    "no test": "has no results of a test",
    "NaN": "has a number that is not finite at test/noise-1/accuracy",
    "a list": "is not a record of a run",
}


@pytest.mark.parametrize("fault", FAULTS)
def test_records_that_cannot_be_read_are_left_out_and_told(root: Results, tmp_path: Path, fault: str) -> None:
    broken(root, fault)
    (found,) = select(["mnist"], root)
    assert keys(found) == ALL
    assert found.summary.runs[ALL[0]].seeds == [1]
    ((name, words),) = found.summary.faults.items()
    assert name == "noisy/concrete/seed-0"
    assert FAULTS[fault] in words
    assert escape(f"noisy/concrete/seed-0 is left out: its file {words}.") in html_page([found])
    (other,) = select(["mnist/original"], root)
    assert not other.summary.faults
    with pytest.raises(ReportError, match=f"no record of mnist can be read: .*{FAULTS[fault]}"):
        select(["mnist/noisy/concrete/seed-0"], root)
    with pytest.raises(ReportError, match=rf"seed-0\.json {FAULTS[fault]}.*delete it to have it made again"):
        summarise(root, "mnist")


def test_an_ensemble_that_cannot_be_read_is_left_out_and_told(root: Results) -> None:
    (root.records / "mnist" / "noisy" / "concrete" / "ensemble.json").write_text("{")
    (found,) = select(["mnist"], root)
    assert found.summary.runs[ALL[0]].ensemble is None
    assert found.summary.faults == {"noisy/concrete/ensemble": "is not valid JSON"}
