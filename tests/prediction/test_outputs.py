"""What outputs mean, and what is said where they cannot."""

from __future__ import annotations

import re
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import contextual_dropout as cd
from contextual_dropout.prediction.outputs import interpret


class Wrapped(nn.Module):
    """Returns an object that has logits, as the networks of transformers do."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: Tensor) -> Any:
        return SimpleNamespace(logits=self.network(x))


def by_token() -> nn.Module:
    """(B, T, 4) to (B, T, 3)."""
    return nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 3))


def by_channel(convolution: Any) -> nn.Module:
    """(B, 4, ...) to (B, 3, ...)."""
    return nn.Sequential(convolution(4, 8, 1), nn.Dropout(0.5), convolution(8, 3, 1))


def hints(message: str) -> list[Callable[[Any], Tensor]]:
    """The functions that a message tells to give: for classes last, and for classes in the second axis."""
    return [eval(each) for each in re.findall(r"output=(lambda out: [^;]+);", message)]


@pytest.mark.parametrize(
    ("network", "shape", "axis"),
    [
        (by_token(), (2, 5, 4), -1),
        (by_token(), (2, 6, 5, 4), -1),
        (by_channel(nn.Conv1d), (2, 4, 5), 1),
        (by_channel(nn.Conv2d), (2, 4, 5, 6), 1),
    ],
    ids=["(B, T, C)", "(B, H, W, C)", "(B, C, T)", "(B, C, H, W)"],
)
@pytest.mark.parametrize("task", ["multiclass", "multilabel"])
@pytest.mark.parametrize("samples", [3, 40])
def test_following_the_hint_for_several_positions_works(
    network: nn.Module, shape: tuple[int, ...], axis: int, task: Any, samples: int
) -> None:
    x = torch.randn(shape)
    options: dict[str, Any] = {"samples": samples, "seed": 1}
    with pytest.raises(ValueError, match="Where each position has classes of its own") as error:
        cd.predict(network, x, task=task, **options)
    last, second = hints(str(error.value))
    flat = last if axis == -1 else second
    prediction = cd.predict(network, x, task=task, output=flat, **options)
    raw = cd.predict(network, x, task="regression", **options).samples  # (K, B, ...) with the same masks
    logits = raw.movedim(2 if axis == 1 else -1, -1).reshape(samples, -1, 3)
    torch.testing.assert_close(prediction.samples, logits.softmax(-1) if task == "multiclass" else logits.sigmoid())
    wrapped = cd.predict(Wrapped(network), x, task=task, output=lambda out: flat(out.logits), **options)
    assert wrapped.samples.shape == prediction.samples.shape


def test_one_number_for_an_input_is_no_choice_of_classes() -> None:
    with pytest.raises(ValueError, match=r"got \(5,\): .* task='binary' or 'regression'; .* a batch axis"):
        interpret(torch.zeros(3, 5), "multiclass", None)


@pytest.mark.parametrize("task", [{"multiclass": 1}, ["multiclass"], {"binary"}, None, 3])
def test_a_task_is_a_name(task: Any) -> None:
    model = nn.Sequential(nn.Linear(4, 3), nn.Dropout(0.5))
    for ask in (
        lambda: cd.predict(model, torch.zeros(2, 4), task=task),
        lambda: cd.predict_loader(model, [torch.zeros(2, 4)], task=task),
        lambda: interpret(torch.zeros(3, 5, 2), task, None),
    ):
        with pytest.raises(TypeError, match=r"unknown task .*: expected one of 'multiclass', 'multilabel'"):
            ask()
