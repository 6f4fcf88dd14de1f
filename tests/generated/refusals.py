"""What the library, or torch, may refuse, and to which networks: a refusal for no good reason is wrong, too."""

from __future__ import annotations

import re
from collections.abc import Iterable

from tests.generated.case import Case

__all__ = ["TORCH_SAYS", "has_reason"]

#: What torch says to networks that cannot be trained: written to in place, or batch normalisation of one example.
TORCH_SAYS = ("modified by an inplace operation", "has been modified inplace", "Expected more than 1 value per channel")

#: The words, and the ingredients of which a network must have one.
REASONS: dict[str, tuple[str, ...]] = {
    r"modified by an inplace operation|has been modified inplace": ("write ",),
    r"Expected more than 1 value per channel": ("norm batch",),
    r"drew masks of shape .* log-likelihoods": ("positiontable table",),  # a site of ours that has no axis of samples
    r"run a second time, the closure did something else": ("generator torch", "generator numpy", "generator python"),
    r"pools over all queries of attention that is causal": (
        "keeps average",
    ),  # by which later inputs act on all outputs
    r"generator": ("generator torch", "generator numpy", "generator python"),
    r"not finite": ("family gaussian", "family mixed"),
}


def has_reason(said: str, case: Case) -> bool:
    """Whether a refusal is one that a network with such ingredients must expect."""
    found = list(case.ingredients())
    return any(re.search(words, said) and _any(ingredients, found) for words, ingredients in REASONS.items())


def _any(wanted: Iterable[str], found: list[str]) -> bool:
    return any(name.startswith(prefix) for name in found for prefix in wanted)
