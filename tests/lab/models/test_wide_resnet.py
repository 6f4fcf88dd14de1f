from __future__ import annotations

from typing import Any, Literal

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import contextual_dropout as cd
from contextual_dropout_lab.models import wide_resnet

Family = Literal["bernoulli", "gaussian"]


def tiny(**options: Any) -> nn.Module:
    torch.manual_seed(0)
    return wide_resnet(depth=10, width=1, classes=4, **options)


def warmed_up(model: nn.Module) -> nn.Module:
    """A network with running statistics that are not those of initialisation."""
    model.train()
    with torch.no_grad():
        model(torch.randn(8, 3, 16, 16) * 2 + 1)
    return model.eval()


@pytest.mark.parametrize(("classes", "total"), [(10, 36_479_194), (100, 36_536_884)])
def test_size_of_the_paper(classes: int, total: int) -> None:
    with torch.device("meta"):
        model = wide_resnet(classes=classes)
    assert sum(parameter.numel() for parameter in model.parameters()) == total  # 36.5M


def test_the_paper_has_25_convolutions_and_dropout_in_12_blocks() -> None:
    with torch.device("meta"):
        model = wide_resnet()
    convolutions = [module for module in model.modules() if isinstance(module, nn.Conv2d)]
    assert sum(layer.kernel_size == (3, 3) for layer in convolutions) == 25
    assert sum(layer.kernel_size == (1, 1) for layer in convolutions) == 3  # shortcuts where the shape changes
    assert len(cd.sites(cd.contextualize(model))) == 12


def test_size_with_sites_of_the_paper() -> None:
    model = cd.contextualize(wide_resnet(), reduction=32, example=torch.zeros(1, 3, 4, 4))
    assert [site.features for site in cd.sites(model).values()] == [160] * 4 + [320] * 4 + [640] * 4
    assert sum(cd.count_parameters(model).values()) == 36_618_226  # 36.6M


def test_names() -> None:
    with torch.device("meta"):
        names = wide_resnet(16, 2).state_dict().keys()
    block = {"bn1.weight", "conv1.weight", "bn2.weight", "conv2.weight"}
    expected = {f"layer{group}.{index}.{name}" for group in (1, 2, 3) for index in (0, 1) for name in block}
    expected |= {f"layer{group}.0.shortcut.weight" for group in (1, 2, 3)}
    weights = {name for name in names if name.endswith("weight")}
    assert weights == expected | {"conv1.weight", "bn1.weight", "fc.weight"}


@pytest.mark.parametrize("pixels", [7, 32, 64, 224])
def test_any_size_of_image(pixels: int) -> None:
    assert tiny().eval()(torch.randn(2, 3, pixels, pixels)).shape == (2, 4)


def test_width_one_needs_no_shortcut_in_its_first_group() -> None:
    names = tiny().state_dict().keys()
    assert [name for name in names if "shortcut" in name] == ["layer2.0.shortcut.weight", "layer3.0.shortcut.weight"]


def test_convolutions_start_with_he_variance() -> None:
    torch.manual_seed(0)
    weight = wide_resnet(10, 4).layer3[0].get_parameter("conv2.weight")
    assert weight.std().item() == pytest.approx((2 / (256 * 9)) ** 0.5, rel=0.02)


def test_dropout_takes_whole_channels_between_the_convolutions() -> None:
    model = tiny(p=0.5).train()
    seen: list[torch.Tensor] = []
    block = model.get_submodule("layer2.0")
    block.get_submodule("conv2").register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    model(torch.randn(4, 3, 16, 16))
    dropped = (seen[0] == 0).all(-1).all(-1)  # (B, C)
    assert 0.3 < dropped.float().mean() < 0.7
    assert (seen[0] >= 0).all()  # behind the ReLU


def test_without_dropout_training_mode_is_deterministic() -> None:
    model, x = tiny(p=0).train(), torch.randn(4, 3, 8, 8)
    assert torch.equal(model(x), model(x))
    model = tiny(p=0.3).train()
    assert not torch.equal(model(x), model(x))


@pytest.mark.parametrize("family", ["bernoulli", "gaussian"])
def test_conversion_keeps_the_point_estimate_and_every_site_is_alive(family: Family) -> None:
    x = torch.randn(4, 3, 16, 16)
    model = warmed_up(tiny())
    before, names = model(x), list(model.state_dict())
    model = cd.contextualize(model, family=family, example=x)
    torch.testing.assert_close(model(x), before)
    assert [site.keep_probability(torch.randn(2, site.features, 3, 3)).shape for site in cd.sites(model).values()] == [
        (2, 16),
        (2, 32),
        (2, 64),
    ]
    spreads = cd.probe(model, x).sites
    assert list(spreads) == [f"layer{group}.0.dropout" for group in (1, 2, 3)]
    assert all(spread.spread > 0.1 for spread in spreads.values())
    cd.strip(model)
    assert list(model.state_dict()) == names
    torch.testing.assert_close(model(x), before)


@pytest.mark.parametrize(
    ("family", "estimator"),
    [
        ("gaussian", "auto"),
        ("gaussian", "truncated-reparameterized"),
        ("bernoulli", "auto"),
        ("bernoulli", "sampled-arm"),
    ],
)
def test_one_step_gives_finite_gradients_to_all_parameters(family: Family, estimator: str) -> None:
    x, y = torch.randn(6, 3, 16, 16), torch.randint(4, (6,))
    model = cd.contextualize(tiny(), family=family, example=x).train()
    step = cd.ELBO(model, estimator)(lambda: -F.cross_entropy(model(x), y, reduction="none"))
    step.loss.backward()  # type: ignore[no-untyped-call]
    assert step.log_likelihood.isfinite().all()
    gradients = {name: parameter.grad for name, parameter in model.named_parameters() if parameter.grad is not None}
    assert gradients.keys() == dict(model.named_parameters()).keys()
    assert all(gradient.isfinite().all() for gradient in gradients.values())
    moved = [bool(gradient.any()) for name, gradient in gradients.items() if "expand_weight" in name]
    # At initialisation q is the prior, so that only the sampled sites' rates have a gradient.
    assert any(moved) if estimator == "sampled-arm" else all(moved)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"depth": 27}, r"6 n \+ 4 .*got 27"),
        ({"depth": 4}, r"6 n \+ 4 .*got 4"),
        ({"depth": 28.0}, "depth must be a positive whole number, got 28.0"),
        ({"width": 0}, "width must be a positive whole number, got 0"),
        ({"classes": True}, "classes must be a positive whole number, got True"),
        ({"p": 1.0}, r"p is a drop rate and must be in \[0, 1\), got 1.0"),
        ({"p": float("nan")}, "p is a drop rate"),
        ({"p": "0.3"}, "p is a drop rate"),
    ],
)
def test_bad_arguments(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        wide_resnet(**options)
