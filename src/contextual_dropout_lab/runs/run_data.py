"""The data of a run: what it trains on and what it is tested on."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import torch
from torch import Tensor

from contextual_dropout_lab.data import LabelledImages, load, open_images, split_validation
from contextual_dropout_lab.data.augment import (
    CIFAR_MEAN,
    CIFAR_STD,
    IMAGENET_MEAN,
    IMAGENET_STD,
    crop_and_flip,
    flip,
    normalize,
    random_resized_crop,
)
from contextual_dropout_lab.data.batches import Augment
from contextual_dropout_lab.data.image_rows import ImageRows
from contextual_dropout_lab.data.loading import IMAGE_FILES
from contextual_dropout_lab.data.lookup import Lookup
from contextual_dropout_lab.data.splits import taking_turns
from contextual_dropout_lab.errors import ConfigError, ExperimentError
from contextual_dropout_lab.runs.config import RunConfig
from contextual_dropout_lab.runs.methods import FLAT

__all__ = ["STREAMED", "Examples", "augmenter", "images_of", "inputs_for", "load_examples", "normaliser"]

#: Sets of image files that are too large for memory, and the side of the images that networks are tested on.
STREAMED = {"imagenet": 224}


def _resized_crop_and_flip(x: Tensor, generator: torch.Generator, side: int | None = None) -> Tensor:
    size = (x.shape[-2], x.shape[-1]) if side is None else side
    return flip(random_resized_crop(x, size, generator=generator), generator)


NORMALISATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "none": lambda x: x,
    "cifar": partial(normalize, mean=CIFAR_MEAN, std=CIFAR_STD),
    "imagenet": partial(normalize, mean=IMAGENET_MEAN, std=IMAGENET_STD),
}
AUGMENTATIONS: dict[str, Augment | None] = {
    "none": None,
    "crop-flip": crop_and_flip,
    "resized-crop-flip": _resized_crop_and_flip,
    "resized-crop-flip-224": partial(_resized_crop_and_flip, side=224),
}


@dataclass(frozen=True)
class Examples:
    """Inputs in [0, 1] without noise, and labels.

    Attributes:
        x: training inputs, (N, D), (N, C, H, W), or a lookup of image regions or of images on a disk.
        y: training labels (N,), or soft answers (N, 2, S).
        test_x: inputs to evaluate on, of the test set or the validation split; images on a disk come normalised.
        test_y: their labels.
        classes: names of the classes.
        sha256: of the training and test images and labels; of images on a disk, of the names,
            lengths and labels of all files.
        ood: inputs of other data sets, by name.
        beside: what else the network reads, in training: questions (N, T). No noise is added to it.
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
    """Load all data of a configuration, so that missing data is noticed before training.

    The test set is not touched when it asks for validation.
    """
    from contextual_dropout_lab.runs.questions import QUESTION_DATA, load_question_examples

    if config.data in QUESTION_DATA:
        return load_question_examples(config, directory)
    if config.data in STREAMED:
        return _on_disk(config, directory)
    train = _in_memory(config, config.data, "train", directory)
    if config.split == "validation":
        train, test = split_validation(train, min(config.validation_examples, len(train) // 4))
    else:
        test = _in_memory(config, config.data, "test", directory)
    train, test = _first(train, config.train_examples), _first(test, config.test_examples)
    hashes = {"train": train.sha256, config.split: test.sha256}
    others = {name: _first(_in_memory(config, name, "test", directory), config.test_examples) for name in config.ood}
    return Examples(
        inputs_for(config, train),
        train.labels,
        inputs_for(config, test),
        test.labels,
        train.classes,
        hashes,
        {name: inputs_for(config, images) for name, images in others.items()},
    )


def _in_memory(config: RunConfig, name: str, split: str, directory: str | os.PathLike[str] | None) -> LabelledImages:
    """All images; those of files, which are sorted by class, in an order whose beginning has every class."""
    images = load(name, split, directory, on_error=config.on_error)
    return images.subset(taking_turns(images.labels)) if name in IMAGE_FILES else images


def _on_disk(config: RunConfig, directory: str | os.PathLike[str] | None) -> Examples:
    """Images that are decoded batch by batch, in the same order."""
    if config.ood or any((config.noise_sd, *config.test_noise_sd)):
        raise ConfigError(f"{config.data} is read from disk as it is used, without noise and without other data sets")
    train = open_images(config.data, "train", directory, config.on_error)
    rows = taking_turns(train.labels)
    if config.split == "validation":
        apart = min(config.validation_examples, len(rows) // 4)
        test, test_rows, rows = train, rows[:apart], rows[apart:]
    else:
        test = open_images(config.data, "test", directory, config.on_error)
        test_rows = taking_turns(test.labels)
    rows, test_rows = rows[: config.train_examples], test_rows[: config.test_examples]
    return Examples(
        Lookup(ImageRows(train), rows),
        train.labels[rows],
        # Ready for the network: no noise is added to them that would have to come before.
        Lookup(ImageRows(test, STREAMED[config.data], normaliser(config)), test_rows),
        test.labels[test_rows],
        train.classes,
        {"train": train.sha256, config.split: test.sha256},
    )


def inputs_for(config: RunConfig, images: LabelledImages) -> Tensor:
    """Pixels from 0 to 1 in the shape that the run's network takes."""
    return images.inputs() if config.network in FLAT else images.pixels()


def images_of(x: Tensor | Lookup) -> Tensor:
    """Test inputs that can be shown as images."""
    if isinstance(x, Tensor):
        return x
    if isinstance(x.table, ImageRows):
        raise ExperimentError("the run's images are read from disk as they are used: too many to be shown")
    raise ExperimentError("the run reads questions on images: its inputs cannot be shown as images alone")


def normaliser(config: RunConfig) -> Callable[[Tensor], Tensor]:
    """The transform of inputs after noise is added to them."""
    if config.normalisation not in NORMALISATIONS:
        raise ConfigError(
            f"unknown normalisation {config.normalisation!r}: expected one of {', '.join(NORMALISATIONS)}"
        )
    return NORMALISATIONS[config.normalisation]


def augmenter(config: RunConfig) -> Augment | None:
    """The transform of training inputs before noise is added to them."""
    if config.augmentation not in AUGMENTATIONS:
        raise ConfigError(f"unknown augmentation {config.augmentation!r}: expected one of {', '.join(AUGMENTATIONS)}")
    return AUGMENTATIONS[config.augmentation]


def _first(images: LabelledImages, count: int | None) -> LabelledImages:
    return images if count is None else images.subset(torch.arange(min(count, len(images))))
