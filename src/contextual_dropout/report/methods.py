"""The methods: their names in print, their order, and which are whose."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["ADDED", "CONTEXTUAL", "LABELS", "baselines", "label", "ordered"]

#: In the order of the tables.
LABELS = {
    "mc-bernoulli": "MC Bernoulli",
    "mc-gaussian": "MC Gaussian",
    "concrete": "Concrete",
    "bayes-by-backprop": "Bayes by Backprop",
    "gating": "Gating",
    "gating-dropout": "Gating + dropout",
    "mc-bernoulli-tuned": "Tuned MC Bernoulli",
    "gating-tuned": "Tuned gating",
    "learnable-bernoulli": "Learnable Bernoulli",
    "contextual-bernoulli": "Contextual Bernoulli",
    "contextual-gaussian": "Contextual Gaussian",
}
CONTEXTUAL = ("contextual-bernoulli", "contextual-gaussian")
#: Baselines of ours that the paper does not have.
ADDED = ("mc-bernoulli-tuned", "gating-tuned", "learnable-bernoulli")


def label(method: str) -> str:
    """A method's name in print; methods that are not ours keep theirs.

    Example:
        >>> label("concrete"), label("mine")
        ('Concrete', 'mine')
    """
    return LABELS.get(method, method)


def ordered(methods: Iterable[str]) -> list[str]:
    """Known methods in the order of the tables, then others by name.

    Example:
        >>> ordered({"mine", "concrete", "mc-bernoulli"})
        ['mc-bernoulli', 'concrete', 'mine']
    """
    known = list(LABELS)
    return sorted(set(methods), key=lambda name: (known.index(name) if name in known else len(known), name))


def baselines(*, added: bool) -> list[str]:
    """The methods to be ahead of: the paper's, and those that we added if ``added``."""
    return [name for name in LABELS if name not in CONTEXTUAL and (added or name not in ADDED)]
