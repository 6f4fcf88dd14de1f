"""Sites on attention weights: contexts that depend on the sample, and only on what is no padding."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

import contextual_dropout as cd
from contextual_dropout.nn.attention_dropout import (
    CONTEXTS,
    AttentionContext,
    AttentionDropout,
    AttentionTensors,
    attention_entropy,
    pooled_scores,
)

#: All that depend on the sample.
KINDS = [kind for kind in CONTEXTS if kind != "weights"]


class WrittenOut(nn.Module):
    """Self-attention with an :class:`AttentionDropout`, and the interface of a layer."""

    def __init__(self, size: int = 8, heads: int = 2) -> None:
        super().__init__()
        self.heads = heads
        self.project = nn.Linear(size, 3 * size)
        self.dropout = AttentionDropout(0.3)

    def forward(self, x: Tensor, padded: Tensor | None = None) -> Tensor:
        q, k, v = self.project(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        scores = q @ k.mT
        if padded is not None:
            scores = scores.masked_fill(padded[:, None, None, :], -1e9)
        return (self.dropout(scores.softmax(-1), scores, q, padded) @ v).transpose(1, 2).flatten(2)


class Layered(nn.Module):
    """torch's own attention, twice."""

    def __init__(self, size: int = 8, heads: int = 2) -> None:
        super().__init__()
        self.first = nn.MultiheadAttention(size, heads, dropout=0.3, batch_first=True)
        self.second = nn.MultiheadAttention(size, heads, dropout=0.3, batch_first=True)

    def forward(self, x: Tensor, padded: Tensor | None = None) -> Tensor:
        x = x + self.first(x, x, x, key_padding_mask=padded)[0]
        out: Tensor = self.second(x, x, x, key_padding_mask=padded)[0]
        return out


class Encoded(nn.Module):
    """torch's own encoder, which makes the padding an additive mask; its sites on features would read padding too."""

    def __init__(self, size: int = 8, heads: int = 2) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(size, heads, 16, dropout=0.3, batch_first=True)
        layer.dropout = layer.dropout1 = layer.dropout2 = nn.Identity()  # type: ignore[assignment]
        self.encoder = nn.TransformerEncoder(layer, 2)

    def forward(self, x: Tensor, padded: Tensor | None = None) -> Tensor:
        out: Tensor = self.encoder(x, src_key_padding_mask=padded)
        return out


def converted(model: nn.Module, kind: str, **options: object) -> nn.Module:
    model.eval()
    x = torch.randn(2, 4, 8)
    cd.contextualize(model, example=x, attention_context=kind, temperature=1.0, initialisation="he", **options)
    return model


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("network", [WrittenOut, Layered])
def test_different_patterns_have_different_rates(network: type[nn.Module], kind: str) -> None:
    torch.manual_seed(0)
    model = converted(network(), kind)
    for keep in cd.keep_probabilities(model, torch.randn(2, 4, 8)).values():
        assert keep.shape == (2, 2)
        assert (keep[0] - keep[1]).abs().min() > 1e-4


def test_pooled_weights_are_the_same_for_every_input() -> None:
    """The paper's context: rows sum to one, so that their mean is 1 / N_K whatever the pattern is."""
    torch.manual_seed(0)
    site = cd.ContextualDropout(3, 0.1, dim=1, temperature=1.0)
    weights = (5 * torch.randn(4, 3, 6, 7, dtype=torch.float64)).softmax(-1)
    keep = site.double().keep_probability(weights)
    torch.testing.assert_close(weights.mean((2, 3)), torch.full((4, 3), 1 / 7, dtype=torch.float64))
    torch.testing.assert_close(keep, keep[:1].expand(4, 3))


def test_the_papers_context_is_the_same_for_every_input() -> None:
    torch.manual_seed(0)
    model = converted(WrittenOut(), "weights")
    (keep,) = cd.keep_probabilities(model, 10 * torch.randn(4, 5, 8)).values()
    torch.testing.assert_close(keep, keep[:1].expand(4, 2))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("network", [WrittenOut, Layered, Encoded])
def test_padding_changes_nothing(network: type[nn.Module], kind: str) -> None:
    torch.manual_seed(0)
    model = converted(network(), kind)
    x = torch.randn(2, 4, 8)
    longer = torch.cat([x, 10 * torch.randn(2, 3, 8)], 1)
    padded = torch.tensor([[False] * 4 + [True] * 3] * 2)
    with torch.no_grad():
        torch.testing.assert_close(model(longer, padded)[:, :4], model(x))


def test_contexts_by_hand() -> None:
    scores = torch.tensor([[0.0, 0.0, 0.0], [math.log(2.0), 0.0, -math.inf]]).reshape(1, 1, 2, 3)
    queries = torch.tensor([[1.0, 2.0], [3.0, 6.0]]).reshape(1, 1, 2, 2)
    attended = AttentionTensors(scores.softmax(-1), scores, queries)
    second = -(2 / 3 * math.log(2 / 3) + 1 / 3 * math.log(1 / 3)) / math.log(2)  # of two keys
    assert CONTEXTS["entropy"](attended).item() == pytest.approx((1 + second) / 2)
    assert CONTEXTS["scores"](attended).item() == pytest.approx(math.log(2) / 5)
    assert CONTEXTS["queries"](attended).tolist() == [[2.0, 4.0]]
    without = AttentionTensors(attended.weights, scores, queries, torch.tensor([[True, False]]))
    assert CONTEXTS["entropy"](without).item() == pytest.approx(second)
    assert CONTEXTS["scores"](without).item() == pytest.approx(math.log(2) / 2)
    assert CONTEXTS["queries"](without).tolist() == [[3.0, 6.0]]


@pytest.mark.parametrize("kind", [*KINDS, "weights"])
def test_contexts_per_query_are_those_of_the_query_alone(kind: AttentionContext) -> None:
    """A loop over queries, each with the keys that it may see and no others; padding of queries makes no difference."""
    torch.manual_seed(0)
    queries, keys = torch.randn(2, 3, 5, 4), torch.randn(2, 3, 5, 4)
    scores = (queries @ keys.mT).masked_fill(torch.ones(5, 5).triu(1).bool(), -math.inf)
    found = CONTEXTS[kind](AttentionTensors(scores.softmax(-1), scores, queries), per_query=True)
    assert found.shape == (2, 5, 12 if kind == "queries" else 3)
    for i in range(5):
        seen = scores[:, :, i : i + 1, : i + 1]
        alone = AttentionTensors(seen.softmax(-1), seen, queries[:, :, i : i + 1])
        torch.testing.assert_close(found[:, i], CONTEXTS[kind](alone))


@pytest.mark.parametrize("kind", ["entropy", "scores", "queries"])
def test_contexts_of_many_queries_fit_into_half_precision(kind: AttentionContext) -> None:
    """Sums over 500 queries and keys are beyond float16, and their means are not."""
    scores, queries = torch.full((1, 1, 500, 500), 8.0), torch.full((1, 1, 500, 2), 200.0)
    attended = AttentionTensors(scores.softmax(-1), scores, queries, torch.zeros(1, 500, dtype=torch.bool))
    half = AttentionTensors(attended.weights.half(), scores.half(), queries.half(), attended.padded)
    torch.testing.assert_close(CONTEXTS[kind](half), CONTEXTS[kind](attended), rtol=1e-2, atol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_scores_where_a_query_has_no_key(dtype: torch.dtype) -> None:
    """Masked by a very negative number, all keys have the same weight: that says nothing of the scores."""
    scores = torch.full((1, 1, 2, 3), torch.finfo(dtype).min, dtype=dtype)
    assert pooled_scores(scores).item() == 0
    scores[0, 0, 0] = 2
    assert pooled_scores(scores).item() == 2


@pytest.mark.parametrize("mask", [-math.inf, torch.finfo(torch.float32).min, -1e9, -1e4])
def test_entropy_where_a_query_has_no_key(mask: float) -> None:
    """It has none by whatever number its keys are masked, and does not count."""
    scores = torch.randn(1, 1, 2, 3) + mask
    assert attention_entropy(scores.softmax(-1), scores).item() == 0
    scores[0, 0, 0] = 2
    assert attention_entropy(scores.softmax(-1), scores).item() == pytest.approx(1)


@pytest.mark.parametrize(("dtype", "low"), [(torch.float16, -18), (torch.bfloat16, -110), (torch.float32, -110)])
def test_a_key_without_weight_is_none_that_is_masked(dtype: torch.dtype, low: float) -> None:
    """Softmaxed, the third score is 0 in this precision, as is that of the masked fourth key."""
    scores = torch.tensor([[[[0, 0, low, torch.finfo(dtype).min]]]], dtype=dtype)
    weights = scores.softmax(-1)
    assert weights.flatten().tolist() == [0.5, 0.5, 0, 0]
    assert attention_entropy(weights, scores).item() == pytest.approx(math.log(2) / math.log(3), rel=0.01)
    assert pooled_scores(scores).item() == pytest.approx(low / 3, rel=0.01)


@pytest.mark.parametrize("kind", KINDS)
def test_the_pathwise_gradient_goes_through_the_context(kind: str) -> None:
    """The first site's mask moves what the second one reads: finite differences under fixed noise."""
    torch.manual_seed(0)
    model = converted(Layered(), kind, family="gaussian").double().train()
    x, padded = torch.randn(3, 4, 8, dtype=torch.float64), torch.tensor([[False, False, False, True]] * 3)
    objective = cd.ELBO(model, "reparameterized", 0.7)

    def loss() -> Tensor:
        torch.manual_seed(5)
        return objective(lambda: -model(x, padded).square().sum((1, 2))).loss

    loss().backward()
    h = 1e-6
    for site in cd.sites(model).values():
        parameter = site.encoder.expand_bias
        assert parameter.grad is not None
        for index in range(2):
            with torch.no_grad():
                parameter[index] += h
                above = loss()
                parameter[index] -= 2 * h
                below = loss()
                parameter[index] += h
            difference = (above - below).item() / (2 * h)
            assert parameter.grad[index].item() == pytest.approx(difference, rel=1e-5, abs=1e-7)


@pytest.mark.parametrize("kind", KINDS)
def test_saved_with_their_context(kind: str, tmp_path: object) -> None:
    torch.manual_seed(0)
    model = converted(Layered(), kind)
    path = f"{tmp_path}/sites.safetensors"
    cd.save_sites(model, path)
    plain = Layered().eval()
    plain.load_state_dict({k: v for k, v in model.state_dict().items() if "contextual_dropout" not in k})
    again = cd.load_sites(plain, path)
    x = torch.randn(2, 5, 8)
    assert torch.equal(again(x), model(x))
    assert {site.attention_context for site in cd.sites(again).values()} == {kind}


def test_plain_it_is_ordinary_dropout() -> None:
    torch.manual_seed(0)
    model = WrittenOut()
    x = torch.randn(2, 4, 8)
    assert torch.equal(model.eval()(x), model(x))
    with cd.sampling(model):
        assert not torch.equal(model(x), model(x))


def test_unknown_context() -> None:
    with pytest.raises(ValueError, match="unknown attention_context 'keys': expected one of 'entropy'"):
        cd.ContextualDropout(4, attention_context="keys")  # type: ignore[arg-type]
