"""A recorded pass with its rewards, the input of an estimator."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor

from contextual_dropout.nn.families import Family
from contextual_dropout.replay.buffers import Surroundings, all_buffers
from contextual_dropout.replay.generators import RandomState
from contextual_dropout.replay.recording import Draw, Recording, Sampler, Watch
from contextual_dropout.replay.rerun import CommonNoise, FreshNoise, Noise, rerun
from contextual_dropout.training import checks
from contextual_dropout.training.credit import Rows, cost_of_examples, reward_of_rows, spread
from contextual_dropout.training.kl import Divergence

__all__ = ["Outcome", "Trial", "sample"]


def sample(family: Family, logits: Tensor, noise: Tensor) -> Tensor:
    """The ordinary :data:`~contextual_dropout.replay.recording.Sampler`: the family's own mask for the noise."""
    return family.sample(logits, noise)


class Outcome:
    """Log-likelihood and costs of one pass, per example.

    Args:
        log_likelihood: log p(y | x, z), (B,).
        costs: of the draws from ``first`` on, (B,) each.
        first: index of the draw that the first cost belongs to.
        kl_weight: what the costs are multiplied by.
        divergence: knows which costs a draw influences.
        rows: whether they act on one another.
    """

    def __init__(
        self,
        log_likelihood: Tensor,
        costs: Sequence[Tensor],
        first: int,
        kl_weight: float,
        divergence: Divergence,
        rows: Rows,
    ) -> None:
        self.log_likelihood = log_likelihood
        self.costs = costs
        self._first = first
        self._kl_weight = kl_weight
        self._divergence = divergence
        self._rows = rows

    def reward(self, index: int) -> Tensor:
        """The part of the ELBO's sample that draw ``index`` influences, (B,), detached; () where rows are coupled."""
        reward = self.log_likelihood.detach()
        for cost in self.costs[index + self._divergence.first_dependent - self._first :]:
            reward = reward.sub(cost.detach(), alpha=self._kl_weight)
        return reward_of_rows(reward, self._rows)


class Trial:
    """The true pass of one step, and the means to ask "what if" of it.

    Args:
        closure: gives the per-example log-likelihood.
        recording: of the closure's true pass.
        log_likelihood: what it returned, (B,), attached.
        divergence: closed-form or sampled KL.
        kl_weight: the weight of the costs.
        rows: whether they act on one another.
    """

    def __init__(
        self,
        closure: Callable[[], Tensor],
        recording: Recording,
        log_likelihood: Tensor,
        divergence: Divergence,
        kl_weight: float,
        rows: Rows,
    ) -> None:
        self.recording = recording
        self.kl_weight = kl_weight
        self._closure = closure
        self._divergence = divergence
        self._rows = rows
        self._examples = len(log_likelihood)
        self.true = self._outcome(log_likelihood, recording.draws, 0)

    @property
    def draws(self) -> list[Draw]:
        """All draws of the true pass, in call order."""
        return self.recording.draws

    @property
    def score_draws(self) -> list[tuple[int, Draw]]:
        """The learning draws, with their indices, whose masks carry no gradient to their logits."""
        return [(index, draw) for index, draw in self._learning() if not draw.sampled.requires_grad]

    @property
    def pathwise_draws(self) -> list[Draw]:
        """The learning draws whose masks are differentiable in their logits."""
        return [draw for _, draw in self._learning() if draw.sampled.requires_grad]

    def _learning(self) -> Iterator[tuple[int, Draw]]:
        """The draws whose logits need a gradient: their encoder is trained, or an earlier one that acts on them."""
        upstream = False
        for index, draw in enumerate(self.draws):
            if upstream or draw.site.encoder.trainable:
                yield index, draw
                upstream = upstream or draw.sampled.requires_grad

    def counterfactual(self, index: int, mask: Tensor, sampler: Sampler = sample) -> Outcome:
        """The outcome with ``mask`` at draw ``index`` and the same noise everywhere."""
        return self._rerun(index, mask, sampler, CommonNoise(self.recording))

    def resample(self, index: int) -> Outcome:
        """The outcome with everything from draw ``index`` on drawn again."""
        draw = self.draws[index]
        mask = draw.family.sample(draw.logits.detach(), draw.family.noise(draw.logits.detach()))
        return self._rerun(index, mask, sample, FreshNoise(self.recording))

    def elbo_without_stops(self) -> Tensor:
        """The batch's sum of ELBOs in one more pass, with the noise of the true one and all gates open."""
        true = self.recording
        recording = Recording(true.model, true.sampling.sampler, Watch(rerunnable=False, replayable=False))
        recording.encoder_gate.open = True
        generators, surroundings = RandomState(true.device), Surroundings(all_buffers(true.model.modules()))
        true.generators_before.restore()
        true.before.restore_generators()
        try:
            with recording:
                log_likelihood = self._closure()
        finally:
            generators.restore()
            surroundings.restore()
        costs = torch.stack([self._divergence(draw).sum() for draw in recording.draws])
        return log_likelihood.sum() - self.kl_weight * costs.sum()

    def _rerun(self, index: int, mask: Tensor, sampler: Sampler, noise: Noise) -> Outcome:
        log_likelihood, draws = rerun(self.recording, self._closure, index, mask, sampler, noise)
        checks.finite_rerun(self.recording, self.draws[index], log_likelihood)
        influenced = self._divergence.first_dependent
        with torch.no_grad():
            return self._outcome(log_likelihood, draws[influenced:], index + influenced)

    def _outcome(self, log_likelihood: Tensor, draws: Sequence[Draw], first: int) -> Outcome:
        costs = [cost_of_examples(self._divergence(draw), self._examples, self._rows) for draw in draws]
        return Outcome(log_likelihood, costs, first, self.kl_weight, self._divergence, self._rows)

    def acts_on_other_rows(self) -> bool:
        """Whether a mask moves the log-likelihood of another example, as between nodes of a graph.

        The first draw gets other masks for every second example: the log-likelihoods of the rest must stay the same.
        """
        index, draw = self.score_draws[0]
        other = spread(torch.arange(self._examples, device=draw.mask.device) % 2, draw.mask) == 1
        outcome = self.counterfactual(index, torch.where(other, 1 - draw.mask, draw.mask))
        before, after = (each.log_likelihood.detach()[::2] for each in (self.true, outcome))
        return not torch.allclose(before, after, rtol=1e-3, atol=1e-3)
