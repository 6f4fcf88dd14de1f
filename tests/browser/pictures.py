"""Takes the pictures of the documentation anew, from what ``make demo`` left: ``python -m tests.browser.pictures``."""

from __future__ import annotations

import io
import itertools
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from PIL import Image
from playwright.sync_api import Page, expect, sync_playwright

from contextual_dropout_lab.cli.serve_command import DEMO, find_beside
from contextual_dropout_lab.report.html import select, write_report
from contextual_dropout_lab.serve import LiveNetworks, create_app, load_live
from contextual_dropout_lab.serve.digit_strokes import DIGITS
from contextual_dropout_lab.serve.drawings import render
from contextual_dropout_lab.serve.responses import Answer
from contextual_dropout_lab.store.results import Results
from tests.browser.conftest import FLAGS, installed
from tests.lab.serve.trained import serving

ROOT = Path(__file__).parents[2]
IMAGES = ROOT / "docs" / "images"
#: Cards of the gallery that are in the picture.
CARDS = 8
#: Pixels below what is shown.
MARGIN = 16


def main() -> None:
    """Write both pictures, and print what they show: their captions in README.md and docs/ must say the same."""
    live_page()
    report()


@contextmanager
def page(height: int) -> Iterator[Page]:
    """Of a window that is 1280 pixels wide."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=installed(), args=FLAGS)
        yield browser.new_page(viewport={"width": 1280, "height": height}, color_scheme="light")
        browser.close()


def live_page() -> None:
    """A digit that both networks read wrongly, and say that they are not certain."""
    folder = ROOT / DEMO
    live = load_live(folder, find_beside(folder))
    drawn = ((seed, digit) for seed in itertools.count() for digit in DIGITS)
    seed, digit = next(each for each in drawn if doubted(live, *each))
    said = ", ".join(f"{each.method} says {each.name}" for each in answers(live, seed, digit))
    print(f"live-page.png: a {digit} with noise; {said}; both are wrong and not certain")
    with serving(create_app(live)) as address, page(825) as opened:
        opened.goto(address)
        expect(opened.locator(".what")).to_have_count(2)
        opened.evaluate(f"state.seed = {seed}; state.example = {list(DIGITS).index(digit)}; drawExample()")
        expect(opened.locator(".badge.doubt")).to_have_count(2)
        opened.evaluate("byId('hint').hidden = true")
        keep("live-page", opened.screenshot())


def answers(live: LiveNetworks, seed: int, digit: str) -> list[Answer]:
    """As the page shows them when it opens, but for the seed."""
    noisy = live.noisy(render(DIGITS[digit], live.frame), live.config.noise_sd, seed)
    return live.answers(noisy, live.config.samples, seed)


def doubted(live: LiveNetworks, seed: int, digit: str) -> bool:
    """Whether all answers are wrong, and none is certain."""
    return all(each.name != digit and not each.certain for each in answers(live, seed, digit))


def report() -> None:
    """The figures of a setting, and the beginning of its gallery: what is wrong, yet called certain."""
    root = ROOT / DEMO.parents[4]
    results = Results(root / "records", root / "work")
    with tempfile.TemporaryDirectory() as folder, page(900) as opened:
        opened.goto(write_report(select([str(root)], results), Path(folder)).as_uri())
        for figure in opened.locator(".plot").all():
            figure.scroll_into_view_if_needed()
            expect(figure.locator(".main-svg").first).to_be_visible()
        opened.locator(".gallery select[name=kind]").select_option("Wrongly certain")
        opened.evaluate(f"document.querySelectorAll('.card:nth-child(n+{CARDS + 1}), .more').forEach(e => e.remove())")
        opened.evaluate("document.querySelectorAll('header, .methods').forEach(e => { e.style.position = 'static'; })")
        opened.evaluate("scrollTo(0, 0)")
        frame = opened.locator(".setting").first.bounding_box()
        assert frame is not None
        whole = {"x": 0, "y": frame["y"], "width": 1280, "height": frame["height"] + MARGIN}
        keep("report", opened.screenshot(full_page=True, clip=whole))
    print(f"report.png: {root.relative_to(ROOT)}")


def keep(name: str, screenshot: bytes) -> None:
    """With a palette, a third of the size."""
    picture = Image.open(io.BytesIO(screenshot)).convert("RGB").quantize(256, dither=Image.Dither.NONE)
    picture.save(IMAGES / f"{name}.png", optimize=True)


if __name__ == "__main__":
    main()
