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
