"""Folders that plain transformers reads, and we with the sites."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from transformers import AutoModelForImageClassification, AutoModelForSequenceClassification

import contextual_dropout as cd
from contextual_dropout.integrations.pretrained import load_weights
from contextual_dropout.integrations.transformers import ELBOTrainer, from_pretrained, save_pretrained
from tests.integrations.models import Examples, arguments, bert, vit

KINDS = [(bert, AutoModelForSequenceClassification), (vit, AutoModelForImageClassification)]


def inputs_of(examples: Examples) -> dict[str, Any]:
    return {name: torch.stack([e[name] for e in examples]) for name in examples[0] if name != "labels"}


@pytest.mark.parametrize(("build", "kind"), KINDS)
def test_round_trip(build: Any, kind: Any, tmp_path: Path) -> None:
    model, examples = build()
    save_pretrained(model, tmp_path)
    again = from_pretrained(tmp_path, kind)
    assert not again.training
    assert list(cd.sites(again)) == list(cd.sites(model))
    inputs = inputs_of(examples)
    first, second = (cd.predict(each, **inputs, samples=3, seed=0).samples for each in (model, again))
    assert torch.equal(first, second)
    with torch.no_grad():
        cd.probe(again, **inputs)


@pytest.mark.parametrize(("build", "kind"), KINDS)
def test_checkpoints_are_of_the_plain_model(build: Any, kind: Any, tmp_path: Path) -> None:
    """Loaded without us: no key too many or too few, and the outputs of the stripped model."""
    model, examples = build()
    args = arguments(tmp_path, max_steps=1, save_strategy="steps", save_steps=1)
    ELBOTrainer(model, args, train_dataset=examples).train()
    folder = tmp_path / "checkpoint-1"
    plain, report = kind.from_pretrained(folder, output_loading_info=True)
    assert not any(report.values()), report
    assert not cd.sites(plain)
    inputs = inputs_of(examples)
    with torch.no_grad():
        sites = from_pretrained(folder, kind)(**inputs).logits
        torch.testing.assert_close(sites, model.eval()(**inputs).logits, rtol=0, atol=0)
        torch.testing.assert_close(plain(**inputs).logits, cd.strip(model)(**inputs).logits)
    plain.save_pretrained(tmp_path / "plain")  # as the hub knows them
    keys = [safe_open(at / "model.safetensors", "pt").keys() for at in (folder, tmp_path / "plain")]
    assert set(keys[0]) == set(keys[1])


def test_a_folder_without_sites(tmp_path: Path) -> None:
    model, _ = bert()
    cd.strip(model).save_pretrained(tmp_path)
    with pytest.raises(OSError, match="holds a plain model"):
        from_pretrained(tmp_path, AutoModelForSequenceClassification)


def test_another_model(tmp_path: Path) -> None:
    model, _ = bert()
    save_pretrained(model, tmp_path)
    model.register_parameter("more", torch.nn.Parameter(torch.zeros(1)))
    with pytest.raises(ValueError, match="only one of the two has more"):
        load_weights(model, tmp_path)
