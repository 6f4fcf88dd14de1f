"""The page on architecture, the decisions and the folders' own pages name what there is."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = (ROOT / "src/contextual_dropout", ROOT / "src/contextual_dropout_lab")
PAGE = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
DECISIONS = sorted((ROOT / "docs/decisions").glob("*.md"))
NAMES = [page.relative_to(ROOT).as_posix() for page in DECISIONS]
#: A step of a path: what happens, the name, the file; or a name and its file in a sentence or table.
STEP = re.compile(r"^.+? {2,}([\w.]+) +([\w/]+\.py)$", re.MULTILINE)
IN = re.compile(r"`([\w.]+)` in `([\w/]+\.py)`")
FILE = re.compile(r"(?<![\w/.])([\w.-]+(?:/[\w.-]+)*\.(?:py|toml|yaml|yml|md))\b")
ROOMS = sorted(path.parent for package in PACKAGES for path in package.rglob("__init__.py"))


def found(name: str) -> list[Path]:
    """The files of this name, from the root or from one of the packages."""
    return [folder / name for folder in (ROOT, *PACKAGES) if (folder / name).is_file()]


def defined(path: Path) -> set[str]:
    """Functions, classes, their methods and the constants of a file."""
    names = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ClassDef):
            names |= {f"{node.name}.{each.name}" for each in node.body if isinstance(each, ast.FunctionDef)}
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            names.add(node.name)
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        names |= {target.id for target in targets if isinstance(target, ast.Name)}
    return names


def test_the_paths_are_read() -> None:
    assert len(STEP.findall(PAGE)) > 50
    assert len(IN.findall(PAGE)) > 10


@pytest.mark.parametrize(("name", "file"), sorted({*STEP.findall(PAGE), *IN.findall(PAGE)}))
def test_the_file_defines_the_name(name: str, file: str) -> None:
    assert any(name in defined(path) for path in found(file)), f"docs/architecture.md: no {name} in {file}"


@pytest.mark.parametrize("page", ["docs/architecture.md", "SECURITY.md", "RELEASING.md", *NAMES])
def test_files_that_are_named_exist(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    links = set(re.findall(r"\]\(([^)#]+)", text))  # relative to the page
    names = [name for name in FILE.findall(text) if name not in links and ".." not in name]
    assert [name for name in names if not found(name)] == []


def test_decisions_are_short_and_say_why() -> None:
    assert len(DECISIONS) > 6  # with the list of them
    for page in DECISIONS:
        lines = page.read_text(encoding="utf-8").splitlines()
        headings = [line for line in lines if line.startswith("## ")]
        assert page.stem == "index" or headings == ["## Context", "## Decision", "## Consequences"], page
        assert len(lines) < 25, page


@pytest.mark.parametrize("room", ROOMS, ids=lambda room: room.relative_to(ROOT / "src").as_posix())
def test_every_room_says_what_belongs_there(room: Path) -> None:
    """In a few lines, and naming only files that are there."""
    text = (room / "README.md").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 12
    assert "Belongs here:" in text
    assert "Does not:" in text
    files = re.findall(r"`([\w/]+\.(?:py|yaml))`", text)
    assert [name for name in files if not (room / name).is_file() and not found(name)] == []


def test_contributing_knows_every_folder_of_tests() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    _, _, table = text.partition("## Where tests are")
    folders = {path.parent.name for path in (ROOT / "tests").glob("*/__init__.py")}
    assert folders - set(re.findall(r"`(\w+)`", table)) == set()
