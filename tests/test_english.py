"""Plain English, as far as a test can hold it: how docstrings begin, and words that readers stumble over.

A docstring names what is returned ("The axis of the samples.") or begins with a verb ("Run the example."). One that
begins with a preposition or a relative word ("Of one network.", "What was found.") leaves its subject to be guessed.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src"
MODULES = [path.relative_to(SOURCE).as_posix() for path in sorted(SOURCE.rglob("*.py"))]

#: Folders and files that are still to be mended, by the beginning of their paths: take a line out with its last
#: offender. Empty, it can stay for the next time.
UNMENDED: tuple[str, ...] = (
    "contextual_dropout_lab/report/facts.py",
    "contextual_dropout_lab/report/html/markup.py",
    "contextual_dropout_lab/report/html/report_page.py",
    "contextual_dropout_lab/report/markdown_page.py",
    "contextual_dropout_lab/report/plots/collection.py",
    "contextual_dropout_lab/report/tables/context_effects.py",
    "contextual_dropout_lab/report/tables/ensemble_scores.py",
    "contextual_dropout_lab/report/tables/method_order.py",
    "contextual_dropout_lab/report/tables/paper_tables.py",
    "contextual_dropout_lab/report/tables/protocol_table.py",
)

#: Words that leave the subject of a docstring to be guessed.
FIRST = r"(As|At|By|For|From|How|In|Nor|Of|On|That|Those|What|Where|Which|Who)\b"
#: Habits of other languages, and what to write instead.
INSTEAD = {
    r"(?<!there )\b(is|are|was|were) no (?!longer|more|less|fewer|later|earlier)": "is not a, is not",
    r"\bfigures?\b": "numbers, scores; plots for pictures",
    r"\banew\b": "again",
    r"\b(goes|go) on\b": "resumes, continues",
    r"\bcomes? upon\b": "is added to",
    r"\bbe it\b": "whether, even",
}


@pytest.mark.parametrize("module", MODULES)
def test_docstrings_name_what_is_returned_or_begin_with_a_verb(module: str) -> None:
    _skip_unmended(module)
    wrong = [f"{module}:{line}: {text.splitlines()[0]}" for line, text in docstrings(module) if begins_badly(text)]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("module", MODULES)
def test_docstrings_and_messages_use_plain_words(module: str) -> None:
    _skip_unmended(module)
    wrong = [f"{module}:{line}: {found}" for line, text in texts(module) for found in stumbles(text)]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    ("text", "bad"),
    [
        ("Of one network.", True),
        ("What was found.", True),
        ("Those of the labels, (B,).", True),
        ("The axis of the samples.", False),
        ("Whether a call samples.", False),
        ("Offsets of the parts.", False),
        ("z = 1[pi < keep].", False),
    ],
)
def test_the_first_word_decides(text: str, bad: bool) -> None:
    assert begins_badly(text) == bad


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("the class is no LightningModule", 1),
        ("there is no such layer", 0),
        ("it is no longer used", 0),
        ("its figures begin\nanew", 2),
        ("experiments/figures", 0),
        ("training goes on from there", 1),
    ],
)
def test_stumbles_are_found_in_prose(text: str, count: int) -> None:
    assert len(list(stumbles(text))) == count


def begins_badly(docstring: str) -> bool:
    return re.match(FIRST, docstring) is not None


def stumbles(text: str) -> Iterator[str]:
    """What is wrong with a text; names, paths and keys, which have no spaces, are not prose."""
    prose = " ".join(text.split())
    if " " not in prose:
        return
    for pattern, instead in INSTEAD.items():
        for match in re.finditer(pattern, prose, re.IGNORECASE):
            around = prose[max(0, match.start() - 40) : match.end() + 40]
            yield f"…{around}…: write {instead}"


def docstrings(module: str) -> Iterator[tuple[int, str]]:
    for node in ast.walk(_tree(module)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node)
            if text:
                yield node.body[0].lineno, text


def texts(module: str) -> Iterator[tuple[int, str]]:
    """All strings of a module, docstrings and the parts of f-strings among them."""
    for node in ast.walk(_tree(module)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value


def _tree(module: str) -> ast.Module:
    return ast.parse((SOURCE / module).read_text(encoding="utf-8"))


def _skip_unmended(module: str) -> None:
    if module.startswith(UNMENDED):
        pytest.skip("still to be mended")
