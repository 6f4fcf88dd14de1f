"""Which way a prediction took, for the count of networks by path."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

from contextual_dropout.prediction import passes, prefix

__all__ = ["taken"]

#: The functions that run samples, by the name of the path; one that is not there any more is not counted.
WAYS = {"_folded": "folded", "_batched": "vmapped", "_looped": "looped", "_plain": "plain loop"}


@contextmanager
def taken() -> Iterator[list[str]]:
    """Notes the paths that predictions inside take to their end; nothing else is changed."""
    names: list[str] = []

    def noted(function: Any, name: str) -> Any:
        def run(*args: Any, **keywords: Any) -> Any:
            out = function(*args, **keywords)
            if name not in names:
                names.append(name)
            return out

        return run

    with ExitStack() as stack:
        for module, functions in ((passes, WAYS), (prefix.SharedPrefix, {"_replay": "shared prefix"})):
            for function, name in functions.items():
                if hasattr(module, function):
                    stack.enter_context(mock.patch.object(module, function, noted(getattr(module, function), name)))
        yield names
