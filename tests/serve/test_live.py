"""Which networks can be served, and from where the command takes them."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest
import torch

from contextual_dropout import demo
from contextual_dropout.cli.serving import DEMO, find_beside, find_checkpoint, listen
from contextual_dropout.experiments.config import load_experiment
from contextual_dropout.experiments.errors import ExperimentError
from contextual_dropout.serve import LiveNetworks, load_live
from tests.serve.trained import untrained


def test_flat_inputs_are_squares(tmp_path: Path) -> None:
    assert load_live(untrained(tmp_path, (784,), ("a", "b")), None).shape == (1, 28, 28)
    assert load_live(untrained(tmp_path, (3 * 32 * 32,), ("a", "b")), None).shape == (3, 32, 32)


def test_networks_that_do_not_read_images_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ExperimentError, match=r"inputs of shape \(50,\).*expected a classifier of grey or coloured"):
        load_live(untrained(tmp_path, (50,), ("a", "b")), None)


def test_networks_of_other_images_or_classes_do_not_stand_beside(tmp_path: Path, digits: Path) -> None:
    for shape, classes in (((784,), tuple("0123456789")), ((64,), ("a", "b"))):
        with pytest.raises(ExperimentError, match="trained on the same data"):
            load_live(digits, untrained(tmp_path, shape, classes))


def test_mc_dropout_of_the_same_seed_stands_beside(digits: Path, tmp_path: Path) -> None:
    other = find_beside(digits)
    assert other == digits.parents[1] / "mc-bernoulli" / "seed-0"
    assert find_beside(digits / "model.safetensors") == other
    assert find_beside(other) is None
    assert find_beside(untrained(tmp_path / "alone", (64,), ("a", "b"))) is None


def test_the_demo_is_served_by_default(digits: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = load_experiment("digits").run("noisy", "contextual-bernoulli", 0, "demo")
    folder = inspect.signature(demo.main).parameters["folder"].default
    assert folder / "work" / config.name == DEMO
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ExperimentError, match="make demo"):
        find_checkpoint(None)
    monkeypatch.chdir(digits.parents[6])
    assert find_checkpoint(None) == DEMO


def test_of_a_folder_with_records_and_work_a_contextual_run_is_served(digits: Path, tmp_path: Path) -> None:
    assert find_checkpoint(digits.parents[4]) == digits
    assert find_checkpoint(digits) == digits
    (tmp_path / "work").mkdir()
    assert find_checkpoint(tmp_path) == tmp_path
    for name in ("mc-bernoulli/seed-0", "contextual-gaussian/seed-10", "contextual-gaussian/seed-2"):
        untrained(tmp_path / "work" / "own" / "clean" / name, (64,), ("a", "b"))
    assert find_checkpoint(tmp_path) == tmp_path / "work" / "own" / "clean" / "contextual-gaussian" / "seed-2"


def test_layers_are_named_as_in_the_report(live: LiveNetworks, photographs: LiveNetworks) -> None:
    for answer in live.answers(torch.zeros(live.shape), 2, 0):
        assert [layer.label for layer in answer.kept] == ["input", "hidden 1"]
    for answer in photographs.answers(torch.zeros(photographs.shape), 2, 0):
        assert all(layer.label == layer.layer for layer in answer.kept)


def test_a_port_that_is_taken() -> None:
    with listen("127.0.0.1", 0) as opened, pytest.raises(ExperimentError, match="give another --port"):
        listen("127.0.0.1", opened.getsockname()[1])
