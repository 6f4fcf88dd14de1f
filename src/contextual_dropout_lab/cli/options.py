"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from contextual_dropout_lab.errors import ConfigError
from contextual_dropout_lab.store.yaml_files import parse_yaml

__all__ = ["DataDirectory", "Networks", "Preset", "Processes", "Records", "Work", "networks_for", "parse_assignments"]

Preset = Annotated[
    str | None, typer.Option(help="How much: see `contextual-dropout list`; by default the first there.")
]
Processes = Annotated[int | None, typer.Option(help="Runs side by side, one thread each; by default all cores.", min=1)]
Records = Annotated[Path, typer.Option(help="Folder of the records, one JSON file per run.")]
Work = Annotated[Path, typer.Option(help="Folder of checkpoints, networks and predictions.")]
Networks = Annotated[
    Path | None,
    typer.Option(
        help="Folder for trained networks in half precision, small enough to track: ensembles are made of these where "
        "predictions are missing. By default networks/ beside the records, if there is such a folder."
    ),
]
DataDirectory = Annotated[
    Path | None,
    typer.Option("--data", help="Folder of the data sets; else CONTEXTUAL_DROPOUT_DATA, the cache, or a download."),
]


def parse_assignments(assignments: list[str]) -> dict[str, Any]:
    """Nested values from ``field=value`` and ``field.key=value``; values are YAML.

    Example:
        >>> parse_assignments(["epochs=3", "objective.kl_weight=0.01", "hidden=[20, 10]"])
        {'epochs': 3, 'objective': {'kl_weight': 0.01}, 'hidden': [20, 10]}

    Raises:
        typer.BadParameter: one is not an assignment, its value is not YAML, or its field is inside a plain value.
    """
    result: dict[str, Any] = {}
    for assignment in assignments:
        name, equals, value = assignment.partition("=")
        *path, last = name.split(".")
        if not equals or not all((*path, last)):
            raise typer.BadParameter(f"{assignment!r} is not an assignment: expected field=value, such as epochs=3")
        place = result
        for key in path:
            place = place.setdefault(key, {})
            if not isinstance(place, dict):
                raise typer.BadParameter(f"{assignment!r} is inside of {key}, which was set to {place!r} before")
        try:
            place[last] = parse_yaml(value, f"the value of {assignment!r}")
        except ConfigError as error:
            raise typer.BadParameter(str(error)) from error
    return result


def networks_for(records: Path, given: Path | None) -> Path | None:
    """The folder of tracked networks: the given one, or the one beside the records where there is one."""
    beside = records.parent / "networks"
    return given or (beside if beside.is_dir() else None)
