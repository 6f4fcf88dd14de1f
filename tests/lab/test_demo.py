"""The output and plots of ``make demo``, after one epoch instead of many."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import pytest
import typer.main

from contextual_dropout_lab.cli.app import app
from contextual_dropout_lab.demo import SHOWN, digits_figure, next_steps, results_table
from contextual_dropout_lab.report import summarise
from contextual_dropout_lab.report.method_names import label_of
from contextual_dropout_lab.runs.config import load_experiment
from contextual_dropout_lab.runs.run import run
from tests.lab.runs.tiny import folders


def test_demo(tmp_path: Path) -> None:
    results = folders(tmp_path)
    configs = [load_experiment("digits").run("noisy", method, 0, "demo", epochs=1) for method in SHOWN]
    records = [run(config, results) for config in configs]
    table = results_table(summarise(results, "digits"))
    assert [row[0] for row in table.rows] == ["MC dropout", label_of(records[1]["config"])]
    assert table.rows[0][1].startswith(f"{records[0]['test']['noise-0.5']['accuracy']:.2f}")
    figure = digits_figure(results, configs)
    assert len(figure.axes) == 4 * 3
    figure.savefig(tmp_path / "examples.png")


def test_it_ends_with_commands_that_can_be_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", str(Path.cwd() / ".venv" / "bin" / "python"))
    _, report, serve = next_steps(Path("runs/demo"))
    assert report.strip() == ".venv/bin/contextual-dropout report runs/demo -o report"
    assert serve.strip() == ".venv/bin/contextual-dropout serve runs/demo"
    for _, name, *arguments in (shlex.split(report), shlex.split(serve)):
        typer.main.get_command(app).commands[name].make_context(name, arguments)  # type: ignore[attr-defined]
