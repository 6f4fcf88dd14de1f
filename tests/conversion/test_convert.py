from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from sklearn.datasets import load_digits
from torch import Tensor, nn

import contextual_dropout as cd
from tests.conversion.models import build


def mlp() -> nn.Sequential:
    first, second = (nn.Linear(4, 8), nn.ReLU(), nn.Dropout(0.1)), (nn.Linear(8, 8), nn.ReLU(), nn.Dropout(0.4))
    return nn.Sequential(*first, *second, nn.Linear(8, 2))


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
    assert [change.name for change in cd.conversion(model).changes] == names


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
    text = repr(cd.conversion(cd.contextualize(mlp(), after="6")))
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
        cd.conversion(mlp())


class Functional(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear, self.drop, self.unused = nn.Linear(4, 4), nn.Dropout(0.2), nn.Dropout(0.3)

    def forward(self, x: Tensor) -> Tensor:
        return F.dropout(self.drop(self.linear(x)), 0.5, self.training)


def test_functional_and_unused_dropout_is_named() -> None:
    model = Functional()
    with pytest.warns(cd.ConversionWarning) as record:
        cd.contextualize(model, example=torch.randn(3, 4))
    text = str(record[0].message)
    assert "unused: the example never calls it as a module" in text
    assert "1 calls of F.dropout" in text
    assert isinstance(model.unused, nn.Dropout)
    assert list(cd.sites(model)) == ["drop"]


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


# --- probing ---------------------------------------------------------------------------------------------------


def test_probe_names_a_site_that_never_ran() -> None:
    model = Functional()
    cd.contextualize(model)
    with pytest.raises(cd.SilentSiteError, match=r"site 'unused' never ran.*example="):
        cd.probe(model, torch.randn(3, 4))


def test_probe_names_a_site_without_spread() -> None:
    model = cd.contextualize(mlp(), example=torch.randn(1, 4))
    nn.init.constant_(cd.sites(model)["5"].encoder.expand_bias, 1e6)
    with pytest.raises(cd.SilentSiteError, match=r"site '5' drew the same mask.*keep probability is 1\.0000"):
        cd.probe(model, torch.randn(3, 4))
    silent = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.2))
    nn.init.zeros_(silent[0].weight)
    nn.init.zeros_(silent[0].bias)
    with pytest.raises(cd.SilentSiteError, match="its input is zero"):
        cd.probe(cd.contextualize(silent), torch.randn(3, 4))
    with pytest.raises(ValueError, match="no contextual dropout site"):
        cd.probe(mlp(), torch.randn(3, 4))


def test_probe_leaves_no_trace() -> None:
    model, inputs, options = build("residual")
    cd.contextualize(model, example=inputs, **options).train()
    before = [b.clone() for b in model.buffers()], [m.training for m in model.modules()], torch.get_rng_state()
    cd.probe(model, *inputs)
    assert all(torch.equal(a, b) for a, b in zip(before[0], model.buffers(), strict=True))
    assert before[1] == [m.training for m in model.modules()]
    assert torch.equal(before[2], torch.get_rng_state())


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


def test_files_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "sites.safetensors"
    converted = cd.contextualize(mlp(), example=torch.randn(1, 4))
    cd.save_sites(converted, path)
    assert [file.name for file in tmp_path.iterdir()] == ["sites.safetensors"]
    with pytest.raises(ValueError, match=r"2: there is no such layer\n  5: there is no such layer"):
        cd.load_sites(nn.Sequential(nn.Linear(4, 8)), path)
    other = cd.contextualize(mlp(), after="6", family="gaussian", example=torch.randn(1, 4))
    with pytest.raises(ValueError, match=r"2: family is gaussian here, bernoulli in the file(.|\n)*6.*not in the file"):
        cd.load_sites(other, path)
    (tmp_path / "text").write_text("not safetensors")
    with pytest.raises(ValueError, match="not a safetensors file"):
        cd.load_sites(mlp(), tmp_path / "text")
    save_file({"a": torch.zeros(1)}, tmp_path / "foreign", {"contextual_dropout": json.dumps({"format": "other"})})
    with pytest.raises(ValueError, match="no contextual dropout sites that this version can read"):
        cd.load_sites(mlp(), tmp_path / "foreign")
    with pytest.raises(ValueError, match="no contextual dropout site to save"):
        cd.save_sites(mlp(), path)


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


# --- what a review found ---------------------------------------------------------------------------------------


def test_sites_in_networks_with_the_batch_second_follow_it() -> None:
    """torch's transformers default to batch_first=False; no example may look at another one."""
    torch.manual_seed(0)
    model = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, dropout=0.2), 1, enable_nested_tensor=False)
    x = torch.randn(5, 3, 8)
    cd.contextualize(model.eval(), example=x, temperature=1.0)
    for site in cd.sites(model).values():
        nn.init.normal_(site.encoder.expand_weight)
    other = x.clone()
    other[:, 1:] += 1
    with torch.no_grad():
        torch.testing.assert_close(model(x)[:, 0], model(other)[:, 0])
        assert not torch.allclose(model(x)[:, 1], model(other)[:, 1])
    step = cd.ELBO(model.train())(lambda: -model(x).square().sum((0, 2)))
    assert step.kl.shape == (3,)


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU])
def test_after_a_recurrent_layer(kind: type[nn.Module]) -> None:
    model = nn.Sequential(kind(4, 6))
    cd.contextualize(model, after=kind, example=torch.randn(5, 3, 4))
    (site,) = cd.sites(model).values()
    assert (site.features, site.batch_dim) == (6, 1)


def test_queries_without_a_key_do_not_spread() -> None:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.1, batch_first=True)
    model = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).eval()
    x = torch.randn(2, 5, 8)
    padding = torch.tensor([[True, True, False, False, False], [False] * 5])
    causal = torch.ones(5, 5).triu(1).bool()
    plain = model(x, mask=causal, src_key_padding_mask=padding).detach()  # with autograd: the fused path has NaN itself
    with torch.no_grad():
        converted = cd.contextualize(model)(x, mask=causal, src_key_padding_mask=padding)
    real = ~padding
    torch.testing.assert_close(converted[real], plain[real], atol=1e-5, rtol=0)


def test_attention_context_ignores_padding() -> None:
    torch.manual_seed(0)
    attention = nn.MultiheadAttention(8, 2, dropout=0.1, batch_first=True).eval()
    cd.contextualize(attention, replace=lambda name, module: module is attention, temperature=1.0)
    nn.init.normal_(cd.sites(attention)["contextual_dropout"].encoder.expand_weight)
    x = torch.randn(1, 4, 8)
    longer = torch.cat([x, torch.randn(1, 3, 8)], 1)
    padding = torch.tensor([[False] * 4 + [True] * 3])
    with torch.no_grad():
        short, _ = attention(x, x, x)
        long, _ = attention(longer, longer, longer, key_padding_mask=padding)
    torch.testing.assert_close(long[:, :4], short)


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


def test_probe_does_not_take_chance_for_silence() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(cd.ContextualDropout(2, p=0.01))
    for _ in range(20):
        cd.probe(model, torch.ones(1, 2), samples=2)


@pytest.mark.parametrize("wrong", [nn.Linear(8, 8), nn.Sequential(nn.Linear(2, 2))])
def test_loading_never_replaces_a_layer_with_weights(wrong: nn.Module, tmp_path: Path) -> None:
    cd.save_sites(cd.contextualize(mlp(), example=torch.randn(1, 4)), tmp_path / "s")
    other = mlp()
    other[2] = wrong
    with pytest.raises(ValueError, match="2: expected Dropout"):
        cd.load_sites(other, tmp_path / "s")
    assert other[2] is wrong
    assert not cd.sites(other)


def test_loading_checks_layers_counts_and_every_option(tmp_path: Path) -> None:
    three = cd.contextualize(nn.Sequential(nn.LSTM(4, 6, 3, dropout=0.2)))
    cd.save_sites(three, tmp_path / "lstm")
    with pytest.raises(ValueError, match="0: 2 sites for 1 places"):
        cd.load_sites(nn.Sequential(nn.LSTM(4, 6, 2, dropout=0.2)), tmp_path / "lstm")
    with pytest.raises(ValueError, match=r"0: expected LSTM.*found Linear"):
        cd.load_sites(nn.Sequential(nn.Linear(4, 6)), tmp_path / "lstm")
    cd.save_sites(cd.contextualize(mlp(), example=torch.randn(1, 4)), tmp_path / "mlp")
    other = cd.contextualize(mlp(), p=0.3, temperature=1.0, example=torch.randn(1, 4))
    with pytest.raises(ValueError, match=r"2: p is 0.3 here, 0.1 in the file\n  2: temperature is 1.0 here, 0.01"):
        cd.load_sites(other, tmp_path / "mlp")


def test_packed_sequences_keep_their_order() -> None:
    torch.manual_seed(0)
    model = nn.LSTM(4, 6, 2, dropout=0.3).eval()
    packed = nn.utils.rnn.pack_sequence([torch.randn(length, 4) for length in (5, 5, 5, 3, 3)])
    with torch.no_grad():
        expected = model(packed)[0]
        converted = cd.contextualize(nn.Sequential(model))[0](packed)[0]
    torch.testing.assert_close(converted.data, expected.data)
    assert converted.sorted_indices is None


def test_attention_refuses_masks_that_torch_refuses() -> None:
    attention = nn.Sequential(nn.MultiheadAttention(8, 2, dropout=0.1, batch_first=True))
    layer = cd.contextualize(attention)[0]
    x = torch.randn(2, 4, 8)
    with pytest.raises(TypeError, match="attn_mask must be boolean"):
        layer(x, x, x, attn_mask=torch.ones(4, 4, dtype=torch.uint8))
    with pytest.raises(ValueError, match=r"key_padding_mask must have the shape \(2, 4\), got \(1, 4\)"):
        layer(x, x, x, key_padding_mask=torch.zeros(1, 4, dtype=torch.bool))
    with pytest.raises(ValueError, match="is_causal=True is a hint"):
        layer(x, x, x, is_causal=True)


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
