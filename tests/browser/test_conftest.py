"""The page that tests are given is watched."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from playwright.sync_api import Page

from tests.browser.conftest import installed

ROOT = Path(__file__).parents[2]
BAD = {
    "console": ("<script>console.error('so it is')</script>", "console error: so it is"),
    "script": ("<script>missing()</script>", "missing is not defined"),
    "network": ("<img src='http://elsewhere.invalid/a.png'>", "request beyond this machine: http://elsewhere.invalid"),
}


@pytest.mark.parametrize("fault", BAD)
def test_faults_are_noticed(page: Page, complaints: list[str], tmp_path: Path, fault: str) -> None:
    text, message = BAD[fault]
    (tmp_path / "page.html").write_text(f"<!doctype html><link rel=icon href='data:,'>{text}")
    page.goto((tmp_path / "page.html").as_uri(), wait_until="networkidle")
    found = "\n".join(complaints)
    complaints.clear()
    assert message in found


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_width_and_scheme(page: Page, width: int, scheme: str) -> None:
    assert page.evaluate("innerWidth") == width
    assert page.evaluate(f"matchMedia('(prefers-color-scheme: {scheme})').matches")


def test_without_a_browser_tests_are_skipped_but_fail_where_one_is_required(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CONTEXTUAL_DROPOUT_BROWSER", raising=False)
    with pytest.raises(pytest.skip.Exception, match="none of chromium"):
        installed()
    monkeypatch.setenv("CONTEXTUAL_DROPOUT_BROWSER", "required")
    with pytest.raises(pytest.fail.Exception, match="make browser"):
        installed()


def test_continuous_integration_requires_a_browser() -> None:
    assert "export CONTEXTUAL_DROPOUT_BROWSER=required\n" in (ROOT / ".ci" / "run").read_text()


def test_other_tests_may_have_a_loop_of_their_own(browser: object) -> None:
    async def nothing() -> int:
        return 1

    assert asyncio.run(nothing()) == 1
