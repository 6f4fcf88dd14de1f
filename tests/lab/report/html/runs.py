"""Records with kept predictions of known skill, and the test set that they predict."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from contextual_dropout.prediction.classification import Prediction
from contextual_dropout_lab.report.method_names import LABELS
from contextual_dropout_lab.runs.config import RunConfig
from contextual_dropout_lab.runs.evaluation import noise_levels, noise_name
from contextual_dropout_lab.runs.run_data import Examples, load_examples
from contextual_dropout_lab.store.results import Results
from tests.lab.data.files import write_split
from tests.lab.report.records import ensemble, record, write, write_ensemble

#: Size of the small test set; its labels are 0, 1, ... 9, 0, ...
SIZE = 200


def small_mnist(folder: Path, count: int = SIZE, shape: tuple[int, int] = (4, 3)) -> Path:
    for prefix, size in (("train", 20), ("t10k", count)):
        write_split(folder / "mnist", prefix, size, shape=shape)
    return folder


def tested(data: Path) -> Examples:
    return load_examples(RunConfig("mnist", "noisy", "any", 0, train_examples=0), data)


def predicted(labels: Tensor, seed: int, samples: int = 8, skill: float = 2.0, spread: float = 1.0) -> Prediction:
    """Probabilities of ten classes: right more often with skill, less certain with spread over samples."""
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(1, len(labels), 10, dtype=torch.float64, generator=generator)
    logits[0, torch.arange(len(labels)), labels] += skill
    return Prediction((logits + spread * torch.randn(samples, *logits.shape[1:], generator=generator)).softmax(-1))


def keep(root: Results, written: dict[str, Any], examples: Examples, draws: int = 2, **options: Any) -> None:
    """Write a record as of a run on these examples, with predictions at its noise levels."""
    config = RunConfig.from_dict(written["config"])
    write(root, {**written, "data": {**written["data"], "sha256": examples.sha256}})
    place = list(LABELS).index(config.method) if config.method in LABELS else len(LABELS)
    seeds = (1000 * place + 10 * config.seed + draw for draw in range(100))
    root.write_predictions(
        config,
        {
            noise_name(sd): [predicted(examples.test_y, next(seeds), **options) for _ in range(draws if sd else 1)]
            for sd in noise_levels(config)
        },
    )


def keep_all(
    root: Results,
    examples: Examples,
    seeds: Iterable[int] = (0, 1, 2),
    settings: Iterable[str] = ("noisy", "original"),
    **options: Any,
) -> None:
    """All methods in all settings, with ensembles of the noisy one; gating has one sample."""
    for place, method in enumerate(LABELS):
        single = method == "gating"
        for seed in seeds:
            for setting in settings:
                base = {"noisy": 86.0, "original": 98.0}[setting]
                written = record(setting, method, seed, base + 0.1 * place + 0.05 * seed, deterministic=single)
                look = {"skill": 2 + 0.1 * place, "spread": 0.5 + 0.1 * place, **({"samples": 1} if single else {})}
                keep(root, written, examples, **{**options, **look})
        write_ensemble(root, "noisy", method, ensemble(86 + 0.15 * place, single))
