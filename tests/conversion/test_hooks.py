"""Hooks of the user's on dropout that becomes a site."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import contextual_dropout as cd
from tests.conversion.models import plain_mlp as mlp


class Log:
    """Hooks of every kind that say who ran; the forward hook also doubles the output."""

    def __init__(self, layer: nn.Module) -> None:
        self.ran: list[str] = []
        self.handles = [
            layer.register_forward_hook(self.double),
            layer.register_forward_hook(self.with_kwargs, with_kwargs=True, always_call=True),
            layer.register_forward_pre_hook(lambda module, inputs: self.ran.append("pre")),
            layer.register_full_backward_hook(lambda module, inputs, outputs: self.ran.append("backward")),
            layer.register_full_backward_pre_hook(lambda module, outputs: self.ran.append("backward pre")),
        ]

    def double(self, module: nn.Module, inputs: Any, output: Tensor) -> Tensor:
        self.ran.append("forward")
        return 2 * output

    def with_kwargs(self, module: nn.Module, inputs: Any, keywords: dict[str, Any], output: Tensor) -> None:
        self.ran.append("with keywords")

    def of(self, model: nn.Module) -> list[str]:
        self.ran.clear()
        model(torch.randn(2, 4)).sum().backward()
        return self.ran


ALL = ["pre", "forward", "with keywords", "backward pre", "backward"]


def test_hooks_go_to_the_site_and_back() -> None:
    model, plain = mlp(), mlp()
    plain.load_state_dict(model.state_dict())
    log, _ = Log(model[2]), Log(plain[2])
    assert log.of(model) == ALL
    cd.contextualize(model, example=torch.randn(1, 4))
    assert log.of(model) == ALL
    x = torch.randn(3, 4)
    torch.testing.assert_close(model.eval()(x), plain.eval()(x))
    cd.strip(model)
    assert isinstance(model[2], nn.Dropout)
    assert log.of(model) == ALL
    assert len(model[2]._forward_hooks) == 2


def test_hooks_can_be_removed_and_added_while_converted() -> None:
    model = mlp()
    log = Log(model[2])
    cd.contextualize(model, example=torch.randn(1, 4))
    for handle in log.handles:
        handle.remove()
    assert log.of(model) == []
    model[5].register_forward_hook(log.double)
    assert log.of(cd.strip(model)) == ["forward"]


def test_hooks_inside_of_a_transformer_are_all_that_is_left_by_strip() -> None:
    model = nn.Sequential(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True))
    ran: list[int] = []
    model[0].dropout.register_forward_hook(lambda *_: ran.append(1))
    cd.contextualize(model, example=torch.randn(1, 3, 8))
    ran.clear()
    copy.deepcopy(model)(torch.randn(1, 3, 8))
    assert ran == [1]
    cd.strip(model)
    assert len(model[0].dropout._forward_hooks) == 1
    assert not model[0].dropout1._forward_hooks


def test_hooks_on_the_state_dict_are_named() -> None:
    model = mlp()
    model[2].register_state_dict_post_hook(lambda module, state, prefix, local: None)
    with pytest.warns(cd.ConversionWarning, match="2: it has hooks on its state dict"):
        cd.contextualize(model)
    assert list(cd.sites(model)) == ["5"]


def test_hooks_of_a_plain_model_that_is_given_sites_from_a_file(tmp_path: Any) -> None:
    cd.save_sites(cd.contextualize(mlp(), example=torch.randn(1, 4)), tmp_path / "sites")
    model = mlp()
    log = Log(model[2])
    assert log.of(cd.load_sites(model, tmp_path / "sites")) == ALL
    hooked = mlp()
    hooked[5].register_state_dict_pre_hook(lambda *_: None)
    with pytest.raises(ValueError, match="5: it has hooks on its state dict"):
        cd.load_sites(hooked, tmp_path / "sites")
