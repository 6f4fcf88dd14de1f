"""Several processes that train one network together, each on its part of every batch (DistributedDataParallel)."""

from __future__ import annotations

import atexit
import io
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from importlib import metadata
from pathlib import Path
from typing import Any, TypeVar

import torch
from lightning_utilities.core import imports
from packaging.version import Version
from torch import distributed

from contextual_dropout_lab.errors import ConfigError
from contextual_dropout_lab.launch.torchrun import under_torchrun
from contextual_dropout_lab.runs.config import RunConfig

__all__ = ["DDPStrategy", "DirectCheckpoints", "Fabric", "TorchCheckpointIO", "fabric_for", "on_first", "share"]


def _compare_version(
    package: str, op: Callable[[Version, Version], bool], version: str, use_base_version: bool = False
) -> bool:
    """``lightning_utilities.core.imports.compare_version`` without an import."""
    try:
        found = Version(metadata.version(package))
    except metadata.PackageNotFoundError:
        return False
    return op(Version(found.base_version) if use_base_version else found, Version(version))


@contextmanager
def _versions_without_imports() -> Iterator[None]:
    module: Any = imports
    by_import = module.compare_version
    module.compare_version = _compare_version
    try:
        yield
    finally:
        module.compare_version = by_import


with _versions_without_imports():
    from lightning_fabric import Fabric
    from lightning_fabric.plugins import TorchCheckpointIO
    from lightning_fabric.strategies.ddp import DDPStrategy


class DirectCheckpoints(TorchCheckpointIO):
    """Writes a checkpoint directly to its place: ``Fabric(plugins=[DirectCheckpoints()])``.

    Fabric's own way writes it into the system's folder for temporary files and then moves it. That folder may be
    smaller than a checkpoint, and there a killed process leaves its file for good. To be whole or not there is seen to
    by :func:`~contextual_dropout_lab.store.files.replace_file`.
    """

    def save_checkpoint(
        self, checkpoint: dict[str, Any], path: str | os.PathLike[str], storage_options: Any = None
    ) -> None:
        buffer = io.BytesIO()  # to a file, torch itself would hide that the disk is full
        torch.save(checkpoint, buffer)
        Path(path).write_bytes(buffer.getbuffer())


#: How long a process waits for the others, which may be evaluating; one that was killed is noticed at once.
PATIENCE = timedelta(days=1)
T = TypeVar("T")


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
    if size > 1:
        atexit.register(_leave)
    return fabric


def _leave() -> None:
    """End the group before the interpreter: threads of gloo that outlive it abort the process now and then.

    Fabric does so for NCCL alone.
    """
    if distributed.is_initialized():
        distributed.destroy_process_group()


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
    """Do something on the first process only; every process returns its result, or raises its error."""
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
