"""The ``Trainer`` of ``transformers`` with :class:`~contextual_dropout.ELBO` as its loss.

A subclass, not a callback: a callback only watches, and ``compute_loss_func`` is given the outputs of one pass, whereas
an estimator has to run the model again with other masks.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from contextual_dropout._torch_files import read_torch
from contextual_dropout.conversion.record import sites
from contextual_dropout.conversion.saving import load_sites, save_sites
from contextual_dropout.inspection.parameters import parameter_groups
from contextual_dropout.integrations.batch_evaluation import certainty, evaluate
from contextual_dropout.integrations.likelihoods import LOG_LIKELIHOODS
from contextual_dropout.integrations.monitoring import Averages, PerUpdate, keep_summary
from contextual_dropout.prediction.outputs import Task, find_logits
from contextual_dropout.training.estimators import Estimator
from contextual_dropout.training.objective import ELBO
from contextual_dropout.training.schedules import Schedule

try:
    from transformers import EvalPrediction, PreTrainedModel, Trainer
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
except ImportError as error:
    raise ImportError(
        "this integration needs transformers and accelerate: pip install contextual-dropout[transformers]"
    ) from error

from contextual_dropout.integrations.pretrained import (
    SITES,
    from_pretrained,
    load_weights,
    plain_weights,
    save_pretrained,
)

__all__ = ["ELBOTrainer", "LogLikelihood", "certainty_metrics", "from_pretrained", "save_pretrained"]

#: Maps the model's outputs and the batch that it was called with to one number per example, (B,).
LogLikelihood = Callable[[Any, dict[str, Any]], Tensor]
#: The file of a checkpoint with the state of the KL schedule and of the estimator.
OBJECTIVE = "objective.pt"


class ELBOTrainer(Trainer):
    """Trains a converted model with the ELBO, and evaluates it with sampled masks.

    Everything is as in the ``Trainer`` except

    * the loss, minus the ELBO; gradients are accumulated and clipped as always;
    * the optimizer's groups: theta has the learning rate and weight decay of the arguments, the encoders phi and the
      priors eta no weight decay and, if you want, options of their own;
    * the log: ``log_likelihood``, ``kl``, ``kl_weight`` and for each site ``keep/``, ``keep_spread/`` and ``prior/``
      (see :func:`~contextual_dropout.integrations.monitoring.keep_summary`; one more pass for each line of the log);
    * evaluation and prediction, by ``samples`` passes: ``eval_loss`` is minus the predictive log-likelihood,
      ``predictions`` are (logits of the predictive mean, p-values), and without a ``compute_metrics`` of your own there
      are ``eval_accuracy``, ``eval_certain`` and ``eval_pavpu``;
    * checkpoints: the weights have the plain model's names and load without this library; the sites are in
      ``sites.safetensors`` beside them. A resumed training computes the same as one that was never stopped.

    Args:
        args: as those of ``Trainer``: model, training arguments, and so on.
        estimator: as for :class:`~contextual_dropout.ELBO`.
        kl_weight: a number, or a schedule, which moves on with every update of the parameters.
        kl: as for :class:`~contextual_dropout.ELBO`.
        log_likelihood: of the model's outputs and the batch, (B,). By default that of ``batch["labels"]`` for the task:
            labels of sequences or of their tokens.
        task: what the logits mean: "multiclass", "multilabel", "binary" or "regression".
        phi: the optimizer's options for the encoders, ``{"lr": 1e-2}`` for instance.
        eta: those for the priors.
        samples: K of evaluation and prediction.
        kwargs: those of ``Trainer``.

    Attributes:
        elbo: the objective; every trial of ``hyperparameter_search`` has one of its own.
    """

    model: Any  # a network in any case, once the trainer is made
    optimizer: Any
    elbo: ELBO

    def __init__(
        self,
        *args: Any,
        estimator: str | Estimator = "auto",
        kl_weight: float | Schedule = 1.0,
        kl: Literal["closed-form", "sampled"] = "closed-form",
        log_likelihood: LogLikelihood | None = None,
        task: Task = "multiclass",
        phi: dict[str, Any] | None = None,
        eta: dict[str, Any] | None = None,
        samples: int = 20,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self._check()
        self.model_accepts_loss_kwargs = False  # the loss is a batch's mean, to be divided by the accumulated batches
        self._settings: dict[str, Any] = {"estimator": estimator, "kl_weight": kl_weight, "kl": kl}
        self._begin()
        self.log_likelihood = log_likelihood or usual_log_likelihood(self.model, task)
        self.task, self.samples = task, samples
        if self.compute_metrics is None and log_likelihood is None and task == "multiclass":
            self.compute_metrics = certainty_metrics
        self._groups = {"phi": phi, "eta": eta}
        self._averages, self._batch = Averages(), dict[str, Any]()
        self._masks = torch.Generator()

    def _begin(self) -> None:
        """Make a new objective, with KL schedule and estimator at their start."""
        estimator, kl_weight, kl = copy.deepcopy(self._settings).values()
        self.schedule = PerUpdate(kl_weight)
        self.elbo = ELBO(self.model, estimator, self.schedule, kl=kl)
        if self.args.torch_compile and self.elbo.estimator.reruns and _has_bernoulli_sites(self.model):
            raise ValueError(
                f"torch_compile=True, and {type(self.elbo.estimator).__name__} runs parts of the pass again with other "
                "masks, for which it takes the uncompiled network: give estimator='straight-through', convert with "
                "family='gaussian', or train without torch_compile"
            )

    def _hp_search_setup(self, trial: Any) -> None:
        """Give every trial of a hyperparameter search an objective of its own."""
        super()._hp_search_setup(trial)
        if trial is not None:
            self._begin()

    def _check(self) -> None:
        if self.compute_loss_func is not None or self.args.label_smoothing_factor:
            raise ValueError("the loss is the ELBO: give log_likelihood=, not compute_loss_func or label smoothing")

    def create_optimizer(self, model: nn.Module | None = None) -> torch.optim.Optimizer:
        """Make the usual optimizer, with groups of their own for phi and eta."""
        if self.optimizer is None:
            optimizer = super().create_optimizer(*() if model is None else (model,))
            model = self.model if model is None else model
            # In an order that does not depend on how the sites got there: a checkpoint knows parameters by it.
            place = {parameter: place for place, parameter in enumerate(model.parameters())}
            groups = parameter_groups(model, **self._groups)[1:]
            ours = {parameter for group in groups for parameter in group["params"]}
            for group in optimizer.param_groups:
                group["params"] = [parameter for parameter in group["params"] if parameter not in ours]
            for group in groups:
                optimizer.add_param_group(group | {"params": sorted(group["params"], key=place.__getitem__)})
        return self.optimizer  # type: ignore[no-any-return]

    def compute_loss(
        self, model: nn.Module, inputs: dict[str, Any], return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        """Minus the ELBO of a batch, and the outputs of the true pass if asked for."""
        first: list[Any] = []

        def closure() -> Tensor:
            outputs = model(**inputs)
            if not first:
                first.append(outputs)
            return self.log_likelihood(outputs, inputs)

        self.elbo.model = model  # model_init may have made a new one
        step = self.elbo(closure)
        self._averages.add(step)
        self._batch = inputs
        return (step.loss, first[0]) if return_outputs else step.loss

    def training_step(self, model: nn.Module, inputs: dict[str, Any], num_items_in_batch: Any = None) -> Tensor:
        loss: Tensor = super().training_step(model, inputs, num_items_in_batch)
        if self.accelerator.sync_gradients:
            self.schedule.update()
        return loss

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        if "loss" in logs and self._batch:
            logs |= self._averages.take() | keep_summary(self.model, **self._batch)
        super().log(logs, start_time)

    def evaluation_loop(self, *args: Any, **kwargs: Any) -> Any:
        self._masks.manual_seed(self.args.seed)  # the same masks each time
        return super().evaluation_loop(*args, **kwargs)

    def prediction_step(
        self, model: nn.Module, inputs: dict[str, Any], prediction_loss_only: bool, ignore_keys: list[str] | None = None
    ) -> tuple[Tensor | None, Any, Any]:
        """Loss, (logits of the predictive mean, p-values) and labels of a batch."""
        inputs = self._prepare_inputs(inputs)
        labels = tuple(inputs[name] for name in self.label_names if inputs.get(name) is not None)
        score = (lambda outputs: self.log_likelihood(outputs, inputs)) if labels else None
        with self.compute_loss_context_manager():
            found = evaluate(model, inputs, score, samples=self.samples, task=self.task, generator=self._masks)
        loss = None if found.log_likelihood is None else -found.log_likelihood.mean()
        if prediction_loss_only:
            return loss, None, None
        return loss, (found.logits, found.uncertainty), (labels[0] if len(labels) == 1 else labels or None)

    def _save(self, output_dir: str | None = None, state_dict: dict[str, Any] | None = None) -> None:
        """Save weights by the plain model's names, and the sites beside them."""
        if isinstance(self.model, PreTrainedModel):
            state_dict = plain_weights(self.model, state_dict)
        super()._save(output_dir, state_dict)
        save_sites(self.model, Path(output_dir or str(self.args.output_dir), SITES))

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: nn.Module | None = None) -> None:
        model = self.model if model is None else model
        if isinstance(model, PreTrainedModel):
            load_weights(model, resume_from_checkpoint)
        else:
            super()._load_from_checkpoint(resume_from_checkpoint, model)
            load_sites(model, Path(resume_from_checkpoint, SITES))

    def _load_best_model(self) -> None:
        self._load_from_checkpoint(str(self.state.best_model_checkpoint))

    def _save_optimizer_and_scheduler(self, output_dir: str) -> None:
        super()._save_optimizer_and_scheduler(output_dir)
        if self.args.should_save:
            torch.save(self.elbo.state_dict(), Path(output_dir, OBJECTIVE))

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        super()._load_optimizer_and_scheduler(checkpoint)
        if checkpoint is None:
            return
        if (path := Path(checkpoint, OBJECTIVE)).exists():
            self.elbo.load_state_dict(_read_objective(path))
        else:
            warnings.warn(
                f"{path} is missing: the KL weight's schedule and the estimator's memory start again", stacklevel=2
            )


def _has_bernoulli_sites(model: nn.Module) -> bool:
    return any(not site.family.pathwise for site in sites(model).values())


def _read_objective(path: Path) -> dict[str, Any]:
    try:
        state: dict[str, Any] = read_torch(path)
    except Exception as error:  # a damaged file can make torch raise anything
        raise ValueError(f"{path} cannot be read ({error}): resume from another checkpoint") from error
    return state


def usual_log_likelihood(model: nn.Module, task: Task) -> LogLikelihood:
    """The log-likelihood of ``batch["labels"]`` that is usual for a task.

    Raises:
        ValueError: the task has no usual one, or the labels are those of the next token.
    """
    causal = type(model).__name__ in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.values()
    if task not in LOG_LIKELIHOODS or causal:
        reason = "a language model predicts the next token" if causal else f"task={task!r} has no usual log-likelihood"
        raise ValueError(f"{reason}: give log_likelihood=, a function of the outputs and the batch that returns (B,)")
    of_labels = LOG_LIKELIHOODS[task]
    return lambda outputs, batch: of_labels(find_logits(outputs), batch["labels"])


def certainty_metrics(evaluated: EvalPrediction) -> dict[str, float]:
    """A ``compute_metrics``: accuracy, the share that is certain (p < 0.05) and PAvPU."""
    logits, p_value = (torch.as_tensor(each) for each in evaluated.predictions)
    return certainty(logits.argmax(-1), p_value, torch.as_tensor(evaluated.label_ids))
