"""The paper's figures are as printed, and in the words of the configurations."""

from __future__ import annotations

import pytest

from contextual_dropout.experiments import paper
from contextual_dropout.experiments.config import load_experiment
from contextual_dropout.experiments.paper import Reported


def test_table_1() -> None:
    row = paper.RESULTS["noisy"]["contextual-bernoulli"]
    assert row["accuracy"] == Reported(87.43, 0.39)
    assert row["pavpu-0.05"] == Reported(87.81, 0.23)
    assert row["double_softmax_log_likelihood"] == Reported(-1.41, 0.01)


def test_methods_and_settings_are_those_of_the_configuration() -> None:
    experiment = load_experiment("mnist")
    assert set(paper.RESULTS) == set(experiment.settings)
    tables = (*paper.RESULTS.values(), paper.CLEAN_TO_NOISY, paper.PARAMETERS)
    assert all(set(table) <= set(experiment.methods) for table in tables)


def test_gating_has_no_pavpu() -> None:
    assert not any(key.startswith("pavpu") for key in paper.RESULTS["noisy"]["gating"])


def test_contextual_log_likelihoods_are_beyond_the_convention() -> None:
    assert pytest.approx(-1.4612, abs=5e-5) == paper.LARGEST_LOG_LIKELIHOOD
    for setting in paper.RESULTS.values():
        for method, row in setting.items():
            beyond = row["double_softmax_log_likelihood"].value > paper.LARGEST_LOG_LIKELIHOOD
            assert beyond == method.startswith("contextual")
