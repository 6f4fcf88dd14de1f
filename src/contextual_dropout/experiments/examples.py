"""The data of a run: what it trains on and what it is tested on."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import torch
from torch import Tensor

from contextual_dropout.data import LabelledImages, load, split_validation
from contextual_dropout.data.augment import (
    CIFAR_MEAN,
    CIFAR_STD,
    IMAGENET_MEAN,
    IMAGENET_STD,
    crop_and_flip,
    flip,
    normalize,
    random_resized_crop,
)
from contextual_dropout.data.batches import Augment
from contextual_dropout.data.lookup import Lookup
from contextual_dropout.experiments.config import RunConfig
from contextual_dropout.experiments.errors import ConfigError, ExperimentError
from contextual_dropout.experiments.methods import FLAT

__all__ = ["Examples", "augmenter", "images_of", "inputs_for", "load_examples", "normaliser"]


def _resized_crop_and_flip(x: Tensor, generator: torch.Generator) -> Tensor:
    return flip(random_resized_crop(x, (x.shape[-2], x.shape[-1]), generator=generator), generator)


NORMALISATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "none": lambda x: x,
    "cifar": partial(normalize, mean=CIFAR_MEAN, std=CIFAR_STD),
    "imagenet": partial(normalize, mean=IMAGENET_MEAN, std=IMAGENET_STD),
}
AUGMENTATIONS: dict[str, Augment | None] = {
    "none": None,
    "crop-flip": crop_and_flip,
    "resized-crop-flip": _resized_crop_and_flip,
}


@dataclass(frozen=True)
class Examples:
    """Inputs in [0, 1] without noise, and labels.

    Attributes:
        x: training inputs, (N, D), (N, C, H, W), or a lookup of image regions.
        y: training labels (N,), or soft answers (N, 2, S).
        test_x: inputs to evaluate on, of the test set or the validation split.
        test_y: their labels.
        classes: names of the classes.
        sha256: of the training and test images and labels.
        ood: inputs of other data sets, by name.
        beside: what else the network reads, in training: questions (N, T). No noise comes upon it.
        test_beside: the same of the test examples.
        test_groups: (N,), the group of every test example, if accuracies are wanted by group.
        group_names: what the groups are called.
    """

    x: Tensor | Lookup
    y: Tensor
    test_x: Tensor | Lookup
    test_y: Tensor
    classes: tuple[str, ...]
    sha256: dict[str, str]
    ood: dict[str, Tensor] = field(default_factory=dict)
    beside: tuple[Tensor, ...] = ()
    test_beside: tuple[Tensor, ...] = ()
    test_groups: Tensor | None = None
    group_names: tuple[str, ...] = ()


def load_examples(config: RunConfig, directory: str | os.PathLike[str] | None = None) -> Examples:
    """Load all that a configuration asks for, so that what is missing is missed before training.

    The test set is not touched when it asks for validation.
    """
    from contextual_dropout.experiments.questions import QUESTION_DATA, load_question_examples

    if config.data in QUESTION_DATA:
        return load_question_examples(config, directory)
    train = load(config.data, "train", directory)
    if config.split == "validation":
        train, test = split_validation(train, min(config.validation_examples, len(train) // 4))
    else:
        test = load(config.data, "test", directory)
    train, test = _first(train, config.train_examples), _first(test, config.test_examples)
    hashes = {"train": train.sha256, config.split: test.sha256}
    others = {name: _first(load(name, "test", directory), config.test_examples) for name in config.ood}
    return Examples(
        inputs_for(config, train),
        train.labels,
        inputs_for(config, test),
        test.labels,
        train.classes,
        hashes,
        {name: inputs_for(config, images) for name, images in others.items()},
    )


def inputs_for(config: RunConfig, images: LabelledImages) -> Tensor:
    """Pixels from 0 to 1 in the shape that the run's network takes."""
    return images.inputs() if config.network in FLAT else images.pixels()


def images_of(x: Tensor | Lookup) -> Tensor:
    """Test inputs that can be shown as images."""
    if isinstance(x, Tensor):
        return x
    raise ExperimentError("the run reads questions on images: its inputs cannot be shown as images alone")


def normaliser(config: RunConfig) -> Callable[[Tensor], Tensor]:
    """What is done to inputs after noise came upon them."""
    if config.normalisation not in NORMALISATIONS:
        raise ConfigError(
            f"unknown normalisation {config.normalisation!r}: expected one of {', '.join(NORMALISATIONS)}"
        )
    return NORMALISATIONS[config.normalisation]


def augmenter(config: RunConfig) -> Augment | None:
    """What is done to training inputs before noise comes upon them."""
    if config.augmentation not in AUGMENTATIONS:
        raise ConfigError(f"unknown augmentation {config.augmentation!r}: expected one of {', '.join(AUGMENTATIONS)}")
    return AUGMENTATIONS[config.augmentation]


def _first(images: LabelledImages, count: int | None) -> LabelledImages:
    return images if count is None else images.subset(torch.arange(min(count, len(images))))
