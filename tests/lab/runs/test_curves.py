"""Curves of runs: small, exact, beside the record, and made of kept predictions where they are missing."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from contextual_dropout.prediction.classification import MultilabelPrediction, Prediction
from contextual_dropout_lab.errors import ExperimentError
from contextual_dropout_lab.runs.curves import Curves, curve_records, curves_of, read_curves, write_curves
from contextual_dropout_lab.runs.run import run
from contextual_dropout_lab.runs.run_data import load_examples
from contextual_dropout_lab.store.results import Results
from tests.lab.runs.tiny import folders, tiny

LABELS = torch.arange(2000) % 10


def predicted(seed: int, samples: int = 6, count: int = 2000) -> Prediction:
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(samples, count, 10, dtype=torch.float64, generator=generator)
    logits[:, torch.arange(count), LABELS[:count]] += 2
    return Prediction(logits.softmax(-1))


def flat(curves: Curves) -> list[float]:
    """All numbers in a line."""

    def numbers(value: Any) -> list[float]:
        if isinstance(value, dict | list):
            inside = value.values() if isinstance(value, dict) else value
            return [number for each in inside for number in numbers(each)]
        return [float(value)]

    return numbers(vars(curves))


def with_p_values(p_value: list[float], accuracy: float = 1.0) -> dict[str, list[float]]:
    """The bars of answers with these p-values, which no samples could be made to have exactly."""
    from contextual_dropout_lab.runs import curves

    values = torch.tensor(p_value, dtype=torch.float64)
    return curves._p_values(values, torch.full_like(values, accuracy))


def test_runs_add_up() -> None:
    """Curves of two runs together are those of all their draws."""
    draws = [predicted(seed) for seed in range(5)]
    parts = curves_of(draws[:2], LABELS) + curves_of(draws[2:], LABELS)
    whole = curves_of(draws, LABELS)
    assert parts.draws == whole.draws == 5
    np.testing.assert_allclose(flat(parts), flat(whole), rtol=2e-5, atol=1e-6)


def test_runs_on_other_examples_do_not_add_up() -> None:
    with pytest.raises(ValueError, match="no curves in common"):
        curves_of([predicted(0)], LABELS) + curves_of([predicted(1, count=500)], LABELS[:500])


def test_counts_are_of_all_predictions() -> None:
    found = curves_of([predicted(0), predicted(1)], LABELS)
    assert sum(found.reliability["predictions"]) == 4000
    assert sum(found.p_values["right"]) == sum(found.reliability["right"])
    assert sum(found.p_values["right"]) + sum(found.p_values["wrong"]) == 4000
    assert found.certain["predictions"][-1] == 4000  # all p-values are below 1
    assert found.coverage[-1] == 1
    assert found.risk["entropy"][-1] == found.risk["p-value"][-1]


def test_certain_ends_where_the_second_bar_begins() -> None:
    """A p-value of 0.05 is not certain: it is in the second bar."""
    found = with_p_values([0.05, np.nextafter(0.05, 0), 0.15, 1.0])
    assert [place for place, count in enumerate(found["right"]) if count] == [0, 1, 3, 19]
    assert set(found["wrong"]) == {0}


def test_soft_answers_count_for_both() -> None:
    found = with_p_values([0.01, 0.5], accuracy=0.3)
    assert (found["right"][0], found["wrong"][0]) == pytest.approx((0.3, 0.7))
    targets = torch.tensor([[[0.0, 1.0], [0.3, 1.0]]]).repeat(50, 1, 1)
    samples = torch.rand(4, 50, 3, generator=torch.Generator().manual_seed(0)).double()
    curves = curves_of([MultilabelPrediction(samples)], targets, "soft-answers")
    chosen = samples.mean(0).argmax(1)
    assert sum(curves.reliability["right"]) == pytest.approx(
        (0.3 * (chosen == 0) + (chosen == 1)).sum().item(), rel=1e-4
    )


def test_one_sample_has_no_p_values() -> None:
    found = curves_of([predicted(0, samples=1)], LABELS)
    assert (found.certain, found.p_values, list(found.risk)) == ({}, {}, ["entropy"])


def test_predictions_that_are_no_numbers_are_refused() -> None:
    samples = predicted(0).samples.clone()
    samples[0, 0, 0] = torch.nan
    with pytest.raises(ExperimentError, match="not numbers"):
        curves_of([Prediction(samples)], LABELS)


def test_they_are_small_and_read_as_they_were_written(tmp_path: Path) -> None:
    results, config = folders(tmp_path), tiny()
    draws = [predicted(seed) for seed in range(5)]
    assert read_curves(results, config) is None
    write_curves(results, config, draws, LABELS)
    assert read_curves(results, config) == curves_of(draws, LABELS)
    (path,) = results.records.rglob("*.json")
    assert path == results.records / "tiny" / "noisy" / "contextual" / "curves" / "seed-0.json"
    assert path.stat().st_size < 6000
    assert list(results.all("tiny")) == []  # it is not taken for a record
    assert read_curves(results, tiny(epochs=8)) is None


@pytest.mark.parametrize("damage", ["{", "[]", "{}", '"risk": null', "NaN"])
def test_damaged_curves_are_named(tmp_path: Path, damage: str) -> None:
    results, config = folders(tmp_path), tiny()
    write_curves(results, config, [predicted(0)], LABELS)
    (path,) = results.records.rglob("*.json")
    values = json.loads(path.read_text())
    if damage == "NaN":
        values["risk"]["entropy"][3] = float("nan")
    elif "risk" in damage:
        values["risk"] = None
    path.write_text(json.dumps(values) if values["risk"] is None or damage == "NaN" else damage)
    with pytest.raises(ExperimentError, match=r"seed-0\.json.*delete it to have it made again"):
        read_curves(results, config)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("samples", 10**400),
        ("samples", {"a": []}),
        ("samples", True),
        ("draws", 0),
        ("constant", [0.5]),
        ("coverage", {"a": 1}),
        ("risk", {"entropy": 0.5}),
        ("reliability", {}),
        ("certain", {"predictions": [1, 2], "right": [1]}),
        ("p_values", {"right": [[1]], "wrong": [[1]]}),
    ],
)
def test_a_field_that_is_something_else_is_named(tmp_path: Path, name: str, value: Any) -> None:
    results, config = folders(tmp_path), tiny()
    write_curves(results, config, [predicted(0)], LABELS)
    (path,) = results.records.rglob("*.json")
    path.write_text(json.dumps(json.loads(path.read_text()) | {name: value}))
    with pytest.raises(ExperimentError, match=rf"seed-0\.json has no curves of a run \({name} is .*: expected "):
        read_curves(results, config)


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Results:
    """Two runs of which one kept its predictions."""
    results = folders(tmp_path_factory.mktemp("done"))
    for seed in (0, 1):
        run(tiny(seed=seed, epochs=1), results)
    (results.work / tiny(seed=1).name / "predictions.safetensors").unlink()
    return results


def test_a_run_keeps_its_curves(done: Results) -> None:
    """Curves are of full precision; those of stored predictions differ by the rounding to half precision."""
    config = tiny(epochs=1)
    found, kept = read_curves(done, config), done.predictions(config)
    assert found is not None
    assert kept is not None
    again = curves_of(
        [each for name, each in kept.items() if name.startswith("noise-0.5/")], load_examples(config).test_y
    )
    np.testing.assert_allclose(found.risk["entropy"], again.risk["entropy"], atol=0.03)
    np.testing.assert_allclose(found.reliability["confidence"], again.reliability["confidence"], rtol=2e-3, atol=2)
    assert sum(found.reliability["right"]) == sum(again.reliability["right"])


def test_missing_curves_are_made_of_kept_predictions(done: Results, tmp_path: Path) -> None:
    shutil.copytree(done.work.parent, tmp_path / "copy")
    done = folders(tmp_path / "copy")
    configs = [tiny(seed=seed, epochs=1) for seed in range(3)]
    for path in done.records.rglob("curves/*.json"):
        path.unlink()
    assert curve_records(configs, done) == [configs[0].name]
    record, found = done.read(configs[0]), read_curves(done, configs[0])
    assert record is not None
    assert found is not None
    assert (found.samples, found.draws, found.examples) == (6, 2, 64)
    figures = record["test"]["noise-0.5"]
    assert 100 * (1 - found.risk["entropy"][-1]) == pytest.approx(figures["accuracy"], abs=1e-3)
    pavpu = figures["pavpu"]["0.05"]
    place = found.thresholds.index(0.05)
    assert found.certain["right"][place] == pytest.approx(2 * pavpu["accurate_certain"])
    assert curve_records(configs, done) == []
