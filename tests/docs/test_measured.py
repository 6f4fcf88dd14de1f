"""Measured figures in the text are those of the records, and what is said about them is so."""

from __future__ import annotations

import statistics

import pytest

from tests.docs.measured import BLOCK, METHODS, OURS, PAGES, ROOT, TABLES, records, values, written

GATING = "gating"


@pytest.mark.parametrize("page", PAGES)
def test_tables_are_up_to_date(page: str) -> None:
    """Where this fails, the right rows are in the message; ``python -m tests.docs.measured`` writes them."""
    text = (ROOT / page).read_text(encoding="utf-8")
    assert text == written(text)


def test_every_table_is_shown() -> None:
    texts = [(ROOT / page).read_text(encoding="utf-8") for page in PAGES]
    assert {block[1] for text in texts for block in BLOCK.findall(text)} == set(TABLES)


def mean(method: str, name: str) -> float:
    return statistics.mean(values(method, name))


def test_ours_is_ahead_of_every_sampling_method() -> None:
    others = [method for method in METHODS if method != OURS and records(method) and values(method, "pavpu")]
    assert len(others) > 3
    for name in ("accuracy", "pavpu", "log_likelihood"):
        assert mean(OURS, name) > max(mean(method, name) for method in others), name


def test_the_gate_is_ahead_of_ours() -> None:
    """In accuracy, log-likelihood, ranking of errors and calibration, as README.md says; it has no p-value."""
    assert not values(GATING, "pavpu")
    for name in ("accuracy", "log_likelihood"):
        assert mean(GATING, name) > mean(OURS, name), name
    for name in ("aurc_entropy", "calibration_error", "brier"):
        assert mean(GATING, name) < mean(OURS, name), name
    assert mean(GATING, "aurc_entropy") < min(
        mean(method, "aurc_p_value") for method in METHODS if values(method, "aurc_p_value")
    )
