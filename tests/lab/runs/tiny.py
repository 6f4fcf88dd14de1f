"""A run that takes a second: the embedded digits and a small network."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from contextual_dropout_lab.runs.config import RunConfig
from contextual_dropout_lab.store.results import Results

CONTEXTUAL = {
    "conversion": "contextualize",
    "options": {"family": "bernoulli", "reduction": 4, "initialisation": "he", "rescale": False},
    "objective": {"kl_weight": 0.01, "warmup_epochs": 4},
}


def tiny(method: str = "contextual", seed: int = 0, **changes: Any) -> RunConfig:
    values: dict[str, Any] = {
        "experiment": "tiny",
        "setting": "noisy",
        "method": method,
        "seed": seed,
        "data": "digits",
        "noise_sd": 0.5,
        "hidden": (16,),
        "epochs": 7,
        "train_examples": 256,
        "test_examples": 64,
        "samples": 6,
        "noise_draws": 2,
        "evaluate_every": 3,
        **CONTEXTUAL,
    }
    return RunConfig.from_dict(values | changes)


def folders(path: Path) -> Results:
    return Results(path / "records", path / "work")


def comparable(record: dict[str, Any]) -> dict[str, Any]:
    """A record without what may differ between two runs of the same configuration: time and cost."""
    return {key: value for key, value in record.items() if key not in ("provenance", "cost")}
