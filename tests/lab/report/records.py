"""Synthetic records with known means, written as the runner writes them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from contextual_dropout_lab.report.method_names import CONTEXTUAL, baselines
from contextual_dropout_lab.runs.config import RunConfig
from contextual_dropout_lab.store.results import Results

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
SITES = ("0", "3", "6")
SCORES = ("p_value", "entropy", "mutual_information")


def results(directory: Path) -> Results:
    return Results(directory / "records", directory / "work")


def values_of(accuracy: float, deterministic: bool = False) -> dict[str, Any]:
    pavpu = {} if deterministic else {key: {"value": accuracy + shift} for key, shift in PAVPU_SHIFTS.items()}
    return {
        "point_accuracy": accuracy,
        "accuracy": accuracy,
        "log_likelihood": (accuracy - 100) / 30,
        "double_softmax_log_likelihood": -1.461 + (accuracy - 100) / 60,
        "brier": (100 - accuracy) / 60,
        "calibration_error": 1.5,
        "aurc_entropy": 0.03,
        "aurc_p_value": None if deterministic else 0.04,
        "pavpu": pavpu,
        "accuracy_sd_over_noise": 0.1,
    }


PAVPU_SHIFTS = {"0.01": -0.5, "0.05": 0.25, "0.1": 0.5}


def record(
    setting: str, method: str, seed: int, accuracy: float, *, deterministic: bool = False, **config: Any
) -> dict[str, Any]:
    """A run of one seed with the accuracy given; other scores follow from it."""
    noise_sd = 1.0 if setting == "noisy" else 0.0
    run = RunConfig("mnist", setting, method, seed, noise_sd=noise_sd, **config)
    scores = ["entropy"] if deterministic else SCORES
    detection = {score: {"auroc": 70.0 + seed, "fpr95": 60.0} for score in scores}
    test = {f"noise-{noise_sd:g}": values_of(accuracy, deterministic)}
    if setting == "original":
        test["noise-1"] = values_of(accuracy - 20, deterministic)
    contextual = method.startswith("contextual")
    return {
        "config": run.to_dict(),
        "digest": run.digest,
        "provenance": {
            "commit": "0123456789abcdef",
            "uncommitted_changes": False,
            "versions": {"torch": "2.0"},
            "python": "3.11",
            "machine": "Linux x86_64",
            "time": "2026-01-01T00:00:00+00:00",
        },
        "data": {"sha256": {"train": "a", "test": "b"}, "train": 60000, "test": 10000},
        "parameters": {"theta": 266610, "phi": 143606 * contextual, "eta": 3 * contextual},
        "cost": {
            "train_cpu_seconds": 1800.0,
            "train_wall_seconds": 1900.0,
            "step_cpu_ms": 6.0 if contextual else 2.0,
            "predict_cpu_ms_per_example": 0.3,
        },
        "history": [_point(epoch, seed, accuracy, contextual) for epoch in (10, 20, 30)],
        "test": test,
        "ood": {"fashion-mnist": detection, "kmnist": detection},
        **(_of_sites(seed, accuracy) if contextual else {}),
    }


def _point(epoch: int, seed: int, accuracy: float, contextual: bool) -> dict[str, Any]:
    return {
        "epoch": epoch,
        "log_likelihood": -10 / epoch + 0.01 * seed,
        "kl": 0.1,
        "point_accuracy": accuracy - 10 / epoch,
        "prior_keep_probability": [0.8 + epoch / 1000 + 0.01 * site for site in range(3)] if contextual else [],
    }


def answered(setting: str, method: str, seed: int, accuracy: float) -> dict[str, Any]:
    """A run of MCAN on easy-VQA: 22 sites, no classes, accuracies by answer type."""
    run = record(setting, method, seed, accuracy, data="easy-vqa", network="mcan", network_options={"size": "tiny"})
    for values in run["test"].values():
        values["accuracy_by_group"] = {"yes/no": accuracy + 5, "other": accuracy - 10}
    names = [f"decoder.{place}.feed_forward.dropout.dropout" for place in range(22)]
    if "contextuality" in run:
        first = run["drop_probabilities"]["sites"][SITES[0]]
        groups = {name: values for name, values in first.items() if not name.startswith("class ")}
        run["drop_probabilities"]["sites"] = dict.fromkeys(names, groups)
        run["contextuality"]["sites"] = dict.fromkeys(names, run["contextuality"]["sites"][SITES[0]])
    return run


def _of_sites(seed: int, accuracy: float) -> dict[str, Any]:
    groups = ["all", "right", "wrong", *(f"class {digit}" for digit in range(10))]
    drop = {
        site: {
            group: [0.1 + 0.05 * layer + 0.001 * place + 0.02 * level + 0.01 * seed for level in QUANTILES]
            for place, group in enumerate(groups)
        }
        for layer, site in enumerate(SITES)
    }
    spread = {site: _site(layer, seed) for layer, site in enumerate(SITES)}
    return {
        "drop_probabilities": {"quantiles": list(QUANTILES), "sites": drop},
        "contextuality": {
            "sites": spread,
            "accuracy": {"contextual": accuracy, "frozen": accuracy - 0.1},
            "log_likelihood": {"contextual": -0.4, "frozen": -0.41},
            "predictions_changed": 40 + seed,
            "examples": 10000,
        },
    }


def _site(layer: int, seed: int) -> dict[str, float]:
    return {
        "mean": 0.9 - 0.01 * layer,
        "sd_over_samples": 0.01 * (layer + 1) + 0.001 * seed,
        "sd_over_masks": 0.002,
        "sd_over_units": 0.03,
        "prior": 0.9,
    }


def ensemble(accuracy: float, deterministic: bool = False) -> dict[str, Any]:
    members = {
        str(count): {
            "subsets": 3 if count < 3 else 1,
            "accuracy": accuracy + count / 4,
            "accuracy_sd": 0.2 if count < 3 else None,
            "log_likelihood": -0.4 + 0.01 * count,
            "pavpu": None if deterministic else {"0.01": accuracy, "0.05": accuracy + count / 2, "0.1": accuracy},
            "calibration_error": 1.2,
        }
        for count in (1, 2, 3)
    }
    return {"noise": "noise-1", "total_samples": 20, "seeds": [0, 1, 2], "members": members}


def write(root: Results, *records: dict[str, Any]) -> None:
    for each in records:
        root.write(RunConfig.from_dict(each["config"]), each)


def write_ensemble(root: Results, setting: str, method: str, value: dict[str, Any]) -> None:
    path = root.records / "mnist" / setting / method / "ensemble.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value))


#: All that are compared.
METHODS = [*baselines(added=True), *CONTEXTUAL]


def write_all(root: Results) -> None:
    """All methods, three seeds, both settings, ensembles of the noisy one."""
    for place, method in enumerate(METHODS):
        deterministic = method == "gating"
        for seed, shift in enumerate((-0.1, 0.0, 0.2)):
            for setting, base in (("noisy", 86.0), ("original", 98.0)):
                accuracy = base + 0.1 * place + shift * (1 + 0.1 * place)
                write(root, record(setting, method, seed, accuracy, deterministic=deterministic))
        write_ensemble(root, "noisy", method, ensemble(86 + 0.15 * place, deterministic))
