"""Small networks for the live page: trained on the embedded digits in seconds, or not at all."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import uvicorn
from starlette.types import ASGIApp

from contextual_dropout_lab.cli.serve_command import listen
from contextual_dropout_lab.runs.config import RunConfig, load_experiment
from contextual_dropout_lab.runs.methods import build_model
from contextual_dropout_lab.runs.run import run
from contextual_dropout_lab.store.networks import save_network
from tests.lab.runs.tiny import folders

METHODS = ("contextual-bernoulli", "mc-bernoulli")


def train_digits(folder: Path) -> Path:
    """Train contextual and MC dropout; returns the folder of the first's run."""
    for method in METHODS:
        changes = {"hidden": (64,), "epochs": 30, "noise_sd": 0.2, "noise_draws": 1, "optimizer": {"lr": 0.005}}
        run(load_experiment("digits").run("noisy", method, 0, "demo", **changes), folders(folder))
    return folder / "work" / "digits" / "noisy" / METHODS[0] / "seed-0"


def untrained(folder: Path, shape: tuple[int, ...], classes: tuple[str, ...], **values: Any) -> Path:
    """A network as it is built, saved as if it were trained."""
    fields: dict[str, Any] = {"experiment": "own", "setting": "clean", "method": "mine", "seed": 0, "hidden": (8,)}
    config = RunConfig.from_dict(fields | values)
    save_network(folder, build_model(config, shape, len(classes)), config, shape, classes)
    return folder


@contextmanager
def serving(app: ASGIApp) -> Iterator[str]:
    """A real server in a thread of this process; gives its address."""
    with listen("127.0.0.1", 0) as opened:
        server = uvicorn.Server(uvicorn.Config(app, log_level="critical", ws="none", lifespan="off"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [opened]}, daemon=True)
        thread.start()
        deadline = time.monotonic() + 30
        while not server.started:
            assert thread.is_alive()
            assert time.monotonic() < deadline
            time.sleep(0.01)
        yield f"http://127.0.0.1:{opened.getsockname()[1]}"
        server.should_exit = True
        thread.join(30)
        assert not thread.is_alive()
