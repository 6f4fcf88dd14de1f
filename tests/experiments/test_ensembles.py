"""Two processes that write the ensembles of the same runs wait for one another."""

from __future__ import annotations

from pathlib import Path

import pytest

from contextual_dropout.experiments import ensembles
from contextual_dropout.experiments.ensembles import ensemble_records
from contextual_dropout.experiments.errors import Busy
from contextual_dropout.experiments.files import locked
from contextual_dropout.experiments.run import run
from tests.experiments.tiny import folders, tiny


def test_only_one_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else one that had read fewer runs could write last, and a run be missing from the ensembles for good."""
    config, results = tiny(epochs=1), folders(tmp_path)
    run(config, results)
    monkeypatch.setattr(ensembles, "PATIENCE", 0.2)
    with locked(results.work / "tiny/noisy/contextual/lock"), pytest.raises(Busy):
        ensemble_records([config], results)
    record = results.path(config).with_name("ensemble.json")
    assert not record.exists()
    left = record.with_name(".ensemble.json.123.tmp")
    left.mkdir()  # of a process that was killed while it wrote
    assert ensemble_records([config], results) == ["tiny/noisy/contextual"]
    assert record.exists()
    assert not left.exists()


def test_where_nothing_was_kept_nothing_is_made(tmp_path: Path) -> None:
    assert ensemble_records([tiny()], folders(tmp_path)) == []
    assert list(tmp_path.iterdir()) == []
