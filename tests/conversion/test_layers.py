"""Attention and recurrent layers, whose dropout hides inside them."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import contextual_dropout as cd


def test_sites_in_networks_with_the_batch_second_follow_it() -> None:
    """torch's transformers default to batch_first=False; no example may look at another one."""
    torch.manual_seed(0)
    model = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, dropout=0.2), 1, enable_nested_tensor=False)
    x = torch.randn(5, 3, 8)
    cd.contextualize(model.eval(), example=x, temperature=1.0)
    for site in cd.sites(model).values():
        nn.init.normal_(site.encoder.expand_weight)
    other = x.clone()
    other[:, 1:] += 1
    with torch.no_grad():
        torch.testing.assert_close(model(x)[:, 0], model(other)[:, 0])
        assert not torch.allclose(model(x)[:, 1], model(other)[:, 1])
    step = cd.ELBO(model.train())(lambda: -model(x).square().sum((0, 2)))
    assert step.kl.shape == (3,)


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU])
def test_after_a_recurrent_layer(kind: type[nn.Module]) -> None:
    model = nn.Sequential(kind(4, 6))
    cd.contextualize(model, after=kind, example=torch.randn(5, 3, 4))
    (site,) = cd.sites(model).values()
    assert (site.features, site.batch_dims) == (6, (1, 0))


def test_queries_without_a_key_do_not_spread() -> None:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.1, batch_first=True)
    model = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).eval()
    x = torch.randn(2, 5, 8)
    padding = torch.tensor([[True, True, False, False, False], [False] * 5])
    causal = torch.ones(5, 5).triu(1).bool()
    plain = model(x, mask=causal, src_key_padding_mask=padding).detach()  # with autograd: the fused path has NaN itself
    with torch.no_grad():
        converted = cd.contextualize(model, positions="own")(x, mask=causal, src_key_padding_mask=padding)
    real = ~padding
    torch.testing.assert_close(converted[real], plain[real], atol=1e-5, rtol=0)


def test_attention_context_ignores_padding() -> None:
    torch.manual_seed(0)
    attention = nn.MultiheadAttention(8, 2, dropout=0.1, batch_first=True).eval()
    cd.contextualize(attention, replace=lambda name, module: module is attention, temperature=1.0, positions="pooled")
    nn.init.normal_(cd.sites(attention)["contextual_dropout"].encoder.expand_weight)
    x = torch.randn(1, 4, 8)
    longer = torch.cat([x, torch.randn(1, 3, 8)], 1)
    padding = torch.tensor([[False] * 4 + [True] * 3])
    with torch.no_grad():
        short, _ = attention(x, x, x)
        long, _ = attention(longer, longer, longer, key_padding_mask=padding)
    torch.testing.assert_close(long[:, :4], short)


def test_packed_sequences_keep_their_order() -> None:
    torch.manual_seed(0)
    model = nn.LSTM(4, 6, 2, dropout=0.3).eval()
    packed = nn.utils.rnn.pack_sequence([torch.randn(length, 4) for length in (5, 5, 5, 3, 3)])
    with torch.no_grad():
        expected = model(packed)[0]
        converted = cd.contextualize(nn.Sequential(model))[0](packed)[0]
    torch.testing.assert_close(converted.data, expected.data)
    assert converted.sorted_indices is None


def test_attention_refuses_masks_that_torch_refuses() -> None:
    attention = nn.Sequential(nn.MultiheadAttention(8, 2, dropout=0.1, batch_first=True))
    layer = cd.contextualize(attention, positions="pooled")[0]
    x = torch.randn(2, 4, 8)
    with pytest.raises(TypeError, match="attn_mask must be boolean"):
        layer(x, x, x, attn_mask=torch.ones(4, 4, dtype=torch.uint8))
    with pytest.raises(ValueError, match=r"key_padding_mask must have the shape \(2, 4\), got \(1, 4\)"):
        layer(x, x, x, key_padding_mask=torch.zeros(1, 4, dtype=torch.bool))
    with pytest.raises(ValueError, match="is_causal=True is a hint"):
        layer(x, x, x, is_causal=True)
