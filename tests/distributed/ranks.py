"""Two processes that stay, and run functions together: only the start of a process is slow."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from multiprocessing import get_context
from typing import Any, TypeVar

import torch
import torch.distributed as dist

T = TypeVar("T")
Together = Callable[..., list[Any]]

#: A deadlock is an error after so long.
PATIENCE = timedelta(seconds=120)


@contextmanager
def two_processes() -> Iterator[Together]:
    """Call what this gives with a function and its arguments: it runs on both, and what they return comes in a list."""
    with ProcessPoolExecutor(2, get_context("spawn"), torch.set_num_threads, (1,)) as pool:

        def together(function: Callable[..., T], *arguments: Any) -> list[T]:
            with tempfile.TemporaryDirectory() as folder:
                members = [pool.submit(member, function, rank, f"file://{folder}/store", arguments) for rank in (0, 1)]
                return [each.result(2 * PATIENCE.total_seconds()) for each in members]

        yield together


def member(function: Callable[..., T], rank: int, address: str, arguments: tuple[Any, ...]) -> T:
    dist.init_process_group("gloo", init_method=address, rank=rank, world_size=2, timeout=PATIENCE)
    try:
        return function(*arguments)
    finally:
        dist.destroy_process_group()
