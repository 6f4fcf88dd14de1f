"""All checks on one network after another, and the count of what was seen."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from hypothesis import HealthCheck, Phase, given, note, seed, settings

from tests.generated.case import Case, Refused, Wrong, refusal
from tests.generated.checks.causality import check_causality
from tests.generated.checks.gradients import check_gradients
from tests.generated.checks.predictions import check_predictions
from tests.generated.checks.round_trips import check_saving, check_stripping
from tests.generated.refusals import has_reason
from tests.generated.strategies import cases

__all__ = ["Examiner", "examine"]

#: Networks of one seed. Up to ten, hypothesis draws each by itself; then it also varies those before.
BATCH = 10


@dataclass
class Examiner:
    """Checks networks and counts them.

    Attributes:
        seen: the networks, which hypothesis may repeat.
        passed: those of them for which everything held.
        ingredients: networks by what they are made of.
        paths: predictions by the way they took.
        looks: at predictions, the first ones and those that had to decide.
        held: checks that were passed, by name.
        refusals: by what the library said.
        refused: the first network to which it said so.
    """

    seen: set[Case] = field(default_factory=set)
    passed: set[Case] = field(default_factory=set)
    ingredients: Counter[str] = field(default_factory=Counter)
    paths: Counter[str] = field(default_factory=Counter)
    looks: Counter[str] = field(default_factory=Counter)
    held: Counter[str] = field(default_factory=Counter)
    refusals: Counter[str] = field(default_factory=Counter)
    refused: dict[str, Case] = field(default_factory=dict)

    def __call__(self, case: Case) -> None:
        """Check one network.

        Raises:
            Wrong: one of the checks does not hold.
        """
        if case in self.passed:
            return
        if case not in self.seen:
            self.seen.add(case)
            self.ingredients.update(case.ingredients())
        self._check(case)
        self.passed.add(case)

    def _check(self, case: Case) -> None:
        network = case.network
        try:
            model = network.built()
        except Exception as error:
            self._refuse(case, "contextualize", error)
            return
        self._hold(case, "predictions", lambda: self.looks.update(check_predictions(case, model, self.paths)))
        self._hold(case, "gradients", lambda: check_gradients(case, model))
        self._hold(case, "saving", lambda: check_saving(case, model))
        if network.sites == "converted":
            self._hold(case, "causality", lambda: check_causality(case, network.plain(), model))
            self._hold(case, "stripping", lambda: check_stripping(case))

    def figures(self) -> dict[str, int | float | str]:
        """What the record of a full trial shows."""
        counted = {
            "networks by ingredient": self.ingredients,
            "predictions by path": self.paths,
            "checks that held": self.held,
            "refusals": self.refusals,
        }
        return {
            "networks": len(self.seen),
            "comparisons of predictions": self.looks["first"],
            "of these looked at again with 4,000 samples": self.looks["second"],
            **{name: _listed(counts) for name, counts in counted.items()},
        }

    def _hold(self, case: Case, name: str, check: Callable[[], None]) -> None:
        try:
            check()
        except Wrong:
            raise
        except Exception as error:
            self._refuse(case, name, error)
        else:
            self.held[name] += 1

    def _refuse(self, case: Case, name: str, error: Exception) -> None:
        """Count a clear refusal.

        Raises:
            Wrong: it is an error that the library did not raise on purpose, or not one that it should raise.
        """
        said = str(error) if isinstance(error, Refused) else refusal(error)
        if said is None:
            raise Wrong(f"{name} fails: {error!r}") from error
        if not has_reason(said, case):
            raise Wrong(f"{name} is refused for no good reason: {said}") from error
        words = f"{name}: {_short(said)}"
        self.refusals[words] += 1
        self.refused.setdefault(words, case)


def examine(check: Callable[[Case], None], seeds: Iterable[int], *, shrink: bool = True) -> None:
    """Call ``check`` with ten random networks of each seed; a failing one is made small, and shown with its seed."""
    phases = (Phase.generate, Phase.shrink) if shrink else (Phase.generate,)
    quiet = list(HealthCheck)
    run = settings(max_examples=BATCH, deadline=None, database=None, suppress_health_check=quiet, phases=phases)
    number = 0

    def one(case: Case) -> None:
        note(f"networks of seed {number}")
        check(case)

    for number in seeds:
        seed(number)(run(given(case=cases())(one)))()


def _listed(counts: Counter[str]) -> str:
    return ", ".join(f"{name} {number:,}" for name, number in counts.most_common())


def _short(said: str) -> str:
    """The first words, without what differs from network to network."""
    return re.sub(r"'[^']*'|[(][\d, ]*[)]|\d+", "…", said.split("\n")[0])[:120]
