"""Cells, Markdown and terminal output."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from contextual_dropout_lab.report.table import Table, to_markdown, to_rich

TABLE = Table(
    "A_title", ("Name", "Value", "Words"), (("a|b", "1.5 ± 0.2", "x\ny"), ("c", "—", "[red]z")), ("A *note*.",)
)


def test_markdown() -> None:
    assert to_markdown(TABLE).splitlines() == [
        r"## A\_title",
        "",
        "| Name | Value | Words |",
        "| :--- | ---: | :--- |",
        r"| a\|b | 1.5 ± 0.2 | x y |",
        r"| c | — | \[red\]z |",
        "",
        r"- A \*note\*.",
    ]


def test_empty_table_says_so() -> None:
    assert "No results yet." in to_markdown(Table("t", ("a",), ()))


def test_rich_takes_cells_literally() -> None:
    console = Console(file=io.StringIO(), width=100)
    console.print(to_rich(TABLE))
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert all(each in text for each in ("A_title", "a|b", "[red]z", "A *note*."))


def test_rows_must_be_as_wide_as_the_head() -> None:
    with pytest.raises(ValueError, match="2 columns, but a row has 1"):
        Table("t", ("a", "b"), (("c",),))
