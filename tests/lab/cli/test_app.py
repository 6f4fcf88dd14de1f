"""The command, run as a user runs it, on the embedded digits."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import typer
from PIL import Image
from typer.testing import CliRunner

from contextual_dropout_lab.cli import main
from contextual_dropout_lab.cli.app import app
from contextual_dropout_lab.runs.config import load_experiment
from tests.lab.runs.tiny import comparable, folders

OWN = """
base:
  {data: digits, noise_sd: 0.5, hidden: [16], epochs: 40, train_examples: 256, test_examples: 64, samples: 6,
   noise_draws: 2}
settings: {noisy: {}}
methods:
  mc-bernoulli: {conversion: mc_dropout}
  contextual-bernoulli: {conversion: contextualize, options: {reduction: 4}, objective: {kl_weight: 0.01}}
presets: {paper: {seeds: {noisy: 2}}}
"""


@pytest.fixture
def own(tmp_path: Path) -> Path:
    path = tmp_path / "own.yaml"
    path.write_text(OWN)
    return path


def invoke(*arguments: object) -> str:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return re.sub(r"\x1b\[[0-9;]*m", "", result.output)


def places(folder: Path) -> list[object]:
    return ["--records", folder / "records", "--work", folder / "work"]


@pytest.mark.slow
def test_killed_and_started_again_it_ends_with_the_same_numbers(own: Path, tmp_path: Path) -> None:
    """``reproduce`` is killed with all its processes at three moments; then it finishes, as if nothing had happened."""
    command = [sys.executable, "-c", "from contextual_dropout_lab.cli import main; main()", "reproduce", str(own)]
    command += ["--preset", "paper", "--processes", "2", *map(str, places(tmp_path / "killed"))]
    checkpoints = tmp_path / "killed" / "work"
    for kill in range(3):
        process = subprocess.Popen(
            command, start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        deadline = time.monotonic() + 240
        while len([*checkpoints.glob("*/*/*/*/checkpoint.pt"), *checkpoints.glob("*/*/*/*/model.safetensors")]) <= kill:
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.05)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    invoke("reproduce", own, "--preset", "paper", *places(tmp_path / "killed"))
    invoke("reproduce", own, "--preset", "paper", "--processes", 1, *places(tmp_path / "straight"))
    killed, straight = folders(tmp_path / "killed"), folders(tmp_path / "straight")
    for config in load_experiment(own).runs("paper"):
        one, other = killed.read(config), straight.read(config)
        assert one is not None
        assert other is not None
        assert comparable(one) == comparable(other)
    for method in ("mc-bernoulli", "contextual-bernoulli"):
        ensemble = f"own/noisy/{method}/ensemble.json"
        assert (killed.records / ensemble).read_text() == (straight.records / ensemble).read_text()
    assert not list(tmp_path.rglob("*.tmp"))
    assert (tmp_path / "killed" / "RESULTS-own.md").exists()


def test_run_table_figure_and_predict(own: Path, tmp_path: Path) -> None:
    settings = ["--set", "epochs=2", *places(tmp_path)]
    output = invoke("run", own, "noisy", "contextual-bernoulli", "--seed", 3, *settings)
    found = re.search(r"own/noisy/(contextual-bernoulli@\w{6})/seed-3: accuracy", output)
    assert found  # changed values are beside the configuration's own, not in their place
    assert invoke("run", own, "noisy", "contextual-bernoulli", "--seed", 3, *settings).startswith("1 runs are done, 0")
    assert "noisy" in invoke("table", "own", "--records", tmp_path / "records").lower()
    drawn = invoke("figure", "own", "-o", tmp_path / "figures", "--records", tmp_path / "records")
    assert "learning-curves-noisy.svg" in drawn
    network = tmp_path / "work" / "own" / "noisy" / found[1] / "seed-3"
    assert invoke("predict", network, "--count", 4).count("test ") == 4


def test_predict_reads_image_files(own: Path, tmp_path: Path) -> None:
    invoke("run", own, "noisy", "mc-bernoulli", "--set", "epochs=1", *places(tmp_path))
    (network,) = (tmp_path / "work" / "own" / "noisy").glob("mc-bernoulli@*/seed-0")
    picture = tmp_path / "seven.png"
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (30, 30, 3), dtype=np.uint8)).save(picture)
    assert "seven.png" in invoke("predict", network, picture)
    (tmp_path / "no.png").write_text("not an image")
    result = CliRunner().invoke(app, ["predict", str(network), str(tmp_path / "no.png")])
    assert result.exit_code == 2
    assert "cannot be decoded" in re.sub(r"[\s│]+", " ", result.output)


@pytest.mark.slow
@pytest.mark.parametrize("all_fail", [True, False])
def test_a_reproduction_that_fails_ends_with_what_failed(own: Path, tmp_path: Path, all_fail: bool) -> None:
    """It does not end with the advice to run the experiment first; runs that are done have their page."""
    broken = "objective: {kl_weight: -1}"
    text = OWN.replace("epochs: 40", "epochs: 1").replace("objective: {kl_weight: 0.01}", broken)
    if all_fail:
        text = text.replace("  mc-bernoulli: {conversion: mc_dropout}\n", "")
    own.write_text(text)
    result = CliRunner().invoke(app, ["reproduce", str(own), *map(str, places(tmp_path))])
    assert result.exit_code == 1
    *_, what, cause = re.sub(r"\x1b\[[0-9;]*m", "", result.output).strip().splitlines()
    assert what.startswith(f"2 of {2 if all_fail else 4} runs failed")
    assert "kl_weight must be a finite number that is not negative, got -1" in cause
    assert re.search(r"\(own/noisy/contextual-bernoulli/seed-[01] and 1 more\)$", cause)  # whichever failed first
    assert "run the experiment first" not in result.output
    assert (tmp_path / "RESULTS-own.md").exists() != all_fail


@pytest.mark.parametrize(
    ("gpu", "arguments", "processes"), [(False, [], 6), (True, [], 1), (True, ["--processes", 3], 3)]
)
def test_runs_do_not_crowd_a_gpu(
    own: Path, tmp_path: Path, gpu: bool, arguments: list[object], processes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []

    def sweep(*_: object, **options: object) -> None:
        seen.append(options["processes"])
        raise typer.Exit

    monkeypatch.setattr("torch.cuda.is_available", lambda: gpu)
    monkeypatch.setattr("os.cpu_count", lambda: 6)
    monkeypatch.setattr("contextual_dropout_lab.launch.local.sweep", sweep)
    invoke("reproduce", own, *arguments, *places(tmp_path))
    assert seen == [processes]


def test_networks_are_tracked_where_there_is_a_folder_for_them(own: Path, tmp_path: Path) -> None:
    (tmp_path / "networks").mkdir()
    invoke("run", own, "noisy", "mc-bernoulli", "--set", "epochs=1", *places(tmp_path))
    assert len([*(tmp_path / "networks" / "own" / "noisy").glob("mc-bernoulli@*/seed-0.safetensors")]) == 1


def test_list_shows_what_can_be_run() -> None:
    output = invoke("list")
    assert "mnist" in output
    assert "contextual-bernoulli" in output


def test_data_lists_what_is_there(tmp_path: Path) -> None:
    assert "digits" in invoke("data", "--data", tmp_path)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "nowhere", "noisy", "x"], "no experiment 'nowhere'"),
        (["run", "mnist", "noisy", "x"], "unknown method 'x'"),
        (["run", "mnist", "noisy", "gating", "--set", "epochs"], "not an assignment"),
        (["table", "nothing"], "nothing"),
        (["run", "digits", "noisy", "mc-bernoulli", "--set", "epochs=many"], "epochs must be of type int, got 'many'"),
        (["run", "digits", "noisy", "mc-bernoulli", "--seed", "-1"], "seed must not be negative"),
        (["predict", "nowhere"], "there is no trained network"),
        (["inspect", "nowhere"], "there is no trained network"),
    ],
)
def test_bad_arguments_are_answered_in_one_line(
    arguments: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["contextual-dropout", *arguments])
    with pytest.raises(SystemExit) as ended:  # anything else would be shown as a traceback
        main()
    said = ended.value.code if isinstance(ended.value.code, str) else capsys.readouterr().err
    assert ended.value.code
    assert message in said
    assert "Traceback" not in said


def test_the_command_of_a_shell_answers_in_one_line_too(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-c",
        "from contextual_dropout_lab.cli import main; main()",
        "run",
        "nowhere",
        "noisy",
        "x",
    ]
    result = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert result.returncode == 1
    assert result.stderr.startswith("contextual-dropout: no experiment 'nowhere'")
    assert result.stderr.count("\n") == 1
