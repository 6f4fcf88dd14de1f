"""The examples run as they stand, and show what their last cells say."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

from contextual_dropout.conversion.report import Conversion

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.slow
def test_tabular(capsys: pytest.CaptureFixture[str]) -> None:
    run = runpy.run_path(str(EXAMPLES / "tabular.py"))
    correct, certain = run["correct"], run["certain"]
    assert 0 < run["threshold"] < 0.05
    assert correct[certain].float().mean() > correct.float().mean() > correct[~certain].float().mean()
    assert len(re.findall(r"^coverage", capsys.readouterr().out, re.MULTILINE)) == 4


@pytest.mark.slow
def test_vision_fine_tuning(capsys: pytest.CaptureFixture[str]) -> None:
    run = runpy.run_path(str(EXAMPLES / "vision_fine_tuning.py"))
    assert isinstance(run["cd"].conversion(run["model"]), Conversion)
    correct, certain = run["correct"], run["certain"]  # of noisy images
    assert correct[certain].float().mean() > correct[~certain].float().mean() + 0.2
    printed = capsys.readouterr().out
    assert "changed: False" in printed
    confidence = dict(re.findall(r"^(plain|contextual), noisy images .* confidence ([\d.]+)%", printed, re.MULTILINE))
    assert float(confidence["contextual"]) < float(confidence["plain"])
