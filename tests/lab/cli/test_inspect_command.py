"""``inspect``, run as a user runs it, on the embedded digits."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from contextual_dropout_lab.cli import inspect_command
from contextual_dropout_lab.cli.app import app
from contextual_dropout_lab.report import ReportError
from contextual_dropout_lab.runs.evaluation import sampled
from contextual_dropout_lab.runs.run import run
from contextual_dropout_lab.runs.run_data import load_examples
from contextual_dropout_lab.store.networks import load_network
from contextual_dropout_lab.store.results import PREDICTIONS
from tests.lab.runs.tiny import folders, tiny

MC = {"conversion": "mc_dropout", "options": {}, "objective": {}}
GATING = {"conversion": "contextual_gating", "options": {}, "objective": {}}


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Finished runs of three methods; read only."""
    root = folders(tmp_path_factory.mktemp("runs"))
    for config in (
        tiny("contextual-bernoulli", epochs=1),
        tiny("mc-bernoulli", epochs=1, **MC),
        tiny("mc-bernoulli", seed=1, epochs=1, **MC),
        tiny("gating", epochs=1, **GATING),
        tiny("clean", epochs=1, noise_sd=0.0, **MC),
        tiny("short", epochs=1, test_examples=32, **MC),
    ):
        run(config, root)
    return root.work / "tiny" / "noisy"


def invoke(*arguments: object) -> str:
    result = CliRunner().invoke(app, ["inspect", *map(str, arguments)], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_both_figures_of_every_run(work: Path, tmp_path: Path) -> None:
    output = invoke(work / "mc-bernoulli/seed-0", work / "contextual-bernoulli/seed-0", "-o", tmp_path, "--count", 3)
    expected = {
        f"{kind}-{method}.png"
        for kind in ("uncertain", "normality")
        for method in ("mc-bernoulli", "contextual-bernoulli")
    }
    assert names(tmp_path) == expected
    assert all(name in output for name in expected)
    assert "Rejected" in output


def test_deterministic_methods_are_left_out(work: Path, tmp_path: Path) -> None:
    output = invoke(work / "gating/seed-0", work / "mc-bernoulli/seed-0", "-o", tmp_path, "--count", 2)
    assert "left out: tiny/noisy/gating/seed-0 has one sample, as it is deterministic" in output
    assert not any("gating" in name for name in names(tmp_path))
    with pytest.raises(ReportError, match="nothing to draw"):
        invoke(work / "gating/seed-0", "-o", tmp_path / "none")


def test_runs_of_one_method_keep_their_names_apart(work: Path, tmp_path: Path) -> None:
    seeds = [work / "mc-bernoulli/seed-0", work / "mc-bernoulli/seed-1"]
    invoke(*seeds, seeds[0] / "model.safetensors", "-o", tmp_path, "--count", 1)
    assert {name for name in names(tmp_path) if name.startswith("uncertain")} == {
        f"uncertain-tiny-noisy-mc-bernoulli-seed-{seed}.png" for seed in (0, 1)
    }


def test_predicts_as_the_run_did(work: Path, tmp_path: Path) -> None:
    """Stored predictions equal new ones, except for half precision; a moved run has only the network."""
    folder = (work / "mc-bernoulli/seed-0").resolve()
    model, config, _ = load_network(folder)
    x = next(inspect_command.noisy_copies(load_examples(config).test_x, 0.5, 1, inspect_command.TEST_NOISE_SEED))
    fresh = sampled(model, x, config, 0).samples
    kept = inspect_command._prediction(folder, model, config, x, 0.5).samples
    assert not torch.equal(kept, fresh)
    torch.testing.assert_close(kept, fresh, rtol=0.01, atol=1e-3)
    moved = tmp_path / "elsewhere"
    shutil.copytree(folder, moved)
    assert torch.equal(inspect_command._prediction(moved, model, config, x, 0.5).samples, fresh)
    assert (moved / PREDICTIONS).exists()


def test_runs_must_compare(work: Path, tmp_path: Path) -> None:
    one = work / "mc-bernoulli/seed-0"
    with pytest.raises(ReportError, match=r"noise of 0 and 0\.5: say which"):
        invoke(one, work / "clean/seed-0", "-o", tmp_path)
    with pytest.raises(ReportError, match=r"differ in test_examples \(64, 32\)"):
        invoke(one, work / "short/seed-0", "-o", tmp_path)
    invoke(one, work / "clean/seed-0", "-o", tmp_path, "--noise", 0, "--count", 1)
    copy = tmp_path / "copy"
    shutil.copytree(one, copy)
    with pytest.raises(ReportError, match="two of the folders have a run"):
        invoke(one, copy, "-o", tmp_path)


@pytest.mark.parametrize("options", [["--count", "0"], ["--count", "1000"], ["--noise", "-1"], ["-o", __file__]])
def test_bad_options_are_told(options: list[str], work: Path) -> None:
    result = CliRunner().invoke(app, ["inspect", str(work / "mc-bernoulli/seed-0"), *options])
    assert result.exit_code == 2
    assert "Invalid value for" in result.output
    assert options[0] in re.sub(r"\x1b\[[0-9;]*m", "", result.output)
