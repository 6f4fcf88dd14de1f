"""Random networks for hypothesis: what stands first is what a failing network shrinks to."""

from __future__ import annotations

from dataclasses import replace
from types import NoneType
from typing import Any, get_args, get_type_hints

from hypothesis import strategies as st

from tests.generated.case import Case
from tests.generated.composition import Branches, Chain, Repeated, Residual
from tests.generated.habits import Draw, Generator, Keeps, Named, Write
from tests.generated.layers import Context, Dense, Drop, Functional, Norm, PositionTable, Widths
from tests.generated.mixing import Attention, Convolution, Recurrent, Rows
from tests.generated.network import Network
from tests.generated.plan import Block

__all__ = ["INGREDIENTS", "cases"]

RATES = st.sampled_from([0.5, 0.2, 0.1, 0.8])
#: Blocks for vectors and sequences, and those for sequences only; one that stands twice is drawn twice as often.
HABITS = (Write, Generator, Keeps)
LEAVES = (Drop, Dense, Drop, Norm, Context, Functional, Draw, Rows, Widths, Named, *HABITS, *HABITS)
OVER_POSITIONS = (Attention, Attention, Attention, Recurrent, Convolution, PositionTable)
#: The names under which networks are counted, of all that can be drawn.
INGREDIENTS = frozenset(
    f"{block.__name__.lower()} {kind}".strip()
    for block in (*LEAVES, *OVER_POSITIONS, Repeated)
    for kind in (get_args(get_type_hints(block)["kind"]) if "kind" in get_type_hints(block) else ("",))
) | {"branches", "residual", "causal mask", "padding mask"}


def cases() -> st.SearchStrategy[Case]:
    """Networks with the way in which they are used."""
    return st.builds(
        Case,
        network=networks(),
        way=_any_of(Case, "way"),
        calls=st.sampled_from([1, 1, 4]),
        estimator=_any_of(Case, "estimator"),
    ).map(lambda case: replace(case, calls=1) if case.network.own_generators else case)


@st.composite
def networks(draw: st.DrawFn) -> Network:
    """Networks of one to four blocks, at least one of which drops."""
    length = draw(st.sampled_from([None, 3, 3, 2]))
    body = draw(st.lists(blocks(length is not None, depth=2), min_size=0, max_size=3))
    body.insert(draw(st.integers(0, len(body))), Drop(draw(RATES)))
    options = {name: draw(_any_of(Network, name)) for name in ("sites", "family", "positions", "form")}
    options["name"] = draw(st.sampled_from([None] * 9 + ["members", "replaced", "contextual_dropout"]))
    if length is None:
        options["positions"] = None
    if options["sites"] == "converted" and options["family"] == "mixed":
        options["family"] = "bernoulli"
    batch, seed = draw(st.sampled_from([2, 3, 1, 5])), draw(st.integers(0, 10_000))
    return Network(tuple(body), length, batch=batch, seed=seed, **options)


@st.composite
def blocks(draw: st.DrawFn, sequences: bool, depth: int) -> Block:
    """One block; composite ones have at most ``depth`` levels."""
    if depth == 0 or draw(st.sampled_from([False, False, True])) is False:
        return draw(leaf(draw(st.sampled_from((*LEAVES, *OVER_POSITIONS) if sequences else LEAVES))))
    inner = blocks(sequences, depth - 1)
    several = st.lists(inner, min_size=2, max_size=3).map(tuple)
    sites = st.lists(st.builds(Drop, RATES), min_size=2, max_size=3).map(tuple)
    composites: list[st.SearchStrategy[Block]] = [
        st.builds(Branches, sites),
        st.builds(Branches, several),
        st.builds(Residual, inner),
        st.builds(Repeated, inner, kind=_any_of(Repeated, "kind")),
        st.builds(Chain, several),
    ]
    return draw(st.one_of(*composites))


def leaf(block: type[Block]) -> st.SearchStrategy[Block]:
    """Blocks of one class with any values of its fields."""
    hints = get_type_hints(block)
    fields: dict[str, st.SearchStrategy[Any]] = {"p": RATES, "calls": st.sampled_from([1, 2])}
    given = {name: fields[name] if name in fields else _any_of(block, name) for name in hints}
    return st.builds(block, **given)


def _any_of(owner: type[Any], name: str) -> st.SearchStrategy[Any]:
    """The values that the type of a field allows, its default first."""
    hint = get_type_hints(owner)[name]
    values = [False, True] if hint is bool else _options(hint)
    default = owner.__dataclass_fields__[name].default
    return st.sampled_from(sorted(values, key=lambda value: value != default))


def _options(hint: Any) -> list[Any]:
    """The values of a Literal, or of a union of one and None."""
    parts = [_options(part) if get_args(part) else [part] for part in get_args(hint)]
    return [None if value is NoneType else value for part in parts for value in part]
