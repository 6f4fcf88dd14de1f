"""Numbers at the edges are not only finite: divergences and their gradients are right, p-values in range and symmetric.

That p-values are right is in tests/test_significance.py, by comparison with scipy.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from torch import Tensor, nn

import contextual_dropout as cd
from contextual_dropout.nn.families import MAX_LOG_VARIANCE
from contextual_dropout.significance import TwoSampleTest, independent_t, paired_t, rank_sum, wilcoxon
from tests.reliability.extremes import thorough
from tests.reliability.record import record

Array = npt.NDArray[np.float64]
LOGITS = st.one_of(
    st.floats(-1e4, 1e4, width=32), st.floats(-20, 20, width=32), st.sampled_from([0.0, 88.0, -88.0, 104.0, 1e4, -1e4])
)
#: Rounding of a number, and of the terms, of about one nat, whose difference a KL is.
RELATIVE, ABSOLUTE = 2e-5, 5e-7
LARGEST = float(np.finfo(np.float64).max)
NUMBERS = st.one_of(
    st.floats(-1, 1), st.sampled_from([0.0, 0.5, 1.0, 5e-324, 1e-300, 1e-30, 1e30, 1e300, LARGEST, -LARGEST])
)
TESTS: tuple[TwoSampleTest, ...] = (paired_t, independent_t, wilcoxon, rank_sum)


def exact(family: str, a: Tensor, b: Tensor) -> Tensor:
    """KL(q || p) in double precision, summed over units, by other formulas than those of the package."""
    if family == "gaussian":
        return ((b - a).expm1() - (b - a)).sum() / 2
    kept = a.sigmoid() * (F.logsigmoid(a) - F.logsigmoid(b))
    return (kept + (-a).sigmoid() * (F.logsigmoid(-a) - F.logsigmoid(-b))).sum()


@pytest.mark.filterwarnings("ignore::contextual_dropout.SaturationWarning")
@pytest.mark.parametrize("family", ["bernoulli", "gaussian"])
def test_divergences_and_their_gradients_are_right(family: str) -> None:
    tried = 0

    @thorough(200, 10_000)
    @given(st.lists(LOGITS, min_size=1, max_size=6), st.floats(-30, 30, width=32))
    def holds(logits: list[float], prior: float) -> None:
        nonlocal tried
        if family == "gaussian":  # beyond this the variance is clipped, for it would be no number
            logits = [max(logit, prior - MAX_LOG_VARIANCE) for logit in logits]
        site = cd.ContextualDropout(len(logits), family=family, temperature=1.0, encoder="global")  # type: ignore[arg-type]
        with torch.no_grad():
            site.encoder.expand_bias.copy_(torch.tensor(logits))
            site.prior_logit.fill_(prior)
        step = cd.ELBO(nn.Sequential(site))(lambda: 0 * site(torch.ones(1, len(logits))).sum(1))
        step.loss.backward()
        a, b = (tensor.detach().double().requires_grad_() for tensor in (site.encoder.expand_bias, site.prior_logit))
        expected = exact(family, a, b)
        expected.backward()
        torch.testing.assert_close(step.kl.double().squeeze(), expected, rtol=RELATIVE, atol=ABSOLUTE * len(logits))
        for parameter, gradient in ((site.encoder.expand_bias, a.grad), (site.prior_logit, b.grad)):
            assert parameter.grad is not None
            torch.testing.assert_close(parameter.grad.double(), gradient, rtol=RELATIVE, atol=ABSOLUTE * len(logits))
        tried += 1

    holds()
    record(
        "numerics",
        f"numerics-kl-{family}",
        f"The KL of {family.title()} masks in single precision, and its gradients, are those of double precision, for "
        f"logits of up to 1e4 in size: to a relative {RELATIVE} or {ABSOLUTE} nats a unit.",
        {"posteriors": tried},
    )


def test_p_values_are_in_range_and_symmetric_whatever_the_numbers() -> None:
    tried = 0

    @thorough(100, 4000)
    @given(st.data(), st.integers(1, 20), st.integers(0, 3))
    def holds(data: st.DataObject, samples: int, columns: int) -> None:
        nonlocal tried
        draw = arrays(np.float64, (samples, columns), elements=NUMBERS)
        a, b = torch.from_numpy(data.draw(draw)), torch.from_numpy(data.draw(draw))
        for test in TESTS:
            p = test(a, b)
            assert p.shape == (columns,)
            assert ((p >= 0) & (p <= 1)).all()
            torch.testing.assert_close(p, test(b, a), rtol=1e-9, atol=1e-12)
            torch.testing.assert_close(p, test(-a, -b), rtol=1e-9, atol=1e-12)
            assert samples > 1 or (p == 1).all()
            tried += columns

    holds()
    record(
        "numerics",
        "numerics-p-values",
        "All four significance tests give a p-value in [0, 1], the same for (a, b), (b, a) and (-a, -b), for numbers "
        "from the smallest to the largest of double precision, with ties and with one sample.",
        {"p-values": tried},
    )
