"""A million masks from every place that draws them: the distribution of each unit, and that no two are related."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations

import numpy as np
import numpy.typing as npt
import pytest
import torch
from scipy import stats
from torch import Tensor, nn

import contextual_dropout as cd
from contextual_dropout.nn.families import Bernoulli
from tests.exact.enumeration import FAILURE_RATE
from tests.reliability.record import budget, record

DRAWS = budget(200_000, 1_000_000)
#: From "never" to "always"; the Gaussian variances are exp(-logit).
LOGITS = {
    "bernoulli": (-1e4, -13.8, -1.4, 0.0, 1.4, 6.0, 1e4),
    "gaussian": (-20.0, -6.0, 0.0, 1.4, 6.0),
}
Array = npt.NDArray[np.float64]


def site(family: str) -> cd.ContextualDropout:
    """Whose masks have the logits above for every sample: the last layer of its encoder has no weights."""
    logits = LOGITS[family]
    made = cd.ContextualDropout(len(logits), family=family, temperature=1.0, initialisation="zero")  # type: ignore[arg-type]
    with torch.no_grad():
        made.encoder.expand_bias.copy_(torch.tensor(logits))
    return made


class Hidden(nn.Module):
    """A network that is no chain of known layers, so that samples are batched by vmap, or looped."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.layer(x)
        return out


def called(layer: cd.ContextualDropout) -> Tensor:
    """By a forward pass in training."""
    return layer(torch.ones(DRAWS, layer.features))  # type: ignore[no-any-return]


def recorded(layer: cd.ContextualDropout) -> Tensor:
    """By the true pass of an objective."""
    seen: list[Tensor] = []

    def log_likelihood() -> Tensor:
        seen.append(layer(torch.ones(DRAWS, layer.features)))
        return seen[0].sum(1)

    with torch.no_grad():
        cd.ELBO(layer)(log_likelihood)
    return seen[0]


def predicted(model: nn.Module, features: int, examples: int, rows: int | None = None) -> Tensor:
    x = torch.ones(examples, features)
    samples = cd.predict(model, x, samples=DRAWS // examples, task="regression", rows=rows, seed=0).samples
    return samples.flatten(0, 1)


def folded(layer: cd.ContextualDropout) -> Tensor:
    """By a prediction whose samples are rows of one batch."""
    return predicted(nn.Sequential(layer), layer.features, 1000, DRAWS // 10)


def batched(layer: cd.ContextualDropout) -> Tensor:
    """By a prediction under vmap."""
    return predicted(Hidden(layer), layer.features, 1000, DRAWS // 10)


def looped(layer: cd.ContextualDropout) -> Tensor:
    """By a prediction, one sample after another."""
    return predicted(Hidden(layer), layer.features, DRAWS // 10)


PLACES: tuple[Callable[[cd.ContextualDropout], Tensor], ...] = (called, recorded, folded, batched, looped)


def p_values(family: str, masks: Array, logits: tuple[float, ...]) -> list[float]:
    """Of the hypotheses that the masks are what they claim: units, pairs of units, pairs of neighbouring samples."""
    return _bernoulli(masks, logits) if family == "bernoulli" else _gaussian(masks, logits)


def _bernoulli(masks: Array, logits: tuple[float, ...]) -> list[float]:
    assert set(np.unique(masks)) == {0.0, 1.0}
    keep = torch.tensor(logits).sigmoid().double().numpy()
    kept = [(_products(masks), _products(keep[None])[0]), (masks, keep), (masks[::2] * masks[1::2], keep**2)]
    return [
        stats.binomtest(int(column.sum()), len(column), probability).pvalue
        for columns, probabilities in kept
        for column, probability in zip(columns.T, probabilities, strict=True)
    ]


def _gaussian(masks: Array, logits: tuple[float, ...]) -> list[float]:
    noise = (masks - 1) * np.exp(0.5 * np.array(logits))
    columns = [*noise.T, *_products(noise).T, *(noise[::2] * noise[1::2]).T]  # of mean 0 and variance 1
    means = [2 * stats.norm.sf(abs(column.sum()) / len(column) ** 0.5) for column in columns]
    tails = stats.chi2(len(noise)).cdf(np.square(noise).sum(0))
    return [*means, *(2 * np.minimum(tails, 1 - tails)), stats.kstest(noise[:, 0], "norm").pvalue]


def _products(columns: Array) -> Array:
    """Of each two columns."""
    first, second = zip(*combinations(range(columns.shape[1]), 2), strict=True)
    return columns[:, first] * columns[:, second]


@pytest.mark.slow
@pytest.mark.parametrize("family", LOGITS)
@pytest.mark.filterwarnings("ignore::contextual_dropout.SaturationWarning")
def test_masks_have_the_distribution_they_claim(family: str) -> None:
    checks = 0
    smallest = 1.0
    for place in PLACES:
        torch.manual_seed(0)
        masks = place(site(family)).detach().double().numpy()
        assert masks.shape == (DRAWS, len(LOGITS[family]))
        found = p_values(family, masks, LOGITS[family])
        assert min(found) * len(found) >= FAILURE_RATE, place.__doc__
        checks, smallest = checks + len(found), min(smallest, min(found) * len(found))
    _record(family, len(PLACES), checks, smallest)


@pytest.mark.slow
def test_pseudo_masks_mirror_the_true_ones() -> None:
    """Both are kept with probability max(0, 2 keep - 1), and each by itself with probability keep."""
    torch.manual_seed(0)
    logits = torch.tensor(LOGITS["bernoulli"]).expand(DRAWS, -1)
    noise = Bernoulli.noise(logits)
    true, pseudo = Bernoulli.sample(logits, noise), Bernoulli.antithetic(logits, noise)
    found = p_values("bernoulli", pseudo.double().numpy(), LOGITS["bernoulli"])
    assert min(found) * len(found) >= FAILURE_RATE
    for unit, keep in enumerate(logits[0].sigmoid().double().tolist()):
        both = int((true[:, unit] * pseudo[:, unit]).sum())
        assert stats.binomtest(both, DRAWS, max(0.0, 2 * keep - 1)).pvalue * len(logits[0]) >= FAILURE_RATE
    record(
        "numerics",
        "numerics-masks-mirrored",
        f"{DRAWS:,} Bernoulli pseudo masks have the distribution of true ones, and both are kept as often as mirrored "
        f"noise implies, at a failure rate of {FAILURE_RATE}.",
        {"pairs of masks": DRAWS, "hypotheses tested": len(found) + len(logits[0])},
    )


def _record(family: str, places: int, checks: int, smallest: float) -> None:
    record(
        "numerics",
        f"numerics-masks-{family}",
        f"{DRAWS:,} {family.title()} masks from each place that draws them have the distribution that their logits "
        f"claim, independent between units and between samples, at a failure rate of {FAILURE_RATE} a place.",
        {
            "masks from each place": DRAWS,
            "places": places,
            "hypotheses tested": checks,
            "smallest p-value, corrected for their number": round(min(smallest, 1.0), 4),
        },
    )
