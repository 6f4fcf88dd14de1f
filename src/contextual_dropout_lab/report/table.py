"""A table as data, numbers as cells, and both as Markdown and for the terminal."""

from __future__ import annotations

import re
from dataclasses import dataclass

import rich.table
from rich.text import Text

from contextual_dropout_lab.report.paper import PaperScore
from contextual_dropout_lab.report.summary import Statistic

__all__ = [
    "MISSING",
    "Table",
    "as_printed",
    "escaped",
    "number",
    "of_seeds",
    "p_in_words",
    "signed",
    "to_markdown",
    "to_rich",
]

MISSING = "—"
_NUMBER = re.compile(rf"[-+]?\d.*|{MISSING}|")


@dataclass(frozen=True)
class Table:
    """Cells in print.

    Attributes:
        title: plain text, as are all parts.
        columns: their heads.
        rows: as wide as ``columns``.
        notes: sentences to be read with it.
        empty: what is said where there are no rows.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()
    empty: str = "No results yet."

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row) != len(self.columns):
                raise ValueError(
                    f"{self.title!r} has {len(self.columns)} columns, but a row has {len(row)} cells: {row}"
                )

    def numeric(self, column: int) -> bool:
        """Whether a column has numbers only."""
        return all(_NUMBER.fullmatch(row[column]) for row in self.rows)


def number(value: float | None, decimals: int) -> str:
    """A number in print, or a sign that there is none.

    Example:
        >>> number(0.126, 2), number(-0.001, 2), number(None, 2)
        ('0.13', '0.00', '—')
    """
    return MISSING if value is None else f"{round(value, decimals) + 0.0:.{decimals}f}"


def signed(value: float | None, decimals: int) -> str:
    """A difference.

    Example:
        >>> signed(0.126, 2), signed(-0.001, 2)
        ('+0.13', '+0.00')
    """
    return MISSING if value is None else f"{round(value, decimals) + 0.0:+.{decimals}f}"


def of_seeds(statistic: Statistic | None, decimals: int, runs: int | None = None) -> str:
    """Mean ± sd over seeds; how many seeds where they are not all of the ``runs``.

    Example:
        >>> of_seeds(Statistic({0: 87.0, 1: 88.0}), 2)
        '87.50 ± 0.71'
        >>> of_seeds(Statistic({0: 87.0}), 2, runs=3)
        '87.00 (1 seed)'
    """
    if statistic is None:
        return MISSING
    text = number(statistic.mean, decimals)
    if statistic.sd is not None:
        text += f" ± {number(statistic.sd, decimals)}"
    if runs is not None and runs != statistic.n:
        text += f" ({statistic.n} seed{'s' if statistic.n > 1 else ''})"
    return text


def as_printed(reported: PaperScore | None) -> str:
    """A score of the paper, with as many decimals as it has there.

    Example:
        >>> as_printed(PaperScore(87.43, 0.39)), as_printed(PaperScore(-1.484, decimals=4))
        ('87.43 ± 0.39', '-1.4840')
    """
    if reported is None:
        return MISSING
    value = number(reported.value, reported.decimals)
    return value if reported.sd is None else f"{value} ± {number(reported.sd, reported.decimals)}"


def p_in_words(p: float) -> str:
    """A p-value, so that it can stand after "p".

    Example:
        >>> p_in_words(0.0123), p_in_words(1e-9), p_in_words(1.0)
        ('= 0.012', '< 0.001', '= 1')
    """
    return "< 0.001" if p < 0.001 else f"= {p:.2g}"


def escaped(text: str) -> str:
    r"""Plain text as Markdown that shows just that, in one line.

    Example:
        >>> print(escaped("a|b_c"))
        a\|b\_c
    """
    return re.sub(r"([\\`*_|<>\[\]~#])", r"\\\1", " ".join(text.split()))


def to_markdown(table: Table, level: int = 2) -> str:
    """A heading of the ``level``, the table and its notes."""
    lines = [f"{'#' * level} {escaped(table.title)}", ""]
    if table.rows:
        rule = ["---:" if index and table.numeric(index) else ":---" for index in range(len(table.columns))]
        lines += [_line([escaped(each) for each in table.columns]), _line(rule)]
        lines += [_line([escaped(cell) for cell in row]) for row in table.rows]
    else:
        lines.append(escaped(table.empty))
    if table.notes:
        lines += ["", *(f"- {escaped(note)}" for note in table.notes)]
    return "\n".join(lines) + "\n"


def to_rich(table: Table) -> rich.table.Table:
    """Convert a table for the terminal; notes below."""
    notes = Text("\n".join(table.notes)) if table.notes else None
    shown = rich.table.Table(title=Text(table.title), caption=notes, caption_justify="left")
    for index, name in enumerate(table.columns):
        shown.add_column(Text(name), justify="right" if index and table.numeric(index) else "left")
    for row in table.rows:
        shown.add_row(*(Text(cell) for cell in row))
    return shown


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"
