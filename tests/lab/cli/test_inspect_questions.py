"""``inspect`` on runs of visual question answering, on a small set in the format of easy-VQA."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from typer.testing import CliRunner

from contextual_dropout.prediction.classification import Classification, MultilabelPrediction
from contextual_dropout_lab.cli import inspect_command
from contextual_dropout_lab.cli.app import app
from contextual_dropout_lab.runs.config import RunConfig, load_experiment
from contextual_dropout_lab.runs.run import run
from contextual_dropout_lab.runs.run_data import Examples, load_examples
from tests.lab.data.vqa.files import pack, picture
from tests.lab.runs.tiny import folders

METHODS = ("mc-bernoulli", "contextual-gaussian")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Eight images and four questions on each, for training and for testing."""
    answers = ("red", "blue", "yes", "no")
    files = {"answers.txt": "\n".join(answers).encode()}
    for split in ("train", "test"):
        files |= {f"{split}/images/{image}.png": picture((64, 64), seed=image) for image in range(8)}
        asked = [
            [f"what is {colour} here?", answers[(image + place) % 4], image]
            for image in range(8)
            for place, colour in enumerate(("this", "that", "it", "one"))
        ]
        files[f"{split}/questions.json"] = json.dumps(asked).encode()
    folder = tmp_path / "data" / "easy-vqa"
    folder.mkdir(parents=True)
    pack(files, folder / "easy-vqa.tar.xz")
    return folder.parent


def test_panels_of_every_method_and_a_random_draw(data: Path, tmp_path: Path) -> None:
    results = folders(tmp_path / "runs")
    runs = []
    for config in load_experiment("easy-vqa").runs("quick"):
        if config.method in METHODS:
            small = dataclasses.replace(config, train_examples=24, test_examples=16, samples=3)
            run(small, results, data_directory=data)
            runs.append(str(results.work / small.name))
    output = tmp_path / "figures"
    told = CliRunner().invoke(app, ["inspect", *runs, "-o", str(output), "--count", "3", "--data", str(data)])
    assert told.exit_code == 0, told.output
    names = {f"questions-uncertain-{method}" for method in METHODS} | {"questions-random"}
    assert {path.name for path in output.iterdir()} == {f"{name}.png" for name in names}
    assert all(name in told.output for name in names)


def test_every_network_reads_words_by_its_own_numbers(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A network that was trained on fewer questions knows fewer words, and numbers them otherwise."""
    config = next(load_experiment("easy-vqa").runs("quick"))
    results = folders(tmp_path / "runs")
    runs = [
        dataclasses.replace(config, method=name, train_examples=count, test_examples=8, samples=2)
        for name, count in (("few", 1), ("many", 24))
    ]
    for each in runs:
        run(each, results, data_directory=data)
    seen: dict[str, Tensor] = {}

    def answers(model: nn.Module, config: RunConfig, examples: Examples, sd: float) -> Classification:
        seen[config.method] = examples.test_beside[0]
        return MultilabelPrediction(torch.rand(2, len(examples.test_y), len(examples.classes)))

    monkeypatch.setattr(inspect_command, "predict_questions", answers)
    paths = [str(results.work / each.name) for each in runs]
    told = CliRunner().invoke(app, ["inspect", *paths, "-o", str(tmp_path / "figures"), "--data", str(data)])
    assert told.exit_code == 0, told.output
    for each in runs:
        assert torch.equal(seen[each.method], load_examples(each, data).test_beside[0])
    assert not torch.equal(seen["few"], seen["many"])
