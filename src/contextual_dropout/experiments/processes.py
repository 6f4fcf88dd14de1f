"""Several processes that train one network together, each on its part of every batch (DistributedDataParallel)."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import uuid4

import torch.distributed as dist
from lightning_fabric import Fabric
from lightning_fabric.strategies.ddp import DDPStrategy

from contextual_dropout.experiments.checkpoints import DirectCheckpoints
from contextual_dropout.experiments.config import RunConfig
from contextual_dropout.experiments.errors import ConfigError, ExperimentError
from contextual_dropout.experiments.results import Results

if TYPE_CHECKING:
    from torch.distributed.elastic.multiprocessing.errors import ProcessFailure

__all__ = ["end_with", "fabric_for", "launch", "on_first", "share", "under_torchrun"]

#: How long a process waits for the others, which may be evaluating; one that was killed is noticed at once.
PATIENCE = timedelta(days=1)
T = TypeVar("T")


def under_torchrun() -> bool:
    """Whether this is one of the processes that torchrun started."""
    return dist.is_available() and dist.is_torchelastic_launched()


def end_with(parent: int) -> None:
    """End this process when its parent is gone: what a process does whose parent was killed would be nobody's."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def fabric_for(config: RunConfig) -> Fabric:
    """One device, or as many as there are processes.

    Raises:
        ConfigError: another number of processes was started than the run is for.
    """
    size, local = (int(os.environ[name]) if under_torchrun() else 1 for name in ("WORLD_SIZE", "LOCAL_WORLD_SIZE"))
    if size != config.devices:
        raise ConfigError(
            f"{config.name} is for devices: {config.devices}, and {size} processes were started: they are part of the "
            f"configuration since results depend on them; add --set devices={size}, or start as many"
        )
    fabric = Fabric(
        accelerator="auto",
        devices=local,
        num_nodes=size // local,
        strategy=DDPStrategy(timeout=PATIENCE) if size > 1 else "auto",
        precision=config.precision,  # type: ignore[arg-type]
        plugins=[DirectCheckpoints()],
    )
    fabric.launch()
    return fabric


def share(rows: int, rank: int, size: int) -> tuple[slice, float]:
    """The part of a batch that a process has, and the weight of its mean in the mean over processes.

    Weighted so, the mean over processes is the mean over the batch, however it is divided. Where there are fewer rows
    than processes, some do the first row with weight 0, since all have to take part in each step.

    Example:
        >>> share(5, 0, 2), share(5, 1, 2)
        ((slice(0, 2, None), 0.8), (slice(2, 5, None), 1.2))
    """
    begin, end = rows * rank // size, rows * (rank + 1) // size
    return (slice(begin, end), (end - begin) * size / rows) if begin < end else (slice(0, 1), 0.0)


def on_first(fabric: Fabric, work: Callable[[], T]) -> T:
    """Do something on the first process only; what it gave, or raised, comes out on every process."""
    value, error = None, None
    if fabric.is_global_zero:
        try:
            value = work()
        except Exception as raised:
            error = raised
    value, error = fabric.broadcast((value, error))
    if error is not None:
        raise error
    return value  # type: ignore[return-value]


def launch(
    config: RunConfig, results: Results, data_directory: str | os.PathLike[str] | None, news: Any
) -> dict[str, Any]:
    """:func:`~contextual_dropout.experiments.run.run` on as many processes of this machine as the run is for.

    Args:
        config: the run.
        results: see there.
        data_directory: see there.
        news: a queue for (config, epochs done), if anybody wants to know.

    Raises:
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
        records: dict[int, dict[str, Any]] = elastic_launch(options, _member)(
            config, results, data_directory, news, os.getpid()
        )
    except ChildFailedError as error:
        rank, failure = error.get_first_failure()
        raise ExperimentError(
            f"process {rank} of the {config.devices} that trained {config.name} together {_ending(failure)}; the "
            "others were ended. The same command goes on from the last checkpoint"
        ) from None
    return records[0]


def _member(
    config: RunConfig, results: Results, data_directory: str | os.PathLike[str] | None, news: Any, parent: int
) -> dict[str, Any]:
    import torch

    from contextual_dropout.experiments.run import run

    end_with(parent)
    torch.set_num_threads(1)
    first = os.environ["RANK"] == "0"
    return run(config, results, data_directory, lambda epoch: news.put((config, epoch)) if first and news else None)


def _ending(failure: ProcessFailure) -> str:
    """How a process ended, in words."""
    if failure.exitcode < 0:
        return f"was killed by {signal.Signals(-failure.exitcode).name} (out of memory?)"
    message: Any = failure.message  # declared as text, but torch keeps more where it could write a file about it
    return f"failed: {message['message'] if isinstance(message, dict) else message}"
