"""What a training step costs, relative to the same network with nn.Dropout."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from networks import contextual, mlp, plain, residual_cnn
from timing import interleaved
from torch import Tensor, nn

import contextual_dropout as cd
from contextual_dropout.replay.recording import Recording, Watch
from contextual_dropout.training.estimators import SampledARM, SequentialARM, arm
from contextual_dropout.training.kl import ClosedForm
from contextual_dropout.training.trial import Trial, sample

Step = Callable[[], object]


def plain_step(model: nn.Module, x: Tensor, y: Tensor) -> Step:
    optimizer = torch.optim.Adam(model.parameters(), fused=True)

    def step() -> None:
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()

    return step


def contextual_step(model: nn.Module, x: Tensor, y: Tensor, estimator: object) -> Step:
    optimizer = torch.optim.Adam(model.parameters(), fused=True)
    objective = cd.ELBO(model, estimator)  # type: ignore[arg-type]

    def step() -> None:
        optimizer.zero_grad()
        objective(lambda: -F.cross_entropy(model(x), y, reduction="none")).loss.backward()
        optimizer.step()

    return step


def mlp_steps(rounds: int, reduction: int) -> dict[str, float]:
    """The paper's MLP at batch 128. Its table's 311K parameters mean gamma = 32; its text says 10 (410K)."""
    x, y = torch.rand(128, 784), torch.randint(10, (128,))

    def contextual_mlp(family: str, estimator: object) -> Step:
        return contextual_step(mlp(contextual(family, reduction=reduction)), x, y, estimator)

    seconds = interleaved(
        {
            "plain": plain_step(mlp(plain), x, y),
            "gaussian, reparameterized": contextual_mlp("gaussian", "reparameterized"),
            "gaussian, truncated": contextual_mlp("gaussian", "truncated-reparameterized"),
            "bernoulli, sequential-arm": contextual_mlp("bernoulli", "sequential-arm"),
            "bernoulli, sequential-disarm": contextual_mlp("bernoulli", "sequential-disarm"),
            "bernoulli, sampled-arm": contextual_mlp("bernoulli", "sampled-arm"),
            "bernoulli, independent-arm": contextual_mlp("bernoulli", "independent-arm"),
            "bernoulli, straight-through": contextual_mlp("bernoulli", "straight-through"),
            "bernoulli, concrete": contextual_mlp("bernoulli", "concrete"),
        },
        rounds,
    )
    return {name: value / seconds["plain"] for name, value in seconds.items() if name != "plain"}


def cnn_steps(rounds: int) -> dict[str, float]:
    """A residual CNN with 12 sites, batch 16."""
    x, y = torch.rand(16, 3, 16, 16), torch.randint(10, (16,))
    bernoulli, gaussian = (residual_cnn(contextual(family, dim=1)) for family in ("bernoulli", "gaussian"))
    seconds = interleaved(
        {
            "plain": plain_step(residual_cnn(plain), x, y),
            "bernoulli, sampled-arm (k=1)": contextual_step(bernoulli, x, y, SampledARM(1, arm)),
            "bernoulli, sequential-arm": contextual_step(bernoulli, x, y, SequentialARM(arm)),
            "bernoulli, independent-arm": contextual_step(bernoulli, x, y, "independent-arm"),
            "bernoulli, straight-through": contextual_step(bernoulli, x, y, "straight-through"),
            "bernoulli, concrete": contextual_step(bernoulli, x, y, "concrete"),
            "gaussian, reparameterized": contextual_step(gaussian, x, y, "reparameterized"),
            "gaussian, truncated": contextual_step(gaussian, x, y, "truncated-reparameterized"),
        },
        rounds,
    )
    return {name: value / seconds["plain"] for name, value in seconds.items() if name != "plain"}


def pseudo_passes(rounds: int) -> dict[str, float]:
    """The 12 pseudo passes of one step on that CNN, relative to 12 naive forward passes."""
    x, y = torch.rand(16, 3, 16, 16), torch.randint(10, (16,))
    return pseudo_passes_of(residual_cnn(contextual("bernoulli", dim=1)), x, y, rounds)


def pseudo_passes_of(model: nn.Module, x: Tensor, y: Tensor, rounds: int, warmup: int = 3) -> dict[str, float]:
    """One pseudo pass for each site, replayed and computed again, relative to as many forward passes."""

    def closure() -> Tensor:
        return -F.cross_entropy(model(x), y, reduction="none")

    def recorded(replayable: bool) -> Trial:
        with Recording(model, sample, Watch(True, replayable)) as recording:
            log_likelihood = closure()
        return Trial(closure, recording, log_likelihood, ClosedForm(), 1.0, rows="independent")

    def passes(trial: Trial) -> Step:
        masks = [draw.family.antithetic(draw.logits, draw.noise) for draw in trial.draws]
        return lambda: [trial.counterfactual(index, mask) for index, mask in enumerate(masks)]

    def naive() -> None:
        with torch.no_grad():
            for _ in cd.sites(model):
                closure()

    variants = {"naive": naive, "replayed": passes(recorded(True)), "computed again": passes(recorded(False))}
    seconds = interleaved(variants, rounds, warmup)
    return {name: value / seconds["naive"] for name, value in seconds.items() if name != "naive"}
