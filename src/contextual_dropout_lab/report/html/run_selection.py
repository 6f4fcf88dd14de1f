"""Find the runs that a user means: by an experiment's name, by a folder of runs, or by one with records and work."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from contextual_dropout_lab.report.summary import ReportError, Runs, Summary, summarise_sound
from contextual_dropout_lab.store.results import Results

__all__ = ["Selection", "select"]


@dataclass(frozen=True)
class Selection:
    """Runs of one experiment.

    Attributes:
        results: where their records and predictions are.
        summary: of these runs alone.
        unfinished: what was asked for and has no record yet, by name.
    """

    results: Results
    summary: Summary
    unfinished: tuple[str, ...] = ()


def select(runs: Iterable[str], results: Results) -> list[Selection]:
    """The runs of every experiment that is named, each once.

    Args:
        runs: names or parts of them ("mnist", "mnist/noisy"), folders of runs ("runs/mnist/noisy/concrete/seed-0"),
            or folders that hold ``records`` and ``work``, as ``make demo`` leaves them.
        results: where records are looked for by name.

    Raises:
        ReportError: none of the runs has a record.
    """
    wanted: dict[tuple[Results, str], list[tuple[str, ...]]] = {}
    for run in runs:
        where, parts = _locate(run, results)
        for experiment in parts[:1] or _experiments(where):
            wanted.setdefault((where, experiment), []).append(parts[1:])
    return [_chosen(where, experiment, places) for (where, experiment), places in wanted.items()]


def _locate(run: str, results: Results) -> tuple[Results, tuple[str, ...]]:
    """The folder of the records, and the parts of the name: experiment, setting, method and seed, or the first ones."""
    given = _folder(Path(run))
    folder = given.resolve()
    if (folder / "records").is_dir():
        return Results(folder / "records", folder / "work"), ()
    for parent in folder.parents:
        if parent.name in ("records", "work") and parent.with_name("records").is_dir():
            own = Results(parent.with_name("records"), parent.with_name("work"))
            return own, folder.relative_to(parent).parts
    for root in (results.work.resolve(), results.records.resolve()):
        if folder.is_relative_to(root):
            return results, folder.relative_to(root).parts
    if given.is_absolute() or ".." in given.parts:
        fault = f"the folder {run} has no `records` in it" if folder.is_dir() else f"there is no folder {run}"
        raise ReportError(
            f"{fault}: name an experiment (mnist), the folder of a run, or one that holds `records` and `work`"
        )
    return results, given.parts


def _folder(path: Path) -> Path:
    """The folder of a run, given one of its files."""
    if path.suffix == ".safetensors":
        return path.parent
    return path.with_suffix("") if path.suffix == ".json" else path


def _experiments(results: Results) -> list[str]:
    found = sorted(path.name for path in results.records.glob("*") if next(path.glob("*/*/seed-*.json"), None))
    if not found:
        raise ReportError(f"no records in {results.records}: run an experiment first, or name another folder")
    return found


def _chosen(results: Results, experiment: str, places: list[tuple[str, ...]]) -> Selection:
    """The runs at these places below the experiment."""
    summary = summarise_sound(results, experiment)
    faults = {
        name: fault
        for name, fault in summary.faults.items()
        if any(tuple(name.split("/"))[: len(place)] == place for place in places)
    }
    runs = {key: _of_places(each, places) for key, each in summary.runs.items()}
    found = {key: each for key, each in runs.items() if each.records}
    empty = [place for place in places if not any(_of_places(each, [place]).records for each in found.values())]
    empty = [place for place in empty if "/".join(place) not in faults]
    unfinished = tuple("/".join((experiment, *place)) for place in dict.fromkeys(empty))
    if not found and faults:
        name, fault = next(iter(faults.items()))
        raise ReportError(
            f"no record of {experiment} can be read: {results.records / experiment / name}.json {fault}; delete it to "
            "have it made again"
        )
    if not found:
        raise ReportError(
            f"no records of {', '.join(unfinished)} in {results.records}: there are those of "
            f"{', '.join('/'.join((experiment, *key)) for key in summary.runs)}"
        )
    return Selection(results, Summary(experiment, found, faults), unfinished)


def _of_places(runs: Runs, places: list[tuple[str, ...]]) -> Runs:
    """The seeds at these places; the ensembles only if all their members are among them."""
    records = {
        seed: record
        for seed, record in runs.records.items()
        if any((runs.setting, runs.method, f"seed-{seed}")[: len(place)] == place for place in places)
    }
    whole = runs.ensemble is not None and set(runs.ensemble["seeds"]) <= set(records)
    return dataclasses.replace(runs, records=records, ensemble=runs.ensemble if whole else None)
