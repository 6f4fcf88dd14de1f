"""Answers of trained networks to test images and to files, which are prepared as the run's own were."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import typer
from PIL import Image
from torch import Tensor

from contextual_dropout_lab.cli import predict_command
from contextual_dropout_lab.cli.predict_command import prediction_table, read_images
from contextual_dropout_lab.data import load
from contextual_dropout_lab.runs.config import RunConfig
from contextual_dropout_lab.runs.evaluation import noisy_inputs
from contextual_dropout_lab.runs.methods import build_model
from contextual_dropout_lab.runs.run import run
from contextual_dropout_lab.runs.run_data import load_examples
from contextual_dropout_lab.store.networks import save_network
from tests.lab.data.pickled import write_cifar
from tests.lab.runs.test_convolutional import small
from tests.lab.runs.tiny import folders, tiny


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> list[Tensor]:
    """The arguments that networks were called with."""
    seen: list[Tensor] = []
    real = predict_command.predict

    def predict(model: Any, x: Tensor, **options: Any) -> Any:
        seen.append(x)
        return real(model, x, **options)

    monkeypatch.setattr(predict_command, "predict", predict)
    return seen


@pytest.fixture
def trained(tmp_path: Path) -> tuple[Path, RunConfig]:
    """A convolutional network, and where it is."""
    write_cifar(tmp_path / "data")
    config, results = small(epochs=0), folders(tmp_path)
    run(config, results, data_directory=tmp_path / "data")
    return results.work / config.name, config


def test_a_convolutional_network_sees_what_it_was_tested_on(
    trained: tuple[Path, RunConfig], tmp_path: Path, given: list[Tensor]
) -> None:
    network, config = trained
    for noise in (None, 0.0):
        table = prediction_table(network, [], 4, 3, noise, 0.05, tmp_path / "data")
        assert table.row_count == 4
    x = load_examples(config, tmp_path / "data").test_x[:4]
    for seen, sd in zip(given, (config.noise_sd, 0.0), strict=True):
        assert torch.equal(seen, next(noisy_inputs(x, sd, config)))


def test_a_file_is_seen_as_the_test_image_that_it_holds(
    trained: tuple[Path, RunConfig], tmp_path: Path, given: list[Tensor]
) -> None:
    network, _ = trained
    image = load("cifar10", "test", tmp_path / "data").images[0]
    Image.fromarray(image.permute(1, 2, 0).numpy()).save(path := tmp_path / "first.png")
    prediction_table(network, [], 1, 3, 0.0, 0.05, tmp_path / "data")
    prediction_table(network, [path], 1, 3, None, 0.05, None)  # which needs no data set
    prediction_table(network, [path], 1, 3, 0.5, 0.05, None)
    of_test, of_file, noisy = given
    assert torch.equal(of_file, of_test)
    assert (noisy - of_file).std() == pytest.approx(0.5 / 0.25, rel=0.1)  # before normalisation


def test_files_have_the_colours_and_the_size_that_the_network_reads(tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (30, 20, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(path := tmp_path / "some.png")
    for shape, expected in {(64,): (8, 8), (1, 8, 8): (8, 8), (192,): (3, 8, 8), (3, 8, 8): (3, 8, 8)}.items():
        assert read_images([path, path], shape, ("a",)).images.shape == (2, *expected)
    with pytest.raises(typer.BadParameter, match=r"inputs of \(3, 8, 9\): image files are read as squares"):
        read_images([path], (3, 8, 9), ("a",))


def test_files_that_nobody_has_to_trust(tmp_path: Path) -> None:
    Image.new("L", (8, 8)).save(gif := tmp_path / "some.gif")
    Image.new("1", (8193, 8193)).save(large := tmp_path / "large.png")
    for path, message in ((gif, "cannot be decoded"), (large, "8193 by 8193 pixels"), (tmp_path / "none", "no such")):
        with pytest.raises(typer.BadParameter, match=message):
            read_images([path], (64,), ("a",))


def test_a_run_that_answers_questions_is_told_so(tmp_path: Path) -> None:
    options: dict[str, Any] = {"network_options": {"words": 9, "size": "tiny"}, "options": {}, "objective": {}}
    config = tiny(conversion="none", data="easy-vqa", network="mcan", **options)
    save_network(tmp_path, build_model(config, (16, 48), 3), config, (16, 48), ("yes", "no", "red"))
    with pytest.raises(typer.BadParameter, match="answers questions, and there are none on image files"):
        prediction_table(tmp_path, [], 4, 3, None, 0.05, None)
