"""The data of a run: what it trains on and what it is tested on."""

from __future__ import annotations

import os
from dataclasses import dataclass

import torch
from torch import Tensor

from contextual_dropout.data import LabelledImages, load, split_validation
from contextual_dropout.experiments.config import RunConfig

__all__ = ["Examples", "load_examples"]


@dataclass(frozen=True)
class Examples:
    """Inputs in [0, 1] without noise, and labels.

    Attributes:
        x: training inputs (N, D).
        y: training labels (N,).
        test_x: inputs to evaluate on, of the test set or the validation split.
        test_y: their labels.
        classes: names of the classes.
        sha256: of the training and test images and labels.
    """

    x: Tensor
    y: Tensor
    test_x: Tensor
    test_y: Tensor
    classes: tuple[str, ...]
    sha256: dict[str, str]


def load_examples(config: RunConfig, directory: str | os.PathLike[str] | None = None) -> Examples:
    """Load what a configuration asks for; the test set is not touched when it asks for validation."""
    train = load(config.data, "train", directory)
    if config.split == "validation":
        train, test = split_validation(train, min(config.validation_examples, len(train) // 4))
    else:
        test = load(config.data, "test", directory)
    train, test = _first(train, config.train_examples), _first(test, config.test_examples)
    hashes = {"train": train.sha256, config.split: test.sha256}
    return Examples(train.inputs(), train.labels, test.inputs(), test.labels, train.classes, hashes)


def _first(images: LabelledImages, count: int | None) -> LabelledImages:
    return images if count is None else images.subset(torch.arange(min(count, len(images))))
