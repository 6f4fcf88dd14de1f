"""The metrics against values worked by hand and against other implementations, in parts and in any order."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from sklearn.metrics import roc_auc_score, roc_curve
from torch import Tensor
from torchmetrics import Metric
from torchmetrics.functional.classification import binary_auroc, binary_roc, multiclass_calibration_error

from contextual_dropout.metrics import (
    OutOfDistribution,
    PAvPU,
    RiskCoverage,
    VQAAccuracy,
    double_softmax_log_likelihood,
    predictive_log_likelihood,
    risk_coverage_curve,
    soft_accuracy,
)
from contextual_dropout.metrics.calibration import expected_calibration_error
from contextual_dropout.metrics.ood import out_of_distribution
from contextual_dropout.prediction.regression import RegressionPrediction
from contextual_dropout.significance import independent_t, paired_t, top_two_p_value
from contextual_dropout_lab.data.vqa import ANSWER_TYPES

Batch = tuple[Tensor, ...]


def p_values_and_accuracies(n: int = 40) -> Batch:
    generator = torch.Generator().manual_seed(0)
    return torch.rand(n, generator=generator) ** 4, torch.rand(n, generator=generator)


def uncertainties_with_ties_and_correct(n: int = 40) -> Batch:
    generator = torch.Generator().manual_seed(1)
    return torch.randint(0, 9, (n,), generator=generator) / 4, torch.rand(n, generator=generator) > 0.3


def answers_targets_and_types(n: int = 40) -> Batch:
    generator = torch.Generator().manual_seed(3)
    targets = torch.randint(0, 11, (n, 5), generator=generator) / 10
    return torch.randint(0, 5, (n,), generator=generator), targets, torch.randint(0, 3, (n,), generator=generator)


PAIRED: dict[Callable[..., Metric], Callable[[], Batch]] = {
    PAvPU: p_values_and_accuracies,
    RiskCoverage: uncertainties_with_ties_and_correct,
    OutOfDistribution: uncertainties_with_ties_and_correct,
}
CASES = PAIRED | {VQAAccuracy: answers_targets_and_types}
every_metric = pytest.mark.parametrize("metric", CASES, ids=lambda metric: metric.__name__)
every_paired_metric = pytest.mark.parametrize("metric", PAIRED, ids=lambda metric: metric.__name__)


def take(batch: Batch, rows: slice | Tensor) -> Batch:
    return tuple(part[rows] for part in batch)


def value(metric: Callable[..., Metric], *batches: Batch) -> Any:
    instance = metric()
    for batch in batches:
        instance.update(*batch)
    return instance.compute()


@every_metric
def test_two_halves_equal_the_whole(metric: Callable[..., Metric]) -> None:
    batch = CASES[metric]()
    halves = take(batch, slice(13)), take(batch, slice(13, None))
    torch.testing.assert_close(value(metric, *halves), value(metric, batch))


@every_metric
def test_order_plays_no_part(metric: Callable[..., Metric]) -> None:
    batch = CASES[metric]()
    order = torch.randperm(len(batch[0]), generator=torch.Generator().manual_seed(2))
    torch.testing.assert_close(value(metric, take(batch, order)), value(metric, batch))


@every_metric
def test_an_empty_batch_changes_nothing(metric: Callable[..., Metric]) -> None:
    batch = CASES[metric]()
    torch.testing.assert_close(value(metric, batch, take(batch, slice(0))), value(metric, batch))


@every_metric
def test_merged_states_equal_the_whole(metric: Callable[..., Metric]) -> None:
    batch = CASES[metric]()
    first, second = metric(), metric()
    first.update(*take(batch, slice(13)))
    second.update(*take(batch, slice(13, None)))
    first.merge_state(second)
    torch.testing.assert_close(first.compute(), value(metric, batch))


@every_metric
def test_reset_forgets(metric: Callable[..., Metric]) -> None:
    batch = CASES[metric]()
    instance = metric()
    instance.update(*take(batch, slice(5)))
    instance.reset()
    instance.update(*take(batch, slice(5, None)))
    torch.testing.assert_close(instance.compute(), value(metric, take(batch, slice(5, None))))


@every_paired_metric
def test_a_wrong_shape_is_named(metric: Callable[..., Metric]) -> None:
    x, y = CASES[metric]()
    with pytest.raises(ValueError, match=r"\(40,\).* \(39,\): expected \(B,\) for both"):
        metric().update(x, y[1:])


@every_paired_metric
def test_nan_is_named(metric: Callable[..., Metric]) -> None:
    x, y = CASES[metric]()
    x[3] = float("nan")
    with pytest.raises(ValueError, match="is NaN at index 3"):
        metric().update(x, y)


def test_pavpu_of_hard_accuracies_by_hand() -> None:
    metric = PAvPU(threshold=0.05)
    p = torch.tensor([0.01, 0.02, 0.03, 0.049, 0.05, 0.5, 0.9])
    metric.update(p, torch.tensor([True, True, True, False, True, False, True]))
    counts = [metric.accurate_certain, metric.accurate_uncertain]
    counts += [metric.inaccurate_certain, metric.inaccurate_uncertain]
    assert [c.item() for c in counts] == [3, 2, 1, 1]
    assert metric.compute().item() == pytest.approx(4 / 7)


def test_pavpu_of_soft_accuracies_by_hand() -> None:
    metric = PAvPU(threshold=0.1)
    metric.update(torch.tensor([0.01, 0.2]), torch.tensor([0.75, 0.25]))
    counts = [metric.accurate_certain, metric.accurate_uncertain]
    counts += [metric.inaccurate_certain, metric.inaccurate_uncertain]
    assert [c.item() for c in counts] == [0.75, 0.25, 0.25, 0.75]
    assert metric.compute().item() == pytest.approx(0.75)


@pytest.mark.parametrize("test", [paired_t, independent_t])
def test_pavpu_of_samples_is_that_of_their_p_values(test: Any) -> None:
    samples = torch.randn(6, 50, 4, generator=torch.Generator().manual_seed(4)).softmax(-1)
    correct = torch.rand(50, generator=torch.Generator().manual_seed(5))
    by_samples, by_p = PAvPU(threshold=0.3, test=test), PAvPU(threshold=0.3)
    by_samples.update(samples, correct)
    by_p.update(top_two_p_value(samples, test), correct)
    assert by_samples.metric_state == by_p.metric_state
    assert 0 < by_p.accurate_certain < correct.sum()


def test_pavpu_of_vqa_by_hand() -> None:
    # Sigmoids of two passes: with 2 degrees of freedom p = 1 - sqrt(T^2 / (T^2 + 2)).
    # The first leads by 0.4, variances 0.005 and 0: T^2 = 64. The second by 0.15, 0.02 and 0.005: T^2 = 1.8.
    passes = [[[0.95, 0.5, 0.1], [0.6, 0.8, 0.1]], [[0.85, 0.5, 0.1], [0.5, 0.6, 0.1]]]
    samples = torch.tensor(passes, dtype=torch.float64)
    p = [1 - math.sqrt(64 / 66), 1 - math.sqrt(1.8 / 3.8)]
    assert top_two_p_value(samples, independent_t).tolist() == pytest.approx(p)
    correct = soft_accuracy(samples.mean(0), torch.tensor([[0.6, 1.0, 0.0], [0.0, 0.9, 0.3]]))
    metric = PAvPU(threshold=0.05, test=independent_t)
    metric.update(samples, correct)
    counts = [metric.accurate_certain, metric.accurate_uncertain]
    counts += [metric.inaccurate_certain, metric.inaccurate_uncertain]
    assert [c.item() for c in counts] == pytest.approx([0.6, 0.9, 0.4, 0.1])
    assert metric.compute().item() == pytest.approx(0.7 / 2)


def test_pavpu_of_nothing_is_zero() -> None:
    metric = PAvPU()
    with pytest.warns(UserWarning, match="before the ``update``"):
        assert metric.compute().item() == 0


@pytest.mark.parametrize(
    ("first", "correct", "message"),
    [
        (torch.tensor([1.5]), torch.tensor([True]), "p_values range from 1.5"),
        (torch.tensor([0.5]), torch.tensor([2.0]), "correct range from 2"),
        (torch.full((3, 1, 2), 4.0), torch.tensor([True]), "expected probabilities"),
        (torch.full((3, 1, 2), float("nan")), torch.tensor([True]), "expected probabilities"),
        (torch.full((3, 1, 1), 0.5), torch.tensor([True]), "C >= 2"),
        (torch.full((3, 2), 0.5), torch.tensor([True, True]), r"expected \(K, B, C\)"),
    ],
)
def test_pavpu_refuses(first: Tensor, correct: Tensor, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        PAvPU().update(first, correct)


def test_pavpu_refuses_a_threshold_in_percent() -> None:
    with pytest.raises(ValueError, match="threshold is 5"):
        PAvPU(threshold=5)


def test_log_likelihood_averages_before_the_log() -> None:
    samples = torch.tensor([[[0.9, 0.1], [0.5, 0.5]], [[0.1, 0.9], [0.25, 0.75]]])
    expected = torch.tensor([math.log(0.5), math.log(0.625)], dtype=torch.float64)
    torch.testing.assert_close(predictive_log_likelihood(samples, torch.tensor([0, 1])), expected, atol=1e-7, rtol=0)


def test_log_likelihood_of_an_impossible_label_is_minus_infinity() -> None:
    assert predictive_log_likelihood(torch.tensor([[[1.0, 0.0]]]), torch.tensor([1])).item() == -math.inf


def test_double_softmax_by_hand() -> None:
    samples = torch.tensor([[[0.9, 0.1]], [[0.5, 0.5]]])
    expected = 0.3 - math.log(math.exp(0.7) + math.exp(0.3))
    assert double_softmax_log_likelihood(samples, torch.tensor([1])).item() == pytest.approx(expected, abs=1e-7)


@pytest.mark.parametrize("classes", [2, 10, 100])
def test_double_softmax_of_a_perfect_classifier(classes: int) -> None:
    samples, labels = torch.eye(classes)[None], torch.arange(classes)
    expected = torch.full((classes,), 1 - math.log(math.e + classes - 1), dtype=torch.float64)
    torch.testing.assert_close(double_softmax_log_likelihood(samples, labels), expected)
    assert predictive_log_likelihood(samples, labels).tolist() == [0.0] * classes


@pytest.mark.parametrize("log_likelihood", [predictive_log_likelihood, double_softmax_log_likelihood])
@pytest.mark.parametrize(
    ("samples", "labels", "message"),
    [
        (torch.full((2, 3), 0.5), torch.tensor([0, 0, 0]), r"expected \(K, B, C\)"),
        (torch.randn(4, 3, 2) * 9 + 20, torch.tensor([0, 0, 0]), "apply a softmax"),
        (torch.full((2, 3, 2), 0.5), torch.tensor([0, 0]), r"expected \(3,\) class indices"),
        (torch.full((2, 3, 2), 0.5), torch.tensor([0.0, 0.0, 0.0]), "class indices"),
        (torch.full((2, 3, 2), 0.5), torch.tensor([0, 2, 1]), "range from 0 to 2"),
        (torch.full((2, 3, 2), 0.5), torch.tensor([0, -1, 1]), "range from -1"),
    ],
)
def test_log_likelihoods_refuse(log_likelihood: Any, samples: Tensor, labels: Tensor, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        log_likelihood(samples, labels)


def test_what_is_no_tensor_is_named() -> None:
    samples, labels = torch.full((2, 3, 2), 0.5), torch.tensor([0, 1, 1])
    for measure in (predictive_log_likelihood, double_softmax_log_likelihood, expected_calibration_error):
        with pytest.raises(TypeError, match="samples is a RegressionPrediction: expected a tensor"):
            measure(RegressionPrediction(samples), labels)
        with pytest.raises(TypeError, match="labels is a list: expected a tensor"):
            measure(samples, labels.tolist())


def test_risk_coverage_by_hand() -> None:
    coverage, risk = risk_coverage_curve(torch.tensor([3.0, 1.0, 2.0]), torch.tensor([False, True, False]))
    torch.testing.assert_close(coverage, torch.tensor([1 / 3, 2 / 3, 1], dtype=torch.float64))
    torch.testing.assert_close(risk, torch.tensor([0, 1 / 2, 2 / 3], dtype=torch.float64))


def test_risk_with_ties_is_the_mean_over_all_orders() -> None:
    uncertainty = torch.tensor([0.2, 0.2, 0.2, 0.1, 0.5, 0.5])
    correct = torch.tensor([1.0, 0.0, 0.25, 0.5, 0.0, 1.0])
    risks = []
    for order in itertools.permutations(range(6)):
        u, loss = uncertainty[list(order)], 1 - correct[list(order)].double()
        if (u.diff() >= 0).all():
            risks.append(torch.stack([loss[:k].mean() for k in range(1, 7)]))
    assert len(risks) == 12
    torch.testing.assert_close(risk_coverage_curve(uncertainty, correct)[1], torch.stack(risks).mean(0))


def test_aurc_equals_brute_force_without_ties() -> None:
    generator = torch.Generator().manual_seed(6)
    uncertainty, correct = torch.randn(200, generator=generator), torch.rand(200, generator=generator) > 0.4
    ranked = sorted(zip(uncertainty.tolist(), correct.tolist(), strict=True))
    expected = sum(sum(not right for _, right in ranked[:k]) / k for k in range(1, 201)) / 200
    assert value(RiskCoverage, (uncertainty, correct)).item() == pytest.approx(expected, abs=1e-12)


def test_aurc_of_a_constant_uncertainty_is_the_error_rate() -> None:
    assert value(RiskCoverage, (torch.ones(8), torch.arange(8) < 5)).item() == pytest.approx(3 / 8)


def test_metrics_without_a_value_are_nan() -> None:
    one_kind = value(OutOfDistribution, (torch.rand(5), torch.zeros(5, dtype=torch.bool)))
    empty = value(OutOfDistribution, (torch.rand(0), torch.zeros(0, dtype=torch.bool)))
    assert all(v.isnan() for v in (*one_kind.values(), *empty.values()))
    assert value(RiskCoverage, (torch.rand(0), torch.rand(0))).isnan()
    coverage, risk = RiskCoverage().curve()
    assert coverage.shape == risk.shape == (0,)


@pytest.mark.parametrize("seed", range(10))
def test_calibration_error_equals_torchmetrics(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    # From almost uniform to confidences that float32 cannot tell from one.
    logits = torch.randn(5, 400, 10, generator=generator, dtype=torch.float64) * torch.logspace(-2, 2, 400)[:, None]
    labels = torch.randint(0, 10, (400,), generator=generator)
    samples = logits.softmax(-1)
    expected = multiclass_calibration_error(samples.mean(0), labels, 10, n_bins=15)
    assert expected_calibration_error(samples, labels).item() == pytest.approx(expected.item(), abs=1e-6)


@pytest.mark.parametrize("bins", [1, 4, 15])
def test_calibration_error_at_the_ends_of_bins_equals_torchmetrics(bins: int) -> None:
    generator = torch.Generator().manual_seed(9)
    confidence = torch.tensor([0.5, 0.75, 1 - 1e-9, 1.0], dtype=torch.float64).repeat(25)
    samples = torch.stack([confidence, 1 - confidence], 1)[None]
    labels = torch.randint(0, 2, (100,), generator=generator)
    expected = multiclass_calibration_error(samples[0], labels, 2, n_bins=bins)
    assert expected_calibration_error(samples, labels, bins).item() == pytest.approx(expected.item(), abs=1e-6)


def test_calibration_error_by_hand() -> None:
    # Two bins: below 0.8 three of confidence 0.75 and one right, above it one of 0.95 and right.
    samples = torch.tensor([[[0.75, 0.25]] * 3 + [[0.95, 0.05]]], dtype=torch.float64)
    error = expected_calibration_error(samples, torch.tensor([0, 1, 1, 0]), bins=5)
    assert error.item() == pytest.approx((1.25 + 0.05) / 4, abs=1e-7)
    assert expected_calibration_error(torch.rand(2, 0, 3), torch.zeros(0, dtype=torch.long)).isnan()


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("levels", [2, 7, 10_000])
def test_ood_equals_torchmetrics_and_scikit_learn(seed: int, levels: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    is_ood = torch.rand(300, generator=generator) > 0.1 * (seed + 0.5)
    # In [0, 1], which torchmetrics takes as they are.
    uncertainty = ((torch.rand(300, generator=generator) + 0.3 * is_ood) / 1.3 * levels).round().double() / levels
    found = {name: value.item() for name, value in out_of_distribution(uncertainty, is_ood).items()}
    fpr, tpr, _ = binary_roc(uncertainty, is_ood.long())
    assert found["auroc"] == pytest.approx(binary_auroc(uncertainty, is_ood.long()).item(), abs=1e-6)
    assert found["fpr95"] == pytest.approx(fpr[tpr >= 0.95].min().item(), abs=1e-6)
    theirs, sensitivity, _ = roc_curve(is_ood.numpy(), uncertainty.numpy(), drop_intermediate=False)
    assert found["auroc"] == pytest.approx(roc_auc_score(is_ood.numpy(), uncertainty.numpy()), abs=1e-12)
    assert found["fpr95"] == pytest.approx(theirs[sensitivity >= 0.95][0], abs=1e-12)


@pytest.mark.parametrize("scale", [1.0, 1000.0])
def test_ood_equals_scikit_learn(scale: float) -> None:
    generator = torch.Generator().manual_seed(7)
    is_ood = torch.rand(300, generator=generator) > 0.6
    uncertainty = scale * ((torch.randn(300, generator=generator) + is_ood) * 8).round()
    result = value(OutOfDistribution, (uncertainty, is_ood))
    fpr, tpr, _ = roc_curve(is_ood.numpy(), uncertainty.numpy(), drop_intermediate=False)
    assert result["auroc"].item() == pytest.approx(roc_auc_score(is_ood.numpy(), uncertainty.numpy()), abs=1e-12)
    assert result["fpr95"].item() == pytest.approx(fpr[tpr >= 0.95][0], abs=1e-12)


def test_fpr95_takes_exactly_95_percent() -> None:
    # The 20th of 20 OOD examples lies below every other: 19 of 20 are flagged before one of 4 is a false alarm.
    uncertainty = torch.cat([torch.full((19,), 10.0), torch.tensor([0.0]), torch.tensor([1.0, 1.0, 1.0, 20.0])])
    result = value(OutOfDistribution, (uncertainty, torch.arange(24) < 20))
    assert result["fpr95"].item() == 0.25


@pytest.mark.parametrize("sign", [1, -1])
def test_a_perfect_and_an_inverted_detector(sign: int) -> None:
    result = value(OutOfDistribution, (sign * torch.tensor([1.0, 2.0, 3.0, 4.0]), torch.arange(4) >= 2))
    assert (result["auroc"].item(), result["fpr95"].item()) == ((1.0, 0.0) if sign == 1 else (0.0, 1.0))


def test_ood_refuses_labels_that_are_not_bool() -> None:
    with pytest.raises(ValueError, match="expected bool"):
        OutOfDistribution().update(torch.rand(3), torch.tensor([0, 1, 2]))


def test_vqa_accuracy_by_hand() -> None:
    targets = torch.tensor([[0.3, 1.0], [0.6, 0.0], [1.0, 0.0], [0.0, 0.9]])
    result = value(VQAAccuracy, (torch.tensor([1, 0, 1, 1]), targets, torch.tensor([0, 0, 0, 1])))
    expected = {"overall": 2.5 / 4, "yes/no": 1.6 / 3, "number": 0.9, "other": math.nan}
    assert tuple(result) == tuple(expected) == ("overall", *ANSWER_TYPES)
    assert {name: v.item() for name, v in result.items()} == pytest.approx(expected, nan_ok=True)


def test_vqa_accuracy_of_scores_is_that_of_their_highest() -> None:
    answers, targets, types = answers_targets_and_types()
    scores = torch.rand(40, 5, generator=torch.Generator().manual_seed(8))
    torch.testing.assert_close(
        value(VQAAccuracy, (scores, targets, types)), value(VQAAccuracy, (scores.argmax(1), targets, types))
    )
    torch.testing.assert_close(soft_accuracy(answers, targets), targets[torch.arange(40), answers].double())


@pytest.mark.parametrize(
    ("predicted", "targets", "types", "message"),
    [
        (torch.tensor([0]), torch.ones(2, 3), torch.tensor([0, 0]), r"expected \(2,\) class indices"),
        (torch.tensor([0, 3]), torch.ones(2, 3), torch.tensor([0, 0]), "range from 0 to 3"),
        (torch.tensor([0.0, 1.0]), torch.ones(2, 3), torch.tensor([0, 0]), "class indices"),
        (torch.ones(2, 4), torch.ones(2, 3), torch.tensor([0, 0]), r"or \(2, 3\) scores in floating point"),
        (torch.ones(5, 2, 3), torch.ones(2, 3), torch.tensor([0, 0]), "average samples first"),
        (torch.full((2, 3), math.nan), torch.ones(2, 3), torch.tensor([0, 0]), "predicted is NaN at index 0"),
        (torch.tensor([0, 0]), torch.full((2, 3), 3.0), torch.tensor([0, 0]), "targets range from 3"),
        (torch.tensor([0, 0]), torch.full((2, 3), math.nan), torch.tensor([0, 0]), "targets range from nan"),
        (torch.tensor([0, 0]), torch.ones(2), torch.tensor([0, 0]), r"targets has shape \(2,\): expected \(B, A\)"),
        (torch.tensor([0, 0]), torch.ones(2, 3), torch.tensor([0]), r"answer_types has shape \(1,\)"),
        (torch.tensor([0, 0]), torch.ones(2, 3), torch.tensor([0.0, 0.0]), "whole numbers"),
        (
            torch.tensor([0, 0]),
            torch.ones(2, 3),
            torch.tensor([0, 3]),
            "answer_types range from 0 to 3: expected 0 to 2",
        ),
    ],
)
def test_vqa_accuracy_refuses(predicted: Tensor, targets: Tensor, types: Tensor, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        VQAAccuracy().update(predicted, targets, types)
