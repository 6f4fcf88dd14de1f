"""Normality: scipy's numbers, what is not tested, and plots and tables that say so."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor

from contextual_dropout.prediction.classification import Prediction
from contextual_dropout_lab.report.normality import LEVEL, Normality
from contextual_dropout_lab.report.plots import NoData, normality
from contextual_dropout_lab.report.plots.quantile_plots import spread_over_p_values
from contextual_dropout_lab.report.tables import normality as normality_table
from tests.exact.enumeration import FAILURE_RATE


def of_top(top: Tensor) -> Normality:
    """Two classes, the first with the probabilities ``top`` (K, B)."""
    return Normality(Prediction(torch.stack([top, 1 - top], -1)))


def normal(mean: Tensor, sd: float, samples: int = 20) -> Tensor:
    noise = torch.randn(samples, len(mean), dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    return mean + sd * noise


def test_differences_and_p_values_are_those_of_scipy() -> None:
    """The differences of the two classes that are highest on average, image by image."""
    generator = torch.Generator().manual_seed(0)
    samples = (3 * torch.randn(20, 7, 5, dtype=torch.float64, generator=generator)).softmax(-1)
    found = Normality(Prediction(samples))
    for row in range(7):
        second, first = np.argsort(samples[:, row].mean(0).numpy())[-2:]
        d = (samples[:, row, first] - samples[:, row, second]).numpy()
        np.testing.assert_allclose(found.differences[:, row].numpy(), d, rtol=1e-12)
        assert found.p_value[row].item() == pytest.approx(stats.shapiro(d).pvalue, rel=1e-9)
    assert torch.equal(found.rejected, found.p_value < 0.05)


def test_normal_differences_are_rejected_as_often_as_the_level_says() -> None:
    """5% of 4,000; fails by chance at a rate of 2e-5, and Royston's approximation may be off by half a point."""
    found = of_top(normal(torch.full((4000,), 0.7), 0.02))
    error = (LEVEL * (1 - LEVEL) / 4000) ** 0.5
    bound = stats.norm.ppf(1 - FAILURE_RATE / 2) * error + 0.005
    assert found.tested.all()
    assert abs(found.rejected.double().mean().item() - LEVEL) < bound


def test_skewed_differences_are_rejected() -> None:
    """A confident network now and then in doubt: e^g of twenty samples is seen as skewed nearly always."""
    top = 1 - 0.01 * normal(torch.zeros(200), 1.0).mul(1.5).exp().clamp_max(50)
    assert of_top(top).rejected.double().mean() > 0.9


def test_constant_differences_are_not_tested() -> None:
    """Nor are those that vary by the rounding of what runs keep; tiny but real spreads are."""
    varied = normal(torch.zeros(2), 1.0)
    constant = torch.full((20,), 0.8, dtype=torch.float64)
    rounded = constant + 1e-5 * varied[:, 0]
    confident = 1 - 1e-9 * (1 + 0.2 * varied[:, 1])
    found = of_top(torch.stack([constant, rounded, confident, 0.6 + 0.1 * varied[:, 0]], 1))
    assert found.tested.tolist() == [False, False, True, True]
    assert found.p_value.isnan().tolist() == [True, True, False, False]
    assert not found.rejected[:2].any()


def test_half_precision_changes_neither_who_is_tested_nor_the_share_rejected() -> None:
    """Predictions are kept as logarithms in half precision."""
    generator = torch.Generator().manual_seed(0)
    logits = 8 * torch.randn(1, 500, 4, dtype=torch.float64, generator=generator)
    scale = torch.logspace(-4, 0, 500, dtype=torch.float64)[:, None]
    logits = logits + scale * torch.randn(20, 500, 4, dtype=torch.float64, generator=generator)
    exact = Normality(Prediction(logits.softmax(-1)))
    kept = Normality(Prediction(logits.log_softmax(-1).half().double().softmax(-1)))
    assert (exact.tested != kept.tested).sum() <= 5  # those at the border
    assert 0.3 < exact.tested.double().mean() < 0.9
    shares = [each.rejected[each.tested].double().mean().item() for each in (exact, kept)]
    assert shares[0] == pytest.approx(shares[1], abs=0.02)


def test_too_few_samples_are_refused() -> None:
    with pytest.raises(ValueError, match="at least 3"):
        of_top(torch.rand(2, 4))


def test_figure_shows_standardised_differences_against_normal_quantiles() -> None:
    found = of_top(normal(torch.linspace(0.5, 0.9, 30), 0.05))
    rows = spread_over_p_values(found, 6)
    figure = normality("concrete", found, 6)
    assert len(rows) == 6
    for axes, row in zip(figure.axes, rows, strict=False):
        d = found.differences[:, row].numpy()
        quantiles, ordered = stats.probplot(d, fit=False)
        (points,) = (each for each in axes.lines if each.get_marker() == "o")
        np.testing.assert_allclose(points.get_xdata(), quantiles)
        np.testing.assert_allclose(points.get_ydata(), (ordered - d.mean()) / d.std(ddof=1), atol=1e-12)
        assert f"normality p = {stats.shapiro(d).pvalue:.2g}" in axes.get_title()
        assert f"t-test p = {stats.ttest_1samp(d, 0).pvalue:.2g}" in axes.get_title()
    assert "20 samples" in figure.get_suptitle()


def test_figure_goes_from_the_most_certain_image_to_the_most_uncertain() -> None:
    found = of_top(normal(torch.linspace(0.5, 0.9, 30), 0.05))
    p_value = found.prediction.p_value
    rows = spread_over_p_values(found, 4)
    assert p_value[rows].tolist() == sorted(p_value[rows].tolist())
    assert rows[0] == p_value.argmin()
    assert rows[-1] == p_value.argmax()
    assert spread_over_p_values(found, 100) == p_value.argsort().tolist()


def test_what_is_left_out_is_counted() -> None:
    top = normal(torch.full((5,), 0.7), 0.05)
    top[:, :2] = 0.9
    found = of_top(top)
    assert "of 3 images, 2 nearly constant ones left out" in normality("concrete", found, 8).get_suptitle()
    (row,) = normality_table({"concrete": found}).rows
    assert row[:4] == ("Concrete", "20", "5", "2")
    with pytest.raises(NoData, match="all 2 images"):
        normality("concrete", of_top(top[:, :2]))


def test_table_has_the_shares() -> None:
    """Rejected of all that vary and of the uncertain ones, and agreement with scipy's signed-rank test."""
    skewed = normal(torch.zeros(20), 1.0).exp()
    uncertain = 0.5 + 0.02 * (skewed - skewed.mean(0))
    found = of_top(torch.cat([normal(torch.linspace(0.48, 0.54, 60), 0.05), uncertain, 1 - 0.02 * skewed], 1))
    shapiro = np.array([stats.shapiro(d).pvalue < 0.05 for d in found.differences.T.numpy()])
    t_test = np.array([stats.ttest_1samp(d, 0).pvalue < 0.05 for d in found.differences.T.numpy()])
    signed_rank = np.array([stats.wilcoxon(d).pvalue < 0.05 for d in found.differences.T.numpy()])
    ((_, _, _, _, *cells),) = normality_table({"concrete": found}).rows
    expected = [shapiro.mean(), shapiro[~t_test].mean(), (t_test == signed_rank).mean()]
    assert cells == [f"{100 * share:.1f}" for share in expected]
    assert 0 < shapiro[~t_test].mean() < shapiro.mean() < 1
    assert t_test.any()
    assert not t_test.all()
