"""The record of a conversion is found from outside and from inside, whatever wraps or unwraps the network."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import contextual_dropout as cd
from tests.conversion.models import MODELS, bert, build
from tests.conversion.models import plain_mlp as mlp

pytestmark = pytest.mark.filterwarnings(
    "ignore::contextual_dropout.ConversionWarning", "ignore:The PyTorch API of nested tensors:UserWarning"
)


class Adapted(nn.Module):
    """Like a model of peft: the network two levels down, with an adapter of its own."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.base_model = nn.ModuleDict({"model": model, "adapter": nn.Sequential(nn.Dropout(0.3), nn.Linear(4, 4))})

    def forward(self, *inputs: Any, **keywords: Any) -> Any:
        if len(inputs) == 1 and isinstance(inputs[0], Tensor) and inputs[0].shape[-1] == 4:
            inputs = (self.base_model["adapter"](inputs[0]),)
        return self.base_model["model"](*inputs, **keywords)


class Wrapper(nn.Module):
    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, *inputs: Any, **keywords: Any) -> Any:
        return self.module(*inputs, **keywords)


@pytest.mark.parametrize("name", [name for name in MODELS if name != "resnet18"])  # chosen by whole names
def test_what_was_unwrapped_can_be_stripped(name: str) -> None:
    model, inputs, options = build(name)
    text, keys = repr(model), list(model.state_dict())
    wrapped = cd.contextualize(Adapted(model), example=inputs, **options)
    outer = cd.conversion_of(wrapped)
    with pytest.raises(ValueError, match=r"converted already \(\d+ sites\)"):
        cd.contextualize(model, **options)
    for inner in (copy.deepcopy(model), pickle.loads(pickle.dumps(model)), model):
        record = cd.conversion_of(inner)
        prefix = "base_model.model."
        assert [prefix + change.name for change in record.changes] == [
            change.name for change in outer.changes if change.name.startswith(prefix)
        ]
        assert list(cd.sites(inner)) == record.order == [each[len(prefix) :] for each in outer.order if prefix in each]
        cd.strip(inner)
        assert repr(inner) == text
        assert list(inner.state_dict()) == keys
        with pytest.raises(ValueError, match="nothing to strip"):
            cd.strip(inner)
        assert cd.sites(cd.contextualize(inner, **options))
        cd.strip(inner)
    assert not cd.sites(wrapped)


def test_what_is_outside_stays() -> None:
    model = mlp()
    wrapped = cd.contextualize(Adapted(model), example=torch.randn(2, 4))
    cd.strip(model)
    assert list(cd.sites(wrapped)) == ["base_model.adapter.0"] == cd.conversion_of(wrapped).order
    assert not cd.sites(cd.strip(wrapped))


@pytest.mark.parametrize("name", ["mlp", "bert"])
def test_sites_of_what_was_unwrapped_are_saved_under_the_names_that_it_has(name: str, tmp_path: Path) -> None:
    model, inputs, options = build(name)
    plain = copy.deepcopy(model)
    cd.contextualize(Adapted(model), example=inputs, **options)
    for number, saved in enumerate((model, Wrapper(model), nn.DataParallel(Wrapper(model)))):
        cd.save_sites(saved, tmp_path / f"{number}")
        loaded = cd.load_sites(copy.deepcopy(plain), tmp_path / f"{number}")
        assert loaded.state_dict().keys() == model.state_dict().keys()
        assert cd.conversion_of(loaded).changes == cd.conversion_of(model).changes


def test_the_record_is_found_through_wrappers() -> None:
    model = cd.contextualize(mlp(), example=torch.randn(1, 4))
    wrapped = Wrapper(nn.DataParallel(model))
    assert cd.conversion_of(wrapped).order == list(cd.sites(wrapped)) == ["module.module.2", "module.module.5"]
    assert not cd.sites(cd.strip(wrapped))


def test_what_was_left_is_told_from_inside_too() -> None:
    inner = nn.Sequential(nn.Dropout(0.0), nn.Dropout(0.2))
    outer = cd.contextualize(nn.Sequential(nn.Dropout(0.0), inner), example=torch.randn(2, 4))
    assert list(cd.conversion_of(outer).left) == ["0", "1.0"]
    assert list(cd.conversion_of(inner).left) == ["0"]


class Shared(nn.Module):
    """One dropout under two names, one of them outside of the converted part."""

    def __init__(self) -> None:
        super().__init__()
        self.drop = nn.Dropout(0.2)
        self.part = nn.Sequential(nn.Linear(4, 4), self.drop, nn.Linear(4, 4), self.drop)

    def forward(self, x: Tensor) -> Tensor:
        return self.drop(self.part(x))  # type: ignore[no-any-return]


@pytest.mark.parametrize("convert", [lambda model: model, lambda model: model.part])
def test_all_names_of_a_shared_layer_are_given_back(convert: Callable[[nn.Module], nn.Module]) -> None:
    model = Shared()
    drop = model.drop
    cd.contextualize(convert(model), example=torch.randn(1, 4))
    assert model.part[1] is model.part[3]
    cd.strip(model)
    assert model.part[1] is model.part[3] is model.drop is drop


def test_a_layer_that_was_taken_out_is_not_missed() -> None:
    model = cd.contextualize(mlp(), example=torch.randn(1, 4))
    model[5] = nn.Identity()
    assert list(cd.sites(model)) == cd.conversion_of(model).order == ["2"]
    assert not cd.sites(cd.strip(model))


@pytest.mark.parametrize("convert_first", [True, False])
def test_peft(convert_first: bool) -> None:
    peft = pytest.importorskip("peft")
    torch.manual_seed(0)
    model, inputs = bert()
    model.eval()
    implementation = model.config._attn_implementation  # type: ignore[union-attr]
    with torch.no_grad():
        expected = model(**inputs).logits  # type: ignore[arg-type]
    keys = set(model.state_dict())
    if convert_first:
        cd.contextualize(model, example=inputs)
    lora = peft.LoraConfig(target_modules=["query", "value"], lora_dropout=0.1)
    adapted = peft.get_peft_model(model, lora).eval()
    if not convert_first:
        cd.contextualize(adapted, example=inputs)
        assert any("lora_dropout" in name for name in cd.sites(adapted))
    merged = adapted.merge_and_unload()
    assert len(cd.sites(merged)) == len(cd.conversion_of(merged).order) > 0
    with pytest.raises(ValueError, match="converted already"):
        cd.contextualize(merged)
    cd.strip(merged)
    assert set(merged.state_dict()) == keys
    assert merged.config._attn_implementation == implementation
    with torch.no_grad():
        torch.testing.assert_close(merged(**inputs).logits, expected)
