"""Records say what was tried and with what, and the page shows it."""

from __future__ import annotations

import ast
import importlib.util
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.reliability import record, record_compatibility
from tests.reliability.scripts import ROOT

PASSED, SKIPPED, FAILED = "", "<skipped/>", "<failure/>"


def report(path: Path, **tests: str) -> Path:
    """As pytest writes it."""
    cases = "".join(f'<testcase classname="tests" name="{name}">{note}</testcase>' for name, note in tests.items())
    path.write_text(f"<testsuites><testsuite>{cases}</testsuite></testsuites>")
    return path


@pytest.fixture
def hook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The page's, with records of a folder that is empty at first."""
    pytest.importorskip("mkdocs")
    path = ROOT / "docs" / "hooks" / "reliability.py"
    spec = importlib.util.spec_from_file_location("reliability_hook", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "RECORDS", tmp_path / "records")
    monkeypatch.setattr(record, "RECORDS", tmp_path / "records")
    return module


def test_a_part_without_records_says_so(hook: Any) -> None:
    record.keep("files", "some", "It held.", {"inputs": 1000})
    page = hook.on_page_markdown("<!-- figures: files -->\n\n<!-- figures: numerics -->", page=None)
    table, nothing = page.split("\n\n")
    assert "| It held. | inputs: 1,000 | " in table
    assert nothing == "Not tried in full yet."


def test_what_did_not_hold_does_not_vanish(hook: Any) -> None:
    record.keep("files", "files-fuzzed", "It held.", {})
    assert list(hook.table("files"))[3:] == [
        "| *files that escape* | did not hold, or was not run | |",
        "| *files that harm* | did not hold, or was not run | |",
        "| *files that lie* | did not hold, or was not run | |",
    ]


def test_the_page_expects_what_the_tests_keep(hook: Any) -> None:
    """Names that depend on a parameter stand for as many as match."""
    kept = [call for path in sorted((ROOT / "tests").rglob("test_*.py")) for call in calls_of_record(path)]
    expected = [(part, name) for part, names in hook.EXPECTED.items() for name in names]
    assert len(kept) > 20
    for part, pattern in kept:
        assert any(part == other and re.fullmatch(pattern, name) for other, name in expected), pattern
    for part, name in expected:
        assert any(part == other and re.fullmatch(pattern, name) for other, pattern in kept), name


def calls_of_record(path: Path) -> Iterator[tuple[str, str]]:
    """The part and the name, as a pattern, of every record that a file of tests keeps."""
    source = path.read_text(encoding="utf-8")
    if "from tests.reliability.record import" not in source:
        return
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "record":
            part, name = node.args[:2]
            assert isinstance(part, ast.Constant)
            pieces = name.values if isinstance(name, ast.JoinedStr) else [name]
            known = (re.escape(str(piece.value)) if isinstance(piece, ast.Constant) else ".+" for piece in pieces)
            yield str(part.value), "".join(known)


@pytest.mark.parametrize(
    ("origin", "shown"),
    [
        ({"commit": "0123456789", "uncommitted_changes": False}, "2026-01-02, `0123456`<br>"),
        ({"commit": "0123456789", "uncommitted_changes": True}, "2026-01-02, `0123456` with uncommitted changes<br>"),
        ({"commit": None, "uncommitted_changes": False}, "2026-01-02, unknown commit<br>"),
    ],
)
def test_the_page_says_with_which_code(
    hook: Any, monkeypatch: pytest.MonkeyPatch, origin: dict[str, Any], shown: str
) -> None:
    where = {"time": "2026-01-02T03:04:05", "python": "3.11.7", "versions": {"torch": "2.13.0"}, **origin}
    monkeypatch.setattr(record, "provenance", lambda: where)
    record.keep("files", "some", "It held.", {})
    assert shown in "".join(hook.table("files"))


@pytest.mark.parametrize(
    ("note", "claim"),
    [
        (PASSED, "The tests pass with Python"),
        (FAILED, "The tests do not all pass with"),
        ("<error/>", "The tests do not all pass with"),
    ],
)
def test_other_versions_are_recorded(hook: Any, tmp_path: Path, note: str, claim: str) -> None:
    failed = int(note != PASSED)
    record_compatibility.main([report(tmp_path / "tests.xml", a=PASSED, b=SKIPPED, c=note)])
    (path,) = (tmp_path / "records").glob("compatibility-3.*-2.*.json")
    kept = json.loads(path.read_text())
    assert kept["figures"] == {"passed": 2 - failed, "skipped": 1, "failed": failed}
    assert kept["claim"].startswith(claim)
    assert sys.version.split()[0] in kept["claim"]
    assert f"passed: {2 - failed}<br>skipped: 1<br>failed: {failed}" in "".join(hook.table("compatibility"))


def test_what_was_mended_and_run_again_counts(hook: Any, tmp_path: Path) -> None:
    first = report(tmp_path / "first.xml", a=PASSED, b=FAILED, c=SKIPPED)
    record_compatibility.main([first, report(tmp_path / "second.xml", b=PASSED)], "tests of pages")
    (path,) = (tmp_path / "records").glob("compatibility-*.json")
    expected = {
        "passed": 2,
        "skipped": 1,
        "failed": 0,
        "of these run again, after a fix": 1,
        "left out": "tests of pages",
    }
    assert json.loads(path.read_text())["figures"] == expected


def test_a_report_of_no_tests_is_not_recorded(hook: Any, tmp_path: Path) -> None:
    (tmp_path / "tests.xml").write_text("<testsuites/>")
    with pytest.raises(SystemExit, match="no test that passed"):
        record_compatibility.main([tmp_path / "tests.xml"])
    assert not (tmp_path / "records").exists()
