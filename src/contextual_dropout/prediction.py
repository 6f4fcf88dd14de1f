"""What K sampled passes of a classifier say about an input.

:class:`Prediction` is for classes that exclude one another (multiclass, binary), :class:`MultilabelPrediction` for
labels that do not; what they have in common is in :class:`Classification`. For regression see
:mod:`contextual_dropout.regression`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar, final

import torch
from torch import Tensor

from contextual_dropout.significance import TwoSampleTest, independent_t, paired_t, top_two_p_value

if TYPE_CHECKING:
    import pandas

__all__ = ["Classification", "MultilabelPrediction", "Prediction", "data_frame"]

Own = TypeVar("Own", bound="Classification")


@dataclass(frozen=True, repr=False, eq=False)
class Classification(ABC):
    """Probabilities under K sampled masks and what follows from them (Section 2.5 and Appendix D of the paper).

    Attributes:
        samples: (K, B, C) probabilities.
        test: the test of :mod:`contextual_dropout.significance` behind :attr:`p_value`.
    """

    samples: Tensor
    test: TwoSampleTest

    def __post_init__(self) -> None:
        if self.samples.ndim != 3 or 0 in (len(self.samples), self.samples.shape[-1]):
            raise ValueError(
                f"samples has shape {tuple(self.samples.shape)}: expected (K, B, C), the probabilities of C classes "
                "for B inputs in each of K >= 1 passes"
            )

    @staticmethod
    @abstractmethod
    def _entropy(probabilities: Tensor) -> Tensor:
        """H in nats of the distribution with these probabilities, (..., C) to (...)."""

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
        if self.samples.shape[-1] < 2:
            raise ValueError("there is one class only, hence no second one: give a binary model task='binary'")
        return self.mean.topk(2, -1).indices

    @cached_property
    def entropy(self) -> Tensor:
        """H of the predictive distribution in nats, the total uncertainty, (B,)."""
        return self._entropy(self.mean)

    @cached_property
    def mutual_information(self) -> Tensor:
        """H of the mean minus the mean of H: how much the masks disagree, in nats, (B,)."""
        return (self.entropy - self._entropy(self.samples).mean(0)).clamp_min(0)

    @property
    def variation_ratio(self) -> Tensor:
        """The share of masks whose own top class is not the most frequent one, (B,)."""
        votes = torch.nn.functional.one_hot(self.samples.argmax(-1), self.samples.shape[-1]).sum(0)
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

    def to(self: Own, *args: Any, **kwargs: Any) -> Own:
        """The same on another device or in another precision, as a tensor's ``to``."""
        return replace(self, samples=self.samples.to(*args, **kwargs))

    def to_pandas(self) -> pandas.DataFrame:
        """One row per input: label, runner-up, confidence and all measures of uncertainty."""
        names = ("confidence", "entropy", "mutual_information", "variation_ratio", "p_value")
        return data_frame(
            {"label": self.label, "second": self.top_two[:, 1], **{name: getattr(self, name) for name in names}}
        )

    def __len__(self) -> int:
        return self.samples.shape[1]

    def __repr__(self) -> str:
        passes, inputs, classes = self.samples.shape
        text = f"{type(self).__name__}: {inputs} inputs, {classes} classes, {passes} samples"
        if not inputs or not self.samples.isfinite().all():
            return text + ("" if not inputs else " (not all finite)")
        text += (
            f"; mean confidence {self.confidence.mean():.3f}, mutual information {self.mutual_information.mean():.3f}"
        )
        return text + (f"; {int(self.certain(0.05).sum())} certain at 0.05" if classes > 1 else "")


@final
@dataclass(frozen=True, repr=False, eq=False)
class Prediction(Classification):
    """Of classes that exclude one another: the C probabilities of a sample sum to one.

    Attributes:
        samples: (K, B, C) probabilities.
        test: behind :attr:`p_value`; ``significance.wilcoxon`` does without normality.

    Example:
        >>> samples = torch.tensor([[[0.7, 0.2, 0.1]], [[0.6, 0.3, 0.1]], [[0.8, 0.1, 0.1]]])
        >>> prediction = Prediction(samples)
        >>> prediction
        Prediction: 1 inputs, 3 classes, 3 samples; mean confidence 0.700, mutual information 0.022; 1 certain at 0.05
        >>> prediction.label, prediction.confidence
        (tensor([0]), tensor([0.7000]))
        >>> prediction.certain(0.05)
        tensor([True])
    """

    test: TwoSampleTest = paired_t

    @staticmethod
    def _entropy(probabilities: Tensor) -> Tensor:
        return _terms(probabilities).sum(-1)


@final
@dataclass(frozen=True, repr=False, eq=False)
class MultilabelPrediction(Classification):
    """Of labels that an input may have several of: C independent probabilities, as in the paper's VQA.

    Entropy and mutual information are those of the C yes-no questions together: their sums.

    Attributes:
        samples: (K, B, C) probabilities.
        test: behind :attr:`p_value`; the paper takes the independent t-test, as the probabilities are not tied.

    Example:
        >>> prediction = MultilabelPrediction(torch.tensor([[[0.9, 0.8, 0.1]], [[0.7, 0.6, 0.1]]]))
        >>> prediction.label, prediction.labels()
        (tensor([0]), tensor([[ True,  True, False]]))
    """

    test: TwoSampleTest = independent_t

    def labels(self, threshold: float = 0.5) -> Tensor:
        """Which labels have a mean probability above the threshold, (B, C) bool."""
        return self.mean > threshold

    @staticmethod
    def _entropy(probabilities: Tensor) -> Tensor:
        return (_terms(probabilities) + _terms(1 - probabilities)).sum(-1)


def data_frame(columns: dict[str, Tensor], **options: Any) -> pandas.DataFrame:
    """Columns (B,) as a table; needs pandas."""
    try:
        import pandas
    except ImportError as error:
        raise ImportError("to_pandas needs pandas: pip install contextual-dropout[pandas]") from error
    return pandas.DataFrame({name: column.detach().cpu().numpy() for name, column in columns.items()}, **options)


def _terms(probabilities: Tensor) -> Tensor:
    # -p log p; a rounding beyond 0 or 1 must not make it infinite or negative.
    terms: Tensor = torch.special.entr(probabilities.clamp(0, 1))
    return terms
