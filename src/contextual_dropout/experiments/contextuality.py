"""How much of a network's dropout depends on the sample, and what that is worth."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from contextual_dropout.context import freeze_context, keep_probabilities
from contextual_dropout.conversion.convert import sites
from contextual_dropout.predict import predict
from contextual_dropout.prediction import Prediction
from contextual_dropout.randomness import isolated

__all__ = ["contextuality", "drop_probabilities"]

_QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)


def contextuality(model: nn.Module, x: Tensor, labels: Tensor, samples: int, seed: int) -> dict[str, Any]:
    """The spread of keep probabilities over samples and units, and what freezing them at their means costs.

    Args:
        model: a network with sites.
        x: inputs (B, ...).
        labels: (B,).
        samples: K of the predictions that are compared.
        seed: of both predictions.
    """
    with isolated(seed, [x.device]):
        keep, frozen = keep_probabilities(model, x), freeze_context(model, x)
    with torch.no_grad():
        changed = (model.eval()(x).argmax(1) != frozen.eval()(x).argmax(1)).sum().item()
    both = {
        name: Prediction(predict(each, x, samples=samples, seed=seed).samples.cpu())
        for name, each in (("contextual", model), ("frozen", frozen))
    }
    return {
        "sites": {
            name: {
                "mean": probability.mean().item(),
                "sd_over_samples": probability.std(0).mean().item(),
                "sd_over_units": probability.mean(0).std().item(),
                "prior": sites(model)[name].prior_keep_probability.item(),
            }
            for name, probability in keep.items()
        },
        "accuracy": {name: 100 * (each.label == labels).double().mean().item() for name, each in both.items()},
        "log_likelihood": {name: _log_likelihood(each.mean, labels) for name, each in both.items()},
        "point_predictions_changed": changed,
        "examples": len(labels),
    }


def drop_probabilities(model: nn.Module, x: Tensor, labels: Tensor, predicted: Tensor, seed: int) -> dict[str, Any]:
    """Quantiles over samples of the mean drop probability of each site: all, right and wrong, and by class."""
    with isolated(seed, [x.device]):
        keep = {name: probability.cpu() for name, probability in keep_probabilities(model, x).items()}
    right = predicted == labels
    groups = {"all": torch.ones_like(right), "right": right, "wrong": ~right}
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


def _log_likelihood(mean: Tensor, labels: Tensor) -> float:
    return mean.clamp_min(torch.finfo(mean.dtype).tiny).log().gather(1, labels[:, None]).mean().item()
