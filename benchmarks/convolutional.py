"""ResNet-18 and WRN-28-10 at the paper's sizes: the variants whose steps, parameters and memory are compared."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import contextual_dropout as cd
from contextual_dropout.training.estimators import SampledARM, SequentialARM, arm
from contextual_dropout_lab.models import resnet18, wide_resnet

Step = Callable[[], object]


@dataclass(frozen=True)
class Network:
    """What the paper trains.

    Attributes:
        build: the plain network with dropout layers.
        classes: logits.
        side: pixels of an input's side.
        reduction: gamma of the sites.
    """

    build: Callable[[], nn.Module]
    classes: int
    side: int
    reduction: int


#: With gamma 8, ResNet-18 has the paper's 11.88M parameters. For WRN-28-10 the paper's text has gamma 10, which makes
#: 36.9M; the 36.6M of its table are those of gamma 32.
NETWORKS = {
    "resnet18": Network(resnet18, 1000, 224, 8),
    "wrn-28-10": Network(lambda: wide_resnet(28, 10, 10), 10, 32, 10),
}
#: Variant: how the sites' gradients are estimated, None where there are no sites.
VARIANTS: dict[str, object] = {
    "plain": None,
    "gaussian dropout": None,
    "contextual gaussian": "truncated-reparameterized",
    "contextual gaussian, unbiased": "reparameterized",
    "contextual bernoulli, sampled-arm (k=1)": SampledARM(1, arm),
    "contextual bernoulli, sequential-arm": SequentialARM(arm),
}


def build(network: str, variant: str) -> nn.Module:
    """The network of a variant, in channels-last as on a GPU."""
    of = NETWORKS[network]
    model = of.build()
    if variant == "gaussian dropout":
        model = cd.baselines.gaussian_dropout(model)
    elif variant.startswith("contextual"):
        family = "gaussian" if "gaussian" in variant else "bernoulli"
        model = cd.contextualize(
            model, family=family, reduction=of.reduction, example=torch.zeros(1, 3, of.side, of.side)
        )
    return model.to(memory_format=torch.channels_last).train()  # type: ignore[call-overload, no-any-return]


def training_step(model: nn.Module, network: str, variant: str, batch: int, *, replay: bool = True) -> Step:
    """One step of stochastic gradient descent with momentum on random images.

    Without ``replay``, pseudo passes are run naively, from the first layer on.
    """
    of = NETWORKS[network]
    x = torch.rand(batch, 3, of.side, of.side).to(memory_format=torch.channels_last)
    y = torch.randint(of.classes, (batch,))
    optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9, nesterov=True, fused=True)
    loss = _loss(model, x, y, VARIANTS[variant], replay)

    def step() -> None:
        optimizer.zero_grad()
        loss().backward()
        optimizer.step()

    return step


def _loss(model: nn.Module, x: Tensor, y: Tensor, estimator: object, replay: bool) -> Callable[[], Tensor]:
    if estimator is None:
        return lambda: F.cross_entropy(model(x), y)
    objective = cd.ELBO(model, estimator, replay=replay)  # type: ignore[arg-type]
    return lambda: objective(lambda: -F.cross_entropy(model(x), y, reduction="none")).loss
