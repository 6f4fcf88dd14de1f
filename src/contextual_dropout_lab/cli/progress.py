"""The progress of a sweep, in a terminal and in a log file."""

from __future__ import annotations

from types import TracebackType
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from contextual_dropout_lab.launch.local import Failure, Watcher
from contextual_dropout_lab.runs.config import RunConfig

__all__ = ["Bars", "one_line", "summary_of"]


class Bars(Watcher):
    """A bar for all epochs with the time that remains, one for each run under way, and a line for each that ended."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("epochs"),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=console,
            disable=not console.is_terminal,
        )
        self._total = self._progress.add_task("all runs", total=None)
        self._epochs: dict[str, int] = {}
        self._bars: dict[str, TaskID] = {}

    def __enter__(self) -> Bars:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def planned(self, todo: list[RunConfig], done: int) -> None:
        self._console.print(f"{done} runs are done, {len(todo)} to do")
        self._progress.update(self._total, total=sum(config.epochs for config in todo))

    def epoch(self, config: RunConfig, epoch: int) -> None:
        if config.name not in self._bars:
            self._bars[config.name] = self._progress.add_task(config.name, total=config.epochs)
        self._progress.update(self._bars[config.name], completed=epoch)
        self._epochs[config.name] = epoch
        self._progress.update(self._total, completed=sum(self._epochs.values()))

    def finished(self, config: RunConfig, record: dict[str, Any]) -> None:
        self._console.print(one_line(config, record), highlight=False, soft_wrap=True)
        self._end(config)

    def failed(self, failure: Failure) -> None:
        self._console.print(f"[red]failed[/red] {failure.config.name}: {escape(failure.message)}", highlight=False)
        self._end(failure.config)

    def _end(self, config: RunConfig) -> None:
        self._epochs[config.name] = config.epochs
        self._progress.update(self._total, completed=sum(self._epochs.values()))
        if config.name in self._bars:
            self._progress.remove_task(self._bars.pop(config.name))


def one_line(config: RunConfig, record: dict[str, Any]) -> str:
    """The main scores of a run."""
    scores = next(iter(record["test"].values()))
    pavpu = scores["pavpu"].get("0.05")
    certainty = "" if pavpu is None else f"  PAvPU(.05) {pavpu['value']:.2f}"
    return (
        f"{config.name}: accuracy {scores['accuracy']:.2f}{certainty}  "
        f"log-likelihood {scores['log_likelihood']:.4f}  {record['cost']['train_cpu_seconds'] / 60:.1f} CPU minutes"
    )


def summary_of(failures: list[Failure], runs: int) -> str:
    """The failures and their causes, each cause once; of an unforeseen error the last line of its traceback.

    Example:
        >>> config = RunConfig("mnist", "noisy", "concrete", 0)
        >>> print(summary_of([Failure(config, "ValueError: too large")], 4))
        [red]1 of 4 runs failed[/red]; the same command tries them again:
          ValueError: too large (mnist/noisy/concrete/seed-0)
    """
    causes: dict[str, list[str]] = {}
    for failure in failures:
        causes.setdefault(failure.message.strip().splitlines()[-1], []).append(failure.config.name)
    lines = [f"  {cause} ({names[0]}{_others(len(names) - 1)})" for cause, names in causes.items()]
    return "\n".join(
        [f"[red]{len(failures)} of {runs} runs failed[/red]; the same command tries them again:", *map(escape, lines)]
    )


def _others(count: int) -> str:
    return f" and {count} more" if count else ""
