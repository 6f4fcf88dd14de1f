"""Trained networks that answer visitors, several at a time."""

from __future__ import annotations

import dataclasses
import math
import threading
from dataclasses import dataclass, field
from pathlib import Path

from torch import Tensor, nn

from contextual_dropout.prediction.predict import predict
from contextual_dropout_lab.data import noisy_copies
from contextual_dropout_lab.errors import ExperimentError
from contextual_dropout_lab.report.layer_names import layer_labels
from contextual_dropout_lab.report.method_names import label_of
from contextual_dropout_lab.runs.config import RunConfig
from contextual_dropout_lab.runs.evaluation import is_stochastic
from contextual_dropout_lab.runs.methods import FLAT
from contextual_dropout_lab.runs.run_data import normaliser
from contextual_dropout_lab.serve.frames import Frame, frame_for
from contextual_dropout_lab.serve.responses import Answer, boxes, layer_keep_probabilities
from contextual_dropout_lab.serve.track_record import TrackRecord, track_record_of
from contextual_dropout_lab.store.networks import input_shape, load_network

__all__ = ["LiveNetworks", "load_live"]


@dataclass(frozen=True)
class LiveNetworks:
    """Networks with the same inputs and classes, side by side.

    Attributes:
        networks: each with the configuration of its run.
        classes: their names.
        shape: (C, H, W) of an image.
        frame: how the training images have their ink.
        threshold: certain is a p-value below it.
        track_records: the test results of each network.
    """

    networks: list[tuple[nn.Module, RunConfig]]
    classes: tuple[str, ...]
    shape: tuple[int, int, int]
    frame: Frame
    threshold: float
    track_records: list[TrackRecord]
    _one_at_a_time: threading.Lock = field(default_factory=threading.Lock)

    @property
    def config(self) -> RunConfig:
        """The configuration of the first network's run."""
        return self.networks[0][1]

    def noisy(self, image: Tensor, noise: float, seed: int) -> Tensor:
        """The image (C, H, W) with Gaussian noise: the same seed gives the same noise."""
        return next(noisy_copies(image, noise, 1, seed))

    def answers(self, image: Tensor, samples: int, seed: int) -> list[Answer]:
        """The answer of each network to an image; the same arguments give the same answers, from any thread.

        Args:
            image: (C, H, W), 0 to 1 before noise.
            samples: K.
            seed: of the masks.
        """
        with self._one_at_a_time:  # modes and generators are shared by all threads
            return [
                self._answer(model, config, tested, image, samples, seed)
                for (model, config), tested in zip(self.networks, self.track_records, strict=True)
            ]

    def _answer(
        self, model: nn.Module, config: RunConfig, tested: TrackRecord, image: Tensor, samples: int, seed: int
    ) -> Answer:
        x = image.flatten() if config.network in FLAT else image
        x = normaliser(config)(x.unsqueeze(0))
        several = is_stochastic(model)
        prediction = predict(model, x, samples=samples if several else 1, seed=seed)
        confidence = prediction.confidence.item()
        layers = layer_keep_probabilities(model, x, seed)
        labels = layer_labels([layer.layer for layer in layers], config.network, config.hidden)
        if not math.isfinite(confidence):
            raise ExperimentError(f"{config.name} gives no finite probabilities: is its file damaged?")
        return Answer(
            label_of(dataclasses.asdict(config)),
            self.classes[int(prediction.label)],
            confidence,
            prediction.p_value.item() if several else None,
            bool(prediction.certain(self.threshold)) if several else None,
            len(prediction.samples),
            boxes(prediction, self.classes),
            [
                dataclasses.replace(layer, label=labels[layer.layer], usual=tested.usual.get(layer.layer, []))
                for layer in layers
            ],
        )


def load_live(folder: Path, beside: Path | None, threshold: float = 0.05) -> LiveNetworks:
    """Load a trained network, and another to compare it with.

    Args:
        folder: of a finished run.
        beside: of another one on the same data.
        threshold: certain is a p-value below it.

    Raises:
        ExperimentError: there is no network, it reads no images, or the two do not fit together.
    """
    model, config, classes = load_network(folder)
    shape = _image_shape(config, input_shape(folder))
    networks, track_records = [(model, config)], [track_record_of(folder, model, config, threshold)]
    if beside is not None:
        other, other_config, other_classes = load_network(beside)
        if _image_shape(other_config, input_shape(beside)) != shape or other_classes != classes:
            raise ExperimentError(
                f"{beside} has other images or classes than {folder}: compare networks that were trained on the same "
                "data"
            )
        networks.append((other, other_config))
        track_records.append(track_record_of(beside, other, other_config, threshold))
    return LiveNetworks(networks, classes, shape, frame_for(config.data, *shape[1:]), threshold, track_records)


def _image_shape(config: RunConfig, shape: tuple[int, ...]) -> tuple[int, int, int]:
    """(C, H, W), also of flat inputs: grey or coloured squares."""
    if config.task == "classification" and len(shape) == 3 and shape[0] in (1, 3):
        return (shape[0], shape[1], shape[2])
    for channels in (1, 3):
        side = math.isqrt(math.prod(shape) // channels)
        if config.task == "classification" and len(shape) == 1 and shape == (channels * side**2,):
            return (channels, side, side)
    raise ExperimentError(
        f"{config.name} reads inputs of shape {shape} for {config.task}: expected a classifier of grey or coloured "
        "images"
    )
