"""An example tells where the samples are in what each site masks."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import (
    FunnelConfig,
    FunnelModel,
    SwinConfig,
    SwinForImageClassification,
    XLNetConfig,
    XLNetForSequenceClassification,
)

import contextual_dropout as cd
from contextual_dropout.conversion.example import Example

SIZES = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}


def ids(samples: int = 2) -> dict[str, Tensor]:
    return {"input_ids": torch.randint(3, 50, (samples, 7))}


def elbo_of(model: nn.Module, log_likelihood: Callable[[], Tensor]) -> Any:
    step = cd.ELBO(model.train(), "sampled-arm")(log_likelihood)
    step.loss.backward()
    return step


def deberta() -> nn.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # its file uses torch.jit.script
        from transformers import DebertaConfig, DebertaModel
    return DebertaModel(DebertaConfig(vocab_size=50, relative_attention=True, pos_att_type=["c2p"], **SIZES))


def funnel() -> nn.Module:
    return FunnelModel(FunnelConfig(vocab_size=50, block_sizes=[1], d_model=16, n_head=2, d_head=8, d_inner=32))


@pytest.mark.parametrize(
    ("build", "tables"),
    [
        (deberta, {"encoder.layer.0.attention.self.pos_dropout"}),
        (funnel, {f"encoder.attention_structure.{each}_dropout" for each in ("sin", "cos")}),
    ],
)
def test_tables_of_positions_have_no_samples(build: Callable[[], Any], tables: set[str]) -> None:
    torch.manual_seed(0)
    model = build().eval()
    with pytest.warns(cd.ConversionWarning, match="no axis of its input .* grows with the number of samples"):
        cd.contextualize(model, example=ids())
    named = {name for name, reason in cd.conversion_of(model).left.items() if "grows with" in reason}
    assert tables <= named
    assert not named & set(cd.sites(model))
    batch = ids(3)
    step = elbo_of(model, lambda: -model(**batch).last_hidden_state.square().sum((1, 2)))
    assert step.kl.shape == (3,)


@pytest.mark.filterwarnings("ignore::contextual_dropout.ConversionWarning")
def test_xlnet_is_time_first() -> None:
    torch.manual_seed(0)
    model: Any = XLNetForSequenceClassification(
        XLNetConfig(vocab_size=50, d_model=16, n_layer=1, n_head=2, d_inner=32, num_labels=3)
    ).eval()
    cd.contextualize(model, example=ids(), temperature=1.0, initialisation="he")
    found = cd.sites(model)
    axes = {name: site.batch_dims for name, site in found.items()}
    assert axes["transformer.layer.0.rel_attn.dropout.2_channels"] == (0,)
    assert axes["transformer.layer.0.rel_attn.dropout.16"] == (1,)
    assert {axes[name] for name in found if ".ff." in name} == {(1,)}
    batch = ids(7)  # as many samples as positions: another axis would not be noticed
    step = elbo_of(model, lambda: model(**batch).logits.log_softmax(-1)[:, 0])
    assert step.kl.shape == (7,)
    other = {"input_ids": torch.cat([batch["input_ids"][:1], ids(6)["input_ids"]])}
    model.eval()
    torch.testing.assert_close(model(**batch).logits[0], model(**other).logits[0])


@pytest.mark.filterwarnings("ignore::contextual_dropout.ConversionWarning")
def test_windows_of_swin_are_folded() -> None:
    torch.manual_seed(0)
    sizes = {"image_size": 16, "patch_size": 2, "embed_dim": 8, "depths": [2], "num_heads": [2], "window_size": 4}
    rates = {"hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1}
    model: Any = SwinForImageClassification(SwinConfig(num_labels=3, **sizes, **rates)).eval()
    cd.contextualize(model, example={"pixel_values": torch.randn(1, 3, 16, 16)})
    folded = {name: site.folded for name, site in cd.sites(model).items()}
    assert not folded["swin.embeddings.dropout"]
    assert [each for name, each in folded.items() if name.endswith("attention.contextual_dropout")] == [True, True]
    images = torch.randn(3, 3, 16, 16)
    step = elbo_of(model, lambda: model(pixel_values=images).logits.log_softmax(-1)[:, 0])
    assert step.kl.shape == (3,)


class Folding(nn.Module):
    """Heads folded into the batch, as FT-Transformer does, the samples outside or inside of them."""

    def __init__(self, *, samples_first: bool) -> None:
        super().__init__()
        self.samples_first = samples_first
        self.project, self.dropout, self.head = nn.Linear(8, 8), nn.Dropout(0.2), nn.Linear(8, 2)

    def forward(self, x: Tensor) -> Tensor:
        heads = self.project(x).unflatten(-1, (4, 2))  # (B, 4, 2)
        if self.samples_first:
            return self.head(self.dropout(heads.flatten(0, 1)).unflatten(0, (-1, 4)).flatten(1))  # type: ignore[no-any-return]
        rows = self.dropout(heads.transpose(0, 1).flatten(0, 1))
        return self.head(rows.unflatten(0, (4, -1)).transpose(0, 1).flatten(1))  # type: ignore[no-any-return]


def test_folded_rows_are_those_of_their_samples() -> None:
    torch.manual_seed(0)
    model = cd.contextualize(Folding(samples_first=True), example=torch.randn(1, 8), temperature=1.0)
    (site,) = cd.sites(model).values()
    assert (site.features, site.batch_dims, site.folded) == (2, (0,), True)
    x = torch.randn(5, 8)
    assert elbo_of(model, lambda: model(x).log_softmax(-1)[:, 0]).kl.shape == (5,)


def test_rows_that_alternate_between_samples_are_named() -> None:
    model = nn.Sequential(Folding(samples_first=False), nn.Dropout(0.1))
    with pytest.warns(cd.ConversionWarning, match="holds the first rows of all samples, then the second ones"):
        cd.contextualize(model, example=torch.randn(2, 8))
    assert list(cd.sites(model)) == ["1"]


class Transposing(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed, self.dropout, self.head = nn.Embedding(20, 8), nn.Dropout(0.2), nn.Linear(8, 2)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.dropout(self.embed(ids).transpose(0, 1))  # (T, B, C)
        return self.head(x.mean(0))  # type: ignore[no-any-return]


@pytest.mark.parametrize("samples", [1, 2, 6])
def test_the_number_of_samples_in_the_example_does_not_matter(samples: int) -> None:
    model = cd.contextualize(Transposing(), example=torch.randint(20, (samples, 6)))
    assert cd.sites(model)["dropout"].batch_dims == (1,)


class Graph(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer, self.dropout = nn.Linear(3, 3), nn.Dropout(0.2)

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        x = self.dropout(self.layer(x))
        return x.index_add(0, edges[1], x[edges[0]])


def test_networks_that_take_no_other_number_of_samples_are_as_before() -> None:
    edges = torch.tensor([[0, 1, 2, 3], [1, 2, 3, 4]])
    model = cd.contextualize(Graph(), example=(torch.randn(5, 3), edges))
    assert cd.sites(model)["dropout"].batch_dims == (0,)
    assert "note: the model does not run with another number of samples" in repr(cd.conversion_of(model))


def test_what_the_user_chose_stays() -> None:
    with pytest.warns(cd.ConversionWarning, match="dropout: through it the output of one sample would depend on other"):
        model = cd.contextualize(Transposing(), batch_dim=0, example=torch.randint(20, (2, 6)))
    assert cd.sites(model)["dropout"].batch_dims == (0,)


def test_calls_of_functions_without_samples_are_left_one_by_one() -> None:
    class Table(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table, self.head = nn.Parameter(torch.randn(6, 4)), nn.Linear(4, 2)

        def forward(self, x: Tensor) -> Tensor:
            table = nn.functional.dropout(self.table, 0.2, self.training)
            return self.head(nn.functional.dropout(x @ table, 0.3, self.training))  # type: ignore[no-any-return]

    model = nn.Sequential(Table())
    with pytest.warns(cd.ConversionWarning, match=r"0 \(F.dropout, call 1 of 2\): no axis of its input \(6, 4\) grows"):
        cd.contextualize(model, example=torch.randn(2, 6))
    assert list(cd.sites(model)) == ["0.contextual_dropout.call_2_of_2"]
    x = torch.randn(3, 6)
    assert elbo_of(model, lambda: model(x).log_softmax(-1)[:, 0]).kl.shape == (3,)
    cd.strip(model)


def test_samples_of_an_example_differ_and_stay_the_same_in_larger_batches() -> None:
    nested = Example.of({"x": {"image": torch.zeros(1, 3, 4), "ids": torch.arange(5).unsqueeze(0)}, "scale": 2.0})
    axes = next(nested.guesses())
    two, three = (nested.of_samples(axes, samples).tensors().values() for samples in (2, 3))
    for small, large in zip(two, three, strict=True):
        assert (len(small), len(large)) == (2, 3)
        assert torch.equal(large[:2], small)
        assert not torch.equal(small[0], small[1])


@pytest.mark.parametrize(
    ("layers", "shape", "other", "features"),
    [
        ((nn.Conv1d(3, 8, 3, padding=1), nn.ReLU()), (2, 3, 9), (2, 3, 12), 8),
        ((nn.Linear(3, 8), nn.GELU()), (2, 5, 6, 3), (2, 7, 9, 3), 8),
        ((nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8)), (2, 3, 9, 9), (2, 3, 7, 8), 8),
    ],
)
def test_the_layer_before_tells_the_features(
    layers: tuple[nn.Module, ...], shape: tuple[int, ...], other: tuple[int, ...], features: int
) -> None:
    """Channels first on three axes and last on four; inputs of another size have the same features."""
    model = nn.Sequential(*layers, nn.Dropout(0.2), nn.Flatten(), nn.LazyLinear(2))
    model(torch.randn(shape))
    cd.contextualize(model, example=torch.randn(shape))
    (site,) = cd.sites(model).values()
    assert site.features == features
    model[:3](torch.randn(other))


class Centred(nn.Module):
    """Rows of the batch that act on one another."""

    def forward(self, x: Tensor) -> Tensor:
        return x - x.mean(0)


@pytest.mark.parametrize("samples", [2, 3])
def test_samples_that_act_on_one_another_stay_on_the_first_axis(samples: int) -> None:
    model = nn.Sequential(nn.Dropout(0.5), Centred(), nn.Linear(4, 2))
    site = cd.contextualize(model, example=torch.randn(samples, 3, 4))[0]
    assert isinstance(site, cd.ContextualDropout)
    assert site.batch_dims[0] == 0


class Doubling(nn.Module):
    """Writes to what it is given."""

    def forward(self, x: Tensor) -> Tensor:
        return x.mul_(-2)


def test_an_example_that_is_written_to_is_as_before_and_tells_the_same() -> None:
    example = torch.randn(2, 3, 4)
    before = example.clone()
    model = cd.contextualize(nn.Sequential(Doubling(), nn.Dropout(0.5), nn.Linear(4, 2)), example=example)
    assert torch.equal(example, before)
    assert model[1].batch_dims == (0, 1)  # each position by itself, as a causal network


class ChannelsLast(nn.Module):
    """The perceptron of MONAI's Swin: one dropout at two widths, on (B, H, W, C)."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.drop = nn.Linear(3, 12), nn.Linear(12, 3), nn.Dropout(0.2)

    def forward(self, x: Tensor) -> Tensor:
        return self.drop(self.second(self.drop(self.first(x).relu())))  # type: ignore[no-any-return]


@pytest.mark.parametrize("positions", ["own", "pooled"])
def test_widths_are_those_of_the_features(positions: Any) -> None:
    model = cd.contextualize(ChannelsLast(), example=torch.randn(2, 5, 6, 3), positions=positions)
    found = cd.sites(model)
    assert [(name, site.features) for name, site in found.items()] == [("drop.12", 12), ("drop.3", 3)]
    assert all(len(site.batch_dims) == (3 if positions == "own" else 1) for site in found.values())
    model(torch.randn(2, 7, 9, 3))  # an image of another size
