"""Do many runs side by side in processes, and report how far they are."""

from __future__ import annotations

import multiprocessing
import os
import queue
import signal
import traceback
from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from contextual_dropout_lab.data import DataError
from contextual_dropout_lab.errors import ExperimentError, NotReady, not_installed
from contextual_dropout_lab.launch.torchrun import end_with, launch, under_torchrun
from contextual_dropout_lab.runs.config import RunConfig
from contextual_dropout_lab.store.results import Results

#: A killed worker (out of memory?) ends its pool; runs resume from their checkpoints in a new one, so often.
MOST_POOLS = 5

__all__ = ["Failure", "Watcher", "sweep"]


@dataclass(frozen=True)
class Failure:
    """A run that did not end well, and what was said."""

    config: RunConfig
    message: str


class Watcher:
    """Receives every change of a sweep; override the methods for what you want to show."""

    def planned(self, todo: list[RunConfig], done: int) -> None:
        """Receive how many runs are done already, and those still to do."""

    def epoch(self, config: RunConfig, epoch: int) -> None:
        """A run has done this many epochs."""

    def finished(self, config: RunConfig, record: dict[str, Any]) -> None:
        """A run is done."""

    def failed(self, failure: Failure) -> None:
        """A run failed; the others continue."""


def sweep(
    configs: Iterable[RunConfig],
    results: Results,
    *,
    processes: int = 1,
    data_directory: str | os.PathLike[str] | None = None,
    watcher: Watcher | None = None,
) -> list[Failure]:
    """Do all runs that are not done, in their order, ``processes`` at a time with one thread each.

    A run that fails, and one that another sweep is working on, is passed over; the others continue. Processes that
    torchrun started do the runs together, one after the other, and end at the first failure.

    Returns:
        What failed.
    """
    watcher = watcher or Watcher()
    configs = list(configs)
    todo = [config for config in configs if results.read(config) is None]
    watcher.planned(todo, len(configs) - len(todo))
    if under_torchrun():
        from contextual_dropout_lab.runs.run import run

        end_with(os.getppid())
        for config in todo:
            watcher.finished(config, run(config, results, data_directory, partial(watcher.epoch, config)))
        return []
    failures: list[Failure] = []
    fruitless = 0
    while todo:
        before = len(todo)
        waiting = _in_a_pool(todo, results, processes, data_directory, watcher, failures)
        if len(todo) < before:
            fruitless = 0
        elif len(waiting) == len(todo):  # for runs that are not among these, or failed
            for failure in waiting:
                failures.append(failure)
                watcher.failed(failure)
            return failures
        else:
            fruitless += 1
        if fruitless == MOST_POOLS:
            raise RuntimeError(
                f"worker processes were killed {fruitless} times before any of {len(todo)} runs ended: is there enough "
                "memory? Start again with fewer processes; finished epochs are not lost"
            )
    return failures


def _in_a_pool(
    todo: list[RunConfig],
    results: Results,
    processes: int,
    data_directory: str | os.PathLike[str] | None,
    watcher: Watcher,
    failures: list[Failure],
) -> list[Failure]:
    """Work until all is done or a worker is killed, taking what ended from ``todo``; the runs that wait for others."""
    waiting: list[Failure] = []
    context = multiprocessing.get_context("spawn")
    news = context.Queue()  # a new one for each pool: a killed writer may have left it locked
    pool = ProcessPoolExecutor(processes, context, _begin, (news, os.getpid()))
    try:
        running = {pool.submit(_work, config, results, data_directory): config for config in todo}
        _follow(running, todo, news, watcher, failures, waiting)
    except BrokenProcessPool:
        pass
    except BaseException:  # interrupted: what was trained is in checkpoints
        _end_at_once(pool)
        raise
    pool.shutdown()
    return waiting


def _end_at_once(pool: ProcessPoolExecutor) -> None:
    workers = list((pool._processes or {}).values())
    pool.shutdown(wait=False, cancel_futures=True)
    for worker in workers:
        worker.terminate()


def _follow(
    running: dict[Future[Any], RunConfig],
    todo: list[RunConfig],
    news: Any,
    watcher: Watcher,
    failures: list[Failure],
    waiting: list[Failure],
) -> None:
    """Inform the watcher until all runs have ended, and take those that ended from the list of what is to do."""
    pending = set(running)
    while pending:
        ended, pending = wait(pending, timeout=0.5, return_when=FIRST_COMPLETED)
        _pass_on(news, watcher.epoch)
        for future in ended:
            config = running[future]
            try:
                record = future.result()
            except BrokenProcessPool:
                raise
            except NotReady as error:
                waiting.append(Failure(config, str(error)))
                continue
            except Exception as error:
                known = isinstance(error, ExperimentError | DataError)
                message = str(error) if known else "".join(traceback.format_exception(error)).strip()
                failures.append(Failure(config, message))
                watcher.failed(failures[-1])
            else:
                watcher.finished(config, record)
            todo.remove(config)


def _pass_on(news: Any, tell: Callable[[RunConfig, int], None]) -> None:
    with suppress(queue.Empty):
        while True:
            tell(*news.get_nowait())


#: In a worker: where it tells how far it is.
_news: Any = None


def _begin(news: Any, parent: int) -> None:
    """A worker has one thread, leaves Ctrl-C to its parent, ends with it, and does not wait for unread news."""
    import torch

    from contextual_dropout_lab.store.provenance import provenance

    global _news
    _news = news
    news.cancel_join_thread()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    end_with(parent)
    torch.set_num_threads(1)
    provenance()


def _work(config: RunConfig, results: Results, data_directory: str | os.PathLike[str] | None) -> dict[str, Any]:
    if config.devices > 1:
        return launch(config, results, data_directory, _news)
    try:
        from contextual_dropout_lab.runs.run import run  # only where it is trained: this takes a second
    except ModuleNotFoundError as error:
        raise ExperimentError(not_installed(error)) from error
    return run(config, results, data_directory, lambda epoch: _news.put((config, epoch)))
