"""A mixin for Lightning modules that trains with :class:`~contextual_dropout.ELBO`.

A mixin, not a module: ``lightning.LightningModule`` and ``pytorch_lightning.LightningModule`` are different classes,
and either's ``Trainer`` refuses the other's. So the user chooses, and Lightning is not imported here.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor

from contextual_dropout.inspection.parameters import parameter_groups
from contextual_dropout.integrations.batch_evaluation import BatchEvaluation, arguments, certainty, evaluate
from contextual_dropout.integrations.likelihoods import LOG_LIKELIHOODS, class_axis, class_log_likelihood, logits_of_yes
from contextual_dropout.integrations.monitoring import PerUpdate, keep_summary
from contextual_dropout.prediction.loader import first
from contextual_dropout.prediction.outputs import AnyPrediction, Task, check_task, find_logits, summary
from contextual_dropout.prediction.predict import predict
from contextual_dropout.training.estimators import Estimator
from contextual_dropout.training.objective import ELBO, Step
from contextual_dropout.training.schedules import Schedule

if TYPE_CHECKING:
    from lightning.pytorch import LightningModule as _Base
else:
    _Base = object

__all__ = ["ELBOMixin"]

PACKAGES = ("lightning", "pytorch_lightning")
#: The name under which a checkpoint holds the state of the KL schedule and of the estimator.
STATE = "contextual_dropout"


class ELBOMixin(_Base):
    """Inherit from it and from a ``LightningModule``, in this order, and give ``forward``.

    Batches are ``(x, labels)``, or dictionaries with "labels" whose other entries are ``forward``'s keywords; for
    others override :meth:`inputs`, :meth:`batch_labels` and :meth:`log_likelihood`. Where each position of an example
    has a label, the log-likelihood is their sum and metrics are over all positions. Gradients may be accumulated and
    clipped by the ``Trainer``; for manual optimisation write a ``training_step`` of your own around :meth:`elbo_step`.
    The batches of a logged step cost one more pass each, for the keep probabilities. Masks of evaluation and prediction
    follow ``seed_everything``. Checkpoints hold the sites with everything else, and the state of the KL schedule.

    Args:
        args: for ``LightningModule``.
        estimator: as for :class:`~contextual_dropout.ELBO`.
        kl_weight: a number, or a schedule, which moves on with every step of an optimizer.
        kl: as for :class:`~contextual_dropout.ELBO`.
        learning_rate: of Adam, if you do not override ``configure_optimizers``.
        theta: further options of the optimizer for the network.
        phi: those for the encoders, ``{"lr": 1e-2}`` for instance.
        eta: those for the priors.
        task: what the outputs mean, as for :func:`~contextual_dropout.predict`.
        samples: K of evaluation and prediction.
        class_dim: where the classes are in logits with several positions: 1 in (B, C, T) and (B, C, H, W), -1 in
            (B, T, C). By default found by the shape of the labels.
        kwargs: for ``LightningModule``.

    Raises:
        ImportError: Lightning is not installed.
        TypeError: the class is not a ``LightningModule``.
    """

    def __init__(
        self,
        *args: Any,
        estimator: str | Estimator = "auto",
        kl_weight: float | Schedule = 1.0,
        kl: Literal["closed-form", "sampled"] = "closed-form",
        learning_rate: float = 1e-3,
        theta: dict[str, Any] | None = None,
        phi: dict[str, Any] | None = None,
        eta: dict[str, Any] | None = None,
        task: Task = "multiclass",
        samples: int = 20,
        class_dim: int | None = None,
        **kwargs: Any,
    ) -> None:
        _require_lightning(type(self))
        check_task(task)
        super().__init__(*args, **kwargs)
        self.schedule = PerUpdate(kl_weight)
        self.objective = ELBO(self, estimator, self.schedule, kl=kl)
        self.learning_rate, self.task, self.samples, self._class_dim = learning_rate, task, samples, class_dim
        self._groups = {"theta": theta, "phi": phi, "eta": eta}

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        module = next((base for base in cls.__mro__ if base.__name__ == "LightningModule"), None)
        if module is not None and cls.__mro__.index(module) < cls.__mro__.index(ELBOMixin):
            raise TypeError(f"{cls.__name__} must name ELBOMixin before LightningModule, whose methods it overrides")

    def inputs(self, batch: Any) -> Any:
        """The arguments of ``forward`` for a batch: a mapping for keywords, a tuple for positional arguments."""
        if isinstance(batch, Mapping):
            return {name: value for name, value in batch.items() if name != "labels"}
        return first(batch)

    def batch_labels(self, batch: Any) -> Tensor:
        """The labels of a batch: its entry "labels", or the second of a tuple."""
        if isinstance(batch, Mapping) and "labels" in batch:
            return batch["labels"]  # type: ignore[no-any-return]
        if isinstance(batch, tuple | list) and len(batch) > 1:
            return batch[1]  # type: ignore[no-any-return]
        raise TypeError(
            f"a batch is {summary(batch)}: expected (x, labels), or a dictionary with 'labels'; override "
            "batch_labels(self, batch) and inputs(self, batch) for others"
        )

    def log_likelihood(self, outputs: Any, batch: Any) -> Tensor:
        """The log-likelihood of each example's labels, (B,), given what ``forward`` returned; here the usual one."""
        if self.task not in LOG_LIKELIHOODS:
            raise NotImplementedError(
                f"task={self.task!r} has no usual log-likelihood: override log_likelihood(self, outputs, batch) to "
                "return one number for each example, (B,); with noise of variance v for instance "
                "-0.5 * ((outputs - batch[1]) ** 2 / v + math.log(2 * math.pi * v)).flatten(1).sum(1)"
            )
        logits, labels = find_logits(outputs), self.batch_labels(batch)
        if self.task == "multiclass":
            return class_log_likelihood(logits, labels, self._class_axis(logits, labels))
        return LOG_LIKELIHOODS[self.task](logits, labels)

    def parameter_groups(self) -> list[dict[str, Any]]:
        """Theta, phi and eta with their options, for an optimizer."""
        return parameter_groups(self, **self._groups)

    def configure_optimizers(self) -> Any:
        """Adam."""
        return torch.optim.Adam(self.parameter_groups(), lr=self.learning_rate)

    def elbo_step(self, batch: Any) -> Step:
        """Evaluate the objective of a batch, and log it."""
        positional, keywords = arguments(self.inputs(batch))
        step = self.objective(lambda: self.log_likelihood(self(*positional, **keywords), batch))
        means = {"loss": step.loss.detach(), "log_likelihood": step.log_likelihood.mean(), "kl": step.kl.mean()}
        self.log_dict({**means, "kl_weight": step.kl_weight}, batch_size=len(step.kl))
        every: int = self.trainer.log_every_n_steps  # type: ignore[attr-defined]
        if every and (self.global_step + 1) % every == 0:
            self.log_dict(keep_summary(self, *positional, **keywords), batch_size=len(step.kl))
        return step

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        return self.elbo_step(batch).loss

    def evaluation_step(self, batch: Any, prefix: str) -> BatchEvaluation:
        """Predict for a batch, score and log; call it in a ``validation_step`` or ``test_step``.

        Logs ``<prefix>_loss``, minus the predictive log-likelihood, and for classes ``<prefix>_accuracy``, ``_certain``
        and ``_pavpu``, over all positions that have a label: means over all batches, and over all devices.
        """
        found = evaluate(
            self,
            self.inputs(batch),
            lambda outputs: self.log_likelihood(outputs, batch),
            samples=self.samples,
            task=self.task,
            generator=torch.default_generator,
            arrange=lambda logits: self._arranged(logits, batch),
        )
        assert found.log_likelihood is not None
        measures = {"loss": -found.log_likelihood.mean().item()}
        if self.task in ("multiclass", "binary"):
            labels = self.batch_labels(batch).reshape(found.positions)
            measures |= certainty(found.label, found.uncertainty, labels)
        logged = {f"{prefix}_{name}": value for name, value in measures.items()}
        self.log_dict(logged, batch_size=len(found.log_likelihood), sync_dist=True)
        return found

    def predict_step(self, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> AnyPrediction:
        """Predict with p-values; B examples with T positions each give B T predictions."""
        positional, keywords = arguments(self.inputs(batch))
        options: dict[str, Any] = {"samples": self.samples, "task": self.task, "generator": torch.default_generator}
        prediction: AnyPrediction = predict(self, *positional, **options, **keywords, output=self._by_position)
        return prediction

    def _by_position(self, outputs: Any) -> Tensor:
        """Logits (R, C) of R positions."""
        logits = find_logits(outputs)
        if self.task == "regression" or logits.ndim < 3:
            return logits
        return logits.flatten() if self.task == "binary" else self._arranged(logits, None).flatten(0, -2)

    def _arranged(self, logits: Tensor, batch: Any) -> Tensor:
        """Logits with the classes last, (B, ..., C), or (B, ..., 1) for yes or no: one position for each label."""
        if self.task == "binary":
            return logits_of_yes(logits, self.batch_labels(batch)).unsqueeze(-1)
        if self.task == "regression" or (logits.ndim < 3 and self.task == "multilabel"):
            return logits
        labels = self.batch_labels(batch) if self.task == "multiclass" and batch is not None else None
        return logits.movedim(self._class_axis(logits, labels), -1)

    def _class_axis(self, logits: Tensor, labels: Tensor | None) -> int:
        """The axis of the classes; once found it is kept, as the sizes of a later batch may happen to be equal."""
        if labels is not None:
            axis = class_axis(logits, labels, self._class_dim)
            self._class_dim = axis if logits.ndim > 2 else self._class_dim
            return axis
        if self._class_dim is None:
            raise ValueError(
                f"the network gives logits of shape {tuple(logits.shape)}: which axis has the classes? Give "
                f"{type(self).__name__} class_dim=1 for (B, C, ...) or class_dim=-1 for (B, ..., C)"
            )
        return self._class_dim

    def on_before_optimizer_step(self, optimizer: torch.optim.Optimizer) -> None:
        super().on_before_optimizer_step(optimizer)
        self.schedule.update()

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        super().on_save_checkpoint(checkpoint)
        checkpoint[STATE] = self.objective.state_dict()

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        super().on_load_checkpoint(checkpoint)
        if STATE in checkpoint:
            self.objective.load_state_dict(checkpoint[STATE])


def _require_lightning(kind: type) -> None:
    if any(base.__name__ == "LightningModule" for base in kind.__mro__):
        return
    if not any(importlib.util.find_spec(package) for package in PACKAGES):
        raise ImportError(
            "ELBOMixin needs a LightningModule beside it, but neither lightning nor pytorch_lightning is installed: "
            "pip install contextual-dropout[lightning]"
        )
    raise TypeError(
        f"{kind.__name__} is not a LightningModule: write class {kind.__name__}(ELBOMixin, lightning.LightningModule), "
        "or pytorch_lightning.LightningModule, whichever's Trainer you use"
    )
