"""The training loop: an objective, Adam, checkpoints that resume exactly."""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from contextual_dropout.conversion.record import sites
from contextual_dropout_lab.data import Batches, gaussian_noise
from contextual_dropout_lab.data.lookup import Lookup, noise_on_regions
from contextual_dropout_lab.errors import ExperimentError
from contextual_dropout_lab.runs.config import RunConfig
from contextual_dropout_lab.runs.config_checks import short
from contextual_dropout_lab.runs.evaluation import noisy_inputs, point_labels
from contextual_dropout_lab.runs.fabric import Fabric, fabric_for, share
from contextual_dropout_lab.runs.methods import build_model, build_objective, build_optimizer, rate_factor
from contextual_dropout_lab.runs.run_data import Examples, augmenter, normaliser
from contextual_dropout_lab.runs.seeds import derived_seed
from contextual_dropout_lab.runs.tasks import task_named
from contextual_dropout_lab.store.files import load_tensors, replace_file, sha256_of
from contextual_dropout_lab.store.provenance import provenance

__all__ = ["AFTER_DIVERGENCE", "CHECKPOINT", "Trained", "train"]

CHECKPOINT = "checkpoint.pt"
#: Advice after divergence: the same configuration would end the same way.
AFTER_DIVERGENCE = "choose a smaller learning rate (optimizer.lr, phi_lr, eta_lr), or another seed"
#: Epochs between two checkpoints.
CHECKPOINT_EVERY = 5
_MEMORY_FORMATS = {"contiguous": torch.contiguous_format, "channels_last": torch.channels_last}
#: Characters of a reason that are shown: it may quote what is in a file.
LONGEST = 200
#: Learning curves are measured under noise of their own.
CURVE_SEED = 2


@dataclass
class Trained:
    """A trained network, its learning curve, what it cost, the commits of the code that trained it, and its start.

    The start is the SHA-256 of the file of weights that training began with; None where there was none.
    """

    model: nn.Module
    history: list[dict[str, Any]]
    cpu_seconds: float
    wall_seconds: float
    commits: list[str | None]
    start: str | None = None


class Training:
    """One run, epoch by epoch; :meth:`state` and :meth:`restore` make it resumable."""

    def __init__(self, config: RunConfig, examples: Examples, fabric: Fabric, weights: Path | None = None) -> None:
        self.config, self.examples, self.fabric = config, examples, fabric
        model = build_model(config, tuple(examples.x.shape[1:]), len(examples.classes), weights)
        self.start = None if weights is None else sha256_of(weights)
        model = model.to(memory_format=_MEMORY_FORMATS[config.memory_format])  # type: ignore[call-overload]
        self.model, self.optimizer = fabric.setup(model, build_optimizer(config, model))
        self.rates = [group["lr"] for group in self.optimizer.param_groups]
        self.normalise = normaliser(config)
        self.batches = Batches(
            examples.x.to(fabric.device),
            torch.arange(len(examples.x), device=fabric.device),
            config.batch_size,
            config.noise_sd,
            augmenter(config),
            noise_on_regions if isinstance(examples.x, Lookup) else gaussian_noise,
        )
        self.targets = examples.y.to(fabric.device)
        self.beside = [each.to(fabric.device) for each in examples.beside]
        self.log_likelihood = task_named(config.task).log_likelihood
        self.objective = build_objective(config, self.model, len(examples.x), len(self.batches))
        self.epoch = 0
        self.history: list[dict[str, Any]] = []
        self.cpu_seconds = self.wall_seconds = 0.0
        self.commits: list[str | None] = [provenance()["commit"]]

    def run_epoch(self) -> None:
        """Train for one pass over the data; randomness comes from the seed and the number of the epoch."""
        wall, cpu = time.perf_counter(), time.process_time()
        seed = self.config.seed
        torch.manual_seed(derived_seed(seed, "masks", self.epoch, self.fabric.global_rank))
        generator = torch.Generator(self.fabric.device).manual_seed(derived_seed(seed, "batches", self.epoch))
        factor = rate_factor(self.config, self.epoch)
        for group, rate in zip(self.optimizer.param_groups, self.rates, strict=True):
            group["lr"] = factor * rate
        self.model.train()
        sums = torch.zeros(2, device=self.fabric.device)
        for index, (x, rows) in enumerate(self.batches.epoch(generator)):
            part, weight = share(len(rows), self.fabric.global_rank, self.fabric.world_size)
            rows = rows[part]
            inputs = (self.normalise(x[part]), *(each.index_select(0, rows) for each in self.beside))
            sums += self._step(inputs, self.targets.index_select(0, rows), index, weight)
        self.check_parameters()
        likelihood, divergence, seconds = self._sum_over_processes(*sums.tolist(), time.process_time() - cpu)
        self.epoch += 1
        self.cpu_seconds += seconds
        self.wall_seconds += time.perf_counter() - wall
        if self.epoch % self.config.evaluate_every == 0 or self.epoch == self.config.epochs:
            count = len(self.examples.x)
            self._note(likelihood / count, divergence / count)

    def _step(self, inputs: tuple[Tensor, ...], targets: Tensor, index: int, weight: float) -> Tensor:
        """Train on one batch, with an optimizer step after every ``accumulate``; the batch's log-likelihood and KL."""
        step = self.objective(lambda: self.log_likelihood(self.model(*inputs), targets))
        accumulate = self.config.accumulate
        last = (index + 1) % accumulate == 0 or index + 1 == len(self.batches)
        together = min(accumulate, len(self.batches) - index + index % accumulate)  # an epoch's last may be fewer
        with self.fabric.no_backward_sync(self.model, enabled=not last) if accumulate > 1 else nullcontext():
            self.fabric.backward(step.loss * (weight / together))
        if last:
            self.optimizer.step()
            self.optimizer.zero_grad()
        return torch.stack([step.log_likelihood.sum(), step.kl.sum()]) * (weight > 0)

    def _sum_over_processes(self, *values: float) -> list[float]:
        total = self.fabric.all_reduce(torch.tensor(values, device=self.fabric.device), reduce_op="sum")
        return total.tolist()  # type: ignore[union-attr]

    @torch.no_grad()
    def _note(self, log_likelihood: float, kl: float) -> None:
        """A point of the learning curve. Nothing is chosen by it."""
        x = next(noisy_inputs(self.examples.test_x, self.config.noise_sd, self.config, CURVE_SEED))
        label = point_labels(self.model.module, x, self.config, self.examples.test_beside)
        accuracy = task_named(self.config.task).accuracy(label, self.examples.test_y).mean().item()
        priors = [round(site.prior_keep_probability.item(), 5) for site in sites(self.model).values()]
        self.history.append(
            {
                "epoch": self.epoch,
                "log_likelihood": round(log_likelihood, 5),
                "kl": round(kl, 4),
                "point_accuracy": round(100 * accuracy, 3),
                "prior_keep_probability": priors,
            }
        )

    def check_parameters(self) -> None:
        """Check after the last step what the objective would notice in the next one: values that are not numbers."""
        for name, parameter in self.model.module.named_parameters():
            if not parameter.isfinite().all():
                raise FloatingPointError(f"some of {name} is NaN or infinite")

    def state(self) -> dict[str, Any]:
        """All state that the rest of the run depends on."""
        remember = getattr(self.objective, "state_dict", dict)
        return {
            "digest": self.config.digest,
            "model": self.model,
            "optimizer": self.optimizer,
            "objective": remember(),
            "epoch": self.epoch,
            "history": self.history,
            "cpu_seconds": self.cpu_seconds,
            "wall_seconds": self.wall_seconds,
            "commits": self.commits,
            "start": self.start,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Resume from a saved state; raises any exception where it is not a state of this run."""
        _check_plain_values(state, self.config.epochs)
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        _check_shapes(self.optimizer.state)
        if hasattr(self.objective, "load_state_dict"):
            self.objective.load_state_dict(state["objective"])
        self.epoch, self.history, self.start = state["epoch"], state["history"], state.get("start")
        self.cpu_seconds, self.wall_seconds = state["cpu_seconds"], state["wall_seconds"]
        if self.epoch < self.config.epochs:
            self.commits = list(dict.fromkeys([*state.get("commits", []), *self.commits]))
        else:
            self.commits = state.get("commits", [])


def train(
    config: RunConfig,
    examples: Examples,
    directory: Path,
    progress: Callable[[int], None] = lambda epoch: None,
    *,
    weights: Path | None = None,
    fabric: Fabric | None = None,
) -> Trained:
    """Train, or resume training where the checkpoint in ``directory`` stands.

    Args:
        config: the run.
        examples: its data.
        directory: where the checkpoint is.
        progress: is called with the number of epochs done.
        weights: of the plain network, to start from.
        fabric: device and processes; by default those that the run is for.

    Returns:
        The network in eval mode.

    Raises:
        ExperimentError: the training diverged, or the checkpoint or the weights are not of this network.
    """
    fabric = fabric or fabric_for(config)
    training = Training(config, examples, fabric, weights)
    checkpoint = directory / CHECKPOINT
    state = load_tensors(checkpoint) if checkpoint.exists() else None
    if state is not None and state["digest"] == config.digest:
        _restore(training, state, checkpoint)
    progress(training.epoch)
    while training.epoch < config.epochs:
        with _explained(f"the training of {config.name} diverged in epoch {training.epoch + 1}"):
            training.run_epoch()
        if training.epoch % CHECKPOINT_EVERY == 0 or training.epoch == config.epochs:
            _save(fabric, checkpoint, training.state())
        progress(training.epoch)
    return Trained(
        training.model.module.eval(),
        training.history,
        training.cpu_seconds,
        training.wall_seconds,
        training.commits,
        training.start,
    )


def _restore(training: Training, state: dict[str, Any], checkpoint: Path) -> None:
    """Resume from a checkpoint; one that does not fit is named."""
    with _explained(f"{checkpoint} is of a training that had diverged", "; delete it to try the same again"):
        try:
            training.restore(state)
        except Exception as error:  # whatever its parts are, they are not what this version wrote
            reason = str(error).partition("\n")[0][:LONGEST]
            raise ExperimentError(
                f"{checkpoint} does not fit the run ({type(error).__name__}: {reason}): delete it to start again"
            ) from error
        training.check_parameters()


def _check_shapes(kept: dict[Tensor, dict[str, Any]]) -> None:
    """Raise a ValueError if the optimizer's state of a parameter has another shape, which torch accepts."""
    for parameter, values in kept.items():
        for name, value in values.items():
            fits = isinstance(value, Tensor) and value.shape in (parameter.shape, torch.Size([]))
            if not fits and value is not None:  # as SGD has it where there is no momentum
                raise ValueError(f"its {name} of a parameter of shape {tuple(parameter.shape)} is {short(value)}")


def _check_plain_values(state: dict[str, Any], epochs: int) -> None:
    """Raise a ValueError if a value that torch does not check is not as this version writes it."""
    epoch, history, commits = state.get("epoch"), state.get("history"), state.get("commits", [])
    as_expected = {
        "epoch": type(epoch) is int and 0 <= epoch <= epochs,
        "history": isinstance(history, list) and all(isinstance(point, dict) for point in history),
        "commits": isinstance(commits, list) and all(isinstance(each, str | None) for each in commits),
        "start": isinstance(state.get("start"), str | None),
        **{
            name: type(state.get(name)) is float and 0 <= state[name] < math.inf
            for name in ("cpu_seconds", "wall_seconds")
        },
    }
    for name, holds in as_expected.items():
        if not holds:
            raise ValueError(f"its {name} is {short(state.get(name))}")
    json.dumps(history, allow_nan=False)  # it will stand in the record


@contextmanager
def _explained(what: str, otherwise: str = "") -> Iterator[None]:
    """Explain values that are not finite, and what to do."""
    try:
        yield
    except FloatingPointError as error:
        raise ExperimentError(f"{what} ({error}): {AFTER_DIVERGENCE}{otherwise}") from error


def _save(fabric: Fabric, path: Path, state: dict[str, Any]) -> None:
    """Save a checkpoint; all processes call it, the first one writes."""
    with replace_file(path) if fabric.is_global_zero else nullcontext(path) as target:
        fabric.save(os.fspath(target), state)
