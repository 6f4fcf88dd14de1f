"""Records are grouped and averaged over seeds, and over nothing else."""

from __future__ import annotations

import json
import shutil

import pytest

from contextual_dropout_lab.report.metric_names import ACCURACY, AURC_P_VALUE, PAVPU_05
from contextual_dropout_lab.report.summary import ReportError, summarise
from contextual_dropout_lab.runs.config import RunConfig
from contextual_dropout_lab.store.results import Results
from tests.lab.report.records import ensemble, record, write, write_ensemble


def test_mean_and_sd_over_seeds(results: Results) -> None:
    write(results, *(record("noisy", "concrete", seed, value) for seed, value in enumerate((86.0, 87.0, 88.5))))
    found = summarise(results, "mnist").test("noisy", "concrete", ACCURACY)
    assert found is not None
    assert (found.n, found.by_seed) == (3, {0: 86.0, 1: 87.0, 2: 88.5})
    assert found.mean == pytest.approx(87.1667, abs=1e-4)
    assert found.sd == pytest.approx(1.2583, abs=1e-4)


def test_ten_seeds_are_in_order(results: Results) -> None:
    write(results, *(record("noisy", "concrete", seed, 86.0) for seed in (10, 2, 0)))
    assert summarise(results, "mnist").runs["noisy", "concrete"].seeds == [0, 2, 10]


def test_what_was_not_measured_is_none(results: Results) -> None:
    write(results, record("noisy", "gating", 0, 86.0, deterministic=True))
    summary = summarise(results, "mnist")
    assert summary.test("noisy", "gating", PAVPU_05) is None
    assert summary.test("noisy", "gating", AURC_P_VALUE) is None
    assert summary.test("noisy", "concrete", ACCURACY) is None
    assert summary.test("noisy", "gating", ACCURACY, "noise-7") is None


def test_own_noise_and_other_noise(results: Results) -> None:
    write(results, record("original", "concrete", 0, 98.0))
    summary = summarise(results, "mnist")
    own, noisy = (summary.test("original", "concrete", ACCURACY, noise) for noise in (None, "noise-1"))
    assert own is not None
    assert noisy is not None
    assert (own.mean, noisy.mean) == (98.0, 78.0)


def test_ensembles_are_read(results: Results) -> None:
    write(results, record("noisy", "concrete", 0, 86.0))
    write_ensemble(results, "noisy", "concrete", ensemble(86.0))
    assert summarise(results, "mnist").runs["noisy", "concrete"].ensemble == ensemble(86.0)


def test_ensembles_of_runs_that_were_repeated_with_other_values_are_none(results: Results) -> None:
    member = record("noisy", "concrete", 0, 86.0) | {"digest": "0123456789ab"}
    write(results, member)
    for digests, found in ((["0123456789ab"], True), (["ba9876543210"], False)):
        write_ensemble(results, "noisy", "concrete", ensemble(86.0) | {"seeds": [0], "digests": digests})
        assert (summarise(results, "mnist").runs["noisy", "concrete"].ensemble is not None) is found


def test_different_configurations_are_refused(results: Results) -> None:
    write(results, record("noisy", "concrete", 0, 86.0), record("noisy", "concrete", 1, 86.0, epochs=5))
    with pytest.raises(ReportError, match=r"seeds 0 and 1 differ.*epochs: 200, 5.*run the older one again"):
        summarise(results, "mnist")


def test_fields_that_there_were_not_yet_are_as_by_default(results: Results) -> None:
    older, newer = (record("noisy", "concrete", seed, 86.0) for seed in (0, 1))
    for field in ("devices", "on_error", "weights"):
        older["config"].pop(field, None)
        newer["config"][field] = RunConfig("", "", "", 0).to_dict()[field]
    write(results, older, newer)
    assert summarise(results, "mnist").runs["noisy", "concrete"].seeds == [0, 1]
    newer["config"]["devices"] = 2
    write(results, newer)
    with pytest.raises(ReportError, match=r"differ in more than the seed \(devices: 1, 2\)"):
        summarise(results, "mnist")


def test_different_data_are_refused(results: Results) -> None:
    other = record("noisy", "concrete", 1, 86.0)
    other["data"]["train"] = 10
    write(results, record("noisy", "concrete", 0, 86.0), other)
    with pytest.raises(ReportError, match="data files"):
        summarise(results, "mnist")


def test_one_seed_twice_is_refused(results: Results) -> None:
    write(results, record("noisy", "concrete", 0, 86.0))
    path = results.records / "mnist" / "noisy" / "concrete" / "seed-0.json"
    shutil.copy(path, path.with_name("seed-1.json"))
    with pytest.raises(ReportError, match="two records of seed 0"):
        summarise(results, "mnist")


def test_no_records_says_what_to_do(results: Results) -> None:
    with pytest.raises(ReportError, match="run the experiment first"):
        summarise(results, "mnist")


def test_damaged_record_is_named(results: Results) -> None:
    write(results, record("noisy", "concrete", 0, 86.0))
    path = results.records / "mnist" / "noisy" / "concrete" / "seed-0.json"
    path.write_text(json.dumps(record("noisy", "concrete", 0, 86.0))[:-5])
    with pytest.raises(ValueError, match=r"seed-0\.json is not valid JSON"):
        summarise(results, "mnist")
