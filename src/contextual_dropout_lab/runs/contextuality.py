"""Measure how much of a network's dropout depends on the sample, and what that is worth."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from contextual_dropout.conversion.record import sites
from contextual_dropout.inspection.context import freeze_context, keep_probabilities
from contextual_dropout.prediction.predict import predict
from contextual_dropout.replay.generators import isolated
from contextual_dropout_lab.runs.tasks import task_named

__all__ = ["contextuality", "drop_probabilities"]

#: One tensor, or all that a model is called with.
Inputs = Tensor | tuple[Tensor, ...]
_QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)


#: Draws of the masks over which a sample's keep probabilities are averaged.
MASK_DRAWS = 10


def contextuality(
    model: nn.Module, x: Inputs, labels: Tensor, samples: int, seed: int, task: str = "classification"
) -> dict[str, Any]:
    """The spread of keep probabilities over samples, masks and units, and what freezing them at their means costs.

    Later sites read what earlier masks left, so that their keep probabilities vary even for one input: that is the sd
    over masks, and the sd over samples is that of means over several masks.

    Args:
        model: a network with sites.
        x: inputs (B, ...), or several: what the model is called with.
        labels: the targets of the task.
        samples: K of the predictions that are compared.
        seed: of masks and predictions.
        task: what outputs mean, see :mod:`contextual_dropout_lab.runs.tasks`.
    """
    mean, over_masks = _over_masks(model, x, seed)
    inputs, meaning = _inputs(x), task_named(task)
    with isolated(seed, [inputs[0].device]):
        frozen = freeze_context(model, *inputs)
    both = {}
    for name, each in (("contextual", model), ("frozen", frozen)):
        logits = predict(each, *inputs, samples=samples, seed=seed, task="regression").samples
        both[name] = meaning.prediction(logits.cpu().double())
    return {
        "sites": {
            name: {
                "mean": keep.mean().item(),
                "sd_over_samples": keep.std(0).mean().item(),
                "sd_over_masks": over_masks[name].mean().item(),
                "sd_over_units": keep.mean(0).std().item(),
                "prior": sites(model)[name].prior_keep_probability.item(),
            }
            for name, keep in mean.items()
        },
        "accuracy": {name: 100 * meaning.accuracy(each.label, labels).mean().item() for name, each in both.items()},
        "log_likelihood": {name: meaning.predictive(each.samples, labels).mean().item() for name, each in both.items()},
        "predictions_changed": (both["contextual"].label != both["frozen"].label).sum().item(),
        "examples": len(labels),
    }


def _inputs(x: Inputs) -> tuple[Tensor, ...]:
    return (x,) if isinstance(x, Tensor) else x


def _over_masks(model: nn.Module, x: Inputs, seed: int) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Mean and standard deviation over draws of the masks of each site's keep probabilities, (B, C)."""
    total = _drawn(model, x, seed)
    square = {name: keep.square() for name, keep in total.items()}
    for draw in range(1, MASK_DRAWS):
        for name, keep in _drawn(model, x, seed + draw).items():
            total[name] += keep
            square[name] += keep.square()
    mean = {name: value / MASK_DRAWS for name, value in total.items()}
    variance = {name: (square[name] - MASK_DRAWS * mean[name].square()) / (MASK_DRAWS - 1) for name in mean}
    return mean, {name: value.clamp_min(0).sqrt() for name, value in variance.items()}


def _drawn(model: nn.Module, x: Inputs, seed: int) -> dict[str, Tensor]:
    inputs = _inputs(x)
    with isolated(seed, [inputs[0].device]):
        return {name: keep.cpu() for name, keep in keep_probabilities(model, *inputs).items()}


def drop_probabilities(
    model: nn.Module, x: Inputs, labels: Tensor, predicted: Tensor, seed: int, task: str = "classification"
) -> dict[str, Any]:
    """Quantiles over samples of the mean drop probability of each site: all, right and wrong, and by class.

    A soft answer is right if its accuracy is 0.5 or more, and has no class: min(n / 3, 1) is, if two people gave it.
    """
    keep = _drawn(model, x, seed)
    right = task_named(task).accuracy(predicted, labels) >= 0.5
    groups = {"all": torch.ones_like(right), "right": right, "wrong": ~right}
    if labels.ndim == 1:
        groups |= {f"class {label}": labels == label for label in sorted(set(labels.tolist()))}
    levels = torch.tensor(_QUANTILES, dtype=torch.float64)
    return {
        "quantiles": list(_QUANTILES),
        "sites": {
            name: {
                group: (1 - probability[rows].mean(1)).quantile(levels).tolist()
                for group, rows in groups.items()
                if rows.any()
            }
            for name, probability in keep.items()
        },
    }
