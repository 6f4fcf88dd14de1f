"""The variational objective: closure in, loss out."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, Literal, cast, get_args

import torch
from torch import Tensor, nn

from contextual_dropout.nn.site import ContextualDropout
from contextual_dropout.nn.untrained import warn_of_frozen_sites
from contextual_dropout.replay.compilation import eagerly, part_with_sites, refuse_reruns
from contextual_dropout.replay.distributed import exchange_buffers, is_sharded
from contextual_dropout.replay.recording import Recording, Watch
from contextual_dropout.training import checks, estimators
from contextual_dropout.training.credit import Rows
from contextual_dropout.training.kl import by_name as kl_by_name
from contextual_dropout.training.schedules import Constant, Schedule
from contextual_dropout.training.signals import inject
from contextual_dropout.training.trial import Trial, sample

__all__ = ["ELBO", "Step"]

#: The number of steps between two looks at the keep probabilities.
HEALTH_INTERVAL = 100


@dataclass(frozen=True, slots=True)
class Step:
    """One evaluation of the objective.

    Attributes:
        loss: minus the batch mean of the ELBO; its ``backward()`` fills theta, phi and eta.
        log_likelihood: log p(y | x, z) per example (B,), detached.
        kl: summed over units, positions and sites, per example (B,), detached and not yet weighted; coupled rows have
            equal shares of it.
        kl_weight: the weight that the loss used.
    """

    loss: Tensor
    log_likelihood: Tensor
    kl: Tensor
    kl_weight: float


class ELBO:
    """The evidence lower bound of a network with contextual dropout, eq. 2 of the paper.

    ``L(x, y) = E_q[log p(y | x, z)] - kl_weight * KL(q(z | x) || p(z))``, the KL being the *sum* over units and
    sites. The log-likelihood is evaluated at one sample of the masks. One ``backward()`` of the loss gives

    * theta: grad log p(y | x, z), nothing of q;
    * phi: the estimator's gradient;
    * eta: minus the weighted KL's gradient.

    These are first derivatives; do not differentiate them again (``create_graph=True``).

    Args:
        model: the network; its sites must be in training mode when the objective is called.
        estimator: a name of :mod:`contextual_dropout.training.estimators` or an estimator object.
        kl_weight: a number, or a :class:`~contextual_dropout.training.schedules.Schedule`, which moves on with every
            call that has autograd on.
        kl: ``"closed-form"`` or ``"sampled"``, the log-ratio log q(z) - log p(z) of the paper's ARM.
        rows: ``"independent"``, or ``"coupled"`` where the mask of one row acts on the log-likelihoods of others, as in
            a graph network: every mask is then credited with the reward of the whole batch, and the closure may return
            any number of log-likelihoods, for example one for each graph, or a single one. Score-function estimators
            (ARM, DisARM, REINFORCE) are unbiased only if this is right; a first step that shows otherwise warns.
        replay: whether pseudo passes take what comes before their site from the true pass instead of computing
            it again. The result is the same; with ``False`` a step is slower and keeps fewer activations.

    Example:
        >>> import torch.nn.functional as F
        >>> import contextual_dropout as cd
        >>> model = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), cd.ContextualDropout(16), nn.Linear(16, 3))
        >>> x, y = torch.randn(8, 4), torch.randint(3, (8,))
        >>> objective = cd.ELBO(model, kl_weight=cd.schedules.LinearWarmup(steps=100))
        >>> step = objective(lambda: -F.cross_entropy(model(x), y, reduction="none"))
        >>> step.loss.backward()
        >>> step.log_likelihood.shape, step.kl.shape
        (torch.Size([8]), torch.Size([8]))
    """

    def __init__(
        self,
        model: nn.Module,
        estimator: str | estimators.Estimator = "auto",
        kl_weight: float | Schedule = 1.0,
        *,
        kl: Literal["closed-form", "sampled"] = "closed-form",
        rows: Rows = "independent",
        replay: bool = True,
    ) -> None:
        self.model = model
        self.estimator = estimators.by_name(estimator) if isinstance(estimator, str) else estimator
        if isinstance(self.estimator, type) or not callable(self.estimator):
            raise TypeError(f"estimator must be a name or an estimator object such as SampledARM(), got {estimator!r}")
        self.schedule = cast(Schedule, kl_weight) if hasattr(kl_weight, "advance") else Constant(kl_weight)
        self._divergence = kl_by_name(kl)
        if rows not in get_args(Rows):
            raise ValueError(f"unknown rows {rows!r}: expected one of {', '.join(map(repr, get_args(Rows)))}")
        self._rows: Rows = rows
        self._replay = replay
        self._calls = 0
        self._warned = False

    def __call__(self, closure: Callable[[], Tensor]) -> Step:
        """Evaluate the objective.

        Args:
            closure: calls the model and returns the log-likelihood of each example, (B,). It may be called
                several times and has to do the same each time: no data loading inside. Random torch calls are
                fine. Terms of your own belong inside: an attribute that the model sets (``self.aux = ...``) may come
                from a pseudo pass afterwards, without autograd.
        """
        if not callable(closure):
            raise TypeError(
                f"the closure must be a function without arguments, got a {type(closure).__name__}: estimators call "
                "the model several times, so write objective(lambda: -F.cross_entropy(model(x), y, reduction='none'))"
            )
        learning = torch.is_grad_enabled()
        if learning:
            exchange_buffers(self.model)
        sites = {module for module in self.model.modules() if isinstance(module, ContextualDropout)}
        scores = learning and any(not site.family.pathwise for site in sites)
        compiled = part_with_sites(self.model) if learning else None
        if scores and self.estimator.reruns and compiled is not None:
            refuse_reruns(compiled, self.estimator)
        # Masks that carry no gradient: their credit is a reward, so it matters whose reward that is.
        asks = scores and compiled is None and self.estimator.sampler is sample
        asks = asks and self._rows == "independent" and self._calls == 0
        reruns = asks or (scores and self.estimator.reruns)
        with eagerly() if reruns else nullcontext():
            return self._evaluate(closure, sites, self._recording(reruns, compiled is not None), learning, asks)

    def _recording(self, reruns: bool, compiled: bool) -> Recording:
        """A recording that keeps what the estimator will need."""
        sweeps = getattr(self.estimator, "pathwise", None) is estimators.exact
        replay = reruns and self._replay and not is_sharded(self.model)
        watch = Watch(reruns, replay, repeatable=sweeps and compiled)
        recording = Recording(self.model, self.estimator.sampler, watch)
        recording.mask_gate.open = not sweeps  # that sweep opens it; compiled code has it as it is now
        return recording

    def _evaluate(
        self,
        closure: Callable[[], Tensor],
        sites: set[ContextualDropout],
        recording: Recording,
        learning: bool,
        asks: bool,
    ) -> Step:
        with recording:
            log_likelihood = closure()
        checks.closure_called_sites(sites, recording)
        if self._rows == "coupled" and isinstance(log_likelihood, Tensor):
            log_likelihood = log_likelihood.reshape(-1) if log_likelihood.ndim == 0 else log_likelihood
        checks.one_value_per_sample(recording, log_likelihood, self._rows)
        checks.finite("log-likelihood", log_likelihood)
        if learning:
            checks.sites_can_learn(recording)
            self._look_for_frozen_sites(sites)
        trial = Trial(closure, recording, log_likelihood, self._divergence, self.schedule.weight, self._rows)
        if asks and trial.score_draws and trial.acts_on_other_rows():
            checks.warn_of_coupled_rows()
        signals = self.estimator(trial) if learning else []
        kl = torch.stack(list(trial.true.costs)).sum(0)
        checks.finite("KL", kl)
        loss = -(log_likelihood - trial.kl_weight * kl).sum() / max(len(kl), 1)
        self._look_after(recording)
        if learning:
            self.schedule.advance()
        loss = inject(loss, signals, len(kl))
        recording.sampling.hold(loss)
        return Step(loss, log_likelihood.detach(), kl.detach(), trial.kl_weight)

    def state_dict(self) -> dict[str, Any]:
        """The state of the KL schedule and of the estimator."""
        remember = getattr(self.estimator, "state_dict", dict)
        return {"calls": self._calls, "kl_weight": self.schedule.state_dict(), "estimator": remember()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume from a saved state."""
        self._calls = int(state["calls"])
        self.schedule.load_state_dict(state["kl_weight"])
        if hasattr(self.estimator, "load_state_dict"):
            self.estimator.load_state_dict(state["estimator"])

    def _look_for_frozen_sites(self, sites: set[ContextualDropout]) -> None:
        """Warn at the first step if the network is trained and no site is."""
        frozen = self._calls == 0 and not any(p.requires_grad for site in sites for p in site.parameters())
        if frozen and any(p.requires_grad for p in self.model.parameters()):
            warn_of_frozen_sites()

    def _look_after(self, recording: Recording) -> None:
        """Warn, once, of a site that keeps nearly nothing or everything; looked for now and then."""
        self._calls += 1
        if not self._warned and self._calls % HEALTH_INTERVAL == 1:
            self._warned = checks.warn_if_saturated(recording)
