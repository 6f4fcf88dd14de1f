"""The live page in a real browser: draw, drop, slide."""

from __future__ import annotations

import itertools
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, Route, expect

from contextual_dropout_lab.cli.serve_command import find_beside
from contextual_dropout_lab.serve import create_app, load_live
from contextual_dropout_lab.serve.digit_strokes import DIGITS
from tests.browser.layout import overlapping
from tests.lab.serve.files import HOSTILE, SOUND
from tests.lab.serve.trained import serving, train_digits, untrained


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = train_digits(tmp_path_factory.mktemp("digits"))
    with serving(create_app(load_live(folder, find_beside(folder)))) as found:
        yield found


@pytest.fixture
def opened(page: Page, address: str) -> Page:
    """The page with its first answers."""
    page.goto(address)
    expect(page.locator(".answer .what")).to_have_count(2)
    return page


def draw(page: Page, digit: str) -> None:
    """With the mouse, stroke by stroke."""
    frame = page.locator("#pad").bounding_box()
    assert frame is not None
    for stroke in DIGITS[digit]:
        places = [(frame["x"] + x * frame["width"], frame["y"] + y * frame["height"]) for x, y in stroke]
        page.mouse.move(*places[0])
        page.mouse.down()
        for place in places[1:]:
            page.mouse.move(*place)
        page.mouse.up()


def slide(page: Page, name: str, value: float) -> None:
    """As somebody does who pulls the slider: in one go, then the page waits for the answer."""
    with page.expect_response(lambda response: f"{name}={value:g}" in response.url):
        page.locator(f"#{name}").fill(f"{value:g}")


def overflow(page: Page) -> list[str]:
    """What reaches beyond the window or out of its own box."""
    found: list[str] = page.evaluate(
        """() => [...document.querySelectorAll("body *:not(title)")].filter((each) => {
            const [box, how] = [each.getBoundingClientRect(), getComputedStyle(each)];
            const cut = each.clientWidth > 1 && each.scrollWidth > each.clientWidth + 1 && how.overflowX !== "visible";
            return box.width > 1 && (box.left < -0.5 || box.right > innerWidth + 0.5 || cut);
        }).map((each) => each.outerHTML.slice(0, 80))"""
    )
    return found + (["the page"] if page.evaluate("document.documentElement.scrollWidth > innerWidth") else [])


def overlaps(page: Page) -> list[str]:
    """Parts of the page that lie upon one another."""
    return [
        found
        for selector, within in {
            "header .name, #theme": "",
            "h1, .lead, .columns, .reading": "",
            "main .card": "",
            ".pad, .summary, .buttons, .message, .sliders, .seen": "",
            ".buttons > *": "",
            ".sliders label > *, .sliders input": "",
            ".seen > *": "",
            "h2, .verdict, h3, svg": ".answer",
            ".verdict .what, .badge, .figures": ".answer",
            "svg text": "svg",
        }.items()
        for found in overlapping(page, selector, within)
    ]


def place_of(page: Page, selector: str, x: float, y: float) -> tuple[float, float]:
    """Of a point of an element, as shares of its width and height."""
    frame = page.locator(selector).bounding_box()
    assert frame is not None
    return frame["x"] + x * frame["width"], frame["y"] + y * frame["height"]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_everything_is_there_and_nothing_is_cut(opened: Page, width: int) -> None:
    first = opened.locator(".answer").first
    expect(first.locator("h2")).to_have_text(re.compile("^Contextual Bernoulli"))
    expect(opened.locator(".answer").last.locator("h2")).to_have_text("MC dropout")
    expect(first.locator(".what")).to_have_text("8")  # the example that the page begins with
    expect(first.locator(".badge")).to_have_text("certain")
    expect(first.locator(".p")).to_contain_text("p-value")
    expect(first.locator("svg .box")).to_have_count(10)
    assert first.locator("svg .hill").count() > 10
    assert first.locator("svg .usual").count() > 2  # what is kept on average over test images, behind it
    expect(opened.locator(".answer").last.locator("svg .fixed")).to_have_count(2)
    assert opened.locator("svg text", has_text="hidden 1").count() == 2  # layers have the names of the report
    expect(opened.locator("#trained-words")).to_have_text("trained with sd 0.2")
    expect(opened.locator("#noise-value")).to_have_text("sd 0.20")  # it begins where networks have doubts
    opened.locator("summary").click()
    worth = r"Contextual Bernoulli.* was certain of \d+%, and right in \d+% of these.* MC dropout was certain of \d+%"
    expect(opened.locator("#worth")).to_have_text(re.compile(worth))
    assert overflow(opened) == []
    assert overlaps(opened) == []
    expect(opened.locator("#summary")).to_be_visible(visible=width == 390)


@pytest.mark.parametrize(("p", "words"), [(0.04997, "< 0.05"), (0.05003, "= 0.05"), (0.0444, "= 0.044")])
def test_p_values_in_words_are_on_the_right_side_of_the_threshold(opened: Page, p: float, words: str) -> None:
    assert opened.evaluate("([p, threshold]) => inWords(p, p < threshold, threshold)", [p, 0.05]) == words


HEIGHTS = """(bars) => {
    const layer = { label: "a", bars, usual: [], mean: 0.5, low: 0, high: 1 };
    const hills = keepPlots({ kept: [layer] }).querySelectorAll(".hill");
    return Array.from(hills, (hill) => Number(hill.getAttribute("height")));
}"""


def test_few_units_show_beside_many(opened: Page) -> None:
    """Heights are square roots of the counts; where there is no unit there is no bar."""
    tall, low, lowest = opened.evaluate(HEIGHTS, [400, 100, 0, 4])
    assert low == pytest.approx(tall / 2)
    assert lowest == pytest.approx(tall / 10)


@pytest.mark.parametrize("width", [1280, 390])
def test_drawing_changes_the_prediction(opened: Page) -> None:
    slide(opened, "noise", 0)
    for digit in ("0", "7", "4"):
        draw(opened, digit)
        expect(opened.locator(".what").first).to_have_text(digit)
        opened.get_by_role("button", name="Clear").click()
        expect(opened.locator(".empty")).to_have_count(2)


def test_a_dot_is_a_drawing(opened: Page) -> None:
    opened.locator("#pad").click(position={"x": 100, "y": 100})
    expect(opened.locator("#hint")).to_have_text("")
    expect(opened.locator(".what")).to_have_count(2)


COUNT = """() => {
    window.shown = 0;
    new MutationObserver(() => { window.shown += 1; }).observe(document.getElementById("answers"), { childList: true });
}"""


@pytest.mark.parametrize("selector", ["#pad", "#samples", "#noise"])
def test_answers_are_shown_while_the_mouse_moves(opened: Page, selector: str) -> None:
    """Until three are there, and the button is still down; the mouse moves faster than the server answers."""
    opened.evaluate(COUNT)
    (left, y), (right, _) = (place_of(opened, selector, x, 0.5) for x in (0.3, 0.7))
    opened.mouse.move(left, y)
    opened.mouse.down()
    end = time.monotonic() + 30
    for step in itertools.count():
        opened.mouse.move(left + (right - left) * abs(step % 40 / 20 - 1), y)
        if opened.evaluate("shown") >= 3 or time.monotonic() > end:
            break
    found = opened.evaluate("shown")
    opened.mouse.up()
    assert found >= 3
    said = r"^Contextual Bernoulli.*: \d (not )?certain\. MC dropout: \d (not )?certain$"
    expect(opened.locator("#spoken")).to_have_text(re.compile(said))  # once, when it is over


def test_an_answer_to_what_is_gone_is_not_shown(opened: Page) -> None:
    """One that comes after the drawing was cleared."""
    held: list[Route] = []
    opened.route("**/api/drawing*", lambda route: held.append(route))
    with opened.expect_request("**/api/drawing*"):
        opened.locator("#pad").click(position={"x": 50, "y": 50})
    opened.get_by_role("button", name="Clear").click()
    (route,) = held
    with opened.expect_response("**/api/drawing*"):
        route.continue_()
    expect(opened.locator(".empty")).to_have_count(2)
    opened.wait_for_timeout(300)
    expect(opened.locator(".empty")).to_have_count(2)


def test_after_an_answer_that_cannot_be_shown_the_page_goes_on(opened: Page, complaints: list[str]) -> None:
    slide(opened, "noise", 0)
    opened.route("**/api/drawing*", lambda route: route.fulfill(json={}), times=1)
    opened.get_by_role("button", name="Example").click()
    expect(opened.locator("#message")).to_contain_text("The answer cannot be shown")
    assert len(complaints) == 1
    complaints.clear()
    opened.get_by_role("button", name="Example").click()
    expect(opened.locator(".what").first).to_have_text("4")
    expect(opened.locator("#message")).to_be_hidden()


@pytest.mark.parametrize(("button", "count"), [("clear", 0), ("example", 2)])
def test_buttons_while_the_pen_is_down(opened: Page, button: str, count: int) -> None:
    """With the keyboard, or another finger: the rest of the stroke is not drawn."""
    opened.mouse.move(*place_of(opened, "#pad", 0.2, 0.2))
    opened.mouse.down()
    opened.mouse.move(*place_of(opened, "#pad", 0.4, 0.4))
    opened.evaluate(f"document.getElementById('{button}').click()")
    before = opened.evaluate("document.getElementById('pad').toDataURL()")
    opened.mouse.move(*place_of(opened, "#pad", 0.8, 0.8))
    opened.mouse.up()
    expect(opened.locator(".what")).to_have_count(count)
    assert opened.evaluate("document.getElementById('pad').toDataURL()") == before


def test_a_second_finger_does_not_draw(opened: Page) -> None:
    touch = opened.context.new_cdp_session(opened)

    def fingers(kind: str, *places: tuple[float, float]) -> None:
        spots = [place_of(opened, "#pad", *place) for place in places]
        points = [{"x": x, "y": y, "id": finger} for finger, (x, y) in enumerate(spots)]
        touch.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})

    opened.get_by_role("button", name="Clear").click()
    fingers("touchStart", (0.2, 0.2))
    fingers("touchStart", (0.2, 0.2), (0.8, 0.2))
    with opened.expect_request("**/api/drawing*") as asked:
        fingers("touchMove", (0.2, 0.6), (0.8, 0.6))
    fingers("touchEnd")
    (stroke,) = asked.value.post_data_json["strokes"]
    assert {x for x, _ in stroke} == {0.2}


def test_one_pass_has_no_masks(page: Page, tmp_path: Path) -> None:
    folder = untrained(tmp_path, (64,), tuple("0123456789"), data="digits", p=0.0)
    with serving(create_app(load_live(folder, None))) as address:
        page.goto(address)
        expect(page.locator("h3").first).to_have_text("Class probabilities of one pass")
        expect(page.locator(".badge")).to_have_text("one pass, nothing sampled")


def test_examples_follow_one_another(opened: Page) -> None:
    slide(opened, "noise", 0)
    for digit in ("1", "4", "7"):
        opened.get_by_role("button", name="Example").click()
        expect(opened.locator(".what").first).to_have_text(digit)


def test_noise_and_masks_change_what_is_seen(opened: Page) -> None:
    spread = "document.querySelector('.answer svg').innerHTML"
    seen = "document.getElementById('seen').toDataURL()"

    def wait_for_change(*before: str) -> None:
        opened.wait_for_function(f"before => {spread} !== before[0] && {seen} !== before[1]", arg=before)

    clean = (opened.evaluate(spread), opened.evaluate(seen))
    slide(opened, "noise", 0.6)
    wait_for_change(*clean)
    expect(opened.locator("#noise-value")).to_have_text("sd 0.60")
    noisy = (opened.evaluate(spread), opened.evaluate(seen))
    opened.get_by_role("button", name="New noise").click()
    wait_for_change(*noisy)
    slide(opened, "samples", 70)
    expect(opened.locator("h3").first).to_have_text("Class probabilities over 70 masks")


def test_image_files(opened: Page, complaints: list[str], tmp_path: Path) -> None:
    for name, content in (
        ("photo.jpg", SOUND["jpeg"]),
        ("text.png", HOSTILE["text"][0]),
        ("big.png", bytes(9 * 2**20)),
    ):
        (tmp_path / name).write_bytes(content)
    choose, message = opened.locator("#file"), opened.locator("#message")
    with opened.expect_response("**/api/image*"):
        choose.set_input_files(tmp_path / "photo.jpg")
    expect(opened.locator(".what")).to_have_count(2)
    expect(message).to_be_hidden()
    choose.set_input_files(tmp_path / "text.png")
    expect(message).to_have_text(
        "This file cannot be read as an image: expected a sound PNG, JPEG, GIF, WEBP, BMP file."
    )
    expect(opened.locator(".empty")).to_have_count(2)
    assert [complaint for complaint in complaints if "415" not in complaint] == []
    complaints.clear()  # browsers note refusals on the console
    choose.set_input_files(tmp_path / "big.png")
    expect(message).to_have_text("This file has 9.0 MiB: at most 8 are taken.")
    opened.get_by_role("button", name="Example").click()
    expect(message).to_be_hidden()
    expect(opened.locator(".what")).to_have_count(2)


def test_an_image_can_be_dropped(opened: Page) -> None:
    """As a file is dragged there; the events are made by hand, as the mouse of a test cannot carry files."""
    files = opened.evaluate_handle(
        """(bytes) => {
            const carried = new DataTransfer();
            carried.items.add(new File([new Uint8Array(bytes)], "photo.jpg", { type: "image/jpeg" }));
            return carried;
        }""",
        list(SOUND["jpeg"]),
    )
    opened.dispatch_event("#pad", "dragover", {"dataTransfer": files})
    expect(opened.locator("#drop")).to_have_class(re.compile(r"\bover\b"))
    with opened.expect_response("**/api/image*") as answered:
        opened.dispatch_event("#pad", "drop", {"dataTransfer": files})
    assert answered.value.status == 200
    expect(opened.locator("#drop")).not_to_have_class(re.compile(r"\bover\b"))


def test_what_is_no_file_cannot_be_dropped(opened: Page) -> None:
    text = opened.evaluate_handle(
        "() => { const carried = new DataTransfer(); carried.setData('text', 'x'); return carried; }"
    )
    opened.dispatch_event("#pad", "drop", {"dataTransfer": text})
    expect(opened.locator("#message")).to_have_text("That was not a file: drop an image file, or choose one.")


def test_light_and_dark_at_will(opened: Page) -> None:
    ground = "getComputedStyle(document.body).backgroundColor"
    before = opened.evaluate(ground)
    opened.locator("#theme").click()
    assert opened.evaluate(ground) != before
    opened.reload()  # a visitor decides once
    assert opened.evaluate(ground) != before
    opened.locator("#theme").click()
    assert opened.evaluate(ground) == before


def test_a_server_that_is_gone(page: Page, complaints: list[str], tmp_path: Path) -> None:
    folder = untrained(tmp_path, (64,), tuple("0123456789"), data="digits", conversion="mc_dropout")
    with serving(create_app(load_live(folder, None))) as address:
        page.goto(address)
        expect(page.locator(".what")).to_have_count(1)
    page.get_by_role("button", name="Example").click()
    expect(page.locator("#message")).to_have_text("The server did not answer: is it still running?")
    assert all("ERR_CONNECTION_REFUSED" in complaint for complaint in complaints)
    complaints.clear()


@pytest.mark.parametrize("width", [1280, 390])
def test_colour_has_long_names_and_no_pen(page: Page, tmp_path: Path) -> None:
    classes = ("airplane", "automobile", "a class with an uncommonly long name", *map(str, range(9)))
    network = {"network": "wide_resnet", "network_options": {"depth": 10, "width": 1}, "conversion": "mc_dropout"}
    folder = untrained(tmp_path, (3, 32, 32), classes, data="cifar10", **network)
    (tmp_path / "photo.jpg").write_bytes(SOUND["rotated"])
    with serving(create_app(load_live(folder, None))) as address:
        page.goto(address)
        expect(page.locator("#hint")).to_have_text("Drop an image here, or choose one")
        expect(page.locator("#example")).to_be_hidden()
        page.locator("#file").set_input_files(tmp_path / "photo.jpg")
        expect(page.locator(".answer svg .box")).to_have_count(10)
        assert overflow(page) == []
        assert overlaps(page) == []
        page.locator("#pad").click()
        expect(page.locator(".what")).to_have_count(1)
