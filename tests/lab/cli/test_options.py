"""Messages about arguments that are not assignments."""

from __future__ import annotations

import pytest
import typer

from contextual_dropout_lab.cli.options import parse_assignments


@pytest.mark.parametrize(
    ("assignments", "message"),
    [
        (["epochs"], "'epochs' is not an assignment: expected field=value"),
        (["=3"], "'=3' is not an assignment"),
        (["objective..kl=3"], "is not an assignment"),
        (["hidden=[1"], r"the value of 'hidden=\[1' is not valid YAML"),
        (["p=a: b: c"], "is not valid YAML"),
        (["a=1", "a.b=2"], "'a.b=2' is inside of a, which was set to 1 before"),
        (["a.b=1", "a.b.c.d=2"], "'a.b.c.d=2' is inside of b, which was set to 1 before"),
    ],
)
def test_what_cannot_be_understood_is_named(assignments: list[str], message: str) -> None:
    with pytest.raises(typer.BadParameter, match=message):
        parse_assignments(assignments)


def test_later_ones_go_over_earlier_ones() -> None:
    assert parse_assignments(["a={b: 1, c: 2}", "a.b=3", "p=0.1", "p="]) == {"a": {"b": 3, "c": 2}, "p": None}
