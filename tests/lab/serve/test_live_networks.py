"""Networks that can be served, and where the command finds them."""

from __future__ import annotations

import inspect
import io
import json
from pathlib import Path

import numpy as np
import pytest
import torch
import uvicorn
from rich.console import Console

import contextual_dropout as cd
from contextual_dropout_lab import demo
from contextual_dropout_lab.cli.serve_command import DEMO, find_beside, find_checkpoint, listen, serve_network
from contextual_dropout_lab.data import noisy_copies
from contextual_dropout_lab.errors import ExperimentError
from contextual_dropout_lab.runs.config import load_experiment
from contextual_dropout_lab.runs.run_data import load_examples
from contextual_dropout_lab.serve import LiveNetworks, load_live
from contextual_dropout_lab.serve.track_record import IMAGES
from tests.lab.serve.trained import METHODS, untrained


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


def test_what_certain_was_worth_is_read_from_the_record(digits: Path, live: LiveNetworks) -> None:
    for tested, method in zip(live.track_records, METHODS, strict=True):
        path = digits.parents[4] / "records" / "digits" / "noisy" / method / "seed-0.json"
        counts = json.loads(path.read_text())["test"]["noise-0.2"]["pavpu"]["0.05"]
        certain = counts["accurate_certain"] + counts["inaccurate_certain"]
        assert f"was certain of {certain / sum(list(counts.values())[1:]):.0%}" in tested.worth
        assert f"right in {counts['accurate_certain'] / certain:.0%} of these" in tested.worth
    assert load_live(digits / "model.safetensors", None).track_records[0] == live.track_records[0]


def test_without_a_record_or_at_another_threshold_nothing_is_said_of_its_worth(digits: Path, tmp_path: Path) -> None:
    (tested,) = load_live(digits, None, threshold=0.02).track_records
    assert tested.worth == ""
    assert load_live(untrained(tmp_path, (64,), tuple("0123456789"), data="digits"), None).track_records[0].worth == ""


def test_usual_keep_probabilities_are_means_over_test_images(digits: Path, live: LiveNetworks) -> None:
    contextual, mc = live.track_records
    assert mc.usual == {}
    data = load_examples(load_experiment("digits").run("noisy", METHODS[0], 0, "demo"))
    noisy = next(noisy_copies(data.test_x[:IMAGES], 0.2, 1, 0))
    for answer, tested in zip(live.answers(torch.zeros(live.shape), 2, 0), live.track_records, strict=True):
        assert [layer.usual for layer in answer.kept] == [tested.usual.get(layer.layer, []) for layer in answer.kept]
    name, site = next(iter(cd.sites(live.networks[0][0]).items()))
    keep = site.keep_probability(noisy).mean(0).double()
    counts, _ = np.histogram(keep.detach(), len(contextual.usual[name]), (0, 1))
    assert contextual.usual[name] == counts.tolist()


def test_without_the_data_set_nothing_is_usual(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor where it has images of another size."""
    monkeypatch.delenv("CONTEXTUAL_DROPOUT_DATA", raising=False)
    for shape, data in (((3 * 32 * 32,), "cifar10"), ((784,), "digits")):
        network = untrained(tmp_path, shape, ("a", "b"), data=data, conversion="contextualize")
        assert load_live(network, None).track_records[0].usual == {}


def test_where_nothing_stands_beside_it_the_command_says_so(
    digits: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(uvicorn.Server, "run", lambda self, sockets: None)
    for folder, alone in ((digits, False), (untrained(tmp_path / "alone", (64,), ("a", "b")), True)):
        console = Console(file=io.StringIO())
        serve_network(folder, None, "127.0.0.1", 0, 0.05, console)
        said = console.file.getvalue()  # type: ignore[attr-defined]
        assert ("no mc-bernoulli run beside it; see --beside\n" in said) == alone


def test_layers_are_named_as_in_the_report(live: LiveNetworks, photographs: LiveNetworks) -> None:
    for answer in live.answers(torch.zeros(live.shape), 2, 0):
        assert [layer.label for layer in answer.kept] == ["input", "hidden 1"]
    for answer in photographs.answers(torch.zeros(photographs.shape), 2, 0):
        assert all(layer.label == layer.layer for layer in answer.kept)


def test_a_port_that_is_taken() -> None:
    with listen("127.0.0.1", 0) as opened, pytest.raises(ExperimentError, match="give another --port"):
        listen("127.0.0.1", opened.getsockname()[1])
