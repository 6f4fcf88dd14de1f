from __future__ import annotations

import re
from collections import UserDict

import pytest
import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import Tensor, nn

import contextual_dropout as cd
from tests.conversion.models import Functional
from tests.conversion.models import plain_mlp as mlp

# --- selection -------------------------------------------------------------------------------------------------


def test_drop_rates_are_taken_over() -> None:
    model = cd.contextualize(mlp(), example=torch.randn(1, 4))
    assert [site.p for site in cd.sites(model).values()] == [0.1, 0.4]
    assert [site.p for site in cd.sites(cd.contextualize(mlp(), p=0.25)).values()] == [0.25, 0.25]


@pytest.mark.parametrize(
    ("after", "names"),
    [
        (nn.ReLU, ["1", "4"]),
        ("3", ["3"]),
        (["0", "3"], ["0", "3"]),
        (re.compile("[03]"), ["0", "3"]),
        ("[03]", ["0", "3"]),
        (lambda name, module: isinstance(module, nn.Linear) and module.out_features == 2, ["6"]),
    ],
)
def test_ways_to_select(after: object, names: list[str]) -> None:
    model = cd.contextualize(mlp(), replace=None, after=after)  # type: ignore[arg-type]
    assert [change.name for change in cd.conversion_of(model).changes] == names


def test_exclude_leaves_a_module_and_its_inside_alone() -> None:
    model = nn.ModuleDict({"a": mlp(), "b": mlp()})
    cd.contextualize(model, exclude=["b", "a.2"])
    assert list(cd.sites(model)) == ["a.5"]
    assert isinstance(model["a"][2], nn.Dropout)


@pytest.mark.parametrize(
    ("layer", "shape", "dim", "features"),
    [
        (nn.Linear(4, 8), (2, 3, 4), -1, 8),
        (nn.Conv1d(4, 8, 1), (2, 4, 5), -2, 8),
        (nn.Conv2d(4, 8, 1), (2, 4, 5, 5), -3, 8),
        (nn.Conv3d(4, 8, 1), (2, 4, 3, 3, 3), -4, 8),
    ],
)
def test_axis_is_chosen_from_the_layer(layer: nn.Module, shape: tuple[int, ...], dim: int, features: int) -> None:
    model = cd.contextualize(nn.Sequential(layer), after="0")
    (site,) = cd.sites(model).values()
    assert (site.dim, site.features) == (dim, features)
    model(torch.randn(shape))


@pytest.mark.parametrize(
    ("dropout", "shape", "features"),
    [
        (nn.Dropout(), (2, 5), 5),
        (nn.Dropout(), (2, 3, 5), 5),
        (nn.Dropout(), (2, 6, 3, 3), 6),
        (nn.Dropout1d(), (2, 6, 3), 6),
        (nn.Dropout2d(), (2, 6, 3, 3), 6),
        (nn.Dropout3d(), (2, 6, 3, 3, 3), 6),
    ],
)
def test_axis_is_chosen_from_the_input(dropout: nn.Module, shape: tuple[int, ...], features: int) -> None:
    model = cd.contextualize(nn.Sequential(dropout), example=torch.randn(shape))
    assert cd.sites(model)["0"].features == features


def test_a_shared_dropout_becomes_a_shared_site() -> None:
    drop = nn.Dropout(0.2)
    model = nn.Sequential(nn.Linear(4, 4), drop, nn.Linear(4, 4), drop)
    converted = cd.contextualize(model, example=torch.randn(1, 4))
    assert converted[1] is converted[3]
    assert cd.probe(converted, torch.randn(3, 4)).sites["1"].calls == 2
    stripped = cd.strip(converted)
    assert stripped[1] is stripped[3] is drop


def test_dropout_with_rate_zero_is_left_unless_asked() -> None:
    model = nn.Sequential(nn.Dropout(0.0), nn.Linear(4, 4), nn.Dropout(0.3))
    with pytest.warns(cd.ConversionWarning, match="0: its drop rate is 0; give p= to convert it"):
        cd.contextualize(model)
    assert list(cd.sites(cd.contextualize(cd.strip(model), p=0.1))) == ["0", "2"]


def test_identity_can_be_replaced_by_name() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Identity())
    cd.contextualize(model, replace="1", p=0.1, example=torch.randn(2, 4))
    assert list(cd.sites(model)) == ["1"]
    assert isinstance(cd.strip(model)[1], nn.Identity)


# --- what it says ----------------------------------------------------------------------------------------------


def test_the_report_is_a_table() -> None:
    text = repr(cd.conversion_of(cd.contextualize(mlp(), after="6")))
    assert text.splitlines()[0] == "3 contextual dropout sites"
    assert "2  site in place of Dropout(p=0.1, inplace=False)" in text
    assert "6  site after Linear(in_features=8, out_features=2, bias=True)" in text


def test_nothing_matched_lists_candidates() -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    with pytest.raises(
        ValueError, match=r"nothing in the model was selected(.|\n)*after=(.|\n)*0: Linear\n  2: Linear"
    ):
        cd.contextualize(model)
    with pytest.raises(ValueError, match="no linear, convolutional"):
        cd.contextualize(nn.Sequential(nn.ReLU()))


def test_converting_twice_is_refused() -> None:
    model = cd.contextualize(mlp())
    with pytest.raises(ValueError, match=r"converted already \(2 sites\): cd.strip\(model\) first"):
        cd.contextualize(model, after="6")
    with pytest.raises(ValueError, match="0 has been converted already"):
        cd.contextualize(nn.Sequential(model, nn.Dropout()))


def test_a_layer_with_parameters_cannot_be_replaced() -> None:
    with pytest.raises(TypeError, match=r"'0' is a Linear with parameters.*after="):
        cd.contextualize(mlp(), replace=nn.Linear)
    with pytest.raises(TypeError, match="cannot select layers by 5"):
        cd.contextualize(mlp(), after=5)  # type: ignore[arg-type]


def test_strip_needs_a_converted_model() -> None:
    with pytest.raises(ValueError, match=r"not converted by cd\.contextualize"):
        cd.strip(mlp())
    with pytest.raises(ValueError, match="not converted"):
        cd.conversion_of(mlp())


def test_unused_dropout_is_named() -> None:
    model = Functional()
    with pytest.warns(cd.ConversionWarning) as record:
        cd.contextualize(model, example=torch.randn(3, 4))
    text = str(record[0].message)
    assert "unused: the example never calls it as a module" in text
    assert "F.dropout" not in text
    assert isinstance(model.unused, nn.Dropout)
    assert list(cd.sites(model)) == ["drop", "contextual_dropout.call_1_of_1"]


def test_a_failing_example_leaves_the_model_as_it_was() -> None:
    model = mlp()
    text = repr(model)
    with pytest.raises(RuntimeError):
        cd.contextualize(model, example=torch.randn(1, 99))
    assert repr(model) == text


def test_copy_or_in_place() -> None:
    model = mlp()
    assert cd.contextualize(model, inplace=False) is not model
    assert isinstance(model[2], nn.Dropout)
    assert cd.contextualize(model) is model


# --- parameters and files --------------------------------------------------------------------------------------


def test_parameter_groups_partition_the_parameters() -> None:
    model = cd.contextualize(mlp(), example=torch.randn(1, 4))
    model[0].bias.requires_grad_(False)
    groups = cd.parameter_groups(model, theta={"weight_decay": 0.1}, eta={"lr": 0.5})
    assert [group["name"] for group in groups] == ["theta", "phi", "eta"]
    ids = [id(p) for group in groups for p in group["params"]]
    assert sorted(ids) == sorted(id(p) for p in model.parameters() if p.requires_grad)
    assert [len(group["params"]) for group in groups] == [5, 8, 2]
    assert cd.count_parameters(model)["theta"] == sum(p.numel() for p in mlp().parameters())
    with pytest.raises(ValueError, match="example="):
        cd.parameter_groups(cd.contextualize(mlp()))


# --- training --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", ["bernoulli", "gaussian"])
def test_rates_differ_between_inputs_after_training(family: str) -> None:
    """Plain SGD through the ELBO on digits; the zero-initialised encoders start without any context."""
    torch.manual_seed(0)
    digits = load_digits()
    x, y = torch.tensor(digits.data / 16, dtype=torch.float32), torch.tensor(digits.target)
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Dropout(0.3), nn.Linear(64, 10))
    cd.contextualize(model, family=family, example=x[:1], temperature=1.0)  # type: ignore[arg-type]
    assert cd.probe(model, x[:64]).sites["2"].contextuality == 0
    optimizer, objective = torch.optim.SGD(model.parameters(), lr=0.1), cd.ELBO(model, kl_weight=0.1)
    losses = []
    for rows in torch.split(torch.randint(len(x), (300 * 64,)), 64):
        optimizer.zero_grad()
        step = objective(lambda rows=rows: -F.cross_entropy(model(x[rows]), y[rows], reduction="none"))
        step.loss.backward()
        optimizer.step()
        losses.append(step.loss.item())
    assert sum(losses[-20:]) < 0.5 * sum(losses[:20])
    assert cd.probe(model, x[:64]).sites["2"].contextuality > 1e-3


def test_a_container_gets_no_site_behind_it() -> None:
    model = nn.Sequential(nn.Sequential(nn.Linear(4, 4)), nn.Dropout(0.2))
    with pytest.warns(cd.ConversionWarning, match="choose its last layer"):
        cd.contextualize(model, after="0")


def test_a_dropout_class_of_ones_own_is_left() -> None:
    class Scaling(nn.Dropout):
        def forward(self, x: Tensor) -> Tensor:
            return 2 * super().forward(x)

    model = nn.Sequential(Scaling(0.2), nn.Dropout(0.2))
    with pytest.warns(cd.ConversionWarning, match="0: Scaling is a class of its own"):
        cd.contextualize(model)
    assert list(cd.sites(model)) == ["1"]


def test_dropout2d_on_three_axes_masks_channels() -> None:
    model = cd.contextualize(nn.Sequential(nn.Dropout2d(0.5)), example=torch.randn(3, 8, 6))
    assert cd.sites(model)["0"].features == 8


def test_a_converted_part_is_not_converted_again() -> None:
    model = nn.Sequential(mlp(), nn.Dropout(0.1))
    cd.contextualize(model)
    with pytest.raises(ValueError, match="converted already"):
        cd.contextualize(model[0], after=nn.Linear)


def test_more_messages() -> None:
    with pytest.raises(ValueError, match="put it into an nn"):
        cd.contextualize(nn.Dropout(0.1))
    with pytest.raises(ValueError, match="example="):
        cd.count_parameters(cd.contextualize(mlp()))


def test_any_name_of_a_shared_module_selects_it() -> None:
    drop = nn.Dropout(0.2)
    model = nn.ModuleDict({"a": nn.Sequential(drop), "b": nn.Sequential(drop), "c": nn.Sequential(nn.Dropout(0.1))})
    assert list(cd.sites(cd.contextualize(model, replace="b.0", inplace=False))) == ["a.0"]
    assert list(cd.sites(cd.contextualize(model, exclude="b", inplace=False))) == ["c.0"]


def test_overrides_for_some_layers() -> None:
    model = nn.Sequential(nn.Dropout(0.1), nn.Linear(32, 16), nn.Dropout(0.2))
    cd.contextualize(model, reduction=8, overrides={"2": {"reduction": 4, "p": 0.3}}, example=torch.randn(1, 32))
    first, second = cd.sites(model).values()
    assert (first.encoder.reduction, first.p) == (8, 0.1)
    assert (second.encoder.reduction, second.p) == (4, 0.3)


def test_an_override_that_fits_nothing() -> None:
    with pytest.raises(ValueError, match=r"the override for 'head' fits none of the layers 0"):
        cd.contextualize(nn.Sequential(nn.Dropout(0.1)), overrides={"head": {"reduction": 4}})


class Fused(nn.Module):
    """Attention whose dropout is inside of torch's fused function, as in many a language model."""

    def __init__(self) -> None:
        super().__init__()
        self.p, self.drop, self.out = 0.2, nn.Dropout(0.1), nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        heads = x.unsqueeze(1)
        mixed = F.scaled_dot_product_attention(
            heads, heads, heads, dropout_p=self.p if self.training else 0.0, is_causal=True
        )
        out: Tensor = self.out(self.drop(mixed.squeeze(1)))
        return out


def test_dropout_inside_of_fused_attention_is_named() -> None:
    with pytest.warns(cd.ConversionWarning, match="1 calls of F.scaled_dot_product_attention"):
        model = cd.contextualize(Fused(), example=torch.randn(2, 3, 4))
    assert list(cd.sites(model)) == ["drop"]


def test_an_example_may_be_any_mapping() -> None:
    """The encoding of a tokenizer is one that is not a dictionary."""
    model = nn.Sequential(nn.Linear(4, 3), nn.Dropout(0.1))
    assert list(cd.sites(cd.contextualize(model, example=UserDict(input=torch.randn(2, 4))))) == ["1"]
