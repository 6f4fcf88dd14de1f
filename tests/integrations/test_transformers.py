"""The Trainer with the ELBO, against loops written by hand."""

from __future__ import annotations

import copy
import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from transformers import (
    BertForSequenceClassification,
    BertForTokenClassification,
    GPT2Config,
    GPT2LMHeadModel,
    TrainerCallback,
    TrainingArguments,
    default_data_collator,
    get_linear_schedule_with_warmup,
)

import contextual_dropout as cd
from contextual_dropout.integrations.likelihoods import class_log_likelihood
from contextual_dropout.integrations.transformers import ELBOTrainer, from_pretrained
from tests.integrations.models import Examples, arguments, bert, bert_config, converted, state, texts, vit


class Watched(ELBOTrainer):
    """Keeps the batches and the state of the generator before each."""

    def training_step(self, model: nn.Module, inputs: dict[str, Any], num_items_in_batch: Any = None) -> Tensor:
        self.__dict__.setdefault("seen", []).append((torch.get_rng_state(), inputs))
        return super().training_step(model, inputs, num_items_in_batch)


@pytest.mark.parametrize(("family", "estimator"), [("bernoulli", "sampled-disarm"), ("gaussian", "auto")])
def test_training_equals_a_loop_by_hand(family: str, estimator: str, tmp_path: Path) -> None:
    """Accumulation, clipping, warm-up of the KL, learning rates of their own: to the last bit."""
    model, examples = bert(family=family)
    twin = copy.deepcopy(model)
    args = arguments(tmp_path, max_steps=4, gradient_accumulation_steps=2, max_grad_norm=0.1, weight_decay=0.1)
    warmup = cd.schedules.LinearWarmup(steps=3)
    trainer = Watched(
        model, args, train_dataset=examples, estimator=estimator, kl_weight=warmup, phi={"lr": 0.1}, eta={"lr": 0.03}
    )
    trainer.train()

    seen: list[Any] = trainer.seen  # type: ignore[attr-defined]
    assert len(seen) == 8
    optimizer = torch.optim.AdamW(by_hand(twin), lr=1e-2, fused=args.optim == "adamw_torch_fused")
    rates = get_linear_schedule_with_warmup(optimizer, 0, 4)
    twin.train()
    for step in range(4):
        objective = cd.ELBO(twin, estimator, kl_weight=min(step / 3, 1.0))
        for generator, batch in seen[2 * step : 2 * step + 2]:
            torch.set_rng_state(generator)
            inputs = {name: value for name, value in batch.items() if name != "labels"}
            labels = batch["labels"]
            loss = objective(lambda i=inputs, y=labels: -cross_entropy(twin(**i).logits, y)).loss  # type: ignore[misc]
            (loss / 2).backward()
        torch.nn.utils.clip_grad_norm_(twin.parameters(), 0.1)
        optimizer.step()
        rates.step()
        optimizer.zero_grad()
    for name, value in twin.state_dict().items():
        torch.testing.assert_close(model.state_dict()[name], value, rtol=0, atol=0, msg=name)


def cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    return nn.functional.cross_entropy(logits, labels, reduction="none")


def by_hand(model: nn.Module) -> list[dict[str, Any]]:
    theta, phi, eta = cd.parameter_groups(model)
    norms = {p for m in model.modules() if isinstance(m, nn.LayerNorm) for p in m.parameters()}
    biases = {p for name, p in model.named_parameters() if name.endswith("bias")}
    decayed = [p for p in theta["params"] if p not in norms | biases]
    rest = [p for p in theta["params"] if p in norms | biases]
    return [
        {"params": decayed, "weight_decay": 0.1},
        {"params": rest, "weight_decay": 0.0},
        {"params": phi["params"], "weight_decay": 0.0, "lr": 0.1},
        {"params": eta["params"], "weight_decay": 0.0, "lr": 0.03},
    ]


def test_log(tmp_path: Path) -> None:
    model, examples = bert()
    warmup = cd.schedules.LinearWarmup(steps=2)
    trainer = ELBOTrainer(model, arguments(tmp_path, max_steps=3), train_dataset=examples, kl_weight=warmup)
    trainer.train()
    lines = [line for line in trainer.state.log_history if "loss" in line]
    assert [line["kl_weight"] for line in lines] == [0.0, 0.5, 1.0]
    for line in lines:
        assert line["loss"] == pytest.approx(line["kl_weight"] * line["kl"] - line["log_likelihood"], rel=1e-5)
        assert line["kl"] > 0
    names = list(cd.sites(model))
    assert len(names) == 5
    last = lines[-1]
    for name, site in cd.sites(model).items():
        assert last[f"prior/{name}"] == pytest.approx(site.prior_keep_probability.item())
        assert last[f"keep_spread/{name}"] > 0
    batch = trainer._batch
    keep = cd.keep_probabilities(model, **batch)[names[0]]  # before any mask, so that it is the same again
    assert last[f"keep/{names[0]}"] == pytest.approx(keep.mean().item())
    assert last[f"keep_spread/{names[0]}"] == pytest.approx(keep.std(0, correction=0).mean().item())


def test_a_line_of_the_log_leaves_no_trace(tmp_path: Path) -> None:
    """Its pass for the keep probabilities draws from no generator that training uses."""
    trained = []
    for every in (1, 100):
        model, examples = bert()
        args = arguments(tmp_path, max_steps=3, logging_steps=every)
        ELBOTrainer(model, args, train_dataset=examples).train()
        trained.append(state(model))
    assert all(torch.equal(trained[0][name], trained[1][name]) for name in trained[0])


def run(build: Any, folder: Path, stop: int | None = None, **options: Any) -> tuple[ELBOTrainer, Examples]:
    """Train; until ``stop`` and then, with everything new, from the checkpoint on."""
    settings = {"max_steps": 5, "save_strategy": "steps", "save_steps": 2} | options
    keywords = {"estimator": "sampled-disarm", "phi": {"lr": 0.1}}
    for steps in (settings["max_steps"],) if stop is None else (stop, settings["max_steps"]):
        model, examples = build()
        args = arguments(folder, **settings)
        warmup = cd.schedules.LinearWarmup(steps=4)
        trainer = ELBOTrainer(model, args, train_dataset=examples, kl_weight=warmup, **keywords)
        if steps == stop:
            trainer.add_callback(StopAt(stop))
            trainer.train()
    trainer.train(resume_from_checkpoint=None if stop is None else str(folder / f"checkpoint-{stop}"))
    return trainer, examples


class StopAt(TrainerCallback):
    def __init__(self, step: int) -> None:
        self.step = step

    def on_step_end(self, args: TrainingArguments, state: Any, control: Any, **kwargs: Any) -> Any:
        control.should_training_stop = state.global_step == self.step
        return control


@pytest.mark.parametrize("build", [bert, vit])
def test_resumed_training_equals_an_uninterrupted_one(build: Any, tmp_path: Path) -> None:
    """Of a ViT the files have other names than the modules."""
    whole, _ = run(build, tmp_path / "whole")
    resumed, _ = run(build, tmp_path / "resumed", stop=2)
    for name, value in whole.model.state_dict().items():
        torch.testing.assert_close(resumed.model.state_dict()[name], value, rtol=0, atol=0, msg=name)
    assert whole.elbo.state_dict() == resumed.elbo.state_dict()
    keys = ("loss", "log_likelihood", "kl", "kl_weight", "grad_norm")
    lines = [[[line[key] for key in keys] for line in t.state.log_history if "loss" in line] for t in (whole, resumed)]
    assert lines[0] == lines[1]
    assert len(lines[0]) == 5


def test_the_best_model_has_its_sites(tmp_path: Path) -> None:
    """The first of three, by a measure that only grows."""
    model, examples = bert()
    best = {"load_best_model_at_end": True, "metric_for_best_model": "age", "greater_is_better": False}
    args = arguments(tmp_path, max_steps=3, save_strategy="steps", save_steps=1, eval_strategy="steps", **best)
    age = itertools.count()
    trainer = ELBOTrainer(
        model,
        args,
        train_dataset=examples,
        eval_dataset=examples[:4],
        samples=2,
        compute_metrics=lambda _: {"age": next(age)},
    )
    trainer.train()
    folders = [tmp_path / f"checkpoint-{step}" for step in (1, 3)]
    first, last = (from_pretrained(folder, BertForSequenceClassification).state_dict() for folder in folders)
    assert all(torch.equal(value, first[name]) for name, value in model.state_dict().items())
    names = [f"{site}.prior_logit" for site in cd.sites(model)]
    assert not any(torch.equal(first[name], last[name]) for name in names)


def test_evaluation_and_prediction(tmp_path: Path) -> None:
    model, examples = bert()
    args = arguments(tmp_path, per_device_eval_batch_size=10)
    trainer = ELBOTrainer(model, args, eval_dataset=examples, samples=6)
    (logits, p_value), labels, metrics = trainer.predict(examples)  # type: ignore[misc,arg-type]

    masks = torch.Generator().manual_seed(args.seed)
    batches = [default_data_collator(examples[start : start + 10]) for start in (0, 10, 20)]
    predictions = [cd.predict(model, **batch, samples=6, generator=masks) for batch in batches]
    samples = torch.cat([prediction.samples for prediction in predictions], 1)
    whole = cd.Prediction(samples)
    np.testing.assert_allclose(torch.as_tensor(logits).softmax(-1), whole.mean, rtol=1e-4)
    np.testing.assert_allclose(p_value, whole.p_value, rtol=1e-3, atol=1e-6)

    right = whole.label == torch.as_tensor(labels)
    scores = cd.metrics.predictive_log_likelihood(samples, torch.as_tensor(labels)).split(10)
    pavpu = cd.metrics.PAvPU(0.05)
    pavpu.update(whole.p_value, right)
    assert metrics["test_loss"] == pytest.approx(-torch.cat(scores).mean().item(), rel=1e-5)
    assert metrics["test_accuracy"] == right.double().mean().item()
    assert metrics["test_certain"] == whole.certain(0.05).double().mean().item()
    assert metrics["test_pavpu"] == pavpu.compute().item()
    assert trainer.evaluate()["eval_loss"] == metrics["test_loss"]


def test_prediction_without_labels(tmp_path: Path) -> None:
    model, examples = bert()
    unlabelled = [{name: value for name, value in each.items() if name != "labels"} for each in examples]
    output = ELBOTrainer(model, arguments(tmp_path), samples=3).predict(unlabelled)  # type: ignore[arg-type]
    assert output.label_ids is None
    assert output.predictions[0].shape == (24, 3)
    assert not any("loss" in name or "accuracy" in name for name in output.metrics or {})


def test_token_classification(tmp_path: Path) -> None:
    """Each token has a p-value; positions without a label count nowhere."""
    torch.manual_seed(0)
    examples = texts()
    for each in examples:
        each["labels"] = torch.randint(3, (7,)).masked_fill(each["attention_mask"] == 0, -100)
    model = converted(BertForTokenClassification(bert_config()), examples)
    trainer = ELBOTrainer(model, arguments(tmp_path, max_steps=2), train_dataset=examples, samples=5)
    trainer.train()
    (logits, p_value), labels, metrics = trainer.predict(examples)  # type: ignore[misc,arg-type]
    assert p_value.shape == (24, 7)
    counted = labels != -100
    right = (logits.argmax(-1) == labels)[counted]
    assert metrics["test_accuracy"] == pytest.approx(right.mean())
    assert metrics["test_certain"] == pytest.approx((p_value[counted] < 0.05).mean())

    batch = default_data_collator(examples)
    ours = class_log_likelihood(logits := torch.randn(24, 7, 3), batch["labels"])
    rows = [
        sum(one[t].log_softmax(-1)[y[t]] for t in range(7) if y[t] >= 0)
        for one, y in zip(logits, batch["labels"], strict=True)
    ]
    torch.testing.assert_close(ours, torch.stack(rows))  # type: ignore[arg-type]


def test_a_log_likelihood_of_ones_own(tmp_path: Path) -> None:
    """Regression with a Gaussian of variance one; predictions are means and standard deviations."""
    model, examples = bert()
    for each in examples:
        each["labels"] = torch.randn(3)
    gaussian = lambda outputs, batch: -(outputs.logits - batch["labels"]).square().sum(-1) / 2  # noqa: E731
    options: dict[str, Any] = {"task": "regression", "log_likelihood": gaussian, "samples": 4}
    trainer = ELBOTrainer(model, arguments(tmp_path, max_steps=2), train_dataset=examples, **options)
    model.config.problem_type = "regression"
    trainer.train()
    (mean, spread), _, metrics = trainer.predict(examples)  # type: ignore[misc,arg-type]
    assert mean.shape == spread.shape == (24, 3)
    masks = torch.Generator().manual_seed(1)
    batches = [default_data_collator(examples[start : start + 8]) for start in (0, 8, 16)]
    samples = torch.cat(
        [cd.predict(model, **b, samples=4, task="regression", generator=masks).samples for b in batches], 1
    )
    np.testing.assert_allclose(mean, samples.mean(0), rtol=1e-5)
    labels = torch.stack([each["labels"] for each in examples])
    scores = -(samples - labels).square().sum(-1) / 2
    assert metrics["test_loss"] == pytest.approx(-(scores.exp().mean(0).log().mean()).item(), rel=1e-5)


def test_multilabel(tmp_path: Path) -> None:
    model, examples = bert()
    for each in examples:
        each["labels"] = torch.randint(2, (3,)).float()
    model.config.problem_type = "multi_label_classification"
    trainer = ELBOTrainer(model, arguments(tmp_path, max_steps=1), train_dataset=examples, task="multilabel", samples=4)
    trainer.train()
    (logits, _), labels, metrics = trainer.predict(examples)  # type: ignore[misc,arg-type]
    masks = torch.Generator().manual_seed(1)
    batches = [default_data_collator(examples[start : start + 8]) for start in (0, 8, 16)]
    samples = torch.cat(
        [cd.predict(model, **b, samples=4, task="multilabel", generator=masks).samples for b in batches], 1
    )
    np.testing.assert_allclose(torch.as_tensor(logits).sigmoid(), samples.mean(0), rtol=1e-4)
    each_sample = torch.where(torch.as_tensor(labels) > 0, samples, 1 - samples).prod(-1)
    assert metrics["test_loss"] == pytest.approx(-each_sample.mean(0).log().mean().item(), rel=1e-4)


def test_what_is_refused(tmp_path: Path) -> None:
    model, _ = bert()
    args = arguments(tmp_path)
    with pytest.raises(ValueError, match="not compute_loss_func or label smoothing"):
        ELBOTrainer(model, arguments(tmp_path, label_smoothing_factor=0.1))
    with pytest.raises(ValueError, match="not compute_loss_func or label smoothing"):
        ELBOTrainer(model, args, compute_loss_func=lambda *_, **__: torch.zeros(()))
    with pytest.raises(ValueError, match="task='regression' has no usual log-likelihood"):
        ELBOTrainer(model, args, task="regression")
    language = GPT2LMHeadModel(GPT2Config(vocab_size=9, n_embd=8, n_layer=1, n_head=2, bos_token_id=0, eos_token_id=0))
    with pytest.raises(ValueError, match="predicts the next token"):
        ELBOTrainer(language, args)
