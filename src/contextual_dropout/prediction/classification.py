"""Predictions of a classifier from K sampled passes.

:class:`Prediction` is for classes that exclude one another (multiclass, binary), :class:`MultilabelPrediction` for
labels that do not; what they have in common is in :class:`Classification`. For regression see
:mod:`contextual_dropout.prediction.regression`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, final

import torch
import torch.nn.functional as F
from torch import Tensor

from contextual_dropout.significance import (
    TwoSampleTest,
    independent_t,
    leading_classes,
    mean_probability,
    paired_t,
    top_two_p_value,
)

if TYPE_CHECKING:
    import pandas

__all__ = ["Classification", "MultilabelPrediction", "Prediction", "check_alike", "data_frame"]

#: Probabilities exceed one by rounding, most in half precision.
SLACK = 1e-2

Own = TypeVar("Own", bound="Classification")


class Classification(ABC):
    """Probabilities under K sampled masks and what follows from them (Section 2.5 and Appendix D of the paper).

    It is made from probabilities, or by :meth:`from_logits` from logits: then the logarithms of probabilities that are
    too small for a floating-point number are known as well, in :attr:`log_probabilities`. It is immutable.

    Args:
        samples: (K, B, C) probabilities.
        test: the test of :mod:`contextual_dropout.significance` behind :attr:`p_value`.
    """

    test: TwoSampleTest
    _logits: Tensor | None = None
    _usual_test: ClassVar[TwoSampleTest]

    def __init__(self, samples: Tensor, test: TwoSampleTest | None = None) -> None:
        _check("samples", samples, "probabilities")
        _check_range(samples)
        vars(self).update(samples=samples, test=_checked(test) or self._usual_test)

    @classmethod
    def from_logits(cls: type[Own], logits: Tensor, test: TwoSampleTest | None = None) -> Own:
        """Make a prediction from what a network returned.

        Args:
            logits: (K, B, C), before the softmax or sigmoid.
            test: as for the class itself.

        Example:
            >>> Prediction.from_logits(torch.tensor([[[0.0, -200.0]]])).log_probabilities
            tensor([[[   0., -200.]]])
        """
        _check("logits", logits, "logits")
        prediction = cls.__new__(cls)
        vars(prediction).update(_logits=cls._shifted(logits), test=_checked(test) or cls._usual_test)
        return prediction

    @classmethod
    def cat(cls: type[Own], predictions: Sequence[Own]) -> Own:
        """One prediction for the inputs of several, batch after batch, (K, B1 + B2 + ..., C).

        Example:
            >>> half = Prediction(torch.full((4, 5, 2), 0.5))
            >>> Prediction.cat([half, half]).samples.shape
            torch.Size([4, 10, 2])
        """
        check_alike(cls, predictions)
        test = predictions[0].test
        if any(each.test is not test for each in predictions):
            raise ValueError("the predictions have different tests behind their p-values: give all of them the same")
        logits = [each._logits for each in predictions if each._logits is not None]
        if len(logits) == len(predictions):
            return cls.from_logits(torch.cat(logits, 1), test)
        return cls(torch.cat([each.samples for each in predictions], 1), test)

    @cached_property
    def samples(self) -> Tensor:
        """The probabilities, (K, B, C)."""
        assert self._logits is not None
        return self._probabilities(self._logits)

    @property
    def shape(self) -> torch.Size:
        """(K, B, C)."""
        return self.samples.shape if self._logits is None else self._logits.shape

    @property
    def log_probabilities(self) -> Tensor:
        """The logarithms of the probabilities, (K, B, C): finite also where a probability is rounded to zero."""
        return self.samples.log() if self._logits is None else self._log_probabilities(self._logits)

    @staticmethod
    @abstractmethod
    def _probabilities(logits: Tensor) -> Tensor:
        """The probabilities of logits (K, B, C), of the same shape."""

    @staticmethod
    @abstractmethod
    def _log_probabilities(logits: Tensor) -> Tensor:
        """The logarithms of the probabilities of logits (K, B, C), of the same shape."""

    @staticmethod
    def _shifted(logits: Tensor) -> Tensor:
        """Logits of the same probabilities that fit into any precision."""
        return logits

    @staticmethod
    @abstractmethod
    def _entropy(probabilities: Tensor) -> Tensor:
        """H in nats of the distribution with these probabilities, (..., C) to (...)."""

    @cached_property
    def mean(self) -> Tensor:
        """The predictive distribution: probabilities averaged over the masks, (B, C)."""
        return mean_probability(self.samples).to(self.samples)

    @property
    def label(self) -> Tensor:
        """The class of the highest mean probability, (B,); among equal ones the lowest."""
        return self._leading[:, 0]

    @property
    def confidence(self) -> Tensor:
        """The mean probability of that class, (B,)."""
        return self.mean.gather(-1, self._leading[:, :1]).squeeze(-1)

    @property
    def top_two(self) -> Tensor:
        """The classes of the two highest mean probabilities, (B, 2)."""
        if self.shape[-1] < 2:
            raise ValueError("there is only one class, so no second one: give a binary model task='binary'")
        return self._leading

    @cached_property
    def _leading(self) -> Tensor:
        """The two leading classes, (B, 2), in one place: label, confidence and p-value are about the same classes."""
        return leading_classes(self.samples)

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
        votes = F.one_hot(self.samples.argmax(-1), self.shape[-1]).sum(0)
        return 1 - votes.amax(-1) / len(self.samples)

    @cached_property
    def p_value(self) -> Tensor:
        """The p-value of the hypothesis that the two highest classes have equal mean probability, (B,)."""
        return top_two_p_value(self.samples, self.test)

    def certain(self, threshold: float = 0.05) -> Tensor:
        """Whether the top class stands out: p-value below the threshold, (B,)."""
        number = hasattr(threshold, "__float__")
        if not number or not 0 < threshold < 1:
            kind = ValueError if number else TypeError
            raise kind(f"threshold is a significance level between 0 and 1, got {threshold!r}")
        return self.p_value < threshold

    def to(self: Own, *args: Any, **kwargs: Any) -> Own:
        """The same on another device or in another precision, as a tensor's ``to``."""
        if self._logits is None:
            return type(self)(self.samples.to(*args, **kwargs), self.test)
        return self.from_logits(self._logits.to(*args, **kwargs), self.test)

    def to_pandas(self) -> pandas.DataFrame:
        """One row per input: label, runner-up, confidence and all measures of uncertainty."""
        names = ("confidence", "entropy", "mutual_information", "variation_ratio", "p_value")
        return data_frame(
            {"label": self.label, "second": self.top_two[:, 1], **{name: getattr(self, name) for name in names}}
        )

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"cannot set {name}: a {type(self).__name__} does not change; make another one")

    def __len__(self) -> int:
        return self.shape[1]

    def __repr__(self) -> str:
        passes, inputs, classes = self.shape
        text = f"{type(self).__name__}: {inputs} inputs, {classes} classes, {passes} samples"
        if not inputs or not self.samples.isfinite().all():
            return text + ("" if not inputs else " (not all finite)")
        text += (
            f"; mean confidence {self.confidence.mean():.3f}, mutual information {self.mutual_information.mean():.3f}"
        )
        return text + (f"; {int(self.certain(0.05).sum())} certain at 0.05" if classes > 1 else "")


@final
class Prediction(Classification):
    """A prediction for classes that exclude one another: the C probabilities of a sample sum to one.

    Args:
        samples: (K, B, C) probabilities.
        test: behind :attr:`p_value`, by default ``paired_t``; ``significance.wilcoxon`` does not assume normality.

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

    _usual_test = staticmethod(paired_t)

    @staticmethod
    def _probabilities(logits: Tensor) -> Tensor:
        return logits.softmax(-1)

    @staticmethod
    def _log_probabilities(logits: Tensor) -> Tensor:
        return logits.log_softmax(-1)

    @staticmethod
    def _shifted(logits: Tensor) -> Tensor:
        return logits - logits.amax(-1, keepdim=True)  # what a softmax begins with: the probabilities do not change

    @staticmethod
    def _entropy(probabilities: Tensor) -> Tensor:
        return _terms(probabilities).sum(-1)


@final
class MultilabelPrediction(Classification):
    """A prediction for labels that an input may have several of: C independent probabilities, as in the paper's VQA.

    Entropy and mutual information are those of the C yes-no questions together: their sums.

    Args:
        samples: (K, B, C) probabilities.
        test: behind :attr:`p_value`, by default the paper's ``independent_t``, as the probabilities are not tied.

    Example:
        >>> prediction = MultilabelPrediction(torch.tensor([[[0.9, 0.8, 0.1]], [[0.7, 0.6, 0.1]]]))
        >>> prediction.label, prediction.labels()
        (tensor([0]), tensor([[ True,  True, False]]))
    """

    _usual_test = staticmethod(independent_t)

    @property
    def log_complements(self) -> Tensor:
        """The logarithms of the probabilities of not having a label, log(1 - p), (K, B, C)."""
        return torch.log1p(-self.samples) if self._logits is None else F.logsigmoid(-self._logits)

    def labels(self, threshold: float = 0.5) -> Tensor:
        """Whether each label has a mean probability above the threshold, (B, C) bool."""
        return self.mean > threshold

    @staticmethod
    def _probabilities(logits: Tensor) -> Tensor:
        return logits.sigmoid()

    @staticmethod
    def _log_probabilities(logits: Tensor) -> Tensor:
        return F.logsigmoid(logits)

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


def check_alike(kind: type, predictions: Sequence[Any]) -> None:
    """Raise unless these are predictions of one kind with as many samples and classes (or outputs) each."""
    other = next((each for each in predictions if not isinstance(each, kind)), None)
    if not len(predictions) or other is not None:
        got = "none" if other is None else f"a {type(other).__name__}"
        raise TypeError(f"{kind.__name__}.cat takes a list of at least one {kind.__name__}, got {got}")
    shapes = [each.shape for each in predictions]
    if len({(shape[0], *shape[2:]) for shape in shapes}) > 1:
        raise ValueError(
            f"the predictions have shapes {', '.join(str(tuple(shape)) for shape in dict.fromkeys(shapes))}: only the "
            "number of inputs, the second one, may differ"
        )


def _check(name: str, values: Tensor, what: str) -> None:
    if not isinstance(values, Tensor):
        raise TypeError(f"{name} is a {type(values).__name__}: expected a tensor (K, B, C); see torch.as_tensor")
    if values.ndim != 3 or 0 in (len(values), values.shape[-1]):
        raise ValueError(
            f"{name} has shape {tuple(values.shape)}: expected (K, B, C), the {what} of C classes for B inputs in each "
            "of K >= 1 passes"
        )
    if not values.is_floating_point():
        raise ValueError(f"{name} is {values.dtype}: expected floating-point {what}, not labels")


def _check_range(samples: Tensor) -> None:
    # NaN is let through: a network may return it, and the rest of the prediction is still of use.
    if bool(((samples < -SLACK) | (samples > 1 + SLACK)).any()):
        raise ValueError(
            f"samples range from {samples.min().item():g} to {samples.max().item():g}: expected probabilities in "
            "[0, 1]; for logits there is from_logits"
        )


def _checked(test: TwoSampleTest | None) -> TwoSampleTest | None:
    if test is None or callable(test):
        return test
    raise TypeError(f"test={test!r}: expected a function of cd.significance, for example cd.significance.wilcoxon")


def _terms(probabilities: Tensor) -> Tensor:
    # -p log p; a rounding beyond 0 or 1 must not make it infinite or negative.
    terms: Tensor = torch.special.entr(probabilities.clamp(0, 1))
    return terms
