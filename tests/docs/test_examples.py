"""The examples run as they stand, and show what their last cells say."""

from __future__ import annotations

import re
import runpy
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor

from contextual_dropout.conversion.record import Conversion

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def said(example: str) -> list[list[float]]:
    """The figures of the table under "One run of it", by rows; empty cells are left out."""
    _, _, last = (EXAMPLES / example).read_text(encoding="utf-8").partition("## One run of it")
    rows = [line for line in last.splitlines() if line.startswith("# | ") and re.search(r"\d", line)]
    return [[float(figure) for figure in re.findall(r"\| (\d[\d.]*)", row)] for row in rows]


def near(share: float, correct: Tensor, cases: int = 3) -> bool:
    """Whether it is the percentage that is right, give or take some cases: rounding differs with the threads."""
    return abs(share - 100 * correct.float().mean().item()) <= 100 * cases / len(correct) + 0.05


@pytest.mark.slow
def test_tabular(capsys: pytest.CaptureFixture[str]) -> None:
    run = runpy.run_path(str(EXAMPLES / "tabular.py"))
    correct, certain = run["correct"], run["certain"]
    assert 0 < run["threshold"] < 0.05
    assert correct[certain].float().mean() > correct.float().mean() > correct[~certain].float().mean()
    assert len(re.findall(r"^coverage", capsys.readouterr().out, re.MULTILINE)) == 4
    for (cases, right), chosen in zip(said("tabular.py"), run["groups"].values(), strict=True):
        assert abs(cases - int(chosen.sum())) <= 3
        assert near(right, correct[chosen])
    ties, half_wrong = torch.tensor([0.001] * 100 + [0.5] * 100), torch.arange(200) < 150
    assert run["largest"](ties, half_wrong) == ties[0].item()


@pytest.mark.slow
def test_vision_fine_tuning(capsys: pytest.CaptureFixture[str]) -> None:
    run = runpy.run_path(str(EXAMPLES / "vision_fine_tuning.py"))
    assert isinstance(run["cd"].conversion_of(run["model"]), Conversion)
    correct, certain = run["correct"], run["certain"]  # of noisy images
    assert correct[certain].float().mean() > correct[~certain].float().mean() + 0.2
    printed = capsys.readouterr().out
    assert "changed: False" in printed
    confidence = dict(re.findall(r"^(plain|contextual), noisy images .* confidence ([\d.]+)%", printed, re.MULTILINE))
    assert float(confidence["contextual"]) < float(confidence["plain"])
    printed_figures = re.findall(r"^\w+, \w+ images +([\d.]+)% right, mean confidence ([\d.]+)%", printed, re.MULTILINE)
    for figures, (right, sure) in zip(said("vision_fine_tuning.py"), printed_figures, strict=True):
        assert abs(figures[0] - float(right)) <= 1
        assert abs(figures[1] - float(sure)) <= 1
    *_, cases, right_of_these, right_of_the_others = said("vision_fine_tuning.py")[-1]
    assert abs(cases - int(certain.sum())) <= 10  # one thread and two differ by six
    assert near(right_of_these, correct[certain], cases=10)
    assert near(right_of_the_others, correct[~certain], cases=10)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:`torch.jit.script_method` is deprecated:DeprecationWarning")  # which inductor calls
def test_compiled_transformer(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    example = str(EXAMPLES / "compiled_transformer.py")
    monkeypatch.setattr(sys, "argv", [example, "--short"])
    run = runpy.run_path(example)
    assert type(run["network"]).__name__ == "OptimizedModule"
    assert min(run["accuracy"].values()) > 0.6  # of four classes
    assert re.search(r"^a compiled step takes \d+\.\d\d of the time", capsys.readouterr().out, re.MULTILINE)
