"""Runs of convolutional networks: the same loop, with augmentation, schedules and trained networks to start from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from lightning_fabric import Fabric

from contextual_dropout_lab.errors import ConfigError, NotReady
from contextual_dropout_lab.launch.local import sweep
from contextual_dropout_lab.runs.config import RunConfig
from contextual_dropout_lab.runs.methods import rate_factor
from contextual_dropout_lab.runs.run import run
from contextual_dropout_lab.runs.run_data import load_examples
from contextual_dropout_lab.runs.training import Training
from contextual_dropout_lab.store.networks import load_network
from tests.lab.data.pickled import write_cifar
from tests.lab.runs.test_run import Interrupted, stop_at
from tests.lab.runs.tiny import comparable, folders

SGD = {"name": "sgd", "lr": 0.05, "momentum": 0.9, "nesterov": True, "weight_decay": 5e-4}
GAUSSIAN = {
    "conversion": "contextualize",
    "options": {"family": "gaussian", "initialisation": "he", "rescale": False},
    "objective": {"estimator": "truncated-reparameterized", "kl_weight": 0.001},
}
BERNOULLI = {
    "conversion": "contextualize",
    "options": {"family": "bernoulli"},
    "objective": {"estimator": "sampled-disarm", "kl_weight": 0.001},
}


def small(method: str = "gaussian", **changes: Any) -> RunConfig:
    values: dict[str, Any] = {
        "experiment": "cifar",
        "setting": "noisy",
        "method": method,
        "seed": 0,
        "data": "cifar10",
        "noise_sd": 0.1,
        "network": "wide_resnet",
        "network_options": {"depth": 10, "width": 1},
        "epochs": 3,
        "batch_size": 32,
        "optimizer": SGD | {"milestones": [2], "factor": 0.2},
        "augmentation": "crop-flip",
        "normalisation": "cifar",
        "memory_format": "channels_last",
        "train_examples": 64,
        "test_examples": 16,
        "test_batch_size": 8,
        "samples": 3,
        "noise_draws": 1,
        **GAUSSIAN,
    }
    return RunConfig.from_dict(values | changes)


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder: Path = tmp_path_factory.mktemp("cifar")
    write_cifar(folder)
    return folder


@pytest.mark.parametrize("method", [GAUSSIAN, BERNOULLI], ids=["gaussian", "bernoulli"])
def test_an_interrupted_run_ends_with_the_same_numbers(tmp_path: Path, images: Path, method: dict[str, Any]) -> None:
    config = small(**method)
    straight = run(config, folders(tmp_path / "straight"), data_directory=images)
    results = folders(tmp_path / "interrupted")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("contextual_dropout_lab.runs.training.CHECKPOINT_EVERY", 1)
        with pytest.raises(Interrupted):
            run(config, results, data_directory=images, progress=stop_at(2))
    assert comparable(run(config, results, data_directory=images)) == comparable(straight)
    assert straight["contextuality"]["examples"] == 8
    assert len(straight["contextuality"]["sites"]) == 3


def test_milestones_divide_all_learning_rates(images: Path) -> None:
    config = small(optimizer=SGD | {"phi_lr": 0.01, "milestones": [1, 2], "factor": 0.2})
    training = Training(config, load_examples(config, images), Fabric(accelerator="cpu", devices=1))
    seen = []
    for _ in range(3):
        training.run_epoch()
        seen.append([group["lr"] for group in training.optimizer.param_groups])
    assert seen[0] == [0.05, 0.01, 0.05]
    assert seen[1] == pytest.approx([0.01, 0.002, 0.01])
    assert seen[2] == pytest.approx([0.002, 0.0004, 0.002])
    assert [rate_factor(config, epoch) for epoch in range(4)] == pytest.approx([1, 0.2, 0.04, 0.04])


def test_accumulated_gradients_are_those_of_the_large_batch(images: Path) -> None:
    """Two batches of 32 or one of 64: without noise, masks and batch statistics the step is the same."""
    options: dict[str, Any] = {"conversion": "mc_dropout", "options": {}, "objective": {}, "p": 0.0, "noise_sd": 0.0}
    options |= {"network": "mlp", "network_options": {}, "augmentation": "none", "normalisation": "none"}
    options |= {"epochs": 1, "optimizer": {"name": "sgd", "lr": 0.1}, "memory_format": "contiguous"}
    networks = []
    for size, accumulate in ((64, 1), (32, 2)):
        config = small(batch_size=size, accumulate=accumulate, **options)
        training = Training(config, load_examples(config, images), Fabric(accelerator="cpu", devices=1))
        training.run_epoch()
        networks.append(torch.cat([parameter.detach().flatten() for parameter in training.model.parameters()]))
    torch.testing.assert_close(networks[0], networks[1])


def test_a_run_goes_on_from_a_trained_network(tmp_path: Path, images: Path) -> None:
    results = folders(tmp_path)
    plain = small("plain", conversion="none", options={}, objective={}, p=0.0)
    tuned = small("tuned", start_from="cifar/noisy/plain/seed-{seed}", epochs=0)
    with pytest.raises(NotReady, match=r"starts from .*plain/seed-0, which is not trained yet"):
        run(tuned, results, data_directory=images)
    assert sweep([tuned, plain], results, data_directory=images) == []  # in the wrong order
    before, _, _ = load_network(results.work / plain.name)
    after, _, _ = load_network(results.work / tuned.name)
    state = after.state_dict()
    assert all(torch.equal(value, state[name]) for name, value in before.state_dict().items())


def test_waiting_for_nothing_is_a_failure(tmp_path: Path, images: Path) -> None:
    failures = sweep([small(start_from="cifar/noisy/never/seed-0")], folders(tmp_path), data_directory=images)
    assert "which is not trained yet" in failures[0].message


@pytest.mark.parametrize("field", ["network", "normalisation", "augmentation"])
def test_unknown_names_are_listed(images: Path, field: str) -> None:
    config = small(**{field: "magic"})
    with pytest.raises(ConfigError, match=f"unknown {field} 'magic': expected one of"):
        Training(config, load_examples(config, images), Fabric(accelerator="cpu", devices=1))
