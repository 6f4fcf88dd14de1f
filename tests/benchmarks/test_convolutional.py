"""The benchmark of convolutional networks measures what it says, and prints every bar."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType

import pytest

from contextual_dropout_lab.models import wide_resnet


@pytest.fixture
def benchmark(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """With a small network in the place of WRN-28-10."""
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "benchmarks")
    convolutional = importlib.import_module("convolutional")
    small = convolutional.Network(lambda: wide_resnet(10, 1), 10, 32, 4)
    monkeypatch.setitem(convolutional.NETWORKS, "wrn-28-10", small)
    return importlib.import_module("run_convolutional")


def test_a_whole_sequential_step_is_compared_with_naive_pseudo_passes(
    benchmark: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    timed: list[set[str]] = []

    def interleaved(steps: dict[str, object], *_: object, **__: object) -> dict[str, float]:
        timed.append(set(steps))
        for step in steps.values():
            step()  # type: ignore[operator]
        return {"replayed": 3.0, "naive": 4.0}

    monkeypatch.setattr(benchmark, "interleaved", interleaved)
    monkeypatch.setattr(benchmark, "pseudo_passes_of", lambda *_, **__: {"replayed": 0.5})
    assert benchmark.sequential(rounds=1) == {"step": 0.75, "pseudo_passes": 0.5}
    assert timed == [{"replayed", "naive"}]


def test_the_bar_of_memory_stands_beside_the_memory(benchmark: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    row = {"parameters": 1e6, "seconds": 1.0, "step": 1.0, "bytes": 2**20, "memory": 1.25}
    benchmark.show("wrn-28-10", {"plain": row, "contextual gaussian": row})
    _, _, plain, contextual = capsys.readouterr().out.strip().splitlines()
    assert "1.25 (<= 1.30)" in contextual
    assert "<=" not in plain
