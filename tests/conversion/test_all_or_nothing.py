"""A conversion that fails at any step leaves the model exactly as it was."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn.parallel import DataParallel, DistributedDataParallel

import contextual_dropout as cd
from tests.conversion.models import MODELS, build
from tests.conversion.models import plain_mlp as mlp

pytestmark = pytest.mark.filterwarnings(
    "ignore::contextual_dropout.ConversionWarning", "ignore:The PyTorch API of nested tensors:UserWarning"
)


def fingerprint(model: nn.Module) -> list[Any]:
    """Everything that a conversion could touch, by identity, and values of tensors."""
    modules = dict(model.named_modules(remove_duplicate=False))
    attributes = {
        name: {
            key: list(value.items())
            if key.endswith("hooks")
            else id(value)
            if not isinstance(value, dict)
            else {**value}
            for key, value in vars(module).items()
        }
        for name, module in modules.items()
    }
    for each in attributes.values():
        for key in ("_parameters", "_buffers"):
            each[key] = {name: id(value) for name, value in each[key].items()}  # type: ignore[union-attr]
    state = {key: value.tolist() for key, value in model.state_dict().items()}
    implementation = getattr(getattr(model, "config", None), "_attn_implementation", None)
    return [list(modules.items()), [type(module) for module in modules.values()], attributes, state, implementation]


@pytest.mark.parametrize("name", MODELS)
def test_a_bad_option_for_the_last_layer(name: str) -> None:
    model, inputs, options = build(name)
    last = cd.conversion_of(cd.contextualize(model, inplace=False, **options)).changes[-1].name
    before = fingerprint(model)
    layer = model.get_submodule(last)
    for bad, error in ({"reduction": 0}, ValueError), ({"no_such_option": 1}, TypeError), ({"p": 2.0}, ValueError):
        with pytest.raises(error, match=rf"the site .* {last}: "):
            cd.contextualize(
                model,
                overrides={lambda _, module: module is layer: bad},
                example=inputs,
                **options,
            )
        assert fingerprint(model) == before


class Stubborn(nn.Module):
    """Refuses to have its second dropout replaced, after the first one is."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.attention = nn.Dropout(0.1), nn.MultiheadAttention(4, 2, dropout=0.1)
        self.rnn, self.last = nn.LSTM(4, 4, 2, dropout=0.1), nn.Dropout(0.1)

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "last" and isinstance(value, cd.ContextualDropout):
            raise KeyboardInterrupt
        super().__setattr__(name, value)


def test_an_attribute_that_cannot_be_set() -> None:
    model = Stubborn()
    before = fingerprint(model)
    with pytest.raises(KeyboardInterrupt):
        cd.contextualize(model)
    assert fingerprint(model) == before


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
@pytest.mark.parametrize("name", MODELS)
def test_an_error_in_the_rehearsal(name: str, error: type[BaseException]) -> None:
    """At the output, when every site knows its features."""
    model, inputs, options = build(name)

    def interrupt(module: nn.Module, inputs: Any, output: Any) -> None:
        raise error

    model.register_forward_hook(interrupt)
    before = fingerprint(model)
    with pytest.raises(error):
        cd.contextualize(model, example=inputs, **options)
    assert fingerprint(model) == before


class Counting(nn.Module):
    """Has state that a pass changes."""

    def __init__(self) -> None:
        super().__init__()
        self.drop = nn.Dropout(0.1)
        self.register_buffer("passes", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        self.passes += 1
        raise RuntimeError("later")


def test_buffers_are_put_back() -> None:
    model = Counting()
    with pytest.raises(RuntimeError, match="later"):
        cd.contextualize(model, example=torch.randn(1, 4))
    assert model.passes == 0


# --- names that are somebody else's ------------------------------------------------------------------------------


class Named(nn.Module):
    """A user's module with attributes that sound like ours."""

    def __init__(self, value: Any) -> None:
        super().__init__()
        self.linear, self.drop = nn.Linear(4, 4), nn.Dropout(0.1)
        self.replaced = self.contextual_dropout = value

    def forward(self, x: Tensor) -> Tensor:
        return self.drop(self.linear(x))  # type: ignore[no-any-return]


@pytest.mark.parametrize("value", [True, [1], nn.Identity(), cd.ContextualDropout(4)])
def test_attributes_of_the_users_are_not_taken_for_a_conversion(value: Any) -> None:
    model, x = Named(value).eval(), torch.randn(3, 4)
    before, out = fingerprint(model), model(x)
    with pytest.raises(ValueError, match="nothing to strip"):
        cd.strip(model)
    cd.contextualize(model, example=x)
    assert "drop" in cd.sites(model)
    torch.testing.assert_close(model(x), out)
    assert fingerprint(cd.strip(model)) == before


@pytest.mark.parametrize("kind", [nn.Linear, nn.MultiheadAttention, nn.LSTM])
def test_a_layer_that_has_the_name_of_a_site_is_left_and_named(kind: type[nn.Module], tmp_path: Path) -> None:
    def network() -> nn.Sequential:
        layer = {
            nn.Linear: lambda: nn.Linear(4, 4),
            nn.MultiheadAttention: lambda: nn.MultiheadAttention(4, 2, dropout=0.1),
            nn.LSTM: lambda: nn.LSTM(4, 4, 2, dropout=0.1),
        }[kind]()
        return nn.Sequential(layer, nn.Dropout(0.2))

    cd.save_sites(
        cd.contextualize(network(), replace=kind if kind is not nn.Linear else None, after=nn.Linear),
        tmp_path / "sites",
    )
    model = network()
    model[0].contextual_dropout = nn.Dropout(0.3)
    kept = model[0].contextual_dropout
    with pytest.warns(cd.ConversionWarning, match="0: it has an attribute 'contextual_dropout' of its own"):
        cd.contextualize(model, after=nn.Linear, inplace=False)
    assert model[0].contextual_dropout is kept
    with pytest.raises(ValueError, match="0: it has an attribute 'contextual_dropout' of its own"):
        cd.load_sites(model, tmp_path / "sites")


# --- wrappers ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wrap", [lambda ddp: ddp, lambda ddp: nn.Sequential(ddp, nn.Dropout(0.1))])
def test_a_model_in_distributed_data_parallel_is_refused(
    wrap: Callable[[nn.Module], nn.Module], tmp_path: Path
) -> None:
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        model = wrap(DistributedDataParallel(mlp()))
        with pytest.raises(ValueError, match=r"DistributedDataParallel .* convert it before wrapping"):
            cd.contextualize(model)
        assert not cd.sites(model)
    finally:
        torch.distributed.destroy_process_group()


def test_other_wrappers_are_not() -> None:
    assert cd.sites(cd.contextualize(DataParallel(mlp())))


# --- files -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("converted", [True, False])
def test_parameters_that_are_not_finite_are_refused(tmp_path: Path, value: float, converted: bool) -> None:
    source = cd.contextualize(mlp(), example=torch.randn(1, 4))
    cd.save_sites(source, path := tmp_path / "sites")
    with safe_open(path, "pt") as file:
        metadata, tensors = file.metadata(), {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
    tensors["5.encoder.expand_weight"][1, 0] = value
    save_file(tensors, path, metadata)
    model = cd.contextualize(mlp(), example=torch.randn(1, 4)) if converted else mlp()
    before = fingerprint(model)
    with pytest.raises(ValueError, match=r"NaN or infinite: 5\.encoder\.expand_weight"):
        cd.load_sites(model, path)
    assert fingerprint(model) == before
