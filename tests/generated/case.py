"""A network with the way in which it is used, and how a check may end."""

from __future__ import annotations

import linecache
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import contextual_dropout
from tests.generated.network import Network

__all__ = ["Case", "Refused", "Wrong", "refusal"]

LIBRARY = str(Path(contextual_dropout.__file__).parent)


class Wrong(AssertionError):
    """Something that must hold for every network does not hold for this one."""


class Refused(Exception):
    """The library said clearly that it cannot do it."""


@dataclass(frozen=True)
class Case:
    """A network and how it is used.

    Attributes:
        network: what is built.
        way: of predicting besides the default: with one, two or all samples at a time, or as an ensemble of two.
        calls: into how many calls of :func:`cd.predict` the samples are divided.
        estimator: of the objective.
    """

    network: Network
    way: Literal["one", "two", "all", "ensemble"] = "one"
    calls: int = 1
    estimator: Literal["straight-through", "auto", "sequential-disarm", "sampled-arm"] = "straight-through"

    def ingredients(self) -> Iterator[str]:
        """The names of all that it is made of."""
        yield from dict.fromkeys(self.network.ingredients())
        yield f"estimator {self.estimator}"
        yield f"batch of {self.network.batch}"


def refusal(error: BaseException) -> str | None:
    """What the library said, if it raised the error on purpose, or warned; else None."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    line = linecache.getline(frame.filename, frame.lineno or 0).strip()
    clear = isinstance(error, ValueError | RuntimeError | TypeError | ArithmeticError | UserWarning)
    # A statement over several lines is found by its first one, where traceback puts it.
    return (
        str(error)
        if clear and frame.filename.startswith(LIBRARY) and line.startswith(("raise", "warnings.warn"))
        else None
    )
