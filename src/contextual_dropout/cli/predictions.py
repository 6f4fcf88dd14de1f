"""``contextual-dropout predict``: what a trained network says of images."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
import typer
from PIL import Image, UnidentifiedImageError
from rich.table import Table
from torch import Tensor

from contextual_dropout.data import load, noisy_copies
from contextual_dropout.experiments.evaluation import TEST_NOISE_SEED, is_stochastic
from contextual_dropout.experiments.networks import load_network
from contextual_dropout.predict import predict

__all__ = ["prediction_table", "read_image"]


def prediction_table(
    network: Path,
    images: list[Path],
    count: int,
    samples: int,
    noise: float | None,
    threshold: float,
    data: Path | None,
) -> Table:
    """One row an image: of the files given, else of the first ``count`` of the test set."""
    model, config, classes = load_network(network)
    if images:
        shape = load(config.data, "test", data).images.shape[1:]
        x, names = torch.stack([read_image(path, shape) for path in images]), [path.name for path in images]
        truth = [""] * len(images)
    else:
        test = load(config.data, "test", data)
        test = test.subset(torch.arange(min(count, len(test))))
        x, names = test.inputs(), [f"test {index}" for index in range(len(test))]
        truth = [classes[label] for label in test.labels.tolist()]
        x = next(noisy_copies(x, config.noise_sd if noise is None else noise, 1, TEST_NOISE_SEED))
    prediction = predict(model, x, samples=samples if is_stochastic(model) else 1, seed=0)
    several = len(prediction.samples) > 1
    table = Table(title=f"{config.name}, {len(prediction.samples)} sampled masks")
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


def read_image(path: Path, shape: tuple[int, ...]) -> Tensor:
    """Grey pixels from 0 to 1, flat, scaled to (height, width)."""
    height, width = shape
    try:
        with Image.open(path) as image:
            grey = image.convert("L").resize((width, height))
    except (OSError, UnidentifiedImageError, Image.DecompressionBombError) as error:
        raise typer.BadParameter(f"{path} cannot be read as an image: {error}") from error
    return torch.from_numpy(np.asarray(grey, dtype=np.float32).copy()).flatten() / 255
