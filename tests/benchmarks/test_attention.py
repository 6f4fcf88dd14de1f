"""The benchmark of MCAN fails where a bar is missed, and has then written down by how much."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType

import pytest

SAMPLED = "contextual bernoulli, sampled-arm (k=1)"


@pytest.fixture
def benchmark(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "benchmarks")
    return importlib.import_module("run_attention")


@pytest.mark.parametrize(("step", "verdict"), [(1.59, "met"), (1.61, "MISSED")])
def test_a_bar_that_is_missed_is_an_error(
    benchmark: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    step: float,
    verdict: str,
) -> None:
    written: dict[str, object] = {}
    rows = {
        name: {"parameters": 6e7, "sites": 62, "step": cost} for name, cost in {"plain": 1.0, SAMPLED: step}.items()
    }
    monkeypatch.setattr(benchmark, "mcan_steps", lambda *_: rows)
    monkeypatch.setattr(benchmark.torch, "set_num_threads", lambda _: None)
    monkeypatch.setattr(benchmark.record, "write", lambda *_, **figures: written.update(figures))
    if verdict == "met":
        benchmark.main()
    else:
        with pytest.raises(SystemExit, match=r"missed: contextual bernoulli, sampled-arm"):
            benchmark.main()
    assert f"{step:.2f}   (bar 1.6: {verdict})" in capsys.readouterr().out
    assert written["steps"] == rows
