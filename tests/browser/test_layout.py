"""Faults of layout are found, and only faults."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page

from tests.browser.layout import cut, overlapping, too_wide

BOX = "position:absolute;width:100px;height:20px;"


def show(page: Page, body: str) -> None:
    page.set_content(f"<!doctype html><body style='margin:0'>{body}")


@pytest.mark.parametrize(("left", "expected"), [(50, ["P.a one | P.a two"]), (100, []), (101, [])])
def test_boxes_that_overlap(page: Page, left: int, expected: list[str]) -> None:
    show(page, f"<p class=a style='{BOX}left:0'>one</p><p class=a style='{BOX}left:{left}px'>two</p>")
    assert overlapping(page, ".a") == expected


def test_only_in_the_same_element(page: Page) -> None:
    card = f"<article style='position:static'><p style='{BOX}left:0'>one</p></article>"
    show(page, 2 * card)
    assert overlapping(page, "p") == ["P. one | P. one"]
    assert overlapping(page, "p", "article") == []


def test_an_element_may_hold_another(page: Page) -> None:
    show(page, "<section><p>one</p></section>")
    assert overlapping(page, "section, p") == []


@pytest.mark.parametrize("width", [390])
def test_beyond_the_window(page: Page, width: int) -> None:
    show(page, "<p style='width:600px'>wide</p>")
    assert too_wide(page)
    assert cut(page, "p") == ["P. wide"]
    show(page, "<div style='overflow-x:auto'><p style='width:600px'>wide</p></div>")
    assert not too_wide(page)
    assert cut(page, "p") == []
    show(page, "<article style='width:100px;overflow:hidden'><p style='width:200px'>wide</p></article>")
    assert cut(page, "p") == ["P. wide"]
