"""Sites with several batch axes: each position has its own keep probabilities, from its own features."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from scipy import stats
from torch import Tensor, nn

import contextual_dropout as cd
from tests.exact.enumeration import FAILURE_RATE, assert_mean

#: (shape, dim, batch_dim): tokens, tokens time-first, pixels, the queries of attention weights.
LAYOUTS = [
    ((4, 5, 6), -1, (0, 1)),
    ((5, 4, 6), -1, (1, 0)),
    ((4, 6, 3, 2), 1, (0, 2, 3)),
    ((4, 6, 5, 7), 1, (0, 2)),
]


def site(**options: object) -> cd.ContextualDropout:
    layer = cd.ContextualDropout(6, p=0.4, temperature=1.0, reduction=2, **options)  # type: ignore[arg-type]
    nn.init.normal_(layer.encoder.expand_weight, std=0.3)
    return layer


def samples_first(u: Tensor, dim: int, axes: tuple[int, ...]) -> Tensor:
    """``u`` as (B, ..., C, R), the last axis being all that masks are broadcast over."""
    return u.movedim((*axes, dim), tuple(range(len(axes) + 1))).unsqueeze(-1).flatten(len(axes) + 1)


def by_hand(layer: cd.ContextualDropout, u: Tensor, dim: int, axes: tuple[int, ...]) -> Tensor:
    """The keep probabilities (B, ..., C), by a site for (B, C) at one position after another."""
    rows = samples_first(u, dim, axes)
    plain = site()
    plain.load_state_dict(layer.state_dict())
    keep = torch.cat([plain.keep_probability(row.mean(-1)[None]) for row in rows.flatten(0, len(axes) - 1)])
    return keep.view(rows.shape[:-1])


@pytest.mark.parametrize(("shape", "dim", "axes"), LAYOUTS)
@pytest.mark.parametrize("family", ["bernoulli", "gaussian"])
def test_each_position_is_a_sample_of_its_own(
    family: str, shape: tuple[int, ...], dim: int, axes: tuple[int, ...]
) -> None:
    layer, u = site(family=family, dim=dim, batch_dim=axes), torch.randn(shape) + 3
    keep = layer.keep_probability(u)
    torch.testing.assert_close(keep, by_hand(layer, u, dim, axes))
    mask = samples_first(layer(u) / u, dim, axes)
    torch.testing.assert_close(mask, mask[..., :1].expand_as(mask))  # the same over the axes that are left
    assert len(mask[..., 0].flatten(0, -2).unique(dim=0)) > 2  # others at other positions and samples
    expected = keep if family == "bernoulli" else torch.ones_like(keep)
    point = samples_first(layer.eval()(u) / u, dim, axes)
    torch.testing.assert_close(point, expected.unsqueeze(-1).expand_as(point))


def test_a_position_reads_nothing_of_the_others() -> None:
    layer, u = site(batch_dim=(0, 1)).eval(), torch.randn(3, 5, 6)
    other = u.clone()
    other[:, -1] += 1
    torch.testing.assert_close(layer(u)[:, :-1], layer(other)[:, :-1], rtol=0, atol=0)
    assert not torch.equal(layer(u)[:, -1] / u[:, -1], layer(other)[:, -1] / other[:, -1])


def test_masks_of_positions_are_independent() -> None:
    layer, u = site(batch_dim=(0, 1), initialisation="zero"), torch.ones(20_000, 2, 6)
    nn.init.zeros_(layer.encoder.expand_weight)
    first, second = layer(u)[..., 0].unbind(1)
    agreed = (first == second).double()
    assert_mean(agreed, torch.tensor(0.4**2 + 0.6**2).double(), FAILURE_RATE, "agreement of two positions")


def test_a_sum_of_tokens_is_masked_too() -> None:
    layer, u = site(batch_dim=(0, 1)), torch.randn(3, 6)
    plain = site()
    plain.load_state_dict(layer.state_dict())
    assert torch.equal(layer.keep_probability(u), plain.keep_probability(u))
    assert layer(u).shape == (3, 6)


def test_contexts_of_positions() -> None:
    layer, u = site(batch_dim=(0, 2), dim=1, context_features=9), torch.randn(4, 6, 5, 7)
    assert layer.keep_probability(u, torch.randn(4, 5, 9)).shape == (4, 5, 6)
    with pytest.raises(ValueError, match="as many positions"):
        layer(u, torch.randn(4, 3, 9))
    with pytest.raises(ValueError, match="different ones"):
        site(batch_dim=(0, 0))
    with pytest.raises(ValueError, match="batch_dim must be an integer"):
        site(batch_dim=(0, "1"))


@pytest.mark.parametrize(
    ("shape", "dim", "expected"), [((4, 5, 6), None, [0, 1]), ((4, 6, 3, 2), None, [0, 2, 3]), ((4, 6), -1, 0)]
)
def test_lazy_sites_learn_their_positions(shape: tuple[int, ...], dim: int | None, expected: object) -> None:
    layer = cd.LazyContextualDropout(positions="own", dim=dim)
    layer(torch.randn(shape))
    assert layer.config["batch_dim"] == expected
    assert type(layer) is cd.ContextualDropout
    assert layer.keep_probability(torch.randn(shape)).shape[-1] == 6


def test_lazy_sites_read_mean_and_deviation() -> None:
    layer = cd.LazyContextualDropout(dim=1, pooling="mean-deviation")
    layer(torch.randn(2, 6, 3, 3))
    assert (layer.features, layer.encoder.context_features, layer.config["context_features"]) == (6, 12, None)
    rebuilt = cd.ContextualDropout(**layer.config)
    rebuilt.load_state_dict(layer.state_dict())
    assert layer(torch.randn(2, 6, 3, 3)).shape == (2, 6, 3, 3)


class Tagger(nn.Module):
    """Labels of tokens (B, T, 3)."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.site, self.head = nn.Linear(4, 6), site(batch_dim=(0, 1)), nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.site(torch.tanh(self.embed(x)) + 1))
        return logits


def test_inspection_knows_positions() -> None:
    model, x = Tagger(), torch.randn(8, 5, 4)
    keep = cd.keep_probabilities(model, x)["site"]
    assert keep.shape == (8, 5, 6)
    frozen = cd.freeze_context(model, x)
    mean = keep.flatten(0, 1).mean(0).float()
    torch.testing.assert_close(frozen.site.keep_probability(torch.randn(2, 3, 6)), mean.expand(2, 3, 6))
    assert cd.probe(model, x).sites["site"].contextuality == pytest.approx(
        keep.flatten(0, 1).std(0).mean().item(), rel=1e-5
    )


def test_positions_are_saved(tmp_path: Path) -> None:
    model, other, x = Tagger(), Tagger(), torch.randn(8, 5, 4)
    cd.save_sites(model, tmp_path / "sites.safetensors")
    cd.load_sites(other, tmp_path / "sites.safetensors")
    other.load_state_dict(model.state_dict())
    assert torch.equal(other.eval()(x), model.eval()(x))
    pooled = Tagger()
    pooled.site = site()
    with pytest.raises(ValueError, match="batch_dim is 0 here"):
        cd.load_sites(pooled, tmp_path / "sites.safetensors")


@pytest.mark.parametrize("rows", [1, 16, 10_000])
def test_prediction_is_that_of_a_plain_loop(rows: int) -> None:
    torch.manual_seed(0)
    model, x, passes = Tagger().eval(), torch.randn(3, 5, 4), 4000
    found = cd.predict(model, x, samples=passes, task="regression", rows=rows).samples.double()
    with cd.sampling(model), torch.no_grad():
        looped = torch.stack([model(x) for _ in range(passes)]).double()
    quantile = stats.norm.isf(FAILURE_RATE / (4 * looped[0].numel()))
    for one, other in ((found, looped), ((found - found.mean(0)).square(), (looped - looped.mean(0)).square())):
        error = ((one.var(0) + other.var(0)) / passes).sqrt()
        assert ((one.mean(0) - other.mean(0)).abs() <= quantile * error).all()
