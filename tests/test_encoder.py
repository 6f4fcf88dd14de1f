from __future__ import annotations

import pytest
import torch

from contextual_dropout.encoder import Encoder, pool


def encoder(features: int = 8, context_features: int = 8, **options: object) -> Encoder:
    defaults = {"reduction": 2, "temperature": 0.01, "initial_logit": 1.4}
    return Encoder(features, context_features, **(defaults | options))  # type: ignore[arg-type]


def test_pool_averages_all_but_two_axes() -> None:
    u = torch.randn(4, 3, 5, 6)
    torch.testing.assert_close(pool(u, 0, 1), u.mean((2, 3)))
    torch.testing.assert_close(pool(u, 0, -1), u.mean((1, 2)))
    torch.testing.assert_close(pool(u, 1, 0), u.mean((2, 3)).T)
    assert pool(u[:, :, 0, 0], 0, 1).data_ptr() == u.data_ptr()


def test_pool_of_an_empty_axis_is_zero() -> None:
    assert torch.equal(pool(torch.empty(2, 3, 0), 0, 1), torch.zeros(2, 3))


@pytest.mark.parametrize(("reduction", "width"), [(1, 8), (3, 2), (8, 1), (100, 1)])
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
