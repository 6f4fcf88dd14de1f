from __future__ import annotations

import pytest
import torch
from scipy import stats
from torch import Tensor
from torch.distributions import Bernoulli as TorchBernoulli
from torch.distributions import Normal, kl_divergence

from contextual_dropout.nn import families
from contextual_dropout.nn.families import Bernoulli, Gaussian

FAILURE_RATE = 2e-5
DRAWS = 1_000_000
LOGITS = torch.tensor([-3.0, -0.4, 0.0, 1.4, 4.0], dtype=torch.float64)
FAMILIES = [Bernoulli, Gaussian]


def distribution(family: families.Family, logits: Tensor) -> torch.distributions.Distribution:
    if family is Bernoulli:
        return TorchBernoulli(logits=logits)
    return Normal(torch.ones_like(logits), (-logits / 2).exp())


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("draw", ["sample", "antithetic"])
def test_masks_have_the_distribution_they_claim(family: families.Family, draw: str) -> None:
    torch.manual_seed(0)
    logits = LOGITS.expand(DRAWS, -1)
    masks = getattr(family, draw)(logits, family.noise(logits))
    expected = distribution(family, LOGITS)
    bound = stats.norm.ppf(1 - FAILURE_RATE / (4 * len(LOGITS)))
    assert ((masks.mean(0) - expected.mean).abs() <= bound * (expected.variance / DRAWS).sqrt()).all()
    squares = (masks - expected.mean).square()
    assert ((squares.mean(0) - expected.variance).abs() <= bound * squares.std(0) / DRAWS**0.5).all()


def test_bernoulli_pseudo_mask_is_antithetic() -> None:
    """Where the keep probability is at least one half, one of the two masks keeps; at most one half, one drops."""
    logits = LOGITS.expand(1000, -1)
    noise = Bernoulli.noise(logits)
    total = Bernoulli.sample(logits, noise) + Bernoulli.antithetic(logits, noise)
    assert (total[:, LOGITS >= 0] >= 1).all()
    assert (total[:, LOGITS <= 0] <= 1).all()
    torch.testing.assert_close(Bernoulli.antithetic(logits, noise), Bernoulli.sample(logits, 1 - noise))


@pytest.mark.parametrize("family", FAMILIES)
def test_mean_log_prob_and_kl_match_torch_distributions(family: families.Family) -> None:
    logits, prior = torch.randn(6, 9, dtype=torch.float64) * 3, torch.tensor(0.7, dtype=torch.float64)
    posterior = distribution(family, logits)
    mask = posterior.sample()
    torch.testing.assert_close(family.mean(logits), posterior.mean)
    torch.testing.assert_close(family.log_prob(mask, logits), posterior.log_prob(mask))
    torch.testing.assert_close(family.kl(logits, prior), kl_divergence(posterior, distribution(family, prior)).sum(-1))
    assert torch.equal(family.kl(prior.expand(2, 3), prior).abs() < 1e-12, torch.ones(2, dtype=torch.bool))


@pytest.mark.parametrize("family", FAMILIES)
def test_kl_gradients(family: families.Family) -> None:
    logits = torch.randn(4, 5, dtype=torch.float64, requires_grad=True)
    prior = torch.tensor(0.3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(family.kl, (logits, prior))


def test_gaussian_sample_gradient() -> None:
    logits = torch.randn(4, 5, dtype=torch.float64, requires_grad=True)
    noise = torch.randn(4, 5, dtype=torch.float64)
    assert torch.autograd.gradcheck(lambda a: Gaussian.sample(a, noise), (logits,))


# A Gaussian variance of exp(30) is beyond float16; logits of sites are in single precision at least.
@pytest.mark.parametrize(
    ("family", "dtype"),
    [(family, dtype) for family in FAMILIES for dtype in (torch.float64, torch.float32, torch.bfloat16)]
    + [(Bernoulli, torch.float16)],
)
def test_extreme_logits_stay_finite(family: families.Family, dtype: torch.dtype) -> None:
    largest = 1e4
    logits = torch.tensor([[-largest, -30.0, 0.0, 30.0, largest]], dtype=dtype, requires_grad=True)
    prior = torch.tensor(1.0, dtype=dtype, requires_grad=True)
    noise = family.noise(logits.detach())
    masks, kl = family.sample(logits, noise), family.kl(logits, prior)
    assert masks.isfinite().all()
    assert kl.isfinite().all()
    assert (kl >= 0).all()
    kl.sum().backward()
    assert logits.grad is not None
    assert prior.grad is not None
    assert logits.grad.isfinite().all()
    assert prior.grad.isfinite().all()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_bernoulli_kl_of_many_units_in_half_precision(dtype: torch.dtype) -> None:
    """Half precision counts to 256 or 2,048 only; the KL has its digits all the same, and so do its gradients."""
    torch.manual_seed(0)
    logits = (1.386 + torch.randn(3, 2047)).to(dtype).requires_grad_()
    prior = torch.tensor(1.386, dtype=dtype, requires_grad=True)
    precise = [each.detach().double().requires_grad_() for each in (logits, prior)]
    kl, expected = Bernoulli.kl(logits, prior), Bernoulli.kl(*precise)
    rtol = 2 * torch.finfo(dtype).eps
    torch.testing.assert_close(kl.double(), expected, rtol=rtol, atol=0)
    gradients = torch.autograd.grad(kl.double().sum(), [logits, prior])
    for found, right in zip(gradients, torch.autograd.grad(expected.sum(), precise), strict=True):
        torch.testing.assert_close(found.double(), right, rtol=4 * rtol, atol=4 * rtol)


def test_bernoulli_kl_at_certainty() -> None:
    """KL(keep = 1) = -log keep_0 and KL(keep = 0) = -log(1 - keep_0), without cancellation in float32."""
    prior = torch.tensor(1.3)
    certain = Bernoulli.kl(torch.tensor([[1e4], [-1e4]]), prior)
    torch.testing.assert_close(certain, torch.stack([-prior.sigmoid().log(), -(1 - prior.sigmoid()).log()]))


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_bernoulli_kl_keeps_its_digits_where_both_are_sure(sign: float) -> None:
    """Of logits a and b that are large and of one sign, KL = exp(-b) - exp(-a) (1 + a - b) to the last digit."""
    logits, prior = torch.tensor([25.0, 40.0, 60.0]), torch.tensor(30.0)
    kl = Bernoulli.kl(sign * logits.unsqueeze(-1), sign * prior)
    a, b = logits.double(), prior.double()
    expected = (-b).exp() - (-a).exp() * (1 + a - b)
    torch.testing.assert_close(kl.double(), expected, rtol=1e-5, atol=0)


def test_bernoulli_kl_of_units_that_agree_with_the_prior_and_units_that_do_not() -> None:
    logits = torch.randn(8, 50, requires_grad=True)
    for value in (1.3, -1.3, 0.0, -40.0):
        prior = torch.tensor(value, requires_grad=True)
        precise = [logits.detach().double().requires_grad_(), prior.detach().double().requires_grad_()]
        expected = kl_divergence(TorchBernoulli(logits=precise[0]), TorchBernoulli(logits=precise[1])).sum(-1)
        kl = Bernoulli.kl(logits, prior)
        torch.testing.assert_close(kl.double(), expected, rtol=1e-5, atol=1e-5)
        gradients = torch.autograd.grad(kl.sum(), [logits, prior])
        for mine, theirs in zip(gradients, torch.autograd.grad(expected.sum(), precise), strict=True):
            torch.testing.assert_close(mine.double(), theirs, rtol=1e-4, atol=1e-4)


def test_gaussian_kl_far_from_the_prior_and_near_to_it() -> None:
    """(exp(d) - 1 - d) / 2 with d = b - a: -(1 + d) / 2 for large variances of the prior, d^2 / 4 near it."""
    prior = torch.tensor(1.5)
    far = Gaussian.kl(torch.tensor([[50.0], [1e4]]), prior)
    torch.testing.assert_close(far, torch.tensor([(48.5 - 1) / 2, (9998.5 - 1) / 2]))
    near = Gaussian.kl((prior - 2.0**-9).expand(1, 1), prior)
    torch.testing.assert_close(near.double(), torch.tensor([2.0**-20], dtype=torch.float64), rtol=1e-3, atol=0)


@pytest.mark.parametrize("draw", ["sample", "antithetic"])
def test_bernoulli_masks_at_the_edge_of_the_noise(draw: str) -> None:
    """torch's uniform numbers include 0 and not 1: units that are surely kept, or dropped, are so for all of them."""
    noise = torch.tensor([0.0, 0.5, 1 - 2.0**-24])
    for logit, expected in ((1e4, 1.0), (-1e4, 0.0)):
        masks = getattr(Bernoulli, draw)(torch.full_like(noise, logit), noise)
        assert masks.tolist() == [expected] * 3
        assert not masks.signbit().any()


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("draw", ["sample", "antithetic"])
def test_masks_of_logits_that_are_not_numbers_are_none_either(family: families.Family, draw: str) -> None:
    logits = torch.tensor([torch.nan, 0.3])
    assert getattr(family, draw)(logits, torch.tensor([0.9, 0.9])).isnan().tolist() == [True, False]


def test_unknown_family() -> None:
    with pytest.raises(ValueError, match="unknown family 'poisson': expected one of 'bernoulli', 'gaussian'"):
        families.by_name("poisson")
