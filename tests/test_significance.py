"""The tests of significance against scipy, column by column, and at the limits where scipy gives NaN."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.stats
import torch
from torch import Tensor

from contextual_dropout.significance import TwoSampleTest, independent_t, paired_t, rank_sum, top_two_p_value, wilcoxon

REFERENCE = {
    paired_t: scipy.stats.ttest_rel,
    independent_t: scipy.stats.ttest_ind,
    wilcoxon: scipy.stats.wilcoxon,
    rank_sum: scipy.stats.mannwhitneyu,
}
every_test = pytest.mark.parametrize("test", REFERENCE, ids=lambda test: test.__name__)
t_test = pytest.mark.parametrize("test", [paired_t, independent_t], ids=lambda test: test.__name__)


def normal(k: int, b: int, seed: int = 0, shift: float = 0.5) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    a, b_ = torch.randn(2, k, b, generator=generator, dtype=torch.float64)
    return a + shift, b_


def by_column(test: TwoSampleTest, a: Tensor, b: Tensor) -> Tensor:
    pairs = zip(a.double().numpy().T, b.double().numpy().T, strict=True)
    return torch.tensor([REFERENCE[test](x, y).pvalue for x, y in pairs], dtype=torch.float64)


@every_test
@pytest.mark.parametrize("k", [2, 5, 8, 13, 20, 60])
def test_equals_scipy_column_by_column(test: TwoSampleTest, k: int) -> None:
    a, b = normal(k, 7)
    torch.testing.assert_close(test(a, b), by_column(test, a, b), rtol=1e-9, atol=1e-10)


@every_test
@pytest.mark.parametrize("k", [3, 8, 11, 14, 20, 60])
def test_equals_scipy_with_ties_in_some_columns_only(test: TwoSampleTest, k: int) -> None:
    a, b = normal(k, 6)
    a[:, ::2], b[:, ::2] = (4 * a[:, ::2]).round() / 4, (4 * b[:, ::2]).round() / 4
    a[0, 0] = b[0, 0]
    torch.testing.assert_close(test(a, b), by_column(test, a, b), rtol=1e-9, atol=1e-10)


@every_test
def test_float32_is_tested_in_float64(test: TwoSampleTest) -> None:
    a, b = (x.float() for x in normal(20, 5))
    torch.testing.assert_close(test(a, b), by_column(test, a, b), rtol=1e-9, atol=1e-10)


@every_test
@pytest.mark.parametrize("k", [3, 20])
def test_a_column_does_not_depend_on_its_neighbours(test: TwoSampleTest, k: int) -> None:
    a, b = normal(k, 4)
    a[:, 1], b[:, 1] = a[:, 1].round(), b[:, 1].round()
    a[:, 2] = b[:, 2]
    alone = torch.cat([test(a[:, i : i + 1], b[:, i : i + 1]) for i in range(4)])
    torch.testing.assert_close(test(a, b), alone, rtol=1e-12, atol=0)


@every_test
def test_symmetric_in_its_arguments(test: TwoSampleTest) -> None:
    a, b = normal(9, 5)
    torch.testing.assert_close(test(a, b), test(b, a), rtol=1e-12, atol=0)


@every_test
@pytest.mark.parametrize("k", [2, 7, 20])
def test_equal_samples_have_p_one(test: TwoSampleTest, k: int) -> None:
    constant = torch.full((k, 1), 0.1, dtype=torch.float64)
    varying = normal(k, 1)[0]
    for x in (constant, varying):
        assert test(x, x.clone()).tolist() == [1.0]


@every_test
def test_one_sample_has_p_one(test: TwoSampleTest) -> None:
    assert test(torch.tensor([[0.9, 0.5]]), torch.tensor([[0.1, 0.5]])).tolist() == [1.0, 1.0]


@every_test
@pytest.mark.parametrize("k", [1, 20])
def test_no_example_gives_no_p_value(test: TwoSampleTest, k: int) -> None:
    p = test(torch.zeros(k, 0), torch.zeros(k, 0))
    assert p.shape == (0,)
    assert p.dtype == torch.float64


@t_test
@pytest.mark.parametrize("k", [2, 7, 20])
def test_constants_that_differ_have_p_zero(test: TwoSampleTest, k: int) -> None:
    a = torch.full((k, 1), 0.1, dtype=torch.float64)
    assert test(a, torch.full_like(a, 0.7)).tolist() == [0.0]


@t_test
@pytest.mark.parametrize("k", [2, 3, 7, 20])
def test_constants_that_differ_by_rounding_have_p_one(test: TwoSampleTest, k: int) -> None:
    a = torch.full((k, 1), 0.1 + 0.2, dtype=torch.float64)
    b = torch.full((k, 1), 0.3, dtype=torch.float64)
    assert a[0, 0] != b[0, 0]
    assert test(a, b).tolist() == [1.0]


def test_paired_difference_constant_up_to_rounding_has_the_limits() -> None:
    a = torch.rand(20, 1, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    apart, together = a + 0.3, (a + 0.3) - 0.3
    assert (a - apart).unique().numel() > 1
    assert (a - together).unique().numel() > 1
    assert paired_t(a, apart).tolist() == [0.0]
    assert paired_t(a, together).tolist() == [1.0]


@t_test
@pytest.mark.parametrize("scale", [1e-300, 1e-160, 1e160, 1e300])
def test_t_does_not_depend_on_the_scale(test: TwoSampleTest, scale: float) -> None:
    a, b = normal(10, 3)
    torch.testing.assert_close(test(a * scale, b * scale), test(a, b), rtol=1e-9, atol=1e-12)


@every_test
@pytest.mark.parametrize("k", [6, 20])
def test_the_largest_numbers_do_not_overflow(test: TwoSampleTest, k: int) -> None:
    a, b = normal(k, 3)
    scale = torch.finfo(torch.float64).max / torch.cat([a, b]).abs().max()
    torch.testing.assert_close(test(a * scale, -b * scale), test(a, -b), rtol=1e-9, atol=1e-12)


@t_test
def test_t_keeps_small_p_values(test: TwoSampleTest) -> None:
    a, b = normal(20, 3, shift=30.0)
    p = test(a, b)
    torch.testing.assert_close(p, by_column(test, a, b), rtol=1e-8, atol=0)
    assert (p > 0).all()
    assert (p < 1e-20).all()


def test_independent_t_pools_squares() -> None:
    a, b = torch.tensor([[1.0], [3.0]]), torch.tensor([[0.0], [0.0]])
    # s^2 = (1 + 1) / 2 = 1, T = 2 / sqrt(1/2 + 1/2) = 2 with 2 degrees of freedom: p = 1 - T / sqrt(2 + T^2).
    assert independent_t(a, b).item() == pytest.approx(1 - 2 / 6**0.5, abs=1e-12)


def test_wilcoxon_of_one_sign_is_two_of_all_sign_flips() -> None:
    a, b = normal(6, 1, shift=100.0)
    assert wilcoxon(a, b).item() == pytest.approx(2 / 2**6, abs=1e-14)


def test_rank_sum_of_separated_samples_is_two_of_all_splits() -> None:
    a, b = normal(4, 1, shift=100.0)
    assert rank_sum(a, b).item() == pytest.approx(2 / 70, abs=1e-14)


@every_test
@pytest.mark.parametrize("k", [8, 20])
def test_columns_beyond_the_first_chunk(test: TwoSampleTest, k: int) -> None:
    a, b = ((2 * x).round() for x in normal(k, 1100))
    last = slice(1098, None)
    torch.testing.assert_close(test(a, b)[last], by_column(test, a[:, last], b[:, last]), rtol=1e-9, atol=1e-10)


@every_test
def test_gradients_are_not_asked_for(test: TwoSampleTest) -> None:
    a, b = normal(4, 2)
    assert not test(a.requires_grad_(), b).requires_grad


@every_test
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_not_finite_names_the_column(test: TwoSampleTest, bad: float) -> None:
    a, b = normal(4, 5)
    b[2, 3] = bad
    with pytest.raises(ValueError, match="b is NaN or infinite in column 3"):
        test(a, b)


@every_test
@pytest.mark.parametrize("shapes", [((4, 2), (4, 3)), ((4,), (4,)), ((4, 2, 1), (4, 2, 1)), ((0, 2), (0, 2))])
def test_bad_shapes_are_named(test: TwoSampleTest, shapes: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    with pytest.raises(ValueError, match=r"a has shape .* expected \(K, B\)"):
        test(torch.zeros(shapes[0]), torch.zeros(shapes[1]))


@every_test
def test_top_two_compares_the_two_highest_means(test: TwoSampleTest) -> None:
    generator = torch.Generator().manual_seed(3)
    samples = torch.softmax(2 * torch.randn(12, 9, 5, generator=generator, dtype=torch.float64), -1)
    order = np.argsort(-samples.mean(0).numpy(), axis=-1)
    a, b = (np.stack([samples[:, i, order[i, rank]].numpy() for i in range(9)], 1) for rank in (0, 1))
    expected = test(torch.from_numpy(a), torch.from_numpy(b))
    torch.testing.assert_close(top_two_p_value(samples, test), expected, rtol=0, atol=0)


def test_top_two_breaks_ties_of_the_mean_by_index() -> None:
    first, second, third = [0.5, 0.6], [0.2, 0.3], [0.3, 0.2]
    samples = torch.tensor([first, second, third], dtype=torch.float64).T[:, None]  # (2, 1, 3)
    expected = paired_t(torch.tensor([first]).T.double(), torch.tensor([second]).T.double())
    torch.testing.assert_close(top_two_p_value(samples), expected, atol=1e-7, rtol=0)
    assert top_two_p_value(samples[..., [0, 2, 1]]).item() != pytest.approx(expected.item(), abs=1e-3)


@pytest.mark.parametrize("shape", [(4, 3), (4, 3, 1), (0, 3, 2)])
def test_top_two_needs_samples_and_two_classes(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"expected \(K, B, C\)"):
        top_two_p_value(torch.zeros(shape))


def test_top_two_names_the_example_that_is_nan() -> None:
    samples = torch.full((4, 3, 3), 0.3)
    samples[1, 2, 1] = float("nan")
    with pytest.raises(ValueError, match="column 2"):
        top_two_p_value(samples)
