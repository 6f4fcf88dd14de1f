"""Mends taken out again, one after the other: does the tester notice?

Each mutant gives the library its old behaviour back by replacing one or two of its functions, and names a network that
shows it. Where the library changes, a mutant has to follow: what it replaces must exist.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any
from unittest import mock

from torch import Tensor, nn

from contextual_dropout.conversion import layer_options, settling
from contextual_dropout.conversion.causality import CausalAxes
from contextual_dropout.nn import functional_dropout
from contextual_dropout.prediction import predict, prefix, trace
from contextual_dropout.prediction.prefix import SharedPrefix
from contextual_dropout.prediction.trace import Trace
from contextual_dropout.replay.own_state import OwnState
from tests.generated.case import Case
from tests.generated.composition import Branches
from tests.generated.habits import Draw, Generator, Keeps, Write
from tests.generated.layers import Dense, Drop, Functional
from tests.generated.mixing import Attention
from tests.generated.network import Network

__all__ = ["MUTANTS", "Mutant"]


@dataclass(frozen=True)
class Mutant:
    """A mend that can be taken out.

    Attributes:
        name: what is wrong without it.
        old: the replacements: object, attribute, and a function from what stands there to the old behaviour.
        case: a network that shows it.
    """

    name: str
    old: tuple[tuple[Any, str, Callable[[Any], Any]], ...]
    case: Case

    @contextmanager
    def alive(self) -> Iterator[None]:
        """Inside, the library is as it was before the mend."""
        with ExitStack() as stack:
            for owner, name, replaced in self.old:
                stack.enter_context(mock.patch.object(owner, name, replaced(getattr(owner, name))))
            yield


def _known_by_tensor(masked: Any) -> Any:
    """The logits of the first site, also for other sites and contexts on its tensor."""

    def old(self: SharedPrefix, site: nn.Module, u: Tensor, context: Tensor | None = None) -> Tensor:
        fork = self._fork
        if fork is not None and fork.logits is not None and u is fork.arguments[0]:
            self._known = fork.logits
        out: Tensor = masked(self, site, u, context)
        return out

    return old


def _first_argument(masked: Any) -> Any:
    """Looks at the first tensor that the first random call was given, also if it was given none."""

    def old(self: SharedPrefix, site: nn.Module, u: Tensor, context: Tensor | None = None) -> Tensor:
        if self._fork is not None:
            _ = self._fork.arguments[0]
        out: Tensor = masked(self, site, u, context)
        return out

    return old


def _members_by_name(members_of: Any) -> Any:
    def old(model: Any) -> Any:
        members = getattr(model, "members", model)
        return list(members) if isinstance(members, list | tuple | nn.ModuleList) else [model]

    return old


def _generators_unseen(note: Any) -> Any:
    def old(self: Trace, func: Any, args: Any, kwargs: Any) -> None:
        note(self, func, args, kwargs)
        self.own_generator = False

    return old


def _by_function(follows: Any) -> Any:
    """Passes are alike where the same functions are called, whatever they are given."""

    def old(self: Trace, position: int, func: Any, args: Any, kwargs: Any) -> bool:
        return position < len(self._calls) and self._calls[position][0] == func

    return old


def _always(value: Any) -> Callable[[Any], Any]:
    return lambda _: lambda *args, **keywords: value


def _none_causal(causal_by_construction: Any) -> Any:
    return lambda model, names: dict.fromkeys(names, "free")


def _no_causal_axes(causal_axes: Any) -> Any:
    def old(*args: Any, **keywords: Any) -> CausalAxes:
        found = causal_axes(*args, **keywords)
        return CausalAxes({}, found.calls, True)

    return old


def _case(*blocks: Any, way: Any = "one", **options: Any) -> Case:
    return Case(Network(blocks, **options), way)


MUTANTS = (
    Mutant(
        "a site predicts with another site's rates",
        ((SharedPrefix, "_masked", _known_by_tensor),),
        _case(Branches((Drop(0.1), Drop(0.8))), form="dict"),
    ),
    Mutant(
        "a draw by shape before a site is an IndexError",
        ((SharedPrefix, "_masked", _first_argument),),
        _case(Draw("shape"), Drop(0.5)),
    ),
    Mutant(
        "converted causal networks see the future",
        ((layer_options, "causal_by_construction", _none_causal), (settling, "causal_axes", _no_causal_axes)),
        _case(Drop(0.5), Attention(0.5, causal=True), length=3),
    ),
    Mutant(
        "tensors of vmap stay on the model",
        ((Trace, "kept", _always(False)), (OwnState, "changed", _always(False))),
        _case(Drop(0.5), Keeps("attribute")),
    ),
    Mutant(
        "an attribute called members makes an ensemble",
        ((predict, "members_of", _members_by_name),),
        _case(Drop(0.5), name="members"),
    ),
    Mutant(
        "generators of the network's own give one draw to all samples",
        (
            (Trace, "note", _generators_unseen),
            (Trace, "follows", _by_function),
            (OwnState, "drew", _always(False)),
        ),
        _case(Drop(0.5), Generator("numpy")),
    ),
    Mutant(
        "members of an ensemble draw alike",
        ((predict, "seed_of", lambda _: lambda seed, number: seed),),
        _case(Drop(0.5), Generator("global numpy"), way="ensemble"),
    ),
    Mutant(
        "writes below autograd go unnoticed",
        ((trace, "MEMORY", lambda _: frozenset()),),
        _case(Dense(), Write(0.5, "data"), sites="placed"),
    ),
    Mutant(
        "functional dropout is off",
        (
            (prefix, "switched_on", lambda _: lambda func, args, kwargs: (args, kwargs)),
            (functional_dropout, "switched_on", lambda _: lambda func, args, kwargs: (args, kwargs)),
        ),
        _case(Drop(0.5), Functional(0.5), sites="placed"),
    ),
)
