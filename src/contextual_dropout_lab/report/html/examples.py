"""The test examples as the gallery shows them: images, with their noise or the questions on them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from contextual_dropout_lab.data import load, noisy_copies
from contextual_dropout_lab.runs.config import RunConfig
from contextual_dropout_lab.runs.evaluation import TEST_NOISE_SEED
from contextual_dropout_lab.runs.questions import QUESTION_DATA, questions_tested_on
from contextual_dropout_lab.runs.run_data import Examples, images_of

__all__ = ["GalleryExamples", "gallery_examples"]


@dataclass(frozen=True, eq=False)
class GalleryExamples:
    """N test examples.

    Attributes:
        images: (M, H, W) or (M, C, H, W), from 0 to 1.
        rows: (N,), the image of every example.
        truths: (N,), the class that is called true: of soft answers the best one, -1 if none of them is a class.
        classes: their names.
        noisy: the images as the networks saw them; None if they had no noise, or if they were not images then.
        texts: questions; none for images alone.
    """

    images: Tensor
    rows: Tensor
    truths: Tensor
    classes: Sequence[str]
    noisy: Tensor | None = None
    texts: Sequence[str] = ()


def gallery_examples(config: RunConfig, examples: Examples, directory: Path | None) -> GalleryExamples:
    """The test examples of a run.

    Raises:
        ExperimentError: there is nothing to be seen of it.
    """
    if config.data in QUESTION_DATA:
        return _questions(config, examples, directory)
    x = images_of(examples.test_x)
    shape = x.shape[1:] if x.ndim == 4 else load(config.data, "train", directory).images.shape[1:]
    noisy = next(noisy_copies(x, config.noise_sd, 1, TEST_NOISE_SEED)).reshape(-1, *shape) if config.noise_sd else None
    return GalleryExamples(x.reshape(-1, *shape), torch.arange(len(x)), examples.test_y, examples.classes, noisy)


def _questions(config: RunConfig, examples: Examples, directory: Path | None) -> GalleryExamples:
    asked = questions_tested_on(config, directory)
    answers, accuracies = examples.test_y.unbind(1)  # (N, S) each
    best, place = accuracies.max(1, keepdim=True)
    truths = answers.gather(1, place).where(best > 0, -1).flatten().long()
    return GalleryExamples(asked.images.float() / 255, asked.rows, truths, examples.classes, texts=asked.questions)
