"""Two processes that write the ensembles of the same runs wait for one another."""

from __future__ import annotations

import itertools
import shutil
from pathlib import Path

import pytest
import torch

from contextual_dropout_lab.errors import Busy, ExperimentError
from contextual_dropout_lab.runs import ensembles
from contextual_dropout_lab.runs.ensembles import ensemble_records
from contextual_dropout_lab.runs.run import run
from contextual_dropout_lab.store.files import locked, read_json
from contextual_dropout_lab.store.results import Results
from tests.lab.runs.tiny import folders, tiny


def test_only_one_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else one that had read fewer runs could write last, and a run be missing from the ensembles for good."""
    config, results = tiny(epochs=1), folders(tmp_path)
    run(config, results)
    monkeypatch.setattr(ensembles, "PATIENCE", 0.2)
    with locked(results.work / "tiny/noisy/contextual/lock"), pytest.raises(Busy):
        ensemble_records([config], results)
    elsewhere = Results(results.records, tmp_path / "other work")
    with elsewhere.locked("tiny/noisy/contextual"), pytest.raises(Busy):
        ensemble_records([config], results)
    record = results.path(config).with_name("ensemble.json")
    assert not record.exists()
    left = record.with_name(".ensemble.json.123.tmp")
    left.mkdir()  # of a process that was killed while it wrote
    assert ensemble_records([config], results) == ["tiny/noisy/contextual"]
    assert record.exists()
    assert not left.exists()


@pytest.mark.parametrize("count", range(1, 6))
def test_all_ensembles_of_a_few_networks_count(count: int) -> None:
    for size in range(1, count + 1):
        assert ensembles._subsets(count, size) == list(itertools.combinations(range(count), size))


def test_of_many_networks_some_ensembles_count() -> None:
    assert len(ensembles._subsets(100, 1)) == len(set(ensembles._subsets(60, 30))) == 100
    assert ensembles._subsets(60, 30) == ensembles._subsets(60, 30)
    assert all(len(set(subset)) == 30 for subset in ensembles._subsets(60, 30))
    members = [[torch.rand(2, 8, 3, dtype=torch.float64).softmax(-1)] for _ in range(10)]
    labels = torch.zeros(8, dtype=torch.long)
    of_size = {size: ensembles._of_size(members, size, labels, "classification") for size in (1, 2, 5, 10)}
    assert {size: values["subsets"] for size, values in of_size.items()} == {1: 10, 2: 45, 5: 100, 10: 1}


def test_where_nothing_was_kept_nothing_is_made(tmp_path: Path) -> None:
    assert ensemble_records([tiny()], folders(tmp_path)) == []
    assert list(tmp_path.iterdir()) == []


def test_predictions_that_are_gone_are_made_again_by_the_networks(tmp_path: Path) -> None:
    """Half the digits are enough for the same scores to a hundredth of a nat, and nearly always the same labels."""
    results = Results(tmp_path / "records", tmp_path / "work", tmp_path / "networks")
    configs = [tiny(seed=seed, epochs=2) for seed in (0, 1)]
    for config in configs:
        run(config, results)
    record = results.path(configs[0]).with_name("ensemble.json")
    assert ensemble_records(configs, results) == ["tiny/noisy/contextual"]
    kept = read_json(record)
    whole, half = results.work / configs[0].name / "model.safetensors", results.network(configs[0])
    assert half is not None
    assert half.stat().st_size < 0.8 * whole.stat().st_size
    shutil.rmtree(results.work)
    assert ensemble_records(configs, Results(results.records, results.work)) == []  # no networks are looked for
    assert ensemble_records(configs, results) == ["tiny/noisy/contextual"]
    again = read_json(record)
    assert again["seeds"] == kept["seeds"] == [0, 1]
    for size in ("1", "2"):
        before, after = kept["members"][size], again["members"][size]
        assert after["subsets"] == before["subsets"]
        assert after["accuracy"] == pytest.approx(before["accuracy"], abs=2.0)  # of 64 images
        assert after["log_likelihood"] == pytest.approx(before["log_likelihood"], abs=0.01)


def test_a_record_of_more_networks_than_are_here_stays(tmp_path: Path) -> None:
    """As in a clone, which has one network of five."""
    results = Results(tmp_path / "records", tmp_path / "work", tmp_path / "networks")
    configs = [tiny(seed=seed, epochs=1) for seed in (0, 1)]
    for config in configs:
        run(config, results)
    ensemble_records(configs, results)
    record = results.path(configs[0]).with_name("ensemble.json")
    before = record.read_bytes()
    shutil.rmtree(results.work)
    removed = results.network(configs[1])
    assert removed is not None
    removed.unlink()
    assert ensemble_records(configs, results) == []
    assert record.read_bytes() == before
    record.write_bytes(before[:100])
    assert ensemble_records(configs, results) == ["tiny/noisy/contextual"]  # one is better than none
    assert read_json(record)["seeds"] == [0]


def test_a_network_of_another_configuration_is_no_member(tmp_path: Path) -> None:
    results = Results(tmp_path / "records", tmp_path / "work", tmp_path / "networks")
    run(tiny(epochs=1), results)
    shutil.rmtree(results.work)
    run(tiny(epochs=2), Results(results.records, tmp_path / "other"))
    with pytest.raises(ExperimentError, match="another configuration"):
        ensemble_records([tiny(epochs=2)], results)
