"""Answers to visitors: refusals are one sentence, and nothing could lead a browser astray."""

from __future__ import annotations

import logging
import re
import select
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
import torch
from httpx import Response
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from starlette.testclient import TestClient

import contextual_dropout as cd
from contextual_dropout_lab.serve import LiveNetworks, application, create_app, requests
from contextual_dropout_lab.serve.digit_strokes import DIGITS
from contextual_dropout_lab.serve.drawings import render
from contextual_dropout_lab.serve.guard import HEADERS
from contextual_dropout_lab.store.networks import load_network
from tests.lab.serve.conftest import client_of
from tests.lab.serve.files import HOSTILE, SOUND, encoded, picture
from tests.lab.serve.trained import serving, untrained

THREE = {"strokes": DIGITS["3"]}


def draw(client: TestClient, digit: str = "3", **settings: float) -> dict[str, Any]:
    response = client.post("/api/drawing", params=settings, json={"strokes": DIGITS[digit]})
    assert response.status_code == 200, response.text
    found: dict[str, Any] = response.json()
    return found


def reason(response: Response, status: int) -> str:
    """The reason of a refusal: one JSON field with a sentence, nothing of the program."""
    assert response.status_code == status, response.text
    assert list(response.json()) == ["error"]
    words: str = response.json()["error"]
    assert words[0].isupper()
    assert words.endswith((".", "?"))
    assert not re.search(r"Traceback|File \"|\.py|0x[0-9a-f]{6}", words)
    return words


@pytest.mark.parametrize("digit", DIGITS)
def test_drawn_digits_are_recognised(client: TestClient, digit: str) -> None:
    assert [answer["name"] for answer in draw(client, digit)["answers"]] == [digit, digit]


def test_answers_are_those_of_predict(client: TestClient, live: LiveNetworks, digits: Path) -> None:
    shown = draw(client, samples=30, seed=5)
    x = render(DIGITS["3"], live.frame).flatten().unsqueeze(0)
    assert torch.allclose(torch.tensor(shown["pixels"]) / 255, x.flatten(), atol=0.5 / 255 + 1e-6)
    for answer, folder in zip(shown["answers"], (digits, digits.parents[1] / "mc-bernoulli" / "seed-0"), strict=True):
        prediction = cd.predict(load_network(folder)[0], x, samples=30, seed=5)
        assert answer["p_value"] == prediction.p_value.item()
        assert answer["certain"] == prediction.certain(0.05).item()
        assert answer["confidence"] == pytest.approx(prediction.confidence.item())
        samples = prediction.samples[:, 0]
        for box, values in zip(answer["boxes"], samples.T, strict=True):
            assert box["median"] == pytest.approx(values.quantile(0.5).item())
            assert (box["low"], box["high"]) == pytest.approx((values.min().item(), values.max().item()))


def test_keep_probabilities_of_every_layer(client: TestClient, live: LiveNetworks) -> None:
    contextual, mc = draw(client)["answers"]
    x = render(DIGITS["3"], live.frame).flatten().unsqueeze(0)
    name, site = next(iter(cd.sites(live.networks[0][0]).items()))
    keep = site.keep_probability(x)[0]
    first = contextual["kept"][0]
    assert first["layer"] == name
    assert (first["mean"], first["low"], first["high"]) == pytest.approx(
        (keep.mean().item(), keep.min().item(), keep.max().item()), abs=1e-5
    )
    assert [sum(layer["bars"]) for layer in contextual["kept"]] == [64, 64]
    assert [(layer["mean"], layer["bars"]) for layer in mc["kept"]] == [(0.8, []), (0.8, [])]


def test_the_same_request_has_the_same_answer(client: TestClient) -> None:
    assert draw(client, noise=0.4, seed=1) == draw(client, noise=0.4, seed=1)
    assert draw(client, noise=0.4, seed=1)["pixels"] != draw(client, noise=0.4, seed=2)["pixels"]
    assert draw(client, seed=1)["pixels"] == draw(client, seed=2)["pixels"]
    assert draw(client, seed=1)["answers"] != draw(client, seed=2)["answers"]


def test_noise_makes_it_less_certain(client: TestClient) -> None:
    def doubt(noise: float) -> float:
        shown = [draw(client, digit, noise=noise, seed=seed) for digit in DIGITS for seed in range(3)]
        return sum(not each["answers"][0]["certain"] for each in shown) / len(shown)

    assert doubt(0.0) == 0 < doubt(0.5)


def test_threads_do_not_disturb_one_another(live: LiveNetworks) -> None:
    images = [render(strokes, live.frame) for strokes in DIGITS.values()]
    alone = [live.answers(image, 20, seed) for seed, image in enumerate(images)]
    together: dict[tuple[int, int], Any] = {}

    def visit(turn: int) -> None:
        for seed, image in enumerate(images):
            together[turn, seed] = live.answers(image, 20, seed)

    threads = [threading.Thread(target=visit, args=(turn,)) for turn in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(together) == 60
    assert all(answer == alone[seed] for (_, seed), answer in together.items())


def test_colour_many_classes_and_nothing_random(photographs: LiveNetworks) -> None:
    client = client_of(photographs)
    shown = client.post("/api/image", params={"noise": 0.2}, content=SOUND["rotated"]).json()
    (answer,) = shown["answers"]
    assert (shown["shape"], len(shown["pixels"])) == ([3, 32, 32], 3072)
    assert (answer["p_value"], answer["certain"], answer["samples"]) == (None, None, 1)
    assert len(answer["boxes"]) == 10
    assert answer["name"] in [box["name"] for box in answer["boxes"]]
    assert "send an image file" in reason(client.post("/api/drawing", json=THREE), 422)
    about = client.get("/api/about").json()
    assert (about["drawable"], about["examples"]) == (False, {})


@pytest.mark.parametrize("kind", SOUND)
def test_sound_images_are_answered(client: TestClient, kind: str) -> None:
    response = client.post("/api/image", content=SOUND[kind])
    assert response.status_code == 200, response.text
    assert len(response.json()["pixels"]) == 64


@pytest.mark.parametrize("kind", HOSTILE)
def test_hostile_images_are_refused(client: TestClient, kind: str) -> None:
    content, status = HOSTILE[kind]
    assert "image" in reason(client.post("/api/image", content=content), status)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from(sorted(SOUND)), st.randoms(use_true_random=False), st.integers(1, 20))
def test_damaged_images_end_in_an_answer_or_a_refusal(client: TestClient, kind: str, random: Any, flips: int) -> None:
    content = bytearray(SOUND[kind])
    for _ in range(flips):
        content[random.randrange(len(content))] = random.randrange(256)
    response = client.post("/api/image", content=bytes(content[: random.randint(1, len(content))]))
    assert response.status_code in (200, 413, 415), response.text


@pytest.mark.parametrize(
    ("settings", "word"),
    [
        ({"samples": 1}, "samples"),
        ({"samples": 101}, "samples"),
        ({"samples": "many"}, "samples"),
        ({"samples": 2.5}, "samples"),
        ({"noise": -0.1}, "noise"),
        ({"noise": 1e9}, "noise"),
        ({"noise": "nan"}, "noise"),
        ({"noise": "inf"}, "noise"),
        ({"seed": -1}, "seed"),
        ({"seed": 2**32}, "seed"),
        ({"seed": "9" * 5000}, "seed"),
    ],
)
def test_absurd_settings_are_refused(client: TestClient, settings: dict[str, Any], word: str) -> None:
    assert word in reason(client.post("/api/drawing", params=settings, json=THREE), 422)


@pytest.mark.parametrize(
    "body",
    [
        "",
        "not JSON",
        "[]",
        "{}",
        '{"strokes": []}',
        '{"strokes": [[]]}',
        '{"strokes": "abc"}',
        '{"strokes": {"0": 1}}',
        '{"strokes": [[[0.1]]]}',
        '{"strokes": [[[0.1, "x"]]]}',
        '{"strokes": [[[0.1, null]]]}',
        '{"strokes": [[[0.1, NaN]]]}',
        '{"strokes": [[[0.1, Infinity]]]}',
        '{"strokes": [[[0.1, 1e999]]]}',
        '{"strokes": [[[0.1, 1.5]]]}',
        "[" * 100_000,
        "\x00\xff",
    ],
)
def test_what_is_no_drawing_is_refused(client: TestClient, body: str) -> None:
    reason(client.post("/api/drawing", content=body.encode("latin-1")), 422)


def test_a_dot_and_a_dash_are_drawings(client: TestClient) -> None:
    for stroke in ([[0.5, 0.5]], [[0.1, 0.5], [0.9, 0.5]], [[0.3, 0.3]] * 50):
        assert client.post("/api/drawing", json={"strokes": [stroke]}).status_code == 200


def test_too_much_is_refused(client: TestClient) -> None:
    declared = {"content-length": str(requests.MAX_UPLOAD + 1)}
    assert "8 MiB" in reason(client.post("/api/image", content=b"x", headers=declared), 413)
    assert "large" in reason(client.post("/api/image", content=b"x", headers={"content-length": "-5"}), 413)
    assert "large" in reason(client.post("/api/drawing", content=bytes(requests.MAX_DRAWING + 1)), 413)
    points = {"strokes": [[[0.5, 0.5]] * (requests.MAX_POINTS + 1)]}
    assert "points" in reason(client.post("/api/drawing", json=points), 413)
    zigzag = {"strokes": [[[turn % 2, turn // 2 % 2] for turn in range(requests.MAX_POINTS - 1)]]}
    assert "draw less" in reason(client.post("/api/drawing", json=zigzag), 413)
    photograph = encoded(picture(size=(5000, 4000)), "JPEG", quality=1)  # large, but such as people have
    assert client.post("/api/image", content=photograph).status_code == 200


def test_the_page_and_its_headers(client: TestClient) -> None:
    for path, kind in (("/", "html"), ("/style.css", "css"), ("/page.js", "javascript"), ("/api/about", "json")):
        response = client.get(path)
        assert response.status_code == 200
        assert kind in response.headers["content-type"]
        addresses = set(re.findall(r"(?:https?:)?//[a-z][\w.]+", response.text))
        assert addresses <= {"http://www.w3.org"}  # the name of SVG, which is not an address
        for name, value in HEADERS.items():
            assert response.headers[name] == value
    assert "unsafe" not in HEADERS["content-security-policy"]


def test_the_page_says_what_certain_means(client: TestClient) -> None:
    """A statement about the mean over masks, not about every one of them."""
    text = " ".join(client.get("/").text.split())
    assert "on average over them, one class is clearly ahead of the second" in text
    assert "agree on one class" not in text


@pytest.mark.parametrize("path", ["/nothing", "/docs", "/openapi.json", "/static/page.js", "/../pyproject.toml"])
def test_there_is_nothing_else(client: TestClient, path: str) -> None:
    response = client.get(path)
    assert "nothing" in reason(response, 404)
    assert response.headers["x-content-type-options"] == "nosniff"
    reason(client.get("/api/drawing"), 405)


@pytest.mark.parametrize(
    ("headers", "bound", "status"),
    [
        ({"host": "localhost:8000"}, "127.0.0.1", 200),
        ({"host": "[::1]:8000"}, "::1", 200),
        ({"host": "evil.example"}, "127.0.0.1", 403),
        ({"host": "127.0.0.1.evil.example:8000"}, "127.0.0.1", 403),
        ({"host": "localhost@evil.example"}, "127.0.0.1", 403),
        ({"host": "[::1"}, "127.0.0.1", 403),
        ({"host": ""}, "localhost", 403),
        ({"host": "my-machine:8000"}, "0.0.0.0", 200),
        ({"origin": "http://127.0.0.1:8000"}, "127.0.0.1", 200),
        ({"origin": "http://evil.example"}, "127.0.0.1", 403),
        ({"origin": "http://127.0.0.1:9999"}, "127.0.0.1", 403),
        ({"origin": "null"}, "127.0.0.1", 403),
        ({"origin": "http://evil.example"}, "0.0.0.0", 403),
    ],
)
def test_who_may_ask(live: LiveNetworks, headers: dict[str, str], bound: str, status: int) -> None:
    response = client_of(live, bound).post("/api/drawing", json=THREE, headers=headers)
    assert response.status_code == status
    assert response.headers["content-security-policy"] == HEADERS["content-security-policy"]
    if status == 403:
        reason(response, 403)


def test_a_failure_inside_is_not_shown(tmp_path: Path, live: LiveNetworks) -> None:
    folder = untrained(tmp_path, (64,), live.classes, data="digits", conversion="mc_dropout")
    model, config, _ = load_network(folder)
    with torch.no_grad():
        next(model.parameters()).fill_(float("nan"))
    response = client_of(replace(live, networks=[(model, config)])).post("/api/drawing", json=THREE)
    assert "went wrong" in reason(response, 500)
    assert response.headers["content-security-policy"] == HEADERS["content-security-policy"]


def test_when_too_many_wait_others_are_asked_to_come_again(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(application, "MAX_WAITING", 0)
    assert "try again" in reason(client.post("/api/drawing", json=THREE), 503)


@pytest.fixture
def visitor(live: LiveNetworks) -> Iterator[socket.socket]:
    """A connection to a real server, on which an image is announced."""
    with serving(create_app(live)) as address:
        host, port = address.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port)), timeout=20) as connection:
            connection.sendall(b"POST /api/image HTTP/1.1\r\nHost: 127.0.0.1\r\n")
            yield connection


def test_those_who_dawdle_are_sent_away(visitor: socket.socket, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests, "PATIENCE", 0.2)
    visitor.sendall(b"Content-Length: 9\r\n\r\nabc")
    assert b"408" in visitor.recv(4096).split(b"\r\n")[0]


def test_an_endless_body_is_refused_while_it_comes(visitor: socket.socket) -> None:
    visitor.sendall(b"Transfer-Encoding: chunked\r\n\r\n")
    sent = 0
    while not select.select([visitor], [], [], 0)[0]:
        visitor.sendall(b"10000\r\n" + bytes(2**16) + b"\r\n")
        sent += 2**16
        assert sent < 4 * requests.MAX_UPLOAD
    assert b"413" in visitor.recv(4096).split(b"\r\n")[0]
    assert sent > requests.MAX_UPLOAD


def test_all_visitors_together_have_so_much_room(live: LiveNetworks) -> None:
    """As many visitors as fit are served; the next is refused while they send, and served once they have left.

    Those who draw have room of their own.
    """
    app = create_app(live)
    sound = SOUND["rotated"]
    with serving(app) as address, ExitStack() as visitors:
        host, port = address.removeprefix("http://").split(":")
        for _ in range(requests.MAX_IMAGES // requests.MAX_UPLOAD):
            visitor = visitors.enter_context(socket.create_connection((host, int(port)), timeout=20))
            visitor.sendall(b"POST /api/image HTTP/1.1\r\nHost: 127.0.0.1\r\n")
            visitor.sendall(b"Content-Length: %d\r\n\r\n" % requests.MAX_UPLOAD)
            visitor.sendall(bytes(requests.MAX_UPLOAD - 1))  # the last byte never comes
        answer = until(lambda: httpx.post(f"{address}/api/image", content=sound), lambda found: found.is_error)
        assert "try again" in reason(answer, 503)
        assert httpx.post(f"{address}/api/drawing", json=THREE).status_code == 200
        visitors.close()
        until(lambda: httpx.post(f"{address}/api/image", content=sound), lambda found: found.is_success)


def test_who_leaves_leaves_no_traceback(live: LiveNetworks, caplog: pytest.LogCaptureFixture) -> None:
    with serving(create_app(live)) as address:
        host, port = address.removeprefix("http://").split(":")
        for _ in range(3):
            with socket.create_connection((host, int(port)), timeout=20) as visitor:
                visitor.sendall(b"POST /api/image HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 99\r\n\r\nabc")
        assert httpx.post(f"{address}/api/drawing", json=THREE).status_code == 200
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


def until(ask: Callable[[], Response], holds: Callable[[Response], bool]) -> Response:
    """The first response of which that holds: what others have sent is read a little later."""
    deadline = time.monotonic() + 20
    while not holds(response := ask()):
        assert time.monotonic() < deadline, response.text
    return response
