"""Images in colour and questions on images come into the gallery like digits."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from contextual_dropout_lab.report.html import html_page, select
from contextual_dropout_lab.report.html.examples import gallery_examples
from contextual_dropout_lab.report.html.sections import Section, read_section
from contextual_dropout_lab.runs.config import RunConfig
from contextual_dropout_lab.runs.run_data import load_examples
from contextual_dropout_lab.runs.tasks import task_named
from contextual_dropout_lab.store.results import Results
from tests.lab.data.vqa.files import picture
from tests.lab.report.records import ensemble, record, write, write_ensemble

ANSWERS = ("circle", "no", "red", "yes")
QUESTIONS = (("what shape is it?", "circle", 0), ("is it red?", "yes", 0), ("what colour is it?", "red", 1))


@pytest.fixture(scope="module")
def questions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with easy-VQA of two images and three questions in each part."""
    data = tmp_path_factory.mktemp("data")
    for split in ("train", "test"):
        images = data / "easy-vqa" / split / "images"
        images.mkdir(parents=True)
        for number in (0, 1):
            (images / f"{number}.png").write_bytes(picture((32, 32), seed=number))
        (images.parent / "questions.json").write_text(json.dumps(QUESTIONS))
    (data / "easy-vqa" / "answers.txt").write_text("\n".join(ANSWERS))
    return data


@pytest.fixture(scope="module")
def colours(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with small images in colour, of two classes."""
    data = tmp_path_factory.mktemp("data")
    for split in ("train", "val"):
        for shade, name in enumerate(("cat", "dog")):
            folder = data / "tiny-imagenet-20" / split / name / "images"
            folder.mkdir(parents=True)
            for number in range(10):
                Image.fromarray(np.full((64, 64, 3), 40 + 150 * shade, dtype=np.uint8)).save(folder / f"{number}.JPEG")
    return data


def section(root: Results, folder: Path, logits: torch.Tensor, noise_sd: float = 0.0, **config: Any) -> Section:
    """The examples of one run on this data, with these logits stored."""
    written = record("noisy" if noise_sd else "original", "contextual-bernoulli", 0, 87.0, **config)
    run = RunConfig.from_dict(written["config"])
    sha256 = load_examples(run, folder).sha256
    write(root, {**written, "data": {**written["data"], "sha256": sha256}})
    root.write_predictions(run, {f"noise-{noise_sd:g}": [task_named(run.task).prediction(logits.double())]})
    (selection,) = select(["mnist"], root)
    assert "class='gallery'" in html_page([selection], folder)
    return read_section(selection, run.setting, folder)


def test_questions(results: Results, questions: Path) -> None:
    logits = torch.randn(5, 3, 3)
    options = {"data": "easy-vqa", "task": "soft-answers", "network": "mcan", "network_options": {"words": 20}}
    together = {**ensemble(44.0), "seeds": [0]}
    for values in together["members"].values():
        del values["calibration_error"]  # soft answers have none
    write_ensemble(results, "original", "contextual-bernoulli", together)
    found = section(results, questions, logits, **options)
    assert found.notes == []
    assert found.gallery is not None
    assert found.caption.startswith("Test questions that stand out, with box plots of the class probabilities over 5 ")
    cards = {card["example"]: card for card in found.gallery["cards"]}
    for row, (question, answer, image) in enumerate(QUESTIONS):
        assert cards[row]["text"] == question
        assert found.gallery["classes"][cards[row]["truth"]] == answer
        assert cards[row]["tile"] == image
        assert cards[row]["right"] == (cards[row]["answer"] == cards[row]["truth"])
    assert found.gallery["noisy"] is None


def test_answers_that_are_no_class_have_no_truth(questions: Path, tmp_path: Path) -> None:
    """None of the training questions has this answer, so that no class stands for it."""
    for path in questions.rglob("*"):
        place = tmp_path / path.relative_to(questions)
        place.mkdir(parents=True, exist_ok=True) if path.is_dir() else place.write_bytes(path.read_bytes())
    (tmp_path / "easy-vqa" / "test" / "questions.json").write_text(json.dumps([("is it red?", "no", 1), *QUESTIONS]))
    config = RunConfig("e", "s", "m", 0, data="easy-vqa", task="soft-answers", network_options={"words": 20})
    shown = gallery_examples(config, load_examples(config, tmp_path), tmp_path)
    assert shown.truths[0] == -1
    assert [shown.classes[int(truth)] for truth in shown.truths[1:]] == [answer for _, answer, _ in QUESTIONS]


@pytest.mark.parametrize("noise_sd", [0.0, 1.0])
def test_colours(results: Results, colours: Path, noise_sd: float) -> None:
    found = section(results, colours, torch.randn(5, 20, 2), noise_sd, data="tiny-imagenet-20", network="resnet18")
    assert found.notes == []
    assert found.gallery is not None
    assert found.gallery["size"] == [64, 64]
    assert found.gallery["classes"] == ["cat", "dog"]
    assert found.gallery["images"].startswith("data:image/jpeg;base64,")
    assert (found.gallery["noisy"] is not None) == (noise_sd > 0)
