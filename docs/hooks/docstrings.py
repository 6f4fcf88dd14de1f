"""A griffe extension: docstrings in the Markdown that the site is written in.

In the code they name one another with roles (``:func:`predict```), write tables as reStructuredText does, call an
example "Example" and comment on constants with ``#:``. None of that is Markdown.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from typing import Any

import griffe

ROLE = re.compile(r":(?:class|func|meth|attr|data|mod|obj):`(~?)\.?([\w.]+)`")
#: A rule, perhaps one line of titles and the rule again, rows, the rule.
TABLE = re.compile(r"^(=+(?: +=+)+)\n(?:(.+\n)\1\n)?((?:.+\n)+?)\1$", re.MULTILINE)


class Docstrings(griffe.Extension):
    """Translates the docstring of everything that is loaded."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Called by griffe for each object."""
        if obj.docstring is None and obj.is_attribute and obj.lineno:
            obj.docstring = _comment_above(obj)
        if obj.docstring is None:
            return
        text = ROLE.sub(lambda role: _reference(obj, *role.groups()), obj.docstring.value)
        text = TABLE.sub(lambda table: "\n".join(_markdown_table(*table.groups())), text)
        obj.docstring.value = re.sub(r"^Example:$", "Examples:", text, flags=re.MULTILINE)


def _comment_above(obj: griffe.Object) -> griffe.Docstring | None:
    """What ``#:`` says in the lines above."""
    above = obj.lines_collection[obj.filepath][: obj.lineno - 1]
    comment = list(itertools.takewhile(lambda line: line.startswith("#:"), reversed(above)))
    text = "\n".join(line.removeprefix("#:").strip() for line in reversed(comment))
    return griffe.Docstring(text, lineno=obj.lineno - len(comment), parent=obj) if comment else None


def _reference(obj: griffe.Object, tilde: str, name: str) -> str:
    """A link to what a role names, if it is on a page of this site; else only its name."""
    try:
        target = obj.resolve(name)
    except griffe.NameResolutionError:
        target = name
    *_, last = target.split(".")
    if f"{target}.{last}" in obj.modules_collection:  # a module that has the name of its function: that is meant
        target = f"{target}.{last}"
    shown = name.rsplit(".", 1)[-1] if tilde else name
    return f'<autoref identifier="{target}" optional><code>{shown}</code></autoref>'


def _markdown_table(rule: str, titles: str | None, body: str) -> Iterator[str]:
    """The lines of the table; a row whose first cell is empty goes on with the one above."""
    starts = [column.start() for column in re.finditer("=+", rule)]
    spans = [slice(start, end) for start, end in zip(starts, [*starts[1:], None], strict=True)]

    def cells(line: str) -> list[str]:
        return [line[span].strip().replace("|", r"\|") for span in spans]

    rows: list[list[str]] = []
    for row in map(cells, body.splitlines()):
        if row[0] or not rows:
            rows.append(row)
        else:
            rows[-1] = [f"{above} {below}".strip() for above, below in zip(rows[-1], row, strict=True)]
    for row in (cells(titles or ""), ["---"] * len(spans), *rows):
        yield f"| {' | '.join(row)} |"
