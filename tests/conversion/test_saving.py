"""Files of sites: what does not fit is refused, and nothing is touched."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

import contextual_dropout as cd
from tests.conversion.models import plain_mlp as mlp


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


class Parent(nn.Module):
    """A part that is converted, one that is not, and a second name for something in the first."""

    def __init__(self) -> None:
        super().__init__()
        backbone = nn.Sequential(plain_linear := nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.3)), mlp())
        self.shared, self.backbone, self.dropout = plain_linear, backbone, nn.Dropout(0.5)

    def forward(self, x: Tensor) -> Tensor:
        return self.dropout(self.backbone(x))  # type: ignore[no-any-return]


def randomised(model: nn.Module) -> nn.Module:
    for site in cd.sites(model).values():
        for parameter in site.parameters():
            nn.init.normal_(parameter)
    return model.eval()


def assert_same_sites(a: nn.Module, b: nn.Module) -> None:
    """The same sites with the same values."""
    one, two = ({name: site.state_dict() for name, site in cd.sites(model).items()} for model in (a, b))
    torch.testing.assert_close(one, two)


def test_a_model_of_which_only_parts_were_converted(tmp_path: Path) -> None:
    parent = Parent()
    cd.contextualize(parent.backbone, example=torch.randn(1, 4))
    randomised(parent)
    cd.save_sites(parent, tmp_path / "sites")
    fresh = Parent()
    fresh.load_state_dict({key: value for key, value in parent.state_dict().items() if key in fresh.state_dict()})
    rebuilt = cd.load_sites(fresh, tmp_path / "sites").eval()
    assert_same_sites(rebuilt, parent)
    x = torch.randn(3, 4)
    assert torch.equal(rebuilt(x), parent(x))
    assert cd.conversion_of(rebuilt.backbone).changes == cd.conversion_of(parent.backbone).changes  # type: ignore[arg-type]
    filled = Parent()
    cd.contextualize(filled.backbone, example=torch.randn(1, 4))
    assert_same_sites(cd.load_sites(filled, tmp_path / "sites"), parent)
    assert not cd.sites(cd.strip(rebuilt))
    with pytest.raises(ValueError, match=r"backbone\.0\.1: there is no such layer\n  backbone\.1\.2"):
        cd.load_sites(mlp(), tmp_path / "sites")


def test_two_parts_that_were_converted_one_by_one(tmp_path: Path) -> None:
    pair = nn.ModuleDict({"a": mlp(), "b": mlp(), "c": mlp()})
    cd.contextualize(pair["a"], example=torch.randn(1, 4))
    cd.contextualize(pair["c"], family="gaussian", example=torch.randn(1, 4))
    cd.save_sites(randomised(pair), tmp_path / "sites")
    rebuilt = cd.load_sites(nn.ModuleDict({"a": mlp(), "b": mlp(), "c": mlp()}), tmp_path / "sites")
    assert_same_sites(rebuilt, pair)
    assert list(cd.sites(rebuilt)) == ["a.2", "a.5", "c.2", "c.5"]


class Wrapper(nn.Module):
    """Like those of libraries for distributed training, and like a network that somebody wrote."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, x: Tensor) -> Tensor:
        return self.module(x)  # type: ignore[no-any-return]


def averaged(model: nn.Module) -> nn.Module:
    return torch.optim.swa_utils.AveragedModel(model)


def compiled(model: nn.Module) -> nn.Module:
    return torch.compile(model, backend="eager")  # type: ignore[return-value]


@pytest.mark.parametrize("wrap", [nn.DataParallel, Wrapper, averaged, compiled])
def test_wrappers_leave_no_trace_in_the_file(wrap: Callable[[nn.Module], nn.Module], tmp_path: Path) -> None:
    plain = randomised(cd.contextualize(mlp(), example=torch.randn(1, 4)))
    cd.save_sites(wrap(Wrapper(plain)), tmp_path / "wrapped")
    cd.save_sites(plain, tmp_path / "plain")
    for file in ("wrapped", "plain"):
        assert_same_sites(cd.load_sites(mlp(), tmp_path / file), plain)
        base = mlp()
        wrapped = wrap(base)
        inner = wrapped.module if wrap is averaged else base  # a copy
        assert cd.load_sites(wrapped, tmp_path / file) is wrapped
        assert_same_sites(inner, plain)  # type: ignore[arg-type]
        converted = cd.contextualize(mlp(), example=torch.randn(1, 4))
        cd.load_sites(wrap(converted), tmp_path / file)
        assert wrap is averaged or cd.sites(converted)["2"].prior_logit == cd.sites(plain)["2"].prior_logit


@pytest.mark.parametrize("wrap", [nn.DataParallel, Wrapper])
def test_a_wrapper_that_was_itself_converted(wrap: Callable[[nn.Module], nn.Module], tmp_path: Path) -> None:
    outer = randomised(cd.contextualize(wrap(mlp()), example=torch.randn(1, 4)))
    cd.save_sites(outer, tmp_path / "sites")
    assert_same_sites(cd.load_sites(wrap(mlp()), tmp_path / "sites"), outer)
    with pytest.raises(ValueError, match=r"module\.2: there is no such layer"):
        cd.load_sites(mlp(), tmp_path / "sites")


def test_distributed_training_is_told_of_all_sites(tmp_path: Path) -> None:
    cd.save_sites(cd.contextualize(mlp(), example=torch.randn(1, 4)), tmp_path / "sites")
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        with pytest.raises(ValueError, match="load them before wrapping"):
            cd.load_sites(DistributedDataParallel(mlp()), tmp_path / "sites")
        wrapped = DistributedDataParallel(cd.load_sites(mlp(), tmp_path / "sites"))
        cd.save_sites(wrapped, tmp_path / "again")
        cd.load_sites(wrapped, tmp_path / "again")
    finally:
        torch.distributed.destroy_process_group()
    assert_same_sites(cd.load_sites(mlp(), tmp_path / "again"), cd.load_sites(mlp(), tmp_path / "sites"))


def test_threads_that_save_to_the_same_path_do_not_meet(tmp_path: Path) -> None:
    model, path = cd.contextualize(mlp(), example=torch.randn(2, 4)), tmp_path / "sites.safetensors"
    with ThreadPoolExecutor(4) as pool:
        for done in [pool.submit(cd.save_sites, model, path) for _ in range(40)]:
            done.result()
    cd.load_sites(mlp(), path)
    assert list(tmp_path.iterdir()) == [path]
    (tmp_path / "other").touch()
    assert path.stat().st_mode == (tmp_path / "other").stat().st_mode


def described(path: Path, change: Callable[[dict[str, Any]], None]) -> Path:
    """The sites of the small network in a file, with a change in what it says of them."""
    cd.save_sites(cd.contextualize(mlp(), example=torch.randn(1, 4)), path)
    with safe_open(path, "pt") as file:
        description = json.loads(file.metadata()["contextual_dropout"])
        tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
    change(description)
    save_file(tensors, path, {"contextual_dropout": json.dumps(description)})
    return path


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda file: file["sites"]["5"].update(features=10**6),
            r"5.encoder.reduce_weight is of shape .* expected \(1250",
        ),
        (lambda file: file["sites"]["5"].update(features=10**12), "the options of 5 are not those of a site"),
        (lambda file: file["sites"]["5"].update(dim="x"), "the options of 5 are not those of a site: dim must be"),
        (lambda file: file["sites"]["5"].update(p=[]), "the options of 5 are not those of a site"),
        (lambda file: file["sites"]["5"].update(more=1), "the options of 5 are not those of a site: .*'more'"),
        (lambda file: file["sites"].update({"5": 3}), "cannot be understood"),
        (lambda file: file["changes"][1].update(kind=["x"]), "cannot be understood: .*names must be strings"),
        (lambda file: file["changes"][1].update(aliases=3), "cannot be understood"),
        (lambda file: file["changes"].append(file["changes"][0]), "2: the file names it more than once"),
        (
            lambda file: file["changes"][1].update(part="5", name="", sites=[""]),
            "5: it cannot be replaced inside of itself",
        ),
        (lambda file: file["changes"][1].update(sites=["2"]), "2: the file names it more than once"),
    ],
)
def test_what_cannot_be_understood_leaves_the_model_as_it_was(
    tmp_path: Path, change: Callable[[dict[str, Any]], None], message: str
) -> None:
    """The first of the two sites is sound."""
    path, model = described(tmp_path / "sites", change), mlp()
    before = list(model.named_modules())
    with pytest.raises(ValueError, match=message):
        cd.load_sites(model, path)
    assert list(model.named_modules()) == before
    assert cd.sites(cd.contextualize(model, example=torch.randn(1, 4)))


def test_priors_that_were_saved_as_scalars(tmp_path: Path) -> None:
    converted = randomised(cd.contextualize(mlp(), example=torch.randn(1, 4)))
    cd.save_sites(converted, path := tmp_path / "sites")
    with safe_open(path, "pt") as file:
        metadata = file.metadata()
        tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
    old = {key: value.reshape(()) if key.endswith("prior_logit") else value for key, value in tensors.items()}
    save_file(old, path, metadata)
    assert_same_sites(cd.load_sites(mlp(), path), converted)
