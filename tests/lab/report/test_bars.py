"""Bars are met or missed by what the records say, with the test that belongs to them."""

from __future__ import annotations

import pytest
from scipy import stats

from contextual_dropout_lab.report import summarise
from contextual_dropout_lab.report.method_names import baselines
from contextual_dropout_lab.report.tables import bars
from contextual_dropout_lab.store.results import Results
from tests.lab.report.records import record, write

OURS = (87.5, 87.2, 87.7)


def verdicts(results: Results) -> dict[str, tuple[str, ...]]:
    return {row[0]: row[1:] for row in bars(summarise(results, "mnist")).rows}


def write_ours(results: Results) -> None:
    write(results, *(record("noisy", "contextual-bernoulli", seed, value) for seed, value in enumerate(OURS)))


def write_baselines(results: Results, concrete: tuple[float, ...]) -> None:
    """All baselines; every other than concrete is at 80 and varies."""
    for name in baselines(added=True):
        values = concrete if name == "concrete" else (80.0, 80.2, 80.1)
        write(results, *(record("noisy", name, seed, value) for seed, value in enumerate(values)))


def test_thresholds(results: Results) -> None:
    write_ours(results)
    found = verdicts(results)
    accuracy = found["Contextual Bernoulli, noisy: Accuracy at least 87.4"]
    assert accuracy == ("87.47 ± 0.25", "87.4", "met by 0.07", "2 of 3 seeds reach it")
    assert found["Contextual Bernoulli, noisy: PAvPU(.05) at least 87.8"][2] == "missed by 0.08"
    assert found["Contextual Bernoulli, original: Accuracy at least 98.9"][2] == "not measured"


def test_ahead_with_a_paired_test(results: Results) -> None:
    concrete = (86.5, 86.6, 86.3)
    write_ours(results)
    write_baselines(results, concrete)
    ours, against, verdict, evidence = verdicts(results)[
        "Contextual Bernoulli, noisy: Accuracy ahead of every baseline of the paper"
    ]
    p = stats.ttest_rel(OURS, concrete).pvalue
    assert (ours, against, verdict) == ("87.47 ± 0.25", "Concrete 86.47 ± 0.15", "met by 1.00")
    assert evidence == f"paired over 3 seeds, p = {p:.2g}"


def test_behind(results: Results) -> None:
    write_ours(results)
    write_baselines(results, (88.0, 88.1, 88.3))
    found = verdicts(results)["Contextual Bernoulli, noisy: Accuracy ahead of every baseline of the paper"]
    assert found[2] == "missed by 0.67"


def test_equal_is_not_ahead(results: Results) -> None:
    write_ours(results)
    write_baselines(results, OURS)
    found = verdicts(results)["Contextual Bernoulli, noisy: Accuracy ahead of every baseline of the paper"]
    assert found[2:] == ("missed by less than 0.01", "paired over 3 seeds: no test")


def test_open_while_baselines_are_missing(results: Results) -> None:
    write_ours(results)
    write(results, record("noisy", "concrete", 7, 86.0))
    found = verdicts(results)["Contextual Bernoulli, noisy: Accuracy ahead of every baseline of the paper"]
    assert found[2].startswith("open: ahead by 1.47")
    assert "no seed in common" in found[3]
    assert "not run: MC dropout" in found[3]


def test_only_added_baselines_ahead(results: Results) -> None:
    write_ours(results)
    for name in baselines(added=True):
        write(results, record("noisy", name, 0, 99.0 if name == "learnable-bernoulli" else 80.0))
    found = verdicts(results)
    assert found["Contextual Bernoulli, noisy: Accuracy ahead of every baseline of the paper"][2].startswith("met")
    assert found["Contextual Bernoulli, noisy: Accuracy ahead of every baseline, our added ones too"][2].startswith(
        "missed"
    )


@pytest.mark.parametrize("metric", ["Accuracy", "PAvPU(.05)", "Log-likelihood"])
@pytest.mark.parametrize("family", ["Bernoulli", "Gaussian"])
def test_every_bar_is_there(results: Results, family: str, metric: str) -> None:
    write_ours(results)
    assert f"Contextual {family}, noisy: {metric} ahead of every baseline of the paper" in verdicts(results)
