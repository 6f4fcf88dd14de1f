"""A page of a real browser: Chromium, one per test process, that sees nothing but this machine."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Error, Page, Request, expect, sync_playwright

CHROMIUM = ("chromium", "chromium-browser", "google-chrome")
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost",
)
HERE = {None, "", "127.0.0.1", "localhost"}  # files and data: addresses have no host
WAIT = 120_000  # milliseconds: machines may be busy
expect.set_options(timeout=WAIT)


@contextmanager
def running(loop: asyncio.AbstractEventLoop | None) -> Iterator[None]:
    """Mark the loop as running, as Playwright needs it; other tests of the process must not find it."""
    before = asyncio._get_running_loop()
    asyncio._set_running_loop(loop)
    try:
        yield
    finally:
        asyncio._set_running_loop(before)


def installed() -> str:
    """The path of a browser; without one, tests are skipped, or fail where CONTEXTUAL_DROPOUT_BROWSER is "required"."""
    path = next(filter(None, map(shutil.which, CHROMIUM)), None)
    if path is None:
        reason = f"no browser: none of {', '.join(CHROMIUM)} is installed (make browser)"
        if os.environ.get("CONTEXTUAL_DROPOUT_BROWSER") == "required":
            pytest.fail(reason)
        pytest.skip(reason)
    return path


@pytest.fixture(scope="session")
def browser() -> Iterator[tuple[Browser, asyncio.AbstractEventLoop]]:
    """Chromium, and the loop that its calls need."""
    path = installed()
    with running(None), sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=path, args=FLAGS)
        loop = asyncio.get_running_loop()
        with running(None):
            yield found, loop
        found.close()


@pytest.fixture
def width() -> int:
    """Of the window, in pixels; tests parametrize it."""
    return 1280


@pytest.fixture
def scheme() -> str:
    """ "light" or "dark", as the system is set; tests parametrize it."""
    return "light"


@pytest.fixture
def complaints() -> list[str]:
    """Errors on the console, errors of scripts and requests beyond this machine; a test that expects some clears it."""
    return []


@pytest.fixture
def page(
    browser: tuple[Browser, asyncio.AbstractEventLoop], width: int, scheme: Any, complaints: list[str]
) -> Iterator[Page]:
    """An empty page of its own; complaints fail the test."""

    def heard(message: ConsoleMessage) -> None:
        if message.type in ("error", "warning", "trace"):  # Plotly warns by trace
            complaints.append(f"console {message.type}: {message.text} ({message.location})")

    def failed(error: Error) -> None:
        complaints.append(f"script: {error}")

    def asked(request: Request) -> None:
        if urlsplit(request.url).hostname not in HERE:
            complaints.append(f"request beyond this machine: {request.url}")

    chromium, loop = browser
    with running(loop):
        context = chromium.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
        context.set_default_timeout(WAIT)
        context.on("console", heard)
        context.on("request", asked)
        opened = context.new_page()
        opened.on("pageerror", failed)
        yield opened
        context.close()
    assert not complaints
