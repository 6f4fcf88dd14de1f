"""REINFORCE with a baseline. Unbiased; the baseline decides the variance."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor

from contextual_dropout.replay.distributed import sum_over_processes
from contextual_dropout.training.credit import spread
from contextual_dropout.training.estimators.reparameterized import Pathwise, exact
from contextual_dropout.training.signals import Signal
from contextual_dropout.training.trial import Trial, sample

__all__ = ["LeaveOneOut", "MovingAverage", "Reinforce"]


class Baseline(Protocol):
    """A number to subtract from the reward, which must not depend on the masks that earned the reward."""

    reruns: bool
    """Whether it runs further passes."""

    def __call__(self, trial: Trial) -> Callable[[int], Tensor]:
        """The baseline of each draw in this trial, a scalar or (B,)."""

    def state_dict(self) -> dict[str, Any]:
        """The state of the baseline."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a saved state."""


class MovingAverage:
    """The exponential moving average of earlier steps' mean rewards, over all processes; no extra pass.

    Args:
        decay: weight of the past.
    """

    reruns = False

    def __init__(self, decay: float = 0.9) -> None:
        if not 0 <= decay < 1:
            raise ValueError(f"decay must be in [0, 1), got {decay}")
        self.decay = decay
        self._average: list[float] = []

    def __call__(self, trial: Trial) -> Callable[[int], Tensor]:
        """The averages before this trial; the trial's own rewards enter for the next one."""
        rewards = [trial.true.reward(index) for index in range(len(trial.draws))]
        sums = [reward.sum() for reward in rewards] + [rewards[0].new_tensor(rewards[0].numel())]
        *totals, count = sum_over_processes(torch.stack(sums)).tolist()
        means = [total / max(count, 1) for total in totals]
        if len(self._average) != len(means):
            self._average = [0.0] * len(means)
        before = self._average
        self._average = [self.decay * old + (1 - self.decay) * new for old, new in zip(before, means, strict=True)]
        return lambda index: torch.tensor(before[index])

    def state_dict(self) -> dict[str, Any]:
        """The averages."""
        return {"average": list(self._average)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume from saved averages."""
        self._average = [float(value) for value in state["average"]]


class LeaveOneOut:
    """Each example's mean reward over further, independent samples of its masks.

    Args:
        passes: how many further samples; each costs the suffix after the first draw.
    """

    reruns = True

    def __init__(self, passes: int = 1) -> None:
        if passes < 1:
            raise ValueError(f"passes must be at least 1, got {passes}")
        self.passes = passes

    def __call__(self, trial: Trial) -> Callable[[int], Tensor]:
        """Mean rewards (B,) of the further samples."""
        first = trial.score_draws[0][0]
        others = [trial.resample(first) for _ in range(self.passes)]
        return lambda index: torch.stack([other.reward(index) for other in others]).mean(0)

    def state_dict(self) -> dict[str, Any]:
        """An empty state."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Do nothing: this baseline keeps no state."""


@dataclass(frozen=True)
class Reinforce:
    """(r(z) - baseline) grad log q(z), with grad_a log q(z) = z - sigmoid(a) (Appendix A of the paper).

    Args:
        baseline: :class:`MovingAverage` or :class:`LeaveOneOut`.
        pathwise: what the Gaussian sites of a mixed model use.
    """

    baseline: Baseline = field(default_factory=MovingAverage)
    pathwise: Pathwise = exact
    sampler = staticmethod(sample)

    @property
    def reruns(self) -> bool:
        """Whether the baseline runs further passes."""
        return self.baseline.reruns

    def __call__(self, trial: Trial) -> list[Signal]:
        """One signal per draw."""
        signals = []
        if trial.score_draws:
            baseline = self.baseline(trial)
            for index, draw in trial.score_draws:
                advantage = trial.true.reward(index) - baseline(index)
                score = draw.mask - draw.logits.detach().sigmoid()
                signals.append(Signal(draw.logits, spread(advantage, score) * score))
        return signals + self.pathwise(trial, signals)

    def state_dict(self) -> dict[str, Any]:
        """The baseline's state."""
        return self.baseline.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the baseline's state."""
        self.baseline.load_state_dict(state)
