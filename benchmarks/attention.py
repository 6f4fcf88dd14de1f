"""MCAN at the paper's size, plain and with its 62 sites."""

from __future__ import annotations

import torch
from timing import interleaved
from torch import Tensor, nn
from training_step import Step

import contextual_dropout as cd
from contextual_dropout.training.estimators import IndependentARM, SampledARM, arm
from contextual_dropout_lab.models import mcan
from contextual_dropout_lab.models.mcan import OVERRIDES
from contextual_dropout_lab.runs.tasks import TASKS

#: Regions of an image and words of a question, as MCAN has them at most.
REGIONS, WORDS, FEATURES, VOCABULARY = 100, 14, 2048, 18_405
VARIANTS: dict[str, object] = {
    "plain": None,
    "contextual gaussian, truncated": "truncated-reparameterized",
    "contextual gaussian, unbiased": "reparameterized",
    "contextual bernoulli, sampled-arm (k=1)": SampledARM(1, arm),
    "contextual bernoulli, independent-arm": IndependentARM(arm),
}


def example(batch: int) -> tuple[Tensor, Tensor, Tensor]:
    """Regions, words and soft answers of a batch, with padding."""
    regions, words = torch.randn(batch, REGIONS, FEATURES), torch.randint(1, VOCABULARY, (batch, WORDS))
    for row in range(batch):
        regions[row, 36 + row % 60 :] = 0
        words[row, 5 + row % 9 :] = 0
    answers = torch.stack([torch.randint(3129, (batch, 10)).float(), torch.rand(batch, 10)], 1)
    return regions, words, answers


def build(variant: str) -> nn.Module:
    model = mcan(VOCABULARY)
    if VARIANTS[variant] is None:
        return model.train()
    family = "gaussian" if "gaussian" in variant else "bernoulli"
    regions, words, _ = example(1)
    return cd.contextualize(model, family=family, reduction=8, overrides=OVERRIDES, example=(regions, words)).train()


def training_step(variant: str, batch: int) -> tuple[Step, nn.Module]:
    model = build(variant)
    regions, words, answers = example(batch)
    optimizer = torch.optim.Adam(model.parameters(), 1e-4, betas=(0.9, 0.98), fused=True)
    log_likelihood = TASKS["soft-answers"].log_likelihood

    def closure() -> Tensor:
        return log_likelihood(model(regions, words), answers)

    objective = None if VARIANTS[variant] is None else cd.ELBO(model, VARIANTS[variant])  # type: ignore[arg-type]

    def step() -> None:
        optimizer.zero_grad()
        loss = -closure().mean() if objective is None else objective(closure).loss
        loss.backward()
        optimizer.step()

    return step, model


def mcan_steps(batch: int, rounds: int) -> dict[str, dict[str, float]]:
    """Parameters and step time relative to plain."""
    built = {variant: training_step(variant, batch) for variant in VARIANTS}
    seconds = interleaved({variant: step for variant, (step, _) in built.items()}, rounds, warmup=1)
    return {
        variant: {
            "parameters": sum(parameter.numel() for parameter in model.parameters()),
            "sites": len(cd.sites(model)),
            "step": seconds[variant] / seconds["plain"],
        }
        for variant, (_, model) in built.items()
    }
