from __future__ import annotations

import pytest
import torch

from contextual_dropout.nn.encoder import ENCODERS, LAZY_ENCODERS, Encoder, EncoderKind, GlobalLogits, pool

OPTIONS = {"reduction": 2, "temperature": 0.01, "initial_logit": 1.4}


def encoder(features: int = 8, context_features: int = 8, **options: object) -> Encoder:
    defaults = {"reduction": 2, "temperature": 0.01, "initial_logit": 1.4}
    return Encoder(features, context_features, **(defaults | options))  # type: ignore[arg-type]


def test_pool_averages_all_but_the_given_axes() -> None:
    u = torch.randn(4, 3, 5, 6)
    torch.testing.assert_close(pool(u, [0], 1), u.mean((2, 3)))
    torch.testing.assert_close(pool(u, [0], -1), u.mean((1, 2)))
    torch.testing.assert_close(pool(u, [1], 0), u.mean((2, 3)).T)
    torch.testing.assert_close(pool(u, [0, 2], 1), u.mean(3).permute(0, 2, 1))
    torch.testing.assert_close(pool(u, [-1, 1, 0], 2), u.permute(3, 1, 0, 2))
    assert pool(u[:, :, 0, 0], [0], 1).data_ptr() == u.data_ptr()


def test_pool_of_an_empty_axis_is_zero() -> None:
    assert torch.equal(pool(torch.empty(2, 3, 0), [0], 1), torch.zeros(2, 3))
    assert torch.equal(pool(torch.empty(2, 3, 0), [0], 1, pooling="mean-deviation"), torch.zeros(2, 6))


def test_the_mean_absolute_deviation_tells_apart_what_instance_normalisation_made_alike() -> None:
    u = torch.nn.InstanceNorm2d(3)(torch.rand(8, 3, 32, 32) ** torch.linspace(1, 6, 8)[:, None, None, None])
    mean, deviation = pool(u, [0], 1, pooling="mean-deviation").chunk(2, -1)
    torch.testing.assert_close(deviation, (u - u.mean((2, 3), keepdim=True)).abs().mean((2, 3)))
    assert mean.std(0).max() < 1e-6
    assert u.std((2, 3), correction=0).std(0).max() < 1e-3  # of no use either
    assert deviation.std(0).min() > 0.02


@pytest.mark.parametrize(("reduction", "width"), [(1, 8), (3, 2), (7, 1), (8, 8), (100, 8)])
def test_bottleneck_width(reduction: int, width: int) -> None:
    assert encoder(reduction=reduction).reduce_weight.shape == (width, 8)


def test_zero_initialisation_gives_every_input_the_initial_logit() -> None:
    logits = encoder(initialisation="zero")(torch.randn(5, 8) * 100)
    torch.testing.assert_close(logits, torch.full((5, 8), 1.4))


def test_he_initialisation_preserves_the_scale_of_the_input() -> None:
    torch.manual_seed(0)
    h = encoder(512, 512, reduction=1, temperature=1.0, initial_logit=0.0, negative_slope=0.1)
    variance = h(torch.randn(2000, 512)).var().item()
    assert 0.8 < variance < 1.25


def test_temperature_scales_the_logits() -> None:
    cold, warm = encoder(temperature=0.01), encoder(temperature=0.1)
    warm.load_state_dict(cold.state_dict())
    x = torch.randn(5, 8)
    torch.testing.assert_close(warm(x), 10 * cold(x))


# --- logits without context ------------------------------------------------------------------------------------


def global_logits(features: int = 8, context_features: int = 8, **options: object) -> GlobalLogits:
    return GlobalLogits(features, context_features, **(OPTIONS | options))  # type: ignore[arg-type]


def test_global_logits_begin_where_an_encoder_without_weights_does() -> None:
    x = torch.randn(5, 8) * 100
    torch.testing.assert_close(global_logits()(x), encoder(initialisation="zero")(x))


def test_global_logits_have_one_parameter_a_unit() -> None:
    h = global_logits(8, 3)
    assert {name: tuple(parameter.shape) for name, parameter in h.named_parameters()} == {"expand_bias": (8,)}
    assert h(torch.randn(5, 3)).shape == (5, 8)
    assert "the same for every sample" in repr(h)


def test_global_logits_are_the_same_for_every_sample_and_differ_by_unit() -> None:
    h = global_logits(temperature=0.5)
    with torch.no_grad():
        h.expand_bias.copy_(torch.arange(8.0))
    logits = h(torch.randn(5, 8))
    torch.testing.assert_close(logits, 0.5 * torch.arange(8.0).expand(5, 8))
    assert h(torch.randn(0, 8)).shape == (0, 8)


def test_gradients_of_global_logits_add_up_over_samples() -> None:
    h, weights = global_logits(temperature=0.5), torch.randn(5, 8)
    x = torch.randn(5, 8, requires_grad=True)
    (h(x) * weights).sum().backward()
    torch.testing.assert_close(h.expand_bias.grad, 0.5 * weights.sum(0))
    assert x.grad is None


# --- every kind ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ENCODERS)
def test_reset_gives_the_initial_logit_back(kind: EncoderKind) -> None:
    h = ENCODERS[kind](8, 8, initialisation="zero", **OPTIONS)  # type: ignore[arg-type]
    with torch.no_grad():
        for parameter in h.parameters():
            parameter.add_(torch.randn_like(parameter))
    h.reset_parameters()
    torch.testing.assert_close(h(torch.randn(5, 8)), torch.full((5, 8), 1.4))


@pytest.mark.parametrize("kind", ENCODERS)
def test_a_lazy_encoder_becomes_an_ordinary_one(kind: EncoderKind) -> None:
    h = LAZY_ENCODERS[kind](**OPTIONS)
    assert "inferred" in repr(h)
    assert h.features == h.context_features == 0
    out = h(torch.randn(5, 12))
    assert type(h) is ENCODERS[kind]
    assert h.features == h.context_features == 12
    assert out.shape == (5, 12)
    ordinary = ENCODERS[kind](12, 12, **OPTIONS)  # type: ignore[arg-type]
    assert {name: p.shape for name, p in h.named_parameters()} == {
        name: p.shape for name, p in ordinary.named_parameters()
    }


@pytest.mark.parametrize("kind", ENCODERS)
def test_a_lazy_encoder_takes_a_trained_state(kind: EncoderKind) -> None:
    trained = ENCODERS[kind](12, 12, **OPTIONS)  # type: ignore[arg-type]
    with torch.no_grad():
        trained.expand_bias.add_(torch.randn(12))
    lazy, x = LAZY_ENCODERS[kind](**OPTIONS), torch.randn(5, 12)
    lazy.load_state_dict(trained.state_dict())
    assert torch.equal(lazy(x), trained(x))
    assert lazy.features == lazy.context_features == 12


@pytest.mark.parametrize("kind", ENCODERS)
def test_frozen_encoders_say_so(kind: EncoderKind) -> None:
    h = ENCODERS[kind](8, 8, **OPTIONS)  # type: ignore[arg-type]
    assert h.trainable
    assert not h.requires_grad_(False).trainable
