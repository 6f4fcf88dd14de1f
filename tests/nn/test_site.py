from __future__ import annotations

import copy
import io
import math
import pickle
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import contextual_dropout as cd

FAMILIES = ["bernoulli", "gaussian"]
#: A (shape, dim, batch_dim, features) for every kind of layer.
SHAPES = [
    ((6, 8), -1, 0, 8),
    ((6, 5, 8), -1, 0, 8),
    ((5, 6, 8), -1, 1, 8),
    ((6, 8, 4, 3), 1, 0, 8),
    ((6, 8, 4, 3), -3, 0, 8),
    ((6, 4, 7, 7), 1, 0, 4),
    ((8, 6), 0, 1, 8),
    ((0, 8), -1, 0, 8),
    ((0, 8, 4, 3), 1, 0, 8),
    ((1, 8, 2, 2, 2), 1, 0, 8),
]


def site(features: int = 8, **options: Any) -> cd.ContextualDropout:
    return cd.ContextualDropout(features, **({"temperature": 1.0, "reduction": 2} | options))


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(("shape", "dim", "batch_dim", "features"), SHAPES)
def test_masks_are_shared_over_all_other_axes(
    shape: tuple[int, ...], dim: int, batch_dim: int, features: int, family: str
) -> None:
    layer = site(features, dim=dim, batch_dim=batch_dim, family=family)
    u = torch.rand(shape) + 0.5
    out = layer(u)
    assert out.shape == u.shape
    ratio = (out / u).movedim((batch_dim, dim), (0, 1)).unsqueeze(-1).flatten(2)
    masks = ratio[..., :1]
    torch.testing.assert_close(ratio, masks.expand_as(ratio))
    assert layer.keep_probability(u).shape == masks.shape[:2]
    if family == "bernoulli":
        assert ((masks == 0) | ((masks - 1).abs() < 1e-6)).all()
    elif masks.numel():
        assert masks.unique().numel() == masks.numel()


@pytest.mark.parametrize("family", FAMILIES)
def test_eval_is_the_expected_mask(family: str) -> None:
    layer = site(family=family).eval()
    u = torch.randn(5, 8)
    expected = u * layer.keep_probability(u) if family == "bernoulli" else u
    assert torch.equal(layer(u), expected)
    assert torch.equal(layer(u), layer(u))


def test_training_masks_follow_the_keep_probabilities() -> None:
    torch.manual_seed(0)
    layer = site(4)
    u = torch.randn(1, 4)
    draws = 200_000
    kept = (layer(u.expand(draws, 4)) != 0).double().mean(0)
    keep = layer.keep_probability(u)[0].double()
    assert ((kept - keep).abs() < 5 * (keep * (1 - keep) / draws).sqrt()).all()  # failure rate 4 * 6e-7


def test_initial_drop_rate_and_prior() -> None:
    layer = site(p=0.3, initialisation="zero")
    torch.testing.assert_close(layer.keep_probability(torch.randn(5, 8)), torch.full((5, 8), 0.7))
    torch.testing.assert_close(layer.prior_keep_probability, torch.tensor(0.7))
    torch.testing.assert_close(site(prior_p=0.05).prior_keep_probability, torch.tensor(0.95))
    assert site().prior_logit.requires_grad
    assert not site(prior="fixed").prior_logit.requires_grad


def test_rates_depend_on_the_sample() -> None:
    keep = site().keep_probability(torch.randn(5, 8))
    assert (keep.std(0) > 1e-3).all()


def test_context_is_what_the_encoder_reads() -> None:
    layer = site(8, context_features=3, dim=1)
    u, context = torch.randn(5, 8, 4, 4), torch.randn(5, 3)
    assert layer(u, context=context).shape == u.shape
    keep = layer.keep_probability(u, context)
    torch.testing.assert_close(keep, layer.keep_probability(torch.zeros_like(u), context))
    pooled = layer.keep_probability(u, context[..., None, None].expand(5, 3, 2, 2))
    torch.testing.assert_close(keep, pooled)


@pytest.mark.parametrize("family", FAMILIES)
def test_rescale_keeps_the_scale_of_the_activations(family: str) -> None:
    layer = site(p=0.25, rescale=True, initialisation="zero", family=family)
    u = torch.randn(5, 8)
    torch.testing.assert_close(layer.eval()(u), u)
    if family == "bernoulli":
        out = layer.train()(u)
        assert torch.isclose(out, u / 0.75).logical_or(out == 0).all()


def test_an_input_without_batch_axis_is_one_sample() -> None:
    assert site()(torch.randn(8)).shape == (8,)
    assert site().keep_probability(torch.randn(8)).shape == (1, 8)
    assert site(dim=-3)(torch.randn(8, 4, 4)).shape == (8, 4, 4)


def test_parameter_counts_of_the_paper() -> None:
    """266,610 for the plain MLP; with sites 311,465 (gamma = 32) and 410,219 (gamma = 10, as in the text)."""
    plain = 784 * 300 + 300 + 300 * 100 + 100 + 100 * 10 + 10
    for reduction, total in ((32, 311_465), (10, 410_219)):
        sites = [cd.ContextualDropout(features, reduction=reduction) for features in (784, 300, 100)]
        assert plain + sum(p.numel() for layer in sites for p in layer.parameters()) == total


@pytest.mark.parametrize("family", FAMILIES)
def test_gradients_reach_phi_and_never_the_encoder_input(family: str) -> None:
    layer = site(family=family)
    u = torch.randn(5, 8, requires_grad=True)
    layer.keep_probability(u).sum().backward()
    assert u.grad is None
    assert all(p.grad is not None and p.grad.isfinite().all() for p in layer.encoder.parameters())


# --- living inside other people's code -------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("family", FAMILIES)
def test_autocast_keeps_the_logits_precise(family: str, dtype: torch.dtype) -> None:
    model = nn.Sequential(nn.Linear(8, 8), site(family=family, temperature=0.01), nn.Linear(8, 2))
    x = torch.randn(5, 8)
    with torch.autocast("cpu", dtype=dtype):
        u = model[0](x)
        assert u.dtype is dtype
        assert model[1](u).dtype is dtype
        assert model[1].keep_probability(u).dtype is torch.float32
        precise = model[1].keep_probability(u.float())
        torch.testing.assert_close(model[1].keep_probability(u), precise)
        model(x).float().sum().backward()
    assert all(p.grad is None or p.grad.isfinite().all() for p in model.parameters())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("encoder", ["bottleneck", "global"])
def test_parameters_of_half_precision_are_computed_with_in_single(encoder: str, dtype: torch.dtype) -> None:
    """In float16 t * hidden alone would be infinite here."""
    layer = site(encoder=encoder, temperature=100.0).to(dtype)
    u = 600 * torch.randn(5, 8).to(dtype)
    keep = layer.keep_probability(u)
    assert torch.equal(keep, copy.deepcopy(layer).float().keep_probability(u.float()))
    keep.sum().backward()
    assert all(p.grad is None or (p.grad.dtype == dtype and p.grad.isfinite().all()) for p in layer.parameters())


@pytest.mark.parametrize("family", FAMILIES)
def test_float64(family: str) -> None:
    layer = site(family=family).double()
    assert layer(torch.randn(3, 8, dtype=torch.float64)).dtype is torch.float64


def test_deepcopy_pickle_and_state_dict() -> None:
    layer = site()
    u = torch.randn(4, 8)
    twin = site()
    twin.load_state_dict(layer.state_dict())
    for other in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer)), twin):
        assert torch.equal(other.keep_probability(u), layer.keep_probability(u))
        assert other.family is layer.family
    file = io.BytesIO()
    torch.save(layer.state_dict(), file)
    file.seek(0)
    assert set(torch.load(file, weights_only=True)) == set(layer.state_dict())


@pytest.mark.filterwarnings("ignore:Guards may run slower on Python 3.13.0:RuntimeWarning")
@pytest.mark.parametrize("family", FAMILIES)
def test_compiles_in_eval_without_graph_breaks(family: str) -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), site(family=family), nn.Linear(8, 2)).eval()
    x = torch.randn(4, 8)
    torch._dynamo.reset()
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(x), model(x))
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), model(x))


@pytest.mark.parametrize("family", FAMILIES)
def test_activation_checkpointing_repeats_the_same_masks(family: str) -> None:
    torch.manual_seed(0)
    block = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), site(family=family), nn.Linear(8, 2))
    x, y = torch.randn(5, 8), torch.tensor([0, 1, 0, 1, 0])
    gradients = []
    for run in (block, lambda x: checkpoint(block, x, use_reentrant=False)):
        block.zero_grad()
        torch.manual_seed(3)
        step = cd.ELBO(block)(lambda run=run: -F.cross_entropy(run(x), y, reduction="none"))
        step.loss.backward()
        gradients.append([p.grad.clone() for p in block.parameters() if p.grad is not None])
    assert len(gradients[0]) == len(list(block.parameters()))
    for plain, checkpointed in zip(*gradients, strict=True):
        torch.testing.assert_close(plain, checkpointed)


def test_a_site_used_twice_is_two_draws() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.site = site()

        def forward(self, u: Tensor) -> tuple[Tensor, Tensor]:
            return self.site(u), self.site(u)

    first, second = Twice()(torch.ones(50, 8))
    assert not torch.equal(first, second)


# --- the lazy variant ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", FAMILIES)
def test_lazy_site_becomes_an_ordinary_one(family: str) -> None:
    model = nn.Sequential(nn.Conv2d(3, 12, 3), cd.LazyContextualDropout(p=0.3, dim=1, family=family))
    assert "lazy" in repr(model)
    copy.deepcopy(model)
    out = model(torch.randn(2, 3, 8, 8))
    assert out.shape == (2, 12, 6, 6)
    assert type(model[1]) is cd.ContextualDropout
    assert model[1].features == 12
    assert not any(isinstance(p, nn.UninitializedParameter) for p in model.parameters())
    torch.testing.assert_close(model[1].keep_probability(out).mean(), torch.tensor(0.7), atol=0.05, rtol=0)


def test_lazy_site_takes_a_trained_state() -> None:
    trained, lazy = site(8), cd.LazyContextualDropout(reduction=2, temperature=1.0)
    lazy.load_state_dict(trained.state_dict())
    u = torch.randn(3, 8)
    lazy(u)
    assert torch.equal(lazy.keep_probability(u), trained.keep_probability(u))


# --- rates without context -------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(("shape", "dim", "batch_dim", "features"), SHAPES)
def test_global_rates_are_the_same_for_every_sample(
    shape: tuple[int, ...], dim: int, batch_dim: int, features: int, family: str
) -> None:
    layer = site(features, dim=dim, batch_dim=batch_dim, family=family, encoder="global", p=0.3)
    with torch.no_grad():
        layer.encoder.expand_bias.add_(torch.randn(features))
    u = torch.rand(shape) + 0.5
    keep = layer.keep_probability(u)
    assert keep.shape == (shape[batch_dim], features)
    assert torch.equal(keep, layer.encoder.expand_bias.sigmoid().expand_as(keep))  # t = 1
    assert layer(u).shape == shape
    assert torch.equal(layer.eval()(u), layer(u))


@pytest.mark.parametrize("family", FAMILIES)
def test_global_masks_are_drawn_for_each_sample(family: str) -> None:
    masks = site(8, encoder="global", p=0.5, family=family)(torch.ones(50, 8))
    assert len({tuple(row.tolist()) for row in masks.detach()}) > 25


@pytest.mark.parametrize("family", FAMILIES)
def test_a_lazy_global_site(family: str) -> None:
    layer = cd.LazyContextualDropout(p=0.3, dim=None, family=family, encoder="global")
    layer(torch.randn(2, 12, 5, 5))
    assert type(layer) is cd.ContextualDropout
    assert (layer.features, layer.dim, layer.config["encoder"]) == (12, 1, "global")
    again = cd.ContextualDropout(**layer.config)
    again.load_state_dict(layer.state_dict())
    u = torch.randn(3, 12, 5, 5)
    assert torch.equal(again.keep_probability(u), layer.keep_probability(u))
    torch.testing.assert_close(layer.keep_probability(u), torch.full((3, 12), 0.7))


def test_a_global_site_checks_its_input_all_the_same() -> None:
    with pytest.raises(ValueError, match=r"7 features on axis dim=-1, but was built for features=8"):
        site(8, encoder="global")(torch.randn(5, 7))


@pytest.mark.parametrize("p", [5e-324, 1e-17, 1 - 2.0**-53])
def test_drop_rates_at_the_edge_of_floating_point(p: float) -> None:
    """1 - p may round to 1; its logit does not."""
    edge = site(p=p, initialisation="zero")
    assert edge.prior_logit.item() == pytest.approx(math.log1p(-p) - math.log(p), rel=1e-6)
    assert torch.equal(edge(torch.ones(2, 8)), torch.full((2, 8), float(p < 0.5)))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_zero_stays_zero_under_any_mask_of_half_precision(dtype: torch.dtype) -> None:
    """A standard deviation of exp(20) is infinite in float16; what of the product fits is exact."""
    noisy = site(4, family="gaussian", initialisation="zero", temperature=1.0)
    nn.init.constant_(noisy.encoder.expand_bias, -100.0)
    u = torch.tensor([[0.0, 0.0, 2.0**-20, 2.0**-20]], dtype=dtype)
    torch.manual_seed(0)
    half = noisy(u)
    torch.manual_seed(0)
    single = noisy(u.float())
    assert half.dtype == dtype
    assert half[0, :2].tolist() == [0.0, 0.0]
    torch.testing.assert_close(half.float(), single, rtol=2e-2, atol=0)


def test_features_that_overflow_the_context_are_not_dropped_in_silence() -> None:
    """Their mean is infinite: the masks cannot be known, and say so."""
    pooled = site(4, dim=1)
    u = torch.full((1, 4, 5, 5), 3e38)
    assert pooled(u).isnan().all()
    assert pooled.eval()(u).isnan().all()


# --- bad input -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"p": 0.0}, "p is a drop rate strictly between 0 and 1, got 0.0"),
        ({"p": 1.0}, "p is a drop rate strictly between 0 and 1, got 1.0"),
        ({"p": float("nan")}, "p is a drop rate"),
        ({"prior_p": 1.5}, "prior_p is a drop rate"),
        ({"family": "cauchy"}, "unknown family 'cauchy': expected one of 'bernoulli', 'gaussian'"),
        ({"features": 0}, "features must be a positive integer, got 0"),
        ({"reduction": 0}, "reduction must be a positive integer"),
        ({"context_features": 0}, "context_features must be a positive integer"),
        ({"dim": "x"}, "dim must be an integer, the number of an axis, got 'x'"),
        ({"batch_dim": 1.0}, "batch_dim must be an integer"),
        ({"temperature": 0.0}, "temperature must be a positive number"),
        ({"temperature": 1e-40}, "temperature must be a positive number from 1e-30 to 1e\\+30, got 1e-40"),
        ({"temperature": float("inf")}, "temperature must be a positive number"),
        ({"temperature": float("nan")}, "temperature must be a positive number"),
        ({"initialisation": "xavier"}, "unknown initialisation 'xavier'"),
        ({"prior": "uniform"}, "unknown prior 'uniform'"),
        ({"encoder": "transformer"}, "unknown encoder 'transformer': expected one of 'bottleneck', 'global'"),
    ],
)
def test_bad_options(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        site(**options)


def test_wrong_feature_count() -> None:
    with pytest.raises(
        ValueError, match=r"shape \(5, 7\) with 7 features on axis dim=-1, but was built for features=8"
    ):
        site(8)(torch.randn(5, 7))
    with pytest.raises(ValueError, match=r"dim=1 .* shape"):
        site(8, dim=1)(torch.randn(8))
    with pytest.raises(ValueError, match="context of shape"):
        site(8, context_features=3)(torch.randn(5, 8), torch.randn(5, 4))
    with pytest.raises(ValueError, match="as many samples as the input"):
        site(8, context_features=3)(torch.randn(5, 8), torch.randn(4, 3))
