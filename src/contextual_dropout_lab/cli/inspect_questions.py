"""``contextual-dropout inspect`` on runs of visual question answering."""

from __future__ import annotations

from pathlib import Path

import torch
from rich.console import Console

from contextual_dropout.prediction.classification import Classification
from contextual_dropout_lab.report.method_names import label
from contextual_dropout_lab.report.plots import save
from contextual_dropout_lab.report.plots.answer_panels import AskedQuestions, questions
from contextual_dropout_lab.report.plots.uncertain_images import most_uncertain
from contextual_dropout_lab.runs.config import RunConfig
from contextual_dropout_lab.runs.evaluation import noisy_inputs, sampled
from contextual_dropout_lab.runs.questions import questions_tested_on
from contextual_dropout_lab.runs.run_data import Examples
from contextual_dropout_lab.runs.tasks import task_named

__all__ = ["draw_questions", "predict_questions"]


def predict_questions(model: torch.nn.Module, config: RunConfig, examples: Examples, sd: float) -> Classification:
    """The answers of a run to its first noisy copy of the test questions."""
    x = next(noisy_inputs(examples.test_x, sd, config))
    return sampled(model, x, config, 0, examples.test_beside)


def draw_questions(
    predictions: dict[str, Classification],
    config: RunConfig,
    examples: Examples,
    output: Path,
    count: int,
    data: Path | None,
    console: Console,
) -> None:
    """The most uncertain questions of every method and some at random, as PNG."""
    shown = questions_tested_on(config, data)
    accuracy = {
        name: task_named(config.task).accuracy(prediction.label, examples.test_y)
        for name, prediction in predictions.items()
    }
    images = shown.images[shown.rows].float() / 255
    asked = AskedQuestions(images, shown.questions, shown.answers, examples.classes, accuracy)
    drawn = torch.randperm(len(shown), generator=torch.Generator().manual_seed(0))[:count].tolist()
    panels = {
        f"questions-uncertain-{name}": (most_uncertain(each, count), f"{label(name)}: its most uncertain questions")
        for name, each in predictions.items()
    }
    for name, (rows, title) in (panels | {"questions-random": (drawn, "Questions drawn at random")}).items():
        path = save(questions(asked, predictions, rows, title), output, name, "png")
        console.print(str(path), highlight=False, soft_wrap=True)
