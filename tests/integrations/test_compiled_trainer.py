"""The Trainer's ways to save time and memory, and its search for hyperparameters."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
import transformers
from transformers import Trainer, default_data_collator
from transformers.integrations import integration_utils

import contextual_dropout as cd
from contextual_dropout.integrations.transformers import ELBOTrainer
from tests.integrations.models import arguments, bert, state

pytestmark = pytest.mark.filterwarnings(
    "ignore:`torch.jit.script_method` is deprecated:DeprecationWarning",  # which inductor calls
    "ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning",
    "ignore:Guards may run slower on Python 3.13.0:RuntimeWarning",
)


@pytest.fixture(autouse=True)
def _fresh_compiler() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def trained(path: Path, family: str, estimator: str, **options: Any) -> dict[str, Any]:
    """The parameters after three steps."""
    model, examples = bert(family=family)
    args = arguments(path, max_steps=3, **options)
    ELBOTrainer(model, args, train_dataset=examples, estimator=estimator).train()
    return state(model)


@pytest.mark.parametrize(
    ("family", "estimator"),
    [
        ("bernoulli", "straight-through"),
        ("bernoulli", "sampled-disarm"),
        ("gaussian", "auto"),
        ("bernoulli", "concrete"),
    ],
)
def test_gradient_checkpointing_changes_nothing(family: str, estimator: str, tmp_path: Path) -> None:
    plain = trained(tmp_path / "plain", family, estimator)
    checkpointed = trained(tmp_path / "less", family, estimator, gradient_checkpointing=True)
    torch.testing.assert_close(checkpointed, plain, atol=0, rtol=0)


@pytest.mark.parametrize(("family", "estimator"), [("bernoulli", "straight-through"), ("gaussian", "auto")])
def test_sites_in_transformers_compile_without_a_break(family: str, estimator: str) -> None:
    model, examples = bert(family=family)
    batch = default_data_collator(examples[:6])
    labels = batch.pop("labels")
    gradients = []
    for network in (model.train(), torch.compile(model, backend="aot_eager", fullgraph=True)):
        model.zero_grad()
        torch.manual_seed(3)
        step = cd.ELBO(network, estimator)(
            lambda network=network: -F.cross_entropy(network(**batch).logits, labels, reduction="none")  # type: ignore[misc]
        )
        step.loss.backward()
        gradients.append({name: p.grad for name, p in model.named_parameters() if p.grad is not None})
    torch.testing.assert_close(gradients[1], gradients[0], atol=1e-5, rtol=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize(("family", "estimator"), [("bernoulli", "straight-through"), ("gaussian", "auto")])
def test_torch_compile_trains_evaluates_and_saves(family: str, estimator: str, tmp_path: Path) -> None:
    plain = trained(tmp_path / "plain", family, estimator)
    model, examples = bert(family=family)
    args = arguments(
        tmp_path / "compiled", max_steps=3, torch_compile=True, torch_compile_backend="aot_eager", logging_steps=1
    )
    trainer = ELBOTrainer(model, args, train_dataset=examples, eval_dataset=examples, estimator=estimator, samples=4)
    trainer.train()
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] > 0
    torch.testing.assert_close(state(model), plain, atol=1e-4, rtol=1e-4)
    assert any(name.startswith("keep/") for entry in trainer.state.log_history for name in entry)
    logits, p_value = trainer.predict(examples).predictions  # type: ignore[arg-type]
    assert logits.shape == (len(examples), 3)
    assert p_value.shape == (len(examples),)
    trainer.save_model(str(tmp_path / "saved"))
    assert (tmp_path / "saved" / "sites.safetensors").exists()


def test_torch_compile_is_refused_for_estimators_with_reruns(tmp_path: Path) -> None:
    model, examples = bert()
    args = arguments(tmp_path, torch_compile=True)
    with pytest.raises(ValueError, match=r"torch_compile=True, and Auto runs parts.*straight-through"):
        ELBOTrainer(model, args, train_dataset=examples)


def test_a_plain_trainer_is_told(tmp_path: Path) -> None:
    model, examples = bert()
    with pytest.warns(cd.UntrainedSitesWarning, match="ELBOTrainer"):
        Trainer(model, arguments(tmp_path, max_steps=4), train_dataset=examples).train()


def test_a_search_for_hyperparameters_begins_each_trial_anew(tmp_path: Path) -> None:
    _, examples = bert()
    args, warmup = arguments(tmp_path, max_steps=2), cd.schedules.LinearWarmup(steps=10)
    trainer = ELBOTrainer(
        args=args,
        model_init=lambda: bert()[0],
        train_dataset=examples,
        estimator=cd.estimators.Reinforce(),
        kl_weight=warmup,
    )
    for _ in range(2):
        trainer.objective = None  # as the search does, which then calls train with a trial
        trainer._hp_search_setup({})
        trainer.train()
        assert trainer.schedule.weight == pytest.approx(0.2)
    assert warmup.weight == 0


def test_nothing_of_ours_has_a_name_of_the_trainers() -> None:
    """Neither in its own code nor where a search for hyperparameters writes to it."""
    theirs = "".join(map(inspect.getsource, (transformers.trainer, integration_utils)))
    taken = set(re.findall(r"\b(?:self|trainer)\.(\w+)", theirs))
    ours = set(re.findall(r"\bself\.(\w+)\b[^=\n(]*=(?!=)", inspect.getsource(ELBOTrainer)))
    inherited = {"model", "model_accepts_loss_kwargs", "compute_metrics"}
    assert "objective" in taken
    assert {"elbo", "schedule", "task", "samples"} <= ours
    assert ours & taken <= inherited, ours & taken
