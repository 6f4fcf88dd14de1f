"""Fifty visitors at once, and none of them notices the others.

The command serves from a process of its own. Every answer is compared with the one that the same request had when
nobody else was there.
"""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from random import Random
from typing import Any

import httpx
import pytest

from contextual_dropout_lab.report.method_names import label_of
from contextual_dropout_lab.serve import LiveNetworks
from contextual_dropout_lab.serve.digit_strokes import DIGITS
from contextual_dropout_lab.serve.drawings import render
from tests.lab.serve.files import HOSTILE, SOUND
from tests.reliability.memory import needs_proc
from tests.reliability.record import budget, record

VISITORS = 50
SECONDS = budget(4, 60)
#: By how much the server's memory may grow, in MiB: a picture of 30 million pixels that was kept would be 120.
GROWTH = 40

#: Path, query and what is sent; every visitor asks all of them again and again.
REQUESTS: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    *(
        (
            "/api/drawing",
            {"noise": 0.1 * int(digit), "samples": 5 + 3 * int(digit), "seed": 7},
            {"json": {"strokes": s}},
        )
        for digit, s in DIGITS.items()
    ),
    *(("/api/image", {"noise": 0.3}, {"content": SOUND[kind]}) for kind in ("jpeg", "transparent", "webp")),
    *(("/api/image", {}, {"content": HOSTILE[kind][0]}) for kind in ("text", "a bomb")),
    ("/api/drawing", {"samples": 10_000}, {"json": {"strokes": DIGITS["1"]}}),
]
FILES = ("/", "/style.css", "/page.js", "/api/about")


@pytest.fixture(scope="module")
def server(digits: Path) -> Iterator[tuple[str, int]]:
    """The address of `contextual-dropout serve` where `make demo` was run, and its process."""
    command = [sys.executable, "-c", "from contextual_dropout_lab.cli import main; main()", "serve", "--port", "0"]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, cwd=digits.parents[6], **pipes) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        found = None
        while found is None and (line := process.stdout.readline()):
            found = re.search(r"http://\S+", line)
        assert found, process.stderr.read()
        assert found[0].startswith("http://127.0.0.1:")  # nobody else's machine is let in unasked
        yield found[0], process.pid
        process.send_signal(signal.SIGINT)
        assert process.stderr.read() == ""  # no traceback, no warning
    assert process.returncode == 0


def memory(process: int, name: str = "VmRSS") -> float:
    """The memory of a process in MiB: now, or (VmHWM) the most that it had."""
    status = Path(f"/proc/{process}/status").read_text()
    found = re.search(rf"{name}:\s+(\d+) kB", status)
    assert found
    return int(found[1]) / 1024


def client_of(address: str) -> httpx.Client:
    return httpx.Client(base_url=address, timeout=60, verify=False, trust_env=False)  # no certificates to read


def ask(client: httpx.Client, number: int) -> tuple[int, Any]:
    path, settings, body = REQUESTS[number]
    response = client.post(path, params=settings, **body)
    return response.status_code, response.json()


def visit(
    address: str, seed: int, until: float, alone: list[tuple[int, Any]], counts: list[int], wrong: list[str]
) -> None:
    """Open the page, then ask in an order of one's own until the time is over."""
    random = Random(seed)
    with client_of(address) as client:
        try:
            wrong += [path for path in FILES if client.get(path).status_code != 200]
            while not counts[seed] or time.monotonic() < until:
                number = random.randrange(len(REQUESTS))
                if (answer := ask(client, number)) != alone[number]:
                    wrong.append(f"{REQUESTS[number]}: {answer}")
                counts[seed] += 1
        except Exception as error:
            wrong.append(repr(error))


def test_without_arguments_the_demo_is_served(server: tuple[str, int], live: LiveNetworks) -> None:
    """Its contextual network answers, MC dropout beside it, with the parameters that were trained."""
    with client_of(server[0]) as client:
        about = client.get("/api/about").json()
        assert about["name"] == "digits/noisy/contextual-bernoulli/seed-0"
        assert about["methods"] == [label_of(asdict(config)) for _, config in live.networks]
        shown = client.post("/api/drawing", params={"seed": 3}, json={"strokes": DIGITS["7"]}).json()
    expected = live.answers(render(DIGITS["7"], live.frame), 20, 3)
    assert shown["answers"] == [asdict(answer) for answer in expected]
    assert [answer.name for answer in expected] == ["7", "7"]


@needs_proc
def test_no_image_fills_the_memory(server: tuple[str, int]) -> None:
    """Two rows of ink that would take 30 GiB to be put upright do not fill it either."""
    address, process = server
    before = memory(process)
    with client_of(address) as client:
        assert client.post("/api/image", content=SOUND["two runs of ink"]).status_code == 200
    assert memory(process, "VmHWM") - before < 500


@pytest.mark.slow
@needs_proc
def test_fifty_visitors(server: tuple[str, int]) -> None:
    address, process = server
    with client_of(address) as client:
        alone = [ask(client, number) for number in range(len(REQUESTS))]
        assert [status for status, _ in alone] == [200] * 13 + [415, 413, 422]
        assert [ask(client, number) for number in range(len(REQUESTS))] == alone
    counts, wrong = [0] * VISITORS, list[str]()
    before, start = memory(process), time.monotonic()
    arguments = (start + SECONDS, alone, counts, wrong)
    threads = [threading.Thread(target=visit, args=(address, seed, *arguments)) for seed in range(VISITORS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    after = memory(process)
    seconds = round(time.monotonic() - start, 1)
    assert not wrong, wrong[:3]
    assert min(counts) > 0
    assert after - before < GROWTH
    record(
        "endurance",
        "visitors",
        "Visitors who are at the live page at once all get the answers that they get alone, also to pictures that are "
        "none; the server keeps no picture in memory.",
        {
            "visitors": VISITORS,
            "seconds": seconds,
            "requests": sum(counts) + VISITORS * len(FILES),
            "errors": len(wrong),
            "memory at the start, MiB": round(before, 1),
            "memory at the end, MiB": round(after, 1),
        },
    )
