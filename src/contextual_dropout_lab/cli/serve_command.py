"""``contextual-dropout serve``: a page on which trained networks answer live."""

from __future__ import annotations

import contextlib
import socket
from pathlib import Path

from rich.console import Console

from contextual_dropout_lab.errors import ExperimentError
from contextual_dropout_lab.store.networks import FILE

__all__ = ["DEMO", "find_beside", "find_checkpoint", "listen", "serve_network"]

#: The network that `make demo` trains.
DEMO = Path("runs/demo/work/digits/noisy/contextual-bernoulli/seed-0")
#: The method that a network is compared with, if it is there.
BESIDE = "mc-bernoulli"


def serve_network(
    checkpoint: Path | None, beside: Path | None, host: str, port: int, threshold: float, console: Console
) -> None:
    """Serve until interrupted.

    Args:
        checkpoint: folder of a finished run, or one with ``records`` and ``work``; by default the demo's.
        beside: folder of the run to compare with.
        host: the address to listen at.
        port: the port; 0 takes a free one.
        threshold: certain is a p-value below it.
        console: for the page's address.
    """
    try:
        import uvicorn

        from contextual_dropout_lab.serve import create_app, load_live
    except ModuleNotFoundError as error:
        raise ExperimentError(f"{error.name} is not installed: pip install 'contextual-dropout[serve]'") from error
    folder = find_checkpoint(checkpoint)
    other = beside or find_beside(folder)
    live = load_live(folder, other, threshold)
    with listen(host, port) as opened:
        server = uvicorn.Server(
            uvicorn.Config(
                create_app(live, host),
                log_level="warning",
                ws="none",
                limit_concurrency=1000,
                timeout_keep_alive=10,
                timeout_graceful_shutdown=5,
                server_header=False,
            )
        )
        if other is None:
            console.print(f"no {BESIDE} run beside it; see --beside", highlight=False, soft_wrap=True)
        shown = f"[{host}]" if ":" in host else host
        console.print(f"{' beside '.join(config.name for _, config in live.networks)}", highlight=False, soft_wrap=True)
        console.print(
            f"open http://{shown}:{opened.getsockname()[1]}  (stop with Ctrl-C)", highlight=False, soft_wrap=True
        )
        with contextlib.suppress(KeyboardInterrupt):  # that is how it is meant to end
            server.run(sockets=[opened])


def find_checkpoint(checkpoint: Path | None) -> Path:
    """The folder that was given, or that of the demo; of a folder that holds ``records`` and ``work``, a run in it.

    Of several runs it is one of contextual dropout, with Bernoulli masks if there is one, and of the first seed.
    """
    if checkpoint is not None:
        found = [path.parent for path in sorted(checkpoint.glob(f"work/*/*/*/seed-*/{FILE}"))]
        return min(found, key=_preference, default=checkpoint)
    if not (DEMO / FILE).exists():
        raise ExperimentError(
            f"there is no trained network {DEMO}: run `make demo` (two minutes) in this folder first, or name the "
            "folder of a finished run"
        )
    return DEMO


def _preference(run: Path) -> tuple[bool, bool, str, int, str]:
    method, seed = run.parent.name, run.name.removeprefix("seed-")
    other = method != DEMO.parent.name
    return other, not method.startswith("contextual"), str(run.parent), int(seed) if seed.isdecimal() else 0, run.name


def find_beside(folder: Path) -> Path | None:
    """The run of MC dropout in the same experiment, setting and seed, if it is there and not the same."""
    run = (folder.parent if folder.suffix == ".safetensors" else folder).absolute()
    other = run.parent.parent / BESIDE / run.name
    return other if (other / FILE).exists() and other != run else None


def listen(host: str, port: int) -> socket.socket:
    """A socket at an address; it says what to do where there can be none."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=512)
    except OSError as error:
        raise ExperimentError(
            f"cannot listen at {host}, port {port} ({error.strerror}): give another --port, or 0 for any free one"
        ) from error
