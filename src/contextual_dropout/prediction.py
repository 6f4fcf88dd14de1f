"""What K sampled passes say about an input."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from contextual_dropout.significance import TwoSampleTest, paired_t, top_two_p_value

__all__ = ["Prediction"]


@dataclass(frozen=True)
class Prediction:
    """Class probabilities under K sampled masks and what follows from them (Section 2.5 and Appendix D of the paper).

    Attributes:
        samples: (K, B, C) probabilities.
        test: the test of :mod:`contextual_dropout.significance` behind :attr:`p_value`.

    Example:
        >>> samples = torch.tensor([[[0.7, 0.2, 0.1]], [[0.6, 0.3, 0.1]], [[0.8, 0.1, 0.1]]])
        >>> prediction = Prediction(samples)
        >>> prediction.label, prediction.confidence
        (tensor([0]), tensor([0.7000]))
        >>> prediction.certain(0.05)
        tensor([True])
    """

    samples: Tensor
    test: TwoSampleTest = paired_t

    @cached_property
    def mean(self) -> Tensor:
        """The predictive distribution: probabilities averaged over the masks, (B, C)."""
        return self.samples.mean(0)

    @property
    def label(self) -> Tensor:
        """The class of the highest mean probability, (B,)."""
        return self.mean.argmax(-1)

    @property
    def confidence(self) -> Tensor:
        """The mean probability of that class, (B,)."""
        return self.mean.amax(-1)

    @property
    def top_two(self) -> Tensor:
        """The classes of the two highest mean probabilities, (B, 2)."""
        return self.mean.topk(2, -1).indices

    @property
    def entropy(self) -> Tensor:
        """H of the predictive distribution in nats, the total uncertainty, (B,)."""
        return _entropy(self.mean)

    @property
    def mutual_information(self) -> Tensor:
        """H of the mean minus the mean of H: how much the masks disagree, in nats, (B,)."""
        return (self.entropy - _entropy(self.samples).mean(0)).clamp_min(0)

    @property
    def variation_ratio(self) -> Tensor:
        """The share of masks whose own top class is not the most frequent one, (B,)."""
        classes = self.samples.shape[-1]
        votes = torch.nn.functional.one_hot(self.samples.argmax(-1), classes).sum(0)
        return 1 - votes.amax(-1) / len(self.samples)

    @cached_property
    def p_value(self) -> Tensor:
        """Of the hypothesis that the two highest classes have equal mean probability, (B,)."""
        return top_two_p_value(self.samples, self.test)

    def certain(self, threshold: float = 0.05) -> Tensor:
        """Whether the top class stands out: p-value below the threshold, (B,)."""
        if not 0 < threshold < 1:
            raise ValueError(f"threshold is a significance level between 0 and 1, got {threshold}")
        return self.p_value < threshold

    def __len__(self) -> int:
        return self.samples.shape[1]


def _entropy(probabilities: Tensor) -> Tensor:
    terms: Tensor = torch.special.entr(probabilities)
    return terms.sum(-1)
