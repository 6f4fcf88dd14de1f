from __future__ import annotations

import copy
import pickle
import sys
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor

import contextual_dropout as cd
from contextual_dropout.prediction.outputs import interpret

MEASURES = ("mean", "label", "confidence", "entropy", "mutual_information", "variation_ratio", "p_value")


def logits(samples: int = 8, examples: int = 5, classes: int = 3) -> Tensor:
    return torch.randn(samples, examples, classes, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def test_uncertainty_measures_by_hand() -> None:
    samples = torch.tensor([[[1.0, 0.0]], [[0.0, 1.0]], [[1.0, 0.0]], [[1.0, 0.0]]], dtype=torch.float64)
    prediction = cd.Prediction(samples)
    entropy = stats.entropy([0.75, 0.25])
    assert prediction.entropy.item() == pytest.approx(entropy)
    assert prediction.mutual_information.item() == pytest.approx(entropy)  # each sample is sure of itself
    assert prediction.variation_ratio.item() == pytest.approx(0.25)
    assert prediction.top_two.tolist() == [[0, 1]]
    expected = stats.ttest_rel(samples[:, 0, 0], samples[:, 0, 1]).pvalue
    assert prediction.p_value.item() == pytest.approx(expected)
    assert len(prediction) == 1


def test_multiclass() -> None:
    prediction = interpret(logits(), "multiclass", None)
    assert isinstance(prediction, cd.Prediction)
    assert torch.equal(prediction.samples, logits().softmax(-1))
    entropy = stats.entropy(prediction.mean.numpy(), axis=-1)
    expected = stats.entropy(prediction.samples.numpy(), axis=-1).mean(0)
    np.testing.assert_allclose(prediction.entropy, entropy)
    np.testing.assert_allclose(prediction.mutual_information, entropy - expected, atol=1e-12)


def test_multilabel() -> None:
    prediction = interpret(logits(), "multilabel", None)
    assert isinstance(prediction, cd.MultilabelPrediction)
    p = logits().sigmoid()
    assert torch.equal(prediction.samples, p)
    assert torch.equal(prediction.label, p.mean(0).argmax(-1))
    assert torch.equal(prediction.labels(), p.mean(0) > 0.5)
    assert torch.equal(prediction.labels(0.2), p.mean(0) > 0.2)
    both = torch.distributions.Bernoulli(p.mean(0)).entropy().sum(-1)
    torch.testing.assert_close(prediction.entropy, both)
    conditional = torch.distributions.Bernoulli(p).entropy().sum(-1).mean(0)
    torch.testing.assert_close(prediction.mutual_information, both - conditional)
    first, second = (p[:, 0, index] for index in prediction.top_two[0])
    assert prediction.p_value[0].item() == pytest.approx(stats.ttest_ind(first, second).pvalue)


@pytest.mark.parametrize("shape", [(8, 5), (8, 5, 1)])
def test_binary(shape: tuple[int, ...]) -> None:
    z = logits()[..., 0]
    prediction = interpret(z.reshape(shape), "binary", None)
    assert isinstance(prediction, cd.Prediction)
    torch.testing.assert_close(prediction.samples, torch.stack((1 - z.sigmoid(), z.sigmoid()), -1))
    assert torch.equal(prediction.label, (z.sigmoid().mean(0) > 0.5).long())
    extreme = interpret(torch.tensor([[50.0], [40.0]]), "binary", None).samples
    assert (extreme > 0).all()  # 1 - sigmoid(50) would be 0


def test_regression() -> None:
    y = logits()
    prediction = interpret(y, "regression", None)
    assert isinstance(prediction, cd.RegressionPrediction)
    assert prediction.samples is y
    np.testing.assert_allclose(prediction.variance, np.var(y.numpy(), 0, ddof=1))
    np.testing.assert_allclose(prediction.std, np.std(y.numpy(), 0, ddof=1))
    for q in (0.0, 0.05, 0.5, 0.77, 1.0):
        np.testing.assert_allclose(prediction.quantile(q), np.quantile(y.numpy(), q, 0))
    for several in ([0.1, 0.9], torch.tensor([0.1, 0.9], dtype=torch.float64), np.array([0.1, 0.9])):
        np.testing.assert_allclose(prediction.quantile(several), np.quantile(y.numpy(), [0.1, 0.9], 0))
    with pytest.raises(ValueError, match="between 0 and 1, got 2"):
        prediction.quantile(2)
    single = cd.RegressionPrediction(y[:1])
    assert torch.equal(single.variance, torch.zeros(5, 3, dtype=torch.float64))
    assert len(single) == 5


@pytest.mark.parametrize("shape", [(1, 0), (2, 0, 3), (1, 4)])
def test_regression_without_spread(shape: tuple[int, ...]) -> None:
    prediction = cd.RegressionPrediction(torch.ones(shape))
    assert torch.equal(prediction.variance, torch.zeros(shape[1:]))
    assert torch.equal(prediction.std, torch.zeros(shape[1:]))
    assert f"{shape[0]} samples" in repr(prediction)


@pytest.mark.parametrize("scale", [1e30, 1e-30])
def test_regression_has_a_spread_where_its_square_is_no_number(scale: float) -> None:
    prediction = cd.RegressionPrediction(scale * torch.tensor([[1.0], [2.0], [4.0]]))
    torch.testing.assert_close(prediction.std / scale, torch.tensor([1.5275252]))


@pytest.mark.parametrize("test", [cd.significance.wilcoxon, cd.significance.rank_sum, cd.significance.independent_t])
def test_the_test_can_be_chosen(test: cd.significance.TwoSampleTest) -> None:
    prediction = interpret(logits(), "multiclass", test)
    expected = cd.significance.top_two_p_value(logits().softmax(-1), test)
    assert torch.equal(prediction.p_value, expected)  # type: ignore[union-attr]


@pytest.mark.parametrize("kind", [cd.Prediction, cd.MultilabelPrediction])
@pytest.mark.parametrize(
    "samples",
    [
        torch.ones(1, 2, 3) / 3,  # a single sample, all classes alike
        torch.eye(3).expand(4, 3, 3),  # constant and sure
        torch.tensor([[[1.0, 0.0]], [[0.0, 1.0]]]),
        torch.tensor([[[1.0000001, -1e-9]]]).repeat(3, 1, 1),  # rounding
        torch.zeros(3, 0, 4),  # no input
    ],
)
def test_never_nan(kind: type[cd.Prediction], samples: Tensor) -> None:
    prediction = kind(samples)
    for name in MEASURES:
        value = getattr(prediction, name)
        assert value.shape[0] == samples.shape[1]
        assert value.double().isfinite().all(), name
        assert (value >= -1e-6).all(), name
    assert kind.__name__ in repr(prediction)


def test_repr() -> None:
    assert repr(cd.Prediction(torch.tensor([[[0.9, 0.1]], [[0.7, 0.3]]]))) == (
        "Prediction: 1 inputs, 2 classes, 2 samples; mean confidence 0.800, mutual information 0.032; 0 certain at 0.05"
    )
    assert repr(cd.Prediction(torch.full((2, 1, 3), torch.nan))).endswith("(not all finite)")
    assert "1 classes" in repr(cd.MultilabelPrediction(torch.ones(2, 1, 1)))
    assert repr(cd.RegressionPrediction(torch.tensor([[0.0], [2.0]]))).endswith("1 inputs, 2 samples; mean std 1.414")
    assert "of shape (3,)" in repr(cd.RegressionPrediction(torch.zeros(2, 4, 3)))


def test_to_pandas() -> None:
    pytest.importorskip("pandas")
    prediction = cd.Prediction(logits().softmax(-1))
    table = prediction.to_pandas()
    assert list(table.columns) == [
        *("label", "second", "confidence"),
        *("entropy", "mutual_information", "variation_ratio", "p_value"),
    ]
    np.testing.assert_array_equal(table["label"], prediction.label)
    np.testing.assert_array_equal(table["second"], prediction.top_two[:, 1])
    np.testing.assert_array_equal(table["p_value"], prediction.p_value)
    one = cd.RegressionPrediction(logits()[..., 0]).to_pandas()
    assert list(one.columns) == ["mean", "std", "q0.05", "q0.50", "q0.95"]
    several = cd.RegressionPrediction(logits()).to_pandas()
    assert list(several.columns)[:4] == ["mean_0", "mean_1", "mean_2", "std_0"]
    np.testing.assert_allclose(several["mean_1"], logits().mean(0)[:, 1])


def test_pandas_is_optional(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match=r"pip install contextual-dropout\[pandas\]"):
        cd.Prediction(logits().softmax(-1)).to_pandas()


#: Logits of a confident network: float32 has no number for the smaller probabilities.
CONFIDENT = torch.tensor([[[0.0, -150.0, -1200.0]], [[0.0, -140.0, -1e5]], [[-130.0, 0.0, -1300.0]]])


def exact_log_probability(task: str, logits: Tensor) -> Tensor:
    if task == "multilabel":
        return torch.nn.functional.logsigmoid(logits.double())
    if task == "binary":
        z = logits[..., 0].double()
        return torch.nn.functional.logsigmoid(torch.stack([-z, z], -1))
    return logits.double().log_softmax(-1)


@pytest.mark.parametrize("task", ["multiclass", "multilabel", "binary"])
def test_logarithms_of_probabilities_that_have_no_number(task: Any) -> None:
    given = CONFIDENT - 200 if task == "binary" else CONFIDENT
    prediction = interpret(given[..., 0] if task == "binary" else given, task, None)
    assert not isinstance(prediction, cd.RegressionPrediction)
    assert (prediction.samples == 0).any()
    expected = exact_log_probability(task, given)
    for each in (prediction, prediction.to(torch.float64), type(prediction).cat([prediction])):
        torch.testing.assert_close(each.log_probabilities.double(), expected, rtol=1e-6, atol=1e-30)
    if isinstance(prediction, cd.MultilabelPrediction):
        absent = torch.nn.functional.logsigmoid(-given.double())
        torch.testing.assert_close(prediction.log_complements.double(), absent, rtol=1e-6, atol=1e-30)


def test_one_confident_error_has_a_finite_log_likelihood() -> None:
    """log mean_k p_k[y] of logits in double precision, whatever the network's own."""
    prediction, logits = interpret(CONFIDENT, "multiclass", None), CONFIDENT.double()
    for label in range(3):
        expected = logits.log_softmax(-1)[:, 0, label].logsumexp(0).item() - np.log(3)
        found = cd.metrics.predictive_log_likelihood(prediction, torch.tensor([label]))  # type: ignore[arg-type]
        assert found.item() == pytest.approx(expected, rel=1e-6)
    half = prediction.to(torch.float16)
    assert half.samples.isfinite().all()  # logits of 1e5 are not


def test_log_likelihood_of_many_predictions() -> None:
    """Whether made of logits, of their probabilities, or in batches."""
    labels = torch.randint(3, (5,), generator=torch.Generator().manual_seed(1))
    expected = logits().softmax(-1).mean(0).gather(1, labels[:, None]).squeeze(1).log()
    of_logits, of_samples = cd.Prediction.from_logits(logits()), cd.Prediction(logits().softmax(-1))
    batches = cd.Prediction.cat(
        [cd.Prediction.from_logits(logits()[:, :2]), cd.Prediction.from_logits(logits()[:, 2:])]
    )
    for prediction in (of_logits, of_samples, batches, of_samples.samples):
        torch.testing.assert_close(cd.metrics.predictive_log_likelihood(prediction, labels), expected)
    torch.testing.assert_close(of_samples.log_probabilities, logits().log_softmax(-1))
    assert torch.equal(batches.samples, of_logits.samples)


@pytest.mark.parametrize("kind", [cd.Prediction, cd.MultilabelPrediction])
def test_cat(kind: Any) -> None:
    test = cd.significance.wilcoxon
    whole = kind(logits().softmax(-1), test)
    parts = [kind(logits()[:, rows].softmax(-1), test) for rows in (slice(3), slice(3, 3), slice(3, 5))]
    joined = kind.cat(parts)
    for name in MEASURES:
        assert torch.equal(getattr(joined, name), getattr(whole, name)), name
    assert joined.test is test
    mixed = kind.cat([kind.from_logits(logits()), kind.from_logits(logits()), kind(logits().softmax(-1))])
    assert len(mixed) == 15
    regression = cd.RegressionPrediction.cat([cd.RegressionPrediction(logits()[:, rows]) for rows in ([0], [1, 2])])
    assert torch.equal(regression.samples, logits()[:, :3])


def test_cat_refuses() -> None:
    prediction = cd.Prediction(logits().softmax(-1))
    with pytest.raises(TypeError, match="a list of at least one Prediction, got none"):
        cd.Prediction.cat([])
    with pytest.raises(TypeError, match="a list of at least one Prediction, got a MultilabelPrediction"):
        cd.Prediction.cat([prediction, cd.MultilabelPrediction(prediction.samples)])  # type: ignore[list-item]
    with pytest.raises(ValueError, match=r"shapes \(8, 5, 3\), \(7, 5, 3\): only the number of inputs"):
        cd.Prediction.cat([prediction, cd.Prediction(prediction.samples[1:])])
    with pytest.raises(ValueError, match="different tests"):
        cd.Prediction.cat([prediction, cd.Prediction(prediction.samples, cd.significance.wilcoxon)])
    with pytest.raises(ValueError, match=r"shapes \(8, 5, 3\), \(8, 5, 2\)"):
        cd.RegressionPrediction.cat([cd.RegressionPrediction(logits()), cd.RegressionPrediction(logits()[..., :2])])


def near_ties(case: int) -> Tensor:
    """Samples (K, B, C) whose leading means are equal, or differ by less than their own rounding."""
    generator = torch.Generator().manual_seed(case)
    samples, classes = (int(torch.randint(low, 24, (), generator=generator)) for low in (1, 2))
    x = torch.rand(samples, 200, classes, generator=generator)
    for column in range(1, classes, 2):  # the neighbour's numbers in another order: equal means but for rounding
        x[..., column] = x[torch.randperm(samples, generator=generator), :, column - 1]
    if case % 3 == 0:
        x = (x * 4).round() / 4  # exact ties
    if case % 3 == 1:
        x = torch.nextafter(x, torch.randint(2, x.shape, generator=generator).float())
    x = x / classes
    return x.half() if case % 4 == 3 else x


@pytest.mark.parametrize("kind", [cd.Prediction, cd.MultilabelPrediction])
def test_label_confidence_and_p_value_are_of_the_same_classes(kind: Any) -> None:
    """In ties and near ties, where means in float32, in another order, or by topk would name another class."""
    moved = 0
    for case in range(60):
        samples = near_ties(case)
        prediction, p_values = kind(samples), []
        first, second = prediction.top_two.unbind(-1)
        assert torch.equal(prediction.label, first)
        pairs = [(samples[:, row, a], samples[:, row, b]) for row, (a, b) in enumerate(zip(first, second, strict=True))]
        p_values = prediction.test(*(torch.stack(each, 1) for each in zip(*pairs, strict=True)))
        assert torch.equal(prediction.p_value, p_values)
        assert torch.equal(prediction.confidence, prediction.mean.amax(-1))
        for row in range(20):  # the definition: exact means, of equal ones the lower index
            means = [sum(map(Fraction, samples[:, row, c].double().tolist())) for c in range(samples.shape[-1])]
            rounding = Fraction(len(samples), 2**50)
            assert max(means) - means[first[row]] < rounding
            assert sorted(means)[-2] - min(sorted(means)[-2], means[second[row]]) < rounding
        moved += int((samples.mean(0).argmax(-1) != first).sum())
        batches = kind.cat([kind(samples[:, :7]), kind(samples[:, 7:])])
        assert torch.equal(batches.label, prediction.label)
        assert torch.equal(batches.p_value, prediction.p_value)
    assert moved > 100  # the cases are near enough


def test_calibration_error_counts_the_same_label() -> None:
    for case in range(0, 60, 4):
        samples = near_ties(case)
        label = cd.Prediction(samples).label
        hits, misses = (
            cd.metrics.expected_calibration_error(samples, each, bins=1) for each in (label, (label + 1) % 2)
        )
        confidence = cd.Prediction(samples).confidence.double().mean()
        torch.testing.assert_close(hits, 1 - confidence, rtol=0, atol=1e-6)
        assert misses < hits


def test_predictions_do_not_change() -> None:
    prediction = cd.Prediction(logits().softmax(-1))
    with pytest.raises(AttributeError, match="cannot set samples: a Prediction does not change"):
        prediction.samples = logits()
    for each in (copy.deepcopy(prediction), pickle.loads(pickle.dumps(cd.Prediction.from_logits(logits())))):
        assert torch.equal(each.samples, prediction.samples)
        assert torch.equal(each.p_value, prediction.p_value)


@pytest.mark.parametrize("make", [cd.Prediction, cd.Prediction.from_logits])
def test_what_is_no_tensor_of_samples(make: Any) -> None:
    with pytest.raises(TypeError, match=r"is a list: expected a tensor \(K, B, C\)"):
        make([[[0.5, 0.5]]])
    with pytest.raises(TypeError, match="is a ndarray: expected a tensor"):
        make(np.full((2, 1, 2), 0.5))
    with pytest.raises(ValueError, match="expected floating-point"):
        make(torch.zeros(3, 2, 2, dtype=torch.long))
    with pytest.raises(TypeError, match=r"test='wilcoxon': expected a function of cd.significance"):
        make(torch.full((2, 1, 2), 0.5), "wilcoxon")


def test_errors() -> None:
    with pytest.raises(ValueError, match=r"samples range from -3 to 4: expected probabilities .* from_logits"):
        cd.Prediction(torch.tensor([[[-3.0, 4.0]]]))
    with pytest.raises(TypeError, match="samples is a list: expected a tensor"):
        cd.RegressionPrediction([1.0])  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"threshold is a significance level between 0 and 1, got '0.05'"):
        cd.Prediction(logits().softmax(-1)).certain("0.05")  # type: ignore[arg-type]
    for wrong in ("0.5", None):
        with pytest.raises(TypeError, match="q is a probability between 0 and 1, or several, got"):
            cd.RegressionPrediction(logits()).quantile(wrong)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"samples has shape \(2, 3\): expected \(K, B, C\)"):
        cd.Prediction(torch.zeros(2, 3))
    with pytest.raises(ValueError, match=r"expected \(K, B, \.\.\.\)"):
        cd.RegressionPrediction(torch.zeros(2))
    with pytest.raises(ValueError, match="significance level between 0 and 1"):
        cd.Prediction(logits().softmax(-1)).certain(5)
    with pytest.raises(ValueError, match="so no second one"):
        _ = cd.MultilabelPrediction(torch.ones(2, 1, 1)).top_two


def test_to_another_precision() -> None:
    samples, test = torch.rand(3, 2, 4), cd.significance.wilcoxon
    for prediction in (cd.Prediction(samples, test), cd.MultilabelPrediction(samples, test)):
        other = prediction.to(torch.float64)
        assert type(other) is type(prediction)
        assert torch.equal(other.samples, samples.double())
        assert other.test is test
    assert cd.RegressionPrediction(samples).to(torch.float64).samples.dtype is torch.float64
