"""The methods: their names in print, their order, and which are whose."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

__all__ = ["ADDED", "CONTEXTUAL", "LABELS", "REFERENCES", "baselines", "label", "label_of", "ordered"]

#: In the order of the tables.
LABELS = {
    "no-dropout": "No dropout",
    "mc-bernoulli": "MC dropout",
    "mc-bernoulli-0.05": "MC dropout, 0.05",
    "mc-gaussian": "MC Gaussian",
    "concrete": "Concrete",
    "bayes-by-backprop": "Bayes by Backprop",
    "gating": "Gating",
    "gating-dropout": "Gating + dropout",
    "mc-bernoulli-tuned": "MC dropout, tuned",
    "gating-dropout-tuned": "Gating + dropout, tuned",
    "learnable-bernoulli": "Learnable Bernoulli",
    "contextual-bernoulli-arm": "Contextual Bernoulli (ARM)",
    "contextual-bernoulli-independent": "Contextual Bernoulli (independent ARM, constant context)",
    "contextual-bernoulli-constant": "Contextual Bernoulli (constant context)",
    "contextual-bernoulli": "Contextual Bernoulli",
    "contextual-gaussian": "Contextual Gaussian",
}
CONTEXTUAL = ("contextual-bernoulli", "contextual-gaussian")
#: Neither ours to be judged nor to be ahead of: the network alone, another rate, and our method by another estimator or
#: with the attention context of the paper, which is the same for every sample.
REFERENCES = (
    "no-dropout",
    "mc-bernoulli-0.05",
    "contextual-bernoulli-arm",
    "contextual-bernoulli-independent",
    "contextual-bernoulli-constant",
)
#: Baselines of ours that the paper does not have.
ADDED = ("mc-bernoulli-tuned", "gating-dropout-tuned", "learnable-bernoulli")


def label(method: str) -> str:
    """A method's name in print; methods that are not ours keep theirs.

    Example:
        >>> label("mc-bernoulli-0.05"), label("mine")
        ('MC dropout, 0.05', 'mine')
    """
    return LABELS.get(method, method)


def label_of(config: Mapping[str, Any]) -> str:
    """A run's method in print, with what it was trained by where its name leaves that open.

    Bernoulli masks have several estimators, and the divergence of Bayes by Backprop may have another weight than 1.

    Args:
        config: the fields of its :class:`~contextual_dropout_lab.runs.config.RunConfig`.

    Example:
        >>> label_of({"method": "contextual-bernoulli", "objective": {"estimator": "straight-through"}})
        'Contextual Bernoulli (straight-through)'
        >>> label_of({"method": "bayes-by-backprop", "objective": {"penalty_weight": 0.1}})
        'Bayes by Backprop (KL weight 0.1)'
    """
    method, objective = config["method"], config.get("objective") or {}
    estimator, weight = objective.get("estimator"), objective.get("penalty_weight", 1)
    if method == "contextual-bernoulli" and estimator:
        return f"{label(method)} ({estimator})"
    return f"{label(method)} (KL weight {weight})" if method == "bayes-by-backprop" and weight != 1 else label(method)


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
    others = (*CONTEXTUAL, *REFERENCES) if added else (*CONTEXTUAL, *REFERENCES, *ADDED)
    return [name for name in LABELS if name not in others]
