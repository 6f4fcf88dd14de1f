from __future__ import annotations

from typing import Any, Literal

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import contextual_dropout as cd
from contextual_dropout_lab.models import resnet18

Family = Literal["bernoulli", "gaussian"]


def norm(name: str, channels: int) -> dict[str, tuple[int, ...]]:
    vectors = ("weight", "bias", "running_mean", "running_var")
    return {f"{name}.{key}": (channels,) for key in vectors} | {f"{name}.num_batches_tracked": ()}


def torchvision_layout(classes: int = 1000) -> dict[str, tuple[int, ...]]:
    """The entries of torchvision's resnet18, in its order."""
    layout: dict[str, tuple[int, ...]] = {"conv1.weight": (64, 3, 7, 7)} | norm("bn1", 64)
    before = 64
    for group, channels in enumerate((64, 128, 256, 512), start=1):
        for index in (0, 1):
            block = f"layer{group}.{index}"
            layout |= {f"{block}.conv1.weight": (channels, before, 3, 3)} | norm(f"{block}.bn1", channels)
            layout |= {f"{block}.conv2.weight": (channels, channels, 3, 3)} | norm(f"{block}.bn2", channels)
            if before != channels:
                layout |= {f"{block}.downsample.0.weight": (channels, before, 1, 1)}
                layout |= norm(f"{block}.downsample.1", channels)
            before = channels
    return layout | {"fc.weight": (classes, 512), "fc.bias": (classes,)}


def state_like_torchvision(classes: int = 1000) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(1)
    state = {}
    for name, shape in torchvision_layout(classes).items():
        if name.endswith("num_batches_tracked"):
            state[name] = torch.tensor(7)
        elif name.endswith("running_var"):
            state[name] = torch.rand(shape, generator=generator) + 0.5
        else:
            state[name] = torch.randn(shape, generator=generator) * 0.05
    return state


@pytest.mark.parametrize("dropout", ["first", "every"])
def test_names_shapes_and_order_are_torchvisions(dropout: Any) -> None:
    with torch.device("meta"):
        model = resnet18(dropout=dropout)
    expected = torchvision_layout()
    assert len(expected) == 122
    assert [(name, tuple(value.shape)) for name, value in model.state_dict().items()] == list(expected.items())


def test_a_state_dict_of_torchvision_loads_strictly_and_changes_the_output() -> None:
    model, x = resnet18().eval(), torch.randn(1, 3, 32, 32)
    before = model(x)
    state = state_like_torchvision()
    model.load_state_dict(state, strict=True)
    assert (model(x) - before).abs().max() > 1e-3
    assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())


def test_the_forward_pass_is_that_of_he_et_al() -> None:
    """Written out with functions and the state dict only."""
    state = state_like_torchvision(classes=5)
    model = resnet18(classes=5).eval()
    model.load_state_dict(state)

    def normalised(u: Tensor, name: str) -> Tensor:
        keys = ("running_mean", "running_var", "weight", "bias")
        return F.batch_norm(u, *(state[f"{name}.{key}"] for key in keys))

    x = torch.randn(2, 3, 40, 40)
    u = F.relu(normalised(F.conv2d(x, state["conv1.weight"], stride=2, padding=3), "bn1"))
    u = F.max_pool2d(u, 3, stride=2, padding=1)
    for group in (1, 2, 3, 4):
        for index in (0, 1):
            block, stride = f"layer{group}.{index}", 2 if group > 1 and index == 0 else 1
            v = F.conv2d(u, state[f"{block}.conv1.weight"], stride=stride, padding=1)
            v = F.conv2d(F.relu(normalised(v, f"{block}.bn1")), state[f"{block}.conv2.weight"], padding=1)
            v = normalised(v, f"{block}.bn2")
            if stride == 2:
                u = F.conv2d(u, state[f"{block}.downsample.0.weight"], stride=2)
                u = normalised(u, f"{block}.downsample.1")
            u = F.relu(u + v)
    expected = F.linear(u.mean((2, 3)), state["fc.weight"], state["fc.bias"])
    torch.testing.assert_close(model(x), expected)


@pytest.mark.parametrize(("dropout", "reduction", "total"), [("first", 8, 11_865_760), ("every", 16, 11_867_688)])
def test_sizes_of_the_paper(dropout: Any, reduction: int, total: int) -> None:
    """11.70M and 11.88M: the paper's numbers count the statistics of the batch normalisations along."""
    model = resnet18(dropout=dropout)
    statistics = sum(buffer.numel() for buffer in model.buffers())
    assert sum(parameter.numel() for parameter in model.parameters()) == 11_689_512
    assert f"{(11_689_512 + statistics) / 1e6:.2f}M" == "11.70M"
    cd.contextualize(model, family="gaussian", reduction=reduction, example=torch.zeros(1, 3, 16, 16))
    assert sum(cd.count_parameters(model).values()) == total
    assert total == pytest.approx(11.88e6, rel=0.01)
    assert f"{(total + statistics) / 1e6:.2f}M" == "11.88M"


def test_places_of_the_dropout() -> None:
    blocks = [f"layer{group}.{index}" for group in (1, 2, 3, 4) for index in (0, 1)]
    with torch.device("meta"):
        first, every = resnet18(), resnet18(dropout="every")
    assert list(cd.sites(cd.contextualize(first))) == [f"{block}.dropout1" for block in blocks]
    assert list(cd.sites(cd.contextualize(every))) == [
        f"{block}.dropout{place}" for block in blocks for place in (1, 2)
    ]


@pytest.mark.parametrize(
    ("stem", "pixels", "last"),
    [("imagenet", 32, 1), ("imagenet", 64, 2), ("imagenet", 224, 7), ("small", 32, 4), ("small", 64, 8)],
)
def test_resolutions(stem: Any, pixels: int, last: int) -> None:
    model = resnet18(classes=3, stem=stem).eval()
    sizes: list[torch.Size] = []
    model.layer4.register_forward_hook(lambda _, inputs, output: sizes.append(output.shape))
    assert model(torch.randn(1, 3, pixels, pixels)).shape == (1, 3)
    assert sizes == [(1, 512, last, last)]


def test_the_small_stem_keeps_the_names() -> None:
    with torch.device("meta"):
        model = resnet18(classes=200, stem="small")
    expected = torchvision_layout(classes=200) | {"conv1.weight": (64, 3, 3, 3)}
    assert {name: tuple(value.shape) for name, value in model.state_dict().items()} == expected


@pytest.mark.parametrize(("family", "dropout"), [("bernoulli", "first"), ("gaussian", "every")])
def test_conversion_keeps_the_point_estimate_and_every_site_is_alive(family: Family, dropout: Any) -> None:
    model, x = resnet18(classes=5, dropout=dropout).eval(), torch.randn(2, 3, 32, 32)
    model.load_state_dict(state_like_torchvision(classes=5))
    before = model(x)
    model = cd.contextualize(model, family=family, example=x)
    torch.testing.assert_close(model(x), before)
    spreads = cd.probe(model, x, samples=3).sites
    assert len(spreads) == (8 if dropout == "first" else 16)
    assert all(spread.spread > 0.05 for spread in spreads.values())
    with cd.sampling(model):
        assert not torch.equal(model(x), model(x))


def test_dropout_takes_whole_channels() -> None:
    model = resnet18(classes=2, p=0.5).train()
    seen: list[Tensor] = []
    model.get_submodule("layer1.0.conv2").register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    model(torch.randn(4, 3, 32, 32))
    assert 0.3 < (seen[0] == 0).all(-1).all(-1).float().mean() < 0.7
    assert isinstance(model.get_submodule("layer1.0.dropout1"), nn.Dropout2d)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"classes": 0}, "classes must be a positive whole number, got 0"),
        ({"p": -0.1}, r"p is a drop rate and must be in \[0, 1\), got -0.1"),
        ({"dropout": "second"}, "dropout is behind the 'first' or 'every' convolution of a block, got 'second'"),
        ({"stem": "cifar"}, "stem must be 'imagenet' or 'small', got 'cifar'"),
    ],
)
def test_bad_arguments(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        resnet18(**options)
