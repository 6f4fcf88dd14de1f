"""Faults of a record are named, whatever it holds."""

from __future__ import annotations

from typing import Any

import pytest

from contextual_dropout_lab.report.run_records import PARTS, fault_of
from tests.lab.runs.tiny import tiny

SOUND: dict[str, Any] = {
    **{name: {} for name in PARTS},
    "config": tiny().to_dict(),
    "test": {"noise-1": {"accuracy": 1.0, "draws": 5}},
}
NO_CONFIG = "has no configuration of a run of this version"


def nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({}, None),
        ({"config": SOUND["config"] | {"epochs": 10**400}}, NO_CONFIG),
        ({"config": SOUND["config"] | {"p": 10**400}}, NO_CONFIG),
        (
            {"config": SOUND["config"] | {"options": {"a": nested(5000)}}},
            NO_CONFIG,
        ),
        (
            {"test": {"noise-1": {"accuracy": 10**400}}},
            "has a number that is not finite at test/noise-1/accuracy",
        ),
        ({"ood": nested(5000)}, "has lists in lists, or mappings in mappings, without end"),
    ],
)
def test_faults(change: dict[str, Any], fault: str | None) -> None:
    assert fault_of(SOUND | change) == fault
