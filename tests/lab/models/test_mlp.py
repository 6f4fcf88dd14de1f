from __future__ import annotations

import pytest
import torch
from torch import nn

import contextual_dropout as cd
from contextual_dropout_lab.models import mlp


def test_dropout_is_in_front_of_every_layer() -> None:
    kinds = [type(layer) for layer in mlp(20, (8, 4), 3, p=0.1)]
    assert kinds == [nn.Dropout, nn.Linear, nn.ReLU, nn.Dropout, nn.Linear, nn.ReLU, nn.Dropout, nn.Linear]
    assert mlp(20, (8, 4), 3)(torch.randn(5, 20)).shape == (5, 3)
    assert [type(layer) for layer in mlp(20, (), 3)] == [nn.Dropout, nn.Linear]


@pytest.mark.parametrize(("reduction", "total"), [(32, 311_465), (10, 410_219)])
def test_sizes_of_the_paper(reduction: int, total: int) -> None:
    model = cd.contextualize(mlp(), reduction=reduction, example=torch.zeros(1, 784))
    assert sum(cd.count_parameters(model).values()) == total
    assert cd.count_parameters(model)["theta"] == 266_610
