"""``contextual-dropout predict``: the answers of a trained network to images."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path

import torch
import typer
from rich.table import Table
from torch import Tensor

from contextual_dropout.prediction.classification import Classification
from contextual_dropout.prediction.predict import predict
from contextual_dropout_lab.data import DataError, LabelledImages
from contextual_dropout_lab.data.augment import center_crop
from contextual_dropout_lab.data.formats.jpeg_png import decode
from contextual_dropout_lab.data.image_files import read_file
from contextual_dropout_lab.runs.config import RunConfig
from contextual_dropout_lab.runs.evaluation import is_stochastic, noisy_inputs
from contextual_dropout_lab.runs.questions import QUESTION_DATA
from contextual_dropout_lab.runs.run_data import STREAMED, inputs_for, load_examples
from contextual_dropout_lab.store.networks import input_shape, load_network

__all__ = ["prediction_table", "read_images"]


def prediction_table(
    network: Path,
    images: list[Path],
    count: int,
    samples: int,
    noise: float | None,
    threshold: float,
    data: Path | None,
) -> Table:
    """A table with one row an image: those of the files given, else the first ``count`` that the run was tested on.

    Without ``noise``, files have none, and test images that of training.
    """
    model, config, classes = load_network(network)
    if config.data in QUESTION_DATA:
        raise typer.BadParameter(
            f"{config.name} answers questions, and there are none on image files: `contextual-dropout inspect "
            f"{network}` shows its answers to test questions"
        )
    if images:
        x = _prepared(config, read_images(images, input_shape(network), classes), noise or 0.0)
        names, truth = [path.name for path in images], [""] * len(images)
    else:
        x, labels = _tested_on(config, count, noise, data)
        names, truth = [f"test {row}" for row in range(len(x))], [classes[label] for label in labels.tolist()]
    prediction = predict(model, x, samples=samples if is_stochastic(model) else 1, seed=0)
    return _table(
        f"{config.name}, {len(prediction.samples)} sampled masks", prediction, names, truth, classes, threshold
    )


def read_images(paths: list[Path], shape: tuple[int, ...], classes: tuple[str, ...]) -> LabelledImages:
    """Read JPEG or PNG files, which have no labels, in the size and the colours that a network reads.

    Args:
        paths: of the files.
        shape: of one input: (C, H, W), or flat.
        classes: the classes that it knows.
    """
    grey = shape[0] == 1 if len(shape) == 3 else math.isqrt(shape[0]) ** 2 == shape[0]
    side = shape[-1] if len(shape) == 3 else math.isqrt(shape[0] if grey else shape[0] // 3)
    if math.prod(shape) != (1 if grey else 3) * side * side:
        raise typer.BadParameter(f"the network reads inputs of {shape}: image files are read as squares only")
    try:
        pixels = torch.stack([decode(read_file(path), side, str(path), grey) for path in paths])
    except DataError as error:
        raise typer.BadParameter(str(error)) from error
    return LabelledImages(pixels, torch.zeros(len(paths), dtype=torch.int64), classes)


def _prepared(config: RunConfig, images: LabelledImages, noise: float) -> Tensor:
    """The images, prepared as the run prepares its test images."""
    x = inputs_for(config, images)
    x = center_crop(x, STREAMED[config.data]) if config.data in STREAMED else x
    return next(noisy_inputs(x, noise, config))[: len(x)]


def _tested_on(config: RunConfig, count: int, noise: float | None, data: Path | None) -> tuple[Tensor, Tensor]:
    """The first inputs that the run was tested on, and their labels."""
    sd = config.noise_sd if noise is None else noise
    config = dataclasses.replace(config, noise_sd=sd, ood=(), train_examples=0, test_examples=count)
    examples = load_examples(config, data)
    return next(noisy_inputs(examples.test_x, sd, config))[:count], examples.test_y


def _table(
    title: str,
    prediction: Classification,
    names: list[str],
    truth: list[str],
    classes: tuple[str, ...],
    threshold: float,
) -> Table:
    several = len(prediction.samples) > 1
    table = Table(title=title)
    for column in ("image", "truth", "answer", "confidence", "p-value", f"certain (p < {threshold:g})"):
        table.add_column(column)
    certain = prediction.certain(threshold) if several else torch.zeros(len(names), dtype=torch.bool)
    for row, name in enumerate(names):
        p_value = f"{prediction.p_value[row]:.2g}" if several else "—"
        verdict = "—" if not several else "yes" if certain[row] else "no"
        answer = classes[int(prediction.label[row])]
        style = "" if truth[row] in ("", answer) else "red"
        table.add_row(name, truth[row], answer, f"{prediction.confidence[row]:.3f}", p_value, verdict, style=style)
    return table
