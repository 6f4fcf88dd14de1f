"""Dropout that is called as a function becomes sites, one for each call."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
import torch.utils.checkpoint
from torch import Tensor, nn
from transformers import OPTConfig, OPTForSequenceClassification

import contextual_dropout as cd


class Block(nn.Module):
    """Two calls of its own around a child that has one too, and a layer."""

    def __init__(self, width: int = 6, depth: int = 1) -> None:
        super().__init__()
        self.p = 0.3
        self.first, self.second = nn.Linear(width, width), nn.Linear(width, width)
        self.inner = Block(width, depth - 1) if depth else None
        self.drop = nn.Dropout(0.1)

    def forward(self, x: Tensor) -> Tensor:
        x = F.dropout(torch.relu(self.first(x)), self.p, self.training)
        if self.inner is not None:
            x = x + self.inner(x)
        x = self.drop(x)
        return F.dropout(torch.relu(self.second(x)), p=0.2, training=self.training)


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(Block(), nn.Linear(6, 3)).eval()


NAMES = [
    "0.contextual_dropout.call_1_of_2",
    "0.inner.contextual_dropout.call_1_of_2",
    "0.inner.drop",
    "0.inner.contextual_dropout.call_2_of_2",
    "0.drop",
    "0.contextual_dropout.call_2_of_2",
]


def trained(model: nn.Module) -> nn.Module:
    """With encoders that depend on the sample."""
    torch.manual_seed(1)
    for site in cd.sites(model).values():
        nn.init.normal_(site.encoder.expand_weight, std=0.5 / site.encoder.temperature)
    return model


def test_each_call_is_a_site_in_call_order() -> None:
    model, x = network(), torch.randn(5, 6)
    expected, kinds = model(x), [type(module) for module in model.modules()]
    cd.contextualize(model, example=x[:1])
    assert list(cd.sites(model)) == NAMES
    assert [site.p for site in cd.sites(model).values()] == [0.3, 0.3, 0.1, 0.2, 0.1, 0.2]
    assert "site in place of F.dropout in Block" in repr(cd.conversion_of(model))
    torch.testing.assert_close(model(x), expected)
    assert all(site.calls == 1 and site.spread > 0 for site in cd.probe(model, x).sites.values())
    assert [type(module).__name__ for module in model.modules() if isinstance(module, Block)] == ["Block", "Block"]
    cd.strip(model)
    assert torch.equal(model(x), expected)
    assert [type(module) for module in model.modules()] == kinds


def by_hand(model: nn.Sequential, x: Tensor) -> Tensor:
    """The same network with its sites called where the functions are."""

    def block(part: Any, x: Tensor) -> Tensor:
        sites = part.contextual_dropout
        x = sites["call_1_of_2"](torch.relu(part.first(x)))
        x = x + block(part.inner, x) if part.inner is not None else x
        x = part.drop(x)
        result: Tensor = sites["call_2_of_2"](torch.relu(part.second(x)))
        return result

    result: Tensor = model[1](block(model[0], x))
    return result


@pytest.mark.parametrize("mode", ["eval", "train", "sampling"])
def test_the_sites_act_where_the_functions_did(mode: str) -> None:
    """Against the same sites as modules, with the same random numbers: they are drawn in the same order."""
    x = torch.randn(4, 6)
    model = trained(cd.contextualize(network(), example=x)).train(mode == "train")
    for seed in range(5):
        if mode == "sampling":
            with cd.sampling(model):
                torch.manual_seed(seed)
                found = model(x)
                torch.manual_seed(seed)
                expected = by_hand(model, x)
        else:
            torch.manual_seed(seed)
            found = model(x)
            torch.manual_seed(seed)
            expected = by_hand(model, x)
        assert torch.equal(found, expected)


def test_training_predicting_copying_and_saving(tmp_path: Path) -> None:
    x = torch.randn(4, 6)
    model = trained(cd.contextualize(network(), example=x, temperature=1.0))
    for estimator in ("sequential-disarm", "straight-through"):
        model.zero_grad()
        objective = cd.ELBO(model.train(), estimator)  # type: ignore[arg-type]
        objective(lambda: model(x).log_softmax(-1)[:, 0]).loss.backward()
        for site in cd.sites(model).values():
            assert site.encoder.expand_bias.grad is not None
            assert site.encoder.expand_bias.grad.abs().max() > 0
    model.eval()
    assert cd.predict(model, x, samples=50).samples.std(0).min() > 0
    assert set(cd.keep_probabilities(model, x)) == set(NAMES)
    expected = model(x)
    cd.save_sites(model, tmp_path / "sites")
    loaded = cd.load_sites(network(), tmp_path / "sites")
    twins = [copy.deepcopy(model), pickle.loads(pickle.dumps(model)), loaded]
    torch.save(model, tmp_path / "whole")
    twins.append(torch.load(tmp_path / "whole", weights_only=False))
    for twin in twins:
        assert torch.equal(twin(x), expected)
        assert set(cd.sites(twin)) == set(NAMES)
        assert cd.strip(twin)(x).shape == expected.shape
        assert not cd.sites(twin)
    torch.testing.assert_close(cd.freeze_context(model, x)(x), cd.freeze_context(model, x)(x))


class Layers(Block):
    """The same with layers in the place of the functions."""

    def __init__(self, width: int = 6, depth: int = 1) -> None:
        super().__init__(width, depth)
        self.inner = Layers(width, depth - 1) if depth else None
        self.before, self.after = nn.Dropout(0.3), nn.Dropout(0.2)

    def forward(self, x: Tensor) -> Tensor:
        x = self.before(torch.relu(self.first(x)))
        if self.inner is not None:
            x = x + self.inner(x)
        x = self.drop(x)
        return self.after(torch.relu(self.second(x)))  # type: ignore[no-any-return]


@pytest.mark.parametrize("replay", [True, False])
@pytest.mark.parametrize("estimator", ["sequential-disarm", "independent-arm", "straight-through"])
def test_gradients_are_those_of_layers(estimator: Any, replay: bool) -> None:
    """With the same random numbers, which both draw in the same order."""
    x, steps = torch.randn(4, 6), []
    for kind in (Block, Layers):
        torch.manual_seed(0)
        model = nn.Sequential(kind(), nn.Linear(6, 3)).eval()
        torch.manual_seed(0)
        for parameter in model.parameters():
            nn.init.normal_(parameter)
        trained(cd.contextualize(model, example=x, temperature=1.0)).train()
        torch.manual_seed(3)
        step = cd.ELBO(model, estimator, replay=replay)(lambda model=model: model(x).log_softmax(-1)[:, 0])
        step.loss.backward()
        own = [site.encoder.expand_bias.grad for site in cd.sites(model).values()]
        theta = [module.weight.grad for module in model.modules() if isinstance(module, nn.Linear)]
        steps.append((step.loss, own, theta))
    torch.testing.assert_close(*steps)


def test_a_wrapped_copy_in_another_model() -> None:
    """The class that a module takes on is of no harm to new modules that the module makes of its own."""
    model = cd.contextualize(network(), example=torch.randn(1, 6))
    fresh = type(model[0])(6, 0)
    assert fresh(torch.randn(2, 6)).shape == (2, 6)
    assert isinstance(model[0], Block)


class Recursive(nn.Module):
    """Calls itself; on the last level it has a call without a rate in between."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: Tensor, depth: int = 2) -> Tensor:
        x = F.dropout(self.linear(x), 0.2, self.training)
        x = F.dropout(x, 0.0, self.training)
        if depth:
            x = self(x, depth - 1)
        return F.dropout(x, 0.4, self.training)


def test_recursion() -> None:
    x = torch.randn(3, 4)
    with pytest.warns(cd.ConversionWarning, match=r"\(F.dropout, call 2 of 3\): its drop rate is 0; give p="):
        model = cd.contextualize(Recursive().eval(), example=x)
    spread = cd.probe(model, x).sites
    assert {name: site.calls for name, site in spread.items()} == {
        "contextual_dropout.call_1_of_3": 3,
        "contextual_dropout.call_3_of_3": 3,
    }
    assert set(cd.sites(cd.contextualize(cd.strip(model), p=0.5, example=x))) == {
        f"contextual_dropout.call_{n}_of_3" for n in (1, 2, 3)
    }


class Kinds(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        x = F.dropout1d(x.flatten(2), 0.1, self.training).view_as(x)
        x = F.dropout2d(x, 0.2, self.training)
        x = F.alpha_dropout(x, 0.3, self.training)
        x = torch.dropout(x, 0.1, train=self.training)
        return F.dropout(x.flatten(1), 0.4, self.training)


def test_kinds_have_the_axes_of_their_layers() -> None:
    x = torch.randn(2, 5, 3, 3)
    model = cd.contextualize(Kinds().eval(), example=x)
    assert [(site.features, site.p) for site in cd.sites(model).values()] == [
        (5, 0.1),
        (5, 0.2),
        (5, 0.3),
        (5, 0.1),
        (45, 0.4),
    ]
    torch.testing.assert_close(model(x), x.flatten(1))


class Attention(nn.Module):
    """Written by hand; the softmax is a function, or a layer."""

    def __init__(self, layer: bool, folded: bool = False, cast: bool = False) -> None:
        super().__init__()
        self.project, self.heads, self.folded, self.cast = nn.Linear(8, 24), 2, folded, cast
        self.attend = nn.Softmax(-1) if layer else None

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.project(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        if self.folded:
            q, k, v = (t.flatten(0, 1) for t in (q, k, v))
        scores = 3 * q @ k.mT
        weights = scores.softmax(-1) if self.attend is None else self.attend(scores)
        weights = weights.double().to(x.dtype) if self.cast else weights
        return F.dropout(weights, 0.3, self.training) @ v


@pytest.mark.parametrize("layer", [True, False])
@pytest.mark.parametrize("cast", [True, False])
def test_attention_weights_have_a_context_that_depends_on_the_sample(layer: bool, cast: bool) -> None:
    torch.manual_seed(0)
    model, x = Attention(layer, cast=cast).eval(), torch.randn(3, 5, 8)
    expected = model(x)
    cd.contextualize(model, example=x[:1], temperature=1.0, initialisation="he")
    assert list(cd.sites(model)) == ["contextual_dropout.weights_1_of_1"]
    keep = cd.keep_probabilities(model, x)["contextual_dropout.weights_1_of_1"]
    assert keep.shape == (3, 2)
    assert keep.std(0).min() > 1e-4
    cd.contextualize(cd.strip(model), example=x)
    torch.testing.assert_close(model(x), expected)


def test_attention_weights_that_cannot_be_understood_are_named() -> None:
    model = nn.Sequential(Attention(True, folded=True), nn.Dropout(0.1))
    with pytest.warns(cd.ConversionWarning, match=r"0 \(F.dropout, call 1 of 1\): .* looks like attention weights"):
        cd.contextualize(model, example=torch.randn(2, 5, 8))
    model = nn.Sequential(Attention(True), nn.Dropout(0.1))
    with pytest.warns(cd.ConversionWarning, match="queries of these attention weights are not known"):
        cd.contextualize(model, example=torch.randn(2, 5, 8), attention_context="queries")


class Unstable(nn.Module):
    """Its number of calls depends on the length of the input, (B, T, C)."""

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(x.shape[1]):
            x = F.dropout(x, 0.1, self.training)
        return x


class Left(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.drop, self.unstable, self.passes = nn.Dropout(0.1), Unstable(), 0

    def forward(self, x: Tensor) -> Tensor:
        x = self.unstable(self.unstable(x)[:, :1])
        x = F.dropout(x, 0.2)
        x = F.dropout(x, 0.3, self.training, True)
        return self.drop(F.dropout(x, 0.0, self.training))  # type: ignore[no-any-return]


def test_calls_that_cannot_be_converted_are_named() -> None:
    model, x = Left().eval(), torch.randn(2, 3, 4)
    with pytest.warns(cd.ConversionWarning) as record:
        cd.contextualize(model, example=x)
    text = str(record[-1].message)
    assert "(F.dropout, call 1 of 3): it is on in evaluation mode too" in text
    assert "(F.dropout, call 2 of 3): it works in place" in text
    assert "(F.dropout, call 3 of 3): its drop rate is 0" in text
    assert "unstable (F.dropout, calls): their number or their rates are not the same each time" in text
    assert list(cd.sites(model)) == ["drop"]


def test_another_number_of_calls_than_at_the_conversion_is_refused() -> None:
    model = cd.contextualize(nn.Sequential(Unstable()), example=torch.randn(2, 2, 4))
    with pytest.raises(RuntimeError, match=r"called dropout as a function 3 times, 2 times .* exclude=Unstable"):
        model(torch.randn(2, 3, 4))


def test_selection_and_overrides() -> None:
    x = torch.randn(2, 6)
    assert list(cd.sites(cd.contextualize(network(), replace=nn.Dropout, example=x))) == ["0.inner.drop", "0.drop"]
    assert list(cd.sites(cd.contextualize(network(), exclude="inner", example=x))) == [NAMES[0], *NAMES[4:]]
    assert list(cd.sites(cd.contextualize(network(), replace="inner", example=x))) == [NAMES[1], NAMES[3]]
    model = cd.contextualize(network(), overrides={"inner": {"p": 0.6}}, example=x)
    assert [site.p for site in cd.sites(model).values()] == [0.3, 0.6, 0.1, 0.6, 0.1, 0.2]
    with pytest.warns(cd.ConversionWarning, match="0: the dropout inside of it"):
        cd.contextualize(network(), after=r"0", example=x)


def test_no_other_dropout_than_functional() -> None:
    model = nn.Sequential(Unstable(), nn.Linear(2, 2))
    assert len(cd.sites(cd.contextualize(model, example=torch.randn(2, 2, 2)))) == 2
    with pytest.raises(ValueError, match="nothing in the model was selected"):
        cd.contextualize(cd.strip(model))


def test_an_error_or_an_interrupt_leaves_no_mode_behind() -> None:
    model = cd.contextualize(network(), example=torch.randn(1, 6))
    with pytest.raises(RuntimeError):
        model(torch.randn(1, 7))
    assert not torch.overrides._get_current_function_mode_stack()


@pytest.mark.filterwarnings("ignore::contextual_dropout.ConversionWarning")
def test_a_hugging_face_model() -> None:
    """OPT calls all its dropout as a function, that on attention weights through the attention interface."""
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "ffn_dim": 32, "vocab_size": 50}
    config = OPTConfig(dropout=0.1, attention_dropout=0.2, word_embed_proj_dim=16, pad_token_id=0, **sizes)
    model = OPTForSequenceClassification(config).eval()
    inputs = {"input_ids": torch.randint(1, 50, (3, 7)), "attention_mask": torch.ones(3, 7, dtype=torch.long)}
    expected = model(**inputs).logits
    cd.contextualize(model, example=inputs)
    layer = "model.decoder.layers.1"
    assert [name for name in cd.sites(model) if name.startswith(layer)] == [
        f"{layer}.self_attn.contextual_dropout",
        *(f"{layer}.contextual_dropout.call_{n}_of_2" for n in (1, 2)),
    ]
    torch.testing.assert_close(model(**inputs).logits, expected, atol=1e-5, rtol=0)
    cd.probe(model, **inputs)
    assert torch.equal(cd.strip(model)(**inputs).logits, expected)


@pytest.mark.parametrize("inside", [True, False])
def test_compiled(inside: bool) -> None:
    """The module with the calls runs uncompiled, and so does what it calls."""
    x = torch.randn(4, 6)
    model = trained(cd.contextualize(network(), example=x)).eval()
    expected = model(x)
    if inside:
        model[0].compile(backend="eager")
    compiled = model if inside else torch.compile(model, backend="eager")
    torch.testing.assert_close(compiled(x), expected)  # type: ignore[operator]
    model.train()
    assert not torch.equal(compiled(x), compiled(x))  # type: ignore[operator]


def test_checkpointed_modules_are_computed_again_with_their_sites() -> None:
    """As in ``transformers``, where a layer's class puts its own call into a checkpoint: gradients are the same."""

    class Layer(Block):
        def __call__(self, *args: Any) -> Any:
            if not self.training:
                return super().__call__(*args)
            return torch.utils.checkpoint.checkpoint(super().__call__, *args, use_reentrant=False)

    x = torch.randn(4, 6)
    torch.manual_seed(0)
    plain, checkpointed = (nn.Sequential(kind(depth=0), nn.Linear(6, 3)).eval() for kind in (Block, Layer))
    checkpointed.load_state_dict(plain.state_dict())
    gradients = []
    for model in (plain, checkpointed):
        cd.contextualize(model, example=x).train()
        torch.manual_seed(2)
        model(x).square().sum().backward()
        gradients.append([parameter.grad for parameter in model.parameters() if parameter.grad is not None])
    torch.testing.assert_close(*gradients)


class Guarded(nn.Module):
    """Not called in evaluation mode at all: there is no place for an expected mask."""

    def forward(self, x: Tensor) -> Tensor:
        return F.dropout(x, 0.2) if self.training else x


def test_calls_that_are_not_seen_are_named() -> None:
    model = nn.Sequential(Block(depth=0), Guarded())
    with pytest.warns(
        cd.ConversionWarning, match=r"0: its forward calls F.dropout: give example= to convert it\n  1: its"
    ):
        cd.contextualize(model, inplace=False)
    with pytest.warns(cd.ConversionWarning, match="1: .* does not reach in evaluation mode"):
        cd.contextualize(model, example=torch.randn(2, 6))
    assert len(cd.sites(model)) == 3


class Final(Guarded):
    """Nothing may inherit from it."""

    def __init_subclass__(cls) -> None:
        raise TypeError("final")

    def forward(self, x: Tensor) -> Tensor:
        return F.dropout(x, 0.2, self.training)


def test_modules_whose_class_cannot_be_changed_are_named() -> None:
    traced = torch.fx.symbolic_trace(nn.Sequential(Final(), nn.Linear(6, 6)).eval())
    with pytest.warns(cd.ConversionWarning, match=r"1: it calls F.dropout, but .* copies itself in its own way"):
        cd.contextualize(nn.Sequential(nn.Dropout(0.1), traced), example=torch.randn(2, 6))
    with pytest.warns(cd.ConversionWarning, match=r"1: it calls F.dropout, but no class can inherit from Final"):
        cd.contextualize(nn.Sequential(nn.Dropout(0.1), Final()), example=torch.randn(2, 6))
