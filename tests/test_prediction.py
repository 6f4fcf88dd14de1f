from __future__ import annotations

import sys

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor

import contextual_dropout as cd
from contextual_dropout.tasks import interpret

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
    np.testing.assert_allclose(prediction.quantile([0.1, 0.9]), np.quantile(y.numpy(), [0.1, 0.9], 0))
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


def test_errors() -> None:
    with pytest.raises(ValueError, match=r"samples has shape \(2, 3\): expected \(K, B, C\)"):
        cd.Prediction(torch.zeros(2, 3))
    with pytest.raises(ValueError, match=r"expected \(K, B, \.\.\.\)"):
        cd.RegressionPrediction(torch.zeros(2))
    with pytest.raises(ValueError, match="significance level between 0 and 1"):
        cd.Prediction(logits().softmax(-1)).certain(5)
    with pytest.raises(ValueError, match="hence no second one"):
        _ = cd.MultilabelPrediction(torch.ones(2, 1, 1)).top_two


def test_to_another_precision() -> None:
    samples, test = torch.rand(3, 2, 4), cd.significance.wilcoxon
    for prediction in (cd.Prediction(samples, test), cd.MultilabelPrediction(samples, test)):
        other = prediction.to(torch.float64)
        assert type(other) is type(prediction)
        assert torch.equal(other.samples, samples.double())
        assert other.test is test
    assert cd.RegressionPrediction(samples).to(torch.float64).samples.dtype is torch.float64
