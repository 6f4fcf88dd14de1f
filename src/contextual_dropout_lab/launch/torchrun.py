"""Start processes that train one network together, and end them together."""

from __future__ import annotations

import os
import signal
import threading
import time
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import torch
import torch.distributed as dist

from contextual_dropout_lab.errors import Busy, ExperimentError, NotReady
from contextual_dropout_lab.runs.config import RunConfig
from contextual_dropout_lab.store.results import Results

if TYPE_CHECKING:
    from torch.distributed.elastic.multiprocessing.errors import ProcessFailure

__all__ = ["end_with", "launch", "under_torchrun"]


def under_torchrun() -> bool:
    """Whether this is one of the processes that torchrun started."""
    return dist.is_available() and dist.is_torchelastic_launched()


def end_with(parent: int) -> None:
    """End this process when its parent is gone: nobody would wait for the results of a process without a parent."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def launch(
    config: RunConfig, results: Results, data_directory: str | os.PathLike[str] | None, news: Any
) -> dict[str, Any]:
    """Call :func:`~contextual_dropout_lab.runs.run.run` in as many processes of this machine as the run is for.

    Args:
        config: the run.
        results: see there.
        data_directory: see there.
        news: a queue for (config, epochs done), if anybody wants to know.

    Raises:
        Busy: another process works on this run.
        NotReady: a run that has to be done before this one is not done.
        ExperimentError: a process ended before its time; the message says which, and how.
    """
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    options = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=config.devices,
        rdzv_backend="c10d",
        rdzv_endpoint="localhost:0",
        run_id=uuid4().hex,
        max_restarts=0,
    )
    try:
        ended: dict[int, dict[str, Any] | Busy | NotReady] = elastic_launch(options, _member)(
            config, results, data_directory, news, os.getpid()
        )
    except ChildFailedError as error:
        rank, failure = error.get_first_failure()
        raise ExperimentError(
            f"process {rank} of the {config.devices} that trained {config.name} together {_ending(failure)}; the "
            "others were ended. The same command resumes from the last checkpoint"
        ) from None
    if isinstance(ended[0], Exception):
        raise ended[0]
    return ended[0]


def _member(
    config: RunConfig, results: Results, data_directory: str | os.PathLike[str] | None, news: Any, parent: int
) -> dict[str, Any] | Busy | NotReady:
    """The record, or why the run was not begun, which all processes find alike; other errors are raised."""
    from contextual_dropout_lab.runs.run import run

    end_with(parent)
    torch.set_num_threads(1)
    first = os.environ["RANK"] == "0"
    try:
        return run(config, results, data_directory, lambda epoch: news.put((config, epoch)) if first and news else None)
    except (Busy, NotReady) as error:
        return error


def _ending(failure: ProcessFailure) -> str:
    """The way in which a process ended, in words."""
    if failure.exitcode < 0:
        return f"was killed by {signal.Signals(-failure.exitcode).name} (out of memory?)"
    message: Any = failure.message  # declared as text, but torch keeps more where it could write a file about it
    return f"failed: {message['message'] if isinstance(message, dict) else message}"
