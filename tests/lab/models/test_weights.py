from __future__ import annotations

import os
import pickle
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

import contextual_dropout as cd
from contextual_dropout_lab.models import load_weights, resnet18, wide_resnet


def tiny(classes: int = 4) -> nn.Module:
    return wide_resnet(depth=10, width=1, classes=classes)


def other(classes: int = 4) -> dict[str, Tensor]:
    """A state dict with no value in common with a fresh network."""
    return {name: value + 1 for name, value in tiny(classes).state_dict().items()}


def save(state: dict[str, Any], path: Path) -> Path:
    if path.suffix == ".safetensors":
        save_file(state, path)
    else:
        torch.save(state, path)
    return path


def untouched(model: nn.Module, before: dict[str, Tensor]) -> bool:
    return all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def snapshot(model: nn.Module) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in model.state_dict().items()}


@pytest.mark.parametrize("suffix", [".pth", ".pt", ".safetensors"])
def test_round_trip(tmp_path: Path, suffix: str) -> None:
    state = other()
    model = tiny()
    assert load_weights(model, save(state, tmp_path / f"weights{suffix}")) is model
    assert untouched(model, state)
    assert load_weights(tiny(), str(tmp_path / f"weights{suffix}")) is not model


def test_files_of_torch_before_2020(tmp_path: Path) -> None:
    """The format of torchvision's first ResNet-18: not a zip archive, and without counters of batch normalisation."""
    state = {name: value for name, value in other().items() if not name.endswith("num_batches_tracked")}
    torch.save(state, tmp_path / "old.pth", _use_new_zipfile_serialization=False)
    model = load_weights(tiny(), tmp_path / "old.pth")
    assert all(torch.equal(model.state_dict()[name], value) for name, value in state.items())


def test_precision_is_the_networks(tmp_path: Path) -> None:
    state = {name: value.half() if value.is_floating_point() else value for name, value in other().items()}
    model = load_weights(tiny(), save(state, tmp_path / "half.safetensors"))
    assert model.get_parameter("conv1.weight").dtype == torch.float32
    assert torch.equal(model.get_parameter("conv1.weight"), state["conv1.weight"].float())


def test_another_number_of_classes_keeps_the_head(tmp_path: Path) -> None:
    path = save(other(classes=10), tmp_path / "ten.pth")
    model = tiny(classes=4)
    before = snapshot(model)
    with pytest.raises(ValueError, match=r"fc.weight: shape \(4, 64\) in the network, \(10, 64\) in the file") as error:
        load_weights(model, path)
    assert "fc.bias: shape (4,) in the network, (10,) in the file" in str(error.value)
    assert untouched(model, before)
    load_weights(model, path, skip=("fc",))
    assert torch.equal(model.get_parameter("fc.weight"), before["fc.weight"])
    assert not torch.equal(model.get_parameter("conv1.weight"), before["conv1.weight"])
    load_weights(tiny(classes=4), path, skip="fc")
    load_weights(tiny(classes=4), path, skip=["fc.weight", "fc.bias"])


def test_a_skipped_part_may_be_missing_from_the_file(tmp_path: Path) -> None:
    state = {name: value for name, value in other().items() if not name.startswith("fc.")}
    load_weights(tiny(), save(state, tmp_path / "backbone.pth"), skip=("fc",))


def test_imagenet_weights_for_the_small_stem(tmp_path: Path) -> None:
    path = save(resnet18(classes=3).state_dict(), tmp_path / "imagenet.safetensors")
    model = resnet18(classes=5, stem="small")
    with pytest.raises(ValueError, match=r"conv1.weight: shape \(64, 3, 3, 3\) in the network, \(64, 3, 7, 7\)"):
        load_weights(model, path, skip=("fc",))
    # "conv1" is the stem, not the conv1 of a block
    layer = model.get_parameter("layer1.0.conv1.weight").clone()
    load_weights(model, path, skip=("fc", "conv1"))
    assert not torch.equal(model.get_parameter("layer1.0.conv1.weight"), layer)


def test_missing_and_unexpected_entries_are_named(tmp_path: Path) -> None:
    state = other()
    state["head.weight"] = state.pop("layer3.0.bn1.running_mean")
    model = tiny()
    before = snapshot(model)
    with pytest.raises(ValueError, match="does not fit the network") as error:
        load_weights(model, save(state, tmp_path / "renamed.pth"))
    assert "layer3.0.bn1.running_mean: in the network but not in the file" in str(error.value)
    assert "head.weight: in the file but not in the network" in str(error.value)
    assert untouched(model, before)


def test_long_lists_are_cut(tmp_path: Path) -> None:
    state = {f"module.{name}": value for name, value in other().items()}
    with pytest.raises(ValueError, match=r"and [0-9]+ more") as error:
        load_weights(tiny(), save(state, tmp_path / "wrapped.pth"))
    assert len(str(error.value).splitlines()) == 12


@pytest.mark.parametrize("change", [lambda value: value.to(torch.int8), lambda value: value.to_sparse()])
def test_tensors_of_another_kind(tmp_path: Path, change: Any) -> None:
    state = other()
    state["conv1.weight"] = change(state["conv1.weight"])
    model = tiny()
    before = snapshot(model)
    with pytest.raises(ValueError, match=r"conv1.weight: torch.float32, torch.strided on cpu in the network"):
        load_weights(model, save(state, tmp_path / "kind.pth"))
    assert untouched(model, before)


def test_sites_are_added_after_loading(tmp_path: Path) -> None:
    path = save(other(), tmp_path / "weights.pth")
    model = cd.contextualize(tiny(), example=torch.zeros(1, 3, 8, 8))
    with pytest.raises(ValueError, match=r"layer1.0.dropout.*: in the network but not in the file"):
        load_weights(model, path)


class Hostile:
    """Makes a directory when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize("how", ["torch", "torch before 2020", "pickle"])
@pytest.mark.parametrize("suffix", [".pth", ".pt", ".safetensors"])
def test_a_hostile_pickle_is_refused_and_not_executed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str, suffix: str
) -> None:
    path, trap = tmp_path / f"weights{suffix}", tmp_path / "executed"
    content = other() | {"fc.bias": Hostile(trap)}
    if how == "pickle":
        path.write_bytes(pickle.dumps(content))
    else:
        torch.save(content, path, _use_new_zipfile_serialization=how == "torch")
    monkeypatch.setenv("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", "1")
    model = tiny()
    before = snapshot(model)
    with pytest.raises(ValueError, match=r"could execute code and are refused|not a .safetensors file"):
        load_weights(model, path)
    assert not trap.exists()
    assert untouched(model, before)


def test_the_hostile_pickle_of_these_tests_would_act(tmp_path: Path) -> None:
    pickle.loads(pickle.dumps(Hostile(tmp_path / "executed")))
    assert (tmp_path / "executed").exists()


@pytest.mark.parametrize("suffix", [".pth", ".safetensors"])
@pytest.mark.parametrize("content", [b"", b"not weights", None])
def test_damaged_files(tmp_path: Path, suffix: str, content: bytes | None) -> None:
    path = save(other(), tmp_path / f"weights{suffix}")
    path.write_bytes(path.read_bytes()[:2000] if content is None else content)
    with pytest.raises(ValueError, match=f"weights{suffix} is damaged"):
        load_weights(tiny(), path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"epoch": 3, "state_dict": {"a": torch.zeros(1)}}, "is not a state dict: epoch, state_dict are not tensors"),
        ({"a": torch.zeros(1), "epoch": 3}, "is not a state dict: epoch is not a tensor"),
        ({}, "is not a state dict: it has no tensors"),
        ({1: torch.zeros(1)}, "holds entries whose names are not strings"),
        ([torch.zeros(1)], "holds a list instead of a state dict"),
    ],
)
def test_files_of_something_else(tmp_path: Path, content: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        load_weights(tiny(), save(content, tmp_path / "other.pth"))


def test_torchscript_is_refused(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # deprecated in some versions of torch
        torch.jit.save(torch.jit.script(nn.Linear(2, 2)), tmp_path / "script.pt")  # type: ignore[no-untyped-call]
    with pytest.raises(ValueError, match=r"script.pt is damaged, or not a .pt file"):
        load_weights(tiny(), tmp_path / "script.pt")


def test_bad_arguments(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"there is no file of weights .*none.pth"):
        load_weights(tiny(), tmp_path / "none.pth")
    with pytest.raises(ValueError, match=r"ends in .safetensors, .pth or .pt"):
        load_weights(tiny(), tmp_path / "weights.bin")
    path = save(other(), tmp_path / "weights.pth")
    with pytest.raises(ValueError, match=r"skip names 'head', but the network has no such part: conv1, layer1, .*fc"):
        load_weights(tiny(), path, skip=("head",))
    with torch.device("meta"):
        model = tiny()
    with pytest.raises(ValueError, match="the network is on the meta device"):
        load_weights(model, path)
