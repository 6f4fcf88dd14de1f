"""``report``, run as a user runs it, on runs of the embedded digits."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from contextual_dropout_lab.cli.app import app
from contextual_dropout_lab.report import ReportError
from contextual_dropout_lab.runs.config import load_experiment
from contextual_dropout_lab.runs.curves import curves_path
from contextual_dropout_lab.runs.run import run
from tests.lab.runs.tiny import folders, tiny


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder as ``make demo`` leaves it; read only."""
    folder = tmp_path_factory.mktemp("demo")
    run(tiny("contextual-bernoulli", epochs=1), folders(folder))
    return folder


def invoke(*arguments: object) -> str:
    result = CliRunner().invoke(app, ["report", *map(str, arguments)], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def test_real_runs_make_a_whole_page(demo: Path, tmp_path: Path) -> None:
    output = invoke(demo, "-o", tmp_path / "report")
    page = tmp_path / "report" / "index.html"
    assert f"report: {page} (" in output
    text = page.read_text(encoding="utf-8")
    for title in ("Reliability diagram", "Accuracy against the certainty threshold", "Dropout probabilities by class"):
        assert f"<h4>{title}</h4>" in text
    assert "class='gallery'" in text
    assert "class='note'" not in text


def test_by_name_and_by_folder_is_the_same(demo: Path, tmp_path: Path) -> None:
    places = ["--records", demo / "records", "--work", demo / "work"]
    invoke("tiny", "-o", tmp_path / "name", *places)
    invoke(demo / "work" / "tiny" / "noisy" / "contextual-bernoulli" / "seed-0", "-o", tmp_path / "folder")
    one, other = (tmp_path / name / "index.html" for name in ("name", "folder"))
    assert one.read_bytes() == other.read_bytes()


def test_what_is_not_done_is_told(demo: Path, tmp_path: Path) -> None:
    output = invoke("tiny", "tiny/noisy/gating", "-o", tmp_path, "--records", demo / "records", "--work", demo / "work")
    assert "left out: tiny/noisy/gating has no record yet" in output


def test_no_runs_are_told(tmp_path: Path) -> None:
    with pytest.raises(ReportError, match="no records in"):
        invoke("tiny", "-o", tmp_path / "report", "--records", tmp_path)
    assert not (tmp_path / "report").exists()


def test_records_and_curves_are_enough_for_the_figures(tmp_path: Path) -> None:
    """A checkout has records and curves. ``reproduce`` also writes the curves of runs that have none yet."""
    own = tmp_path / "own.yaml"
    own.write_text(
        "base: {data: digits, hidden: [16], epochs: 1, train_examples: 256, test_examples: 64, samples: 6}\n"
        "settings: {noisy: {noise_sd: 0.5}}\n"
        "methods: {contextual-bernoulli: {conversion: contextualize}}\n"
        "presets: {all: {seeds: {noisy: 1}}}\n"
    )
    results = folders(tmp_path)
    (config,) = load_experiment(own).runs("all")
    run(config, results)
    curves_path(results, config).unlink()
    places = ["--records", str(results.records), "--work", str(results.work)]
    result = CliRunner().invoke(app, ["reproduce", str(own), *places], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    assert curves_path(results, config).exists()
    shutil.rmtree(results.work)
    invoke("own", "-o", tmp_path / "report", *places)
    text = (tmp_path / "report" / "index.html").read_text(encoding="utf-8")
    assert text.count("<figure ") == 6
    assert "class='gallery'" not in text


def test_help_promises_no_download() -> None:
    """The report only reads; other commands fetch what they lack."""
    words = {name: " ".join(CliRunner().invoke(app, [name, "--help"]).output.split()) for name in ("report", "inspect")}
    assert "--data" in words["report"]
    assert "download" not in words["report"]
    assert "download" in words["inspect"]
