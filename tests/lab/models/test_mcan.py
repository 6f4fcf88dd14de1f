"""MCAN: the paper's sizes and places of dropout, and nothing of padding anywhere."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import contextual_dropout as cd
from contextual_dropout_lab.models import mcan
from contextual_dropout_lab.models.mcan import OVERRIDES, AttentivePooling
from contextual_dropout_lab.models.transformer import SelfAttention


def tiny(**options: object) -> nn.Module:
    torch.manual_seed(0)
    return mcan(50, 7, features=6, size="tiny", **options)  # type: ignore[arg-type]


def inputs(batch: int = 3) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(batch, 5, 6), torch.randint(1, 50, (batch, 4))


def test_the_papers_sizes() -> None:
    """58M without and 61M with contextual dropout, for a vocabulary of 18,405 words."""
    model = mcan(18_405)
    plain = sum(parameter.numel() for parameter in model.parameters())
    assert plain == pytest.approx(58e6, rel=0.02)
    example = torch.randn(1, 1, 2048), torch.ones(1, 1, dtype=torch.long)
    cd.contextualize(model, reduction=8, overrides=OVERRIDES, positions="pooled", example=example)
    assert len(cd.sites(model)) == 62
    assert sum(parameter.numel() for parameter in model.parameters()) == pytest.approx(61e6, rel=0.02)


def test_every_dropout_becomes_a_site_that_is_alive() -> None:
    model = cd.contextualize(tiny(hidden=32, layers=6), p=0.3, reduction=8, overrides=OVERRIDES, example=inputs())
    found = cd.sites(model)
    assert len(found) == 62
    shapes = sorted((site.features, len(site.encoder.reduce_bias)) for site in found.values())
    assert shapes == [(4, 4)] * 18 + [(32, 4)] * 32 + [(128, 2)] * 12
    with torch.no_grad():
        result = cd.probe(model.eval(), *inputs(8))
    assert all(site.spread > 0 for site in result.sites.values())


@pytest.mark.parametrize("context", ["entropy", "scores", "queries"])
def test_padding_changes_nothing(context: str) -> None:
    plain = tiny()
    for name, parameter in plain.named_parameters():
        if name.endswith("query.weight"):
            parameter.data *= 20  # a new network looks everywhere alike, to six digits
    model = cd.contextualize(
        plain, temperature=1.0, initialisation="he", attention_context=context, example=inputs()
    ).eval()
    features, question = inputs()
    longer = torch.cat([question, torch.zeros(3, 2, dtype=torch.long)], 1)
    more = torch.cat([features, torch.zeros(3, 4, 6)], 1)
    with torch.no_grad():
        torch.testing.assert_close(model(more, longer), model(features, question))
        keep = cd.keep_probabilities(model, features, question)
    assert all(each.std(0).max() > 1e-4 for each in keep.values())


def test_padding_in_half_precision() -> None:
    """Padding is masked by a number of the same precision: the least that it has."""
    torch.manual_seed(0)
    x, padded = torch.randn(2, 4, 8), torch.tensor([[False, False, True, True]] * 2)
    blocks: list[nn.Module] = [SelfAttention(8, 2, 0.1), AttentivePooling(8, 4, 5, 0.1)]
    with torch.no_grad():
        for block in blocks:
            expected = block.eval()(x, padded)
            torch.testing.assert_close(block.half()(x.half(), padded).float(), expected, atol=0.01, rtol=0.01)


def test_attention_dropout_alone_is_alive() -> None:
    plain, weights = tiny(p=0.0), r".*\.(attention|guided)\.dropout\.dropout"
    model = cd.contextualize(plain, replace=weights, p=0.3, example=inputs()).eval()
    assert [site.features for site in cd.sites(model).values()] == [4] * 6
    with torch.no_grad():
        result = cd.probe(model, *inputs(8))
        assert not torch.equal(*cd.predict(model, *inputs(8), samples=2).samples)
    assert all(site.spread > 0 for site in result.sites.values())


def test_one_backward_pass_reaches_everything() -> None:
    model = cd.contextualize(tiny(), example=inputs()).train()
    features, question = inputs()
    step = cd.ELBO(model, "sampled-arm")(lambda: model(features, question).log_softmax(-1)[:, 0])
    step.loss.backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"size": "huge"}, "size must be one of 'tiny', 'small', 'large', got 'huge'"),
        ({"hidden": 10, "heads": 4}, "hidden must be a multiple of heads, got 10 and 4"),
        ({"p": 1.5}, "1.5"),
        ({"layers": 0}, "layers must be a positive whole number, got 0"),
    ],
)
def test_bad_sizes(wrong: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        mcan(10, **wrong)  # type: ignore[arg-type]


def test_unknown_options() -> None:
    with pytest.raises(TypeError, match="mcan has no options depth; it has hidden, heads"):
        mcan(10, depth=3)
