"""The example in its short form, which needs no data."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import pytest

from contextual_dropout_lab.data import DataError

EXAMPLE = Path(__file__).parents[2] / "examples" / "transformers_answer_type.py"


@pytest.mark.slow
def test_short_form(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)  # which would still be that of before
    monkeypatch.setattr(sys, "argv", [str(EXAMPLE), "--short"])
    run = runpy.run_path(str(EXAMPLE))
    printed = capsys.readouterr().out
    assert run["figures"]["contextual"]["accuracy"] > 0.9
    assert "the same after loading: True" in printed
    assert "without the sites: BertForSequenceClassification" in printed
    assert printed.count("  p = ") == 10
    assert run["p_value"][run["order"]].diff().min() >= 0
    assert (tmp_path / run["folder"].name / "saved" / "sites.safetensors").exists()


def test_data_that_are_named_must_be_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys, "argv", [str(EXAMPLE), "--data", str(tmp_path)])
    with pytest.raises(DataError, match="vqa-v2-subset is in none of these places"):
        runpy.run_path(str(EXAMPLE))


def test_without_data_it_says_why_others_stand_in(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def missing(*_: object) -> None:
        raise DataError("there are no files")

    def stop(*_: object, **__: object) -> None:
        raise InterruptedError  # the questions are there by now

    monkeypatch.setattr(sys, "argv", [str(EXAMPLE)])
    monkeypatch.setattr("contextual_dropout_lab.data.vqa.vqa_v2_subset", missing)
    monkeypatch.setattr("tokenizers.Tokenizer", stop)
    with pytest.raises(InterruptedError):
        runpy.run_path(str(EXAMPLE))
    printed = capsys.readouterr().out
    assert "questions made from templates stand in: there are no files" in printed
    assert "48 questions to train with" in printed
