"""The page's view of a prediction: the answer, box plots over masks, keep probabilities layer by layer."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.nn.modules.dropout import _DropoutNd

from contextual_dropout.baselines.concrete_dropout import ConcreteDropout
from contextual_dropout.baselines.gaussian_dropout import GaussianDropout
from contextual_dropout.conversion.record import sites
from contextual_dropout.inspection.context import keep_probabilities
from contextual_dropout.prediction.classification import Prediction
from contextual_dropout.replay.generators import isolated
from contextual_dropout.significance import mean_probability

__all__ = ["Answer", "Box", "LayerKeepProbabilities", "boxes", "histogram", "layer_keep_probabilities"]

#: Of more classes only this many are shown, the most probable ones.
MOST_CLASSES = 10
#: Bars of a histogram of keep probabilities from 0 to 1.
BARS = 40
#: Sampled passes over which a unit's keep probability is averaged: later sites read what earlier masks left.
PASSES = 8


@dataclass(frozen=True)
class Box:
    """A class's probabilities over masks: their mean and quartiles, and the extremes."""

    name: str
    mean: float
    low: float
    lower: float
    median: float
    upper: float
    high: float


@dataclass(frozen=True)
class LayerKeepProbabilities:
    """The keep probabilities of a layer.

    Attributes:
        layer: its name in the network.
        mean: over units.
        low: of all units, the smallest.
        high: the largest.
        bars: how many units are in each of equal intervals from 0 to 1; none where all units have the same, always.
        label: its name in print.
        usual: as ``bars``, of the units' means over test images; none where they are not known.
    """

    layer: str
    mean: float
    low: float
    high: float
    bars: list[int]
    label: str = ""
    usual: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class Answer:
    """The answer of one network to an image.

    Attributes:
        method: the name of its dropout, in print.
        name: of its class.
        confidence: mean probability of that class.
        p_value: of the test that tells the two most probable classes apart; None for one sample.
        certain: whether it is below the threshold; None for one sample.
        samples: K.
        boxes: of the classes, or of the most probable ones.
        kept: keep probabilities of the layers that drop something.
    """

    method: str
    name: str
    confidence: float
    p_value: float | None
    certain: bool | None
    samples: int
    boxes: list[Box]
    kept: list[LayerKeepProbabilities]


def boxes(prediction: Prediction, classes: tuple[str, ...]) -> list[Box]:
    """The box plots of one image, in the order of the classes.

    Example:
        >>> samples = torch.tensor([[[0.7, 0.3]], [[0.9, 0.1]]])
        >>> [(box.name, round(box.median, 2)) for box in boxes(Prediction(samples), ("cat", "dog"))]
        [('cat', 0.8), ('dog', 0.2)]
    """
    order = mean_probability(prediction.samples)[0].argsort(stable=True, descending=True)  # the label goes first
    shown = order[:MOST_CLASSES].sort().values
    samples = prediction.samples[:, 0, shown].double()  # (K, shown)
    quantiles = samples.quantile(torch.linspace(0, 1, 5, dtype=torch.float64), 0).T.tolist()
    means = samples.mean(0).tolist()
    return [
        Box(classes[index], mean, *five) for index, mean, five in zip(shown.tolist(), means, quantiles, strict=True)
    ]


def layer_keep_probabilities(model: nn.Module, x: Tensor, seed: int) -> list[LayerKeepProbabilities]:
    """The keep probabilities of every layer that has them, for one input (1, ...).

    Where they depend on masks of earlier layers they are averaged over a few draws.

    Example:
        >>> model = nn.Sequential(nn.Linear(4, 3), nn.Dropout(0.2))
        >>> (layer,) = layer_keep_probabilities(model, torch.zeros(1, 4), seed=0)
        >>> layer
        LayerKeepProbabilities(layer='1', mean=0.8, low=0.8, high=0.8, bars=[], label='', usual=[])
    """
    found: dict[str, LayerKeepProbabilities] = {}
    if sites(model):
        with isolated(seed, [x.device]):
            contextual = keep_probabilities(model, x.expand(PASSES, *x.shape[1:]))
        found = {name: _spread(name, keep.mean(0)) for name, keep in contextual.items()}
    return [*found.values(), *_constant(model)]


def _spread(name: str, units: Tensor) -> LayerKeepProbabilities:
    return LayerKeepProbabilities(name, units.mean().item(), units.min().item(), units.max().item(), histogram(units))


def histogram(units: Tensor) -> list[int]:
    """The number of keep probabilities (C,) in each of equal intervals from 0 to 1."""
    counts: list[int] = torch.histc(units, BARS, 0, 1).int().tolist()
    return counts


def _constant(model: nn.Module) -> Iterator[LayerKeepProbabilities]:
    """Layers whose keep probability is one number, whatever the input."""
    for name, layer in model.named_modules():
        if isinstance(layer, _DropoutNd | GaussianDropout):
            keep = 1 - layer.p
        elif isinstance(layer, ConcreteDropout):
            keep = 1 - layer.drop_probability.item()
        else:
            continue
        yield LayerKeepProbabilities(name, keep, keep, keep, [])
