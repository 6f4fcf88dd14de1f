"""Lightning modules with the ELBO, under both names of Lightning."""

from __future__ import annotations

import copy
import sys
from pathlib import Path
from typing import Any

import lightning
import pytest
import pytorch_lightning
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import contextual_dropout as cd
from contextual_dropout.integrations import lightning as integration
from contextual_dropout.integrations.lightning import ELBOMixin

#: Lightning itself calls what this version of torch calls outdated.
pytestmark = pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning")
PACKAGES = pytest.mark.parametrize("package", [lightning, pytorch_lightning])
QUIET = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "enable_model_summary": False}


def network(package: Any, base: type = ELBOMixin) -> type[Any]:
    class Network(base, package.LightningModule):  # type: ignore[misc,valid-type,name-defined]
        def __init__(self, **options: Any) -> None:
            super().__init__(**options)
            site = cd.ContextualDropout(8, temperature=0.5, reduction=2)
            self.layers = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), site, nn.Linear(8, 3))
            self.batches: list[Any] = []

        def forward(self, x: Tensor) -> Tensor:
            return self.layers(x)  # type: ignore[no-any-return]

        def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:
            self.batches.append((torch.get_rng_state(), batch))

    return Network


def loader() -> DataLoader[Any]:
    generator = torch.Generator().manual_seed(3)
    x, y = torch.randn(24, 4, generator=generator), torch.randint(3, (24,), generator=generator)
    return DataLoader(TensorDataset(x, y), batch_size=4)


def trainer(package: Any, **options: Any) -> Any:
    return package.Trainer(**({"accelerator": "cpu", "max_epochs": 1, "log_every_n_steps": 1} | QUIET | options))


@PACKAGES
def test_training_equals_a_loop_by_hand(package: Any) -> None:
    torch.manual_seed(0)
    warmup = cd.schedules.LinearWarmup(steps=2)
    module = network(package)(
        estimator="sequential-arm", kl_weight=warmup, learning_rate=0.01, theta={"weight_decay": 0.1}, phi={"lr": 0.1}
    )
    twin = copy.deepcopy(module.layers)
    trainer(package, accumulate_grad_batches=2, gradient_clip_val=0.05).fit(module, loader())
    assert len(module.batches) == 6

    groups = cd.parameter_groups(twin, theta={"weight_decay": 0.1}, phi={"lr": 0.1})
    optimizer = torch.optim.Adam(groups, lr=0.01)
    for step in range(3):
        objective = cd.ELBO(twin, "sequential-arm", kl_weight=min(step / 2, 1.0))
        for generator, (x, y) in module.batches[2 * step : 2 * step + 2]:
            torch.set_rng_state(generator)
            value = objective(lambda x=x, y=y: -nn.functional.cross_entropy(twin(x), y, reduction="none"))
            (value.loss / 2).backward()
        nn.utils.clip_grad_norm_([p for group in groups for p in group["params"]], 0.05)  # in Lightning's order
        optimizer.step()
        optimizer.zero_grad()
    for name, value in twin.state_dict().items():
        torch.testing.assert_close(module.layers.state_dict()[name], value, rtol=0, atol=0)


@PACKAGES
def test_manual_optimisation(package: Any) -> None:
    class Manual(ELBOMixin):
        automatic_optimization = False

        def training_step(self, batch: Any, batch_idx: int) -> None:  # type: ignore[override]
            optimizer: Any = self.optimizers()
            optimizer.zero_grad()
            self.manual_backward(self.elbo_step(batch).loss)
            optimizer.step()

    trained = []
    for base in (ELBOMixin, Manual):
        torch.manual_seed(0)
        module = network(package, base)(kl_weight=cd.schedules.LinearWarmup(steps=3))
        trainer(package).fit(module, loader())
        trained.append(module.layers.state_dict())
        assert module.objective.state_dict()["kl_weight"] == {"step": 6}
    assert all(torch.equal(trained[0][name], trained[1][name]) for name in trained[0])


@PACKAGES
def test_log_evaluation_and_prediction(package: Any) -> None:
    class Evaluating(ELBOMixin):
        def validation_step(self, batch: Any, batch_idx: int) -> None:
            self.found = self.evaluation_step(batch, "val")

    torch.manual_seed(0)
    module = network(package, Evaluating)(samples=7)
    runner = trainer(package)
    runner.fit(module, loader(), DataLoader(loader().dataset, batch_size=24))
    logged = {name: value.item() for name, value in runner.callback_metrics.items()}
    assert logged["loss"] == pytest.approx(logged["kl"] - logged["log_likelihood"], rel=1e-5)
    assert {"kl_weight", "keep/layers.2", "keep_spread/layers.2", "prior/layers.2"} < logged.keys()

    labels = torch.stack([y for _, y in loader().dataset])
    prediction = module.found.prediction
    assert logged["val_accuracy"] == pytest.approx((prediction.label == labels).double().mean().item())
    assert logged["val_certain"] == pytest.approx(prediction.certain(0.05).double().mean().item())
    score = cd.metrics.predictive_log_likelihood(prediction.samples, labels)
    assert logged["val_loss"] == pytest.approx(-score.mean().item(), rel=1e-5)

    torch.manual_seed(5)
    predicted = trainer(package).predict(module, loader())
    assert [tuple(each.samples.shape) for each in predicted] == [(7, 4, 3)] * 6
    torch.manual_seed(5)
    again = trainer(package).predict(module, loader())
    assert all(torch.equal(a.p_value, b.p_value) for a, b in zip(predicted, again, strict=True))


@pytest.mark.parametrize(("every", "summaries"), [(0, 0), (1, 6), (4, 1)])
def test_keep_probabilities_cost_passes_only_where_there_is_a_log(
    every: int, summaries: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    passes = []
    monkeypatch.setattr(integration, "keep_summary", lambda *_: passes.append(1) or {})
    trainer(lightning, log_every_n_steps=every).fit(network(lightning)(), loader())
    assert len(passes) == summaries


def test_measures_are_of_all_devices() -> None:
    """Of one process's share of the examples they would be another figure on each."""
    told: list[dict[str, Any]] = []

    class Evaluating(ELBOMixin):
        def validation_step(self, batch: Any, batch_idx: int) -> None:
            self.evaluation_step(batch, "val")

        def log_dict(self, measures: Any, **options: Any) -> None:  # type: ignore[override]
            told.append({"measures": measures, **options})

    trainer(lightning).validate(network(lightning, Evaluating)(samples=2), loader())
    assert len(told) == 6
    assert all(each["sync_dist"] and "val_loss" in each["measures"] for each in told)


@PACKAGES
def test_checkpoint(package: Any, tmp_path: Path) -> None:
    """The network, the sites, and where the warm-up stands."""
    kind = network(package)
    torch.manual_seed(0)
    module = kind(kl_weight=cd.schedules.LinearWarmup(steps=10))
    runner = trainer(package)
    runner.fit(module, loader())
    runner.save_checkpoint(tmp_path / "a.ckpt")

    again = kind.load_from_checkpoint(tmp_path / "a.ckpt", kl_weight=cd.schedules.LinearWarmup(steps=10))
    assert again.schedule.weight == 0.6
    state = module.state_dict()
    assert all(torch.equal(value, state[name]) for name, value in again.state_dict().items())

    resumed = kind(kl_weight=cd.schedules.LinearWarmup(steps=10))
    trainer(package, max_epochs=2).fit(resumed, loader(), ckpt_path=tmp_path / "a.ckpt")
    assert resumed.schedule.weight == 1.0
    assert len(resumed.batches) == 6


def test_dictionaries_as_batches() -> None:
    """Keywords of ``forward``, and labels, as the collators of transformers make them."""

    class Named(ELBOMixin, lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__(samples=3)
            self.layers = nn.Sequential(nn.Linear(4, 8), cd.ContextualDropout(8), nn.Linear(8, 3))

        def forward(self, *, values: Tensor) -> dict[str, Tensor]:
            return {"logits": self.layers(values)}

    examples = [{"values": torch.randn(4), "labels": torch.tensor(index % 3)} for index in range(8)]
    batches: DataLoader[Any] = DataLoader(examples, batch_size=4)  # type: ignore[arg-type]
    module = Named()
    trainer(lightning).fit(module, batches)
    assert trainer(lightning).predict(module, batches)[0].samples.shape == (3, 4, 3)


class Dense(ELBOMixin, lightning.LightningModule):
    """A small network of any output; what it was given and gave is kept."""

    def __init__(self, layers: nn.Module, **options: Any) -> None:
        super().__init__(**({"samples": 4} | options))
        self.layers = layers

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)  # type: ignore[no-any-return]

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.found = self.evaluation_step(batch, "val")


def images(classes: int = 3) -> nn.Module:
    """(B, 2, H, W) to (B, C, H, W)."""
    return nn.Sequential(nn.Conv2d(2, 8, 1), cd.ContextualDropout(8, dim=1), nn.Conv2d(8, classes, 1))


def tokens() -> nn.Module:
    """(B, T, 4) to (B, T, 3)."""
    return nn.Sequential(nn.Linear(4, 8), cd.ContextualDropout(8), nn.Linear(8, 3))


def batches(x: Tensor, y: Tensor) -> DataLoader[Any]:
    return DataLoader(TensorDataset(x, y), batch_size=4)


def fit(module: Any, loader: Any) -> None:
    trainer(lightning).fit(module, loader, loader)


@pytest.mark.parametrize("kind", ["images", "tokens"])
def test_labels_of_positions(kind: str) -> None:
    """Log-likelihoods are sums over an example's positions, measures are over all positions that have a label."""
    torch.manual_seed(0)
    layers, x, axis = (
        (images(), torch.randn(8, 2, 5, 6), 1) if kind == "images" else (tokens(), torch.randn(8, 7, 4), -1)
    )
    labels = torch.randint(3, x.movedim(axis, -1).shape[:-1])
    labels[:, 1] = -100
    module, runner = Dense(layers), trainer(lightning)
    runner.fit(module, batches(x, labels), DataLoader(TensorDataset(x, labels), batch_size=8))
    found, counted = module.found, labels != -100
    assert found.positions == tuple(labels.shape)
    logged = {name: value.item() for name, value in runner.callback_metrics.items()}

    samples = found.prediction.samples.reshape(4, *labels.shape, 3)
    of_label = samples.gather(-1, labels.clamp_min(0).expand(4, *labels.shape).unsqueeze(-1)).squeeze(-1)
    by_example = (of_label.double().log() * counted).flatten(2).sum(2)  # (K, B)
    score = by_example.logsumexp(0) - torch.tensor(4.0).log()
    assert logged["val_loss"] == pytest.approx(-score.mean().item(), rel=1e-5)
    right = samples.mean(0).argmax(-1) == labels
    assert logged["val_accuracy"] == pytest.approx(right[counted].double().mean().item())
    certain = found.prediction.p_value.reshape(labels.shape) < 0.05
    assert logged["val_certain"] == pytest.approx(certain[counted].double().mean().item())

    (predicted,) = trainer(lightning).predict(module, DataLoader(TensorDataset(x, labels), batch_size=8))
    assert predicted.samples.shape == (4, labels.numel(), 3)
    mean = predicted.mean.reshape(*labels.shape, 3)
    with torch.no_grad():
        point = module.eval()(x).movedim(axis, -1).softmax(-1)  # positions are in the same order
    assert (mean - point).abs().mean() < 0.5 * (mean - point.flip(0)).abs().mean()


def test_sizes_that_tell_nothing() -> None:
    """Three tokens, three classes: refused, unless the axis is given or an earlier batch told."""
    equal, y = torch.randn(4, 3, 4), torch.randint(3, (4, 3))
    with pytest.raises(ValueError, match="give class_dim=1 or class_dim=-1"):
        fit(Dense(tokens()), batches(equal, y))
    fit(Dense(tokens(), class_dim=-1), batches(equal, y))
    told = Dense(tokens())
    fit(told, batches(torch.randn(4, 5, 4), torch.randint(3, (4, 5))))
    fit(told, batches(equal, y))
    with pytest.raises(ValueError, match="Give Dense class_dim=1"):
        trainer(lightning).predict(Dense(tokens()), batches(equal, y))


def test_regression_needs_a_log_likelihood_of_its_own() -> None:
    class Regression(Dense):
        def log_likelihood(self, outputs: Any, batch: Any) -> Tensor:
            return -0.5 * (outputs - batch[1]).square().flatten(1).sum(1)  # type: ignore[no-any-return]

    x, y = torch.randn(8, 4), torch.randn(8, 3)
    with pytest.raises(NotImplementedError, match="override log_likelihood"):
        fit(Dense(tokens(), task="regression"), batches(x, y))
    module, runner = Regression(tokens(), task="regression"), trainer(lightning)
    runner.fit(module, batches(x, y), DataLoader(TensorDataset(x, y), batch_size=8))
    scores = -0.5 * (module.found.prediction.samples - y).square().sum(-1)  # (K, B)
    expected = -(scores.logsumexp(0) - torch.tensor(4.0).log()).mean().item()
    assert runner.callback_metrics["val_loss"].item() == pytest.approx(expected, rel=1e-5)
    assert "val_accuracy" not in runner.callback_metrics
    assert isinstance(trainer(lightning).predict(module, batches(x, y))[0], cd.RegressionPrediction)


def test_yes_or_no() -> None:
    """One logit for each pixel, with or without an axis of its own."""
    x, y = torch.randn(8, 2, 5, 6), torch.randint(2, (8, 5, 6))
    for labels in (y, y.unsqueeze(1).float()):
        module, runner = Dense(images(1), task="binary"), trainer(lightning)
        runner.fit(module, batches(x, labels), DataLoader(TensorDataset(x, labels), batch_size=8))
        right = module.found.prediction.label == y.flatten()
        assert runner.callback_metrics["val_accuracy"].item() == pytest.approx(right.double().mean().item())
        assert trainer(lightning).predict(module, batches(x, labels))[0].samples.shape == (4, 4 * 30, 2)


def test_several_labels() -> None:
    x, y = torch.randn(8, 4), torch.randint(2, (8, 3))
    module, runner = Dense(tokens(), task="multilabel"), trainer(lightning)
    runner.fit(module, batches(x, y), DataLoader(TensorDataset(x, y), batch_size=8))
    log_p = torch.distributions.Bernoulli(module.found.prediction.samples).log_prob(y.float()).sum(-1)
    expected = -(log_p.logsumexp(0) - torch.tensor(4.0).log()).mean().item()
    assert runner.callback_metrics["val_loss"].item() == pytest.approx(expected, rel=1e-4)
    dense = Dense(images(), task="multilabel")
    x, y = torch.randn(4, 2, 5, 6), torch.randint(2, (4, 3, 5, 6))
    with pytest.raises(ValueError, match="which axis has the classes"):
        trainer(lightning).validate(dense, batches(x, y))
    given = Dense(images(), task="multilabel", class_dim=1)
    trainer(lightning).validate(given, batches(x, y))
    assert given.found.logits.shape == (4, 5, 6, 3)


def test_batches_and_labels_that_it_cannot_read() -> None:
    x = torch.randn(8, 2, 5, 6)
    with pytest.raises(
        TypeError, match=r"a batch is tensor \(4, 2, 5, 6\): expected \(x, labels\).* override batch_labels"
    ):
        fit(Dense(images()), DataLoader(x, batch_size=4))  # type: ignore[arg-type]
    small = torch.randint(3, (8, 3, 3))
    with pytest.raises(ValueError, match=r"need labels .*, got \(4, 3, 3\); give a log_likelihood of your own"):
        fit(Dense(images()), batches(x, small))
    with pytest.raises(TypeError, match="unknown task"):
        Dense(images(), task={"multiclass"})


def test_without_lightning(monkeypatch: pytest.MonkeyPatch) -> None:
    class Alone(ELBOMixin, nn.Module):  # type: ignore[misc]
        pass

    with pytest.raises(TypeError, match=r"class Alone\(ELBOMixin, lightning.LightningModule\)"):
        Alone()
    for name in ("lightning", "pytorch_lightning"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ImportError, match="neither lightning nor pytorch_lightning is installed"):
        Alone()


def test_order_of_the_bases() -> None:
    with pytest.raises(TypeError, match="must name ELBOMixin before LightningModule"):
        type("Backwards", (lightning.LightningModule, ELBOMixin), {})
