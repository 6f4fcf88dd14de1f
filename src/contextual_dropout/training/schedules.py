"""Weights of the KL term over training."""

from __future__ import annotations

import math
from typing import Any, Protocol

__all__ = ["Constant", "LinearWarmup", "Schedule"]


class Schedule(Protocol):
    """A weight that moves on once per training step and can be saved and restored."""

    @property
    def weight(self) -> float:
        """The weight of the current step."""

    def advance(self) -> None:
        """Move on to the next step."""

    def state_dict(self) -> dict[str, Any]:
        """The state of the schedule."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume from the state of another schedule."""


class Constant:
    """A weight that never changes."""

    def __init__(self, weight: float) -> None:
        self.weight = _checked("kl_weight", weight)

    def advance(self) -> None:
        """Do nothing."""

    def state_dict(self) -> dict[str, Any]:
        """An empty state."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Do nothing."""


class LinearWarmup:
    """A weight that rises from ``start`` to ``end`` in ``steps`` equal steps and then stays.

    Example:
        >>> warmup = LinearWarmup(steps=4)
        >>> [(warmup.weight, warmup.advance())[0] for _ in range(6)]
        [0.0, 0.25, 0.5, 0.75, 1.0, 1.0]
    """

    def __init__(self, steps: int, start: float = 0.0, end: float = 1.0) -> None:
        if steps < 1:
            raise ValueError(f"steps must be at least 1, got {steps}")
        self.steps = steps
        self.start = _checked("start", start)
        self.end = _checked("end", end)
        self._step = 0

    @property
    def weight(self) -> float:
        """The weight of the current step."""
        return self.start + (self.end - self.start) * min(self._step / self.steps, 1.0)

    def advance(self) -> None:
        """Move on to the next step."""
        self._step += 1

    def state_dict(self) -> dict[str, Any]:
        """The number of steps taken."""
        return {"step": self._step}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume from the saved step."""
        self._step = int(state["step"])


def _checked(name: str, weight: float) -> float:
    if not hasattr(weight, "__float__"):
        raise TypeError(f"{name} must be a number or a schedule such as LinearWarmup, got {weight!r}")
    weight = float(weight)
    if not (math.isfinite(weight) and weight >= 0):
        raise ValueError(f"{name} must be a finite number that is not negative, got {weight}")
    return weight
