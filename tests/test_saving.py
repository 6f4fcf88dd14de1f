"""Files of sites: what does not fit is refused, and nothing is touched."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

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
