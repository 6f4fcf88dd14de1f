"""A network that trains while its sites do not says so."""

from __future__ import annotations

import warnings

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import contextual_dropout as cd

X, Y = torch.randn(6, 4, generator=torch.Generator().manual_seed(1)), torch.tensor([0, 1, 2, 0, 1, 2])


def network(family: str = "bernoulli") -> nn.Sequential:
    layers = (nn.Linear(4, 8), nn.ReLU(), nn.Dropout(0.3), nn.Linear(8, 3), nn.Dropout(0.3))
    return cd.contextualize(nn.Sequential(*layers), family=family, example=X).train()  # type: ignore[arg-type]


def loss(model: nn.Module) -> Tensor:
    return F.cross_entropy(model(X), Y)


def plain_loop(model: nn.Module, steps: int) -> None:
    for _ in range(steps):
        loss(model).backward()


@pytest.mark.parametrize("family", ["bernoulli", "gaussian"])
def test_a_plain_loop_is_told_once(family: str) -> None:
    model = network(family)
    with pytest.warns(cd.UntrainedSitesWarning, match=r"plain loss.*cd\.ELBO.*ELBOTrainer") as told:
        plain_loop(model, steps=10)
    assert len(told) == 2  # each site once; Python shows the same text from the same place once
    assert len({(str(warning.message), warning.lineno) for warning in told}) == 1


def test_who_only_looks_is_not_told() -> None:
    model = network()
    plain_loop(model, steps=2)
    for _ in range(5):
        loss(model)
        with torch.no_grad():
            loss(model)
        with cd.sampling(model):
            loss(model).backward()
        loss(model.eval()).backward()
        model.train()


@pytest.mark.parametrize("estimator", ["auto", "straight-through"])
def test_the_objective_is_not_told_with_checkpoints_or_without(estimator: str) -> None:
    model = network()
    for run in (model, lambda x: checkpoint(model, x, use_reentrant=False)):
        objective = cd.ELBO(model, estimator)
        for _ in range(5):
            objective(lambda run=run: -F.cross_entropy(run(X), Y, reduction="none")).loss.backward()  # type: ignore[misc]


def test_frozen_encoders_may_be_trained_around() -> None:
    model = network()
    for site in cd.sites(model).values():
        site.encoder.requires_grad_(False)
    plain_loop(model, steps=5)


def frozen_as_by_peft() -> nn.Sequential:
    model = network().requires_grad_(False)
    return model.append(nn.Linear(3, 3))


def test_an_objective_whose_sites_are_frozen_says_it_at_its_first_step() -> None:
    model = frozen_as_by_peft()
    objective = cd.ELBO(model, "straight-through")
    with pytest.warns(cd.UntrainedSitesWarning, match=r"frozen.*peft.*cd\.unfreeze_sites"):
        objective(lambda: -F.cross_entropy(model(X), Y, reduction="none")).loss.backward()
    objective(lambda: -F.cross_entropy(model(X), Y, reduction="none")).loss.backward()


def test_unfrozen_sites_learn_and_the_rest_stays_frozen() -> None:
    model = frozen_as_by_peft()
    model[4] = cd.ContextualDropout(3, prior="fixed")
    cd.unfreeze_sites(model)
    cd.ELBO(model, "straight-through")(lambda: -F.cross_entropy(model(X), Y, reduction="none")).loss.backward()
    learned = {name for name, parameter in model.named_parameters() if parameter.grad is not None}
    encoders = {name for name, _ in model.named_parameters() if ".encoder." in name}
    assert learned == encoders | {"2.prior_logit", "5.weight", "5.bias"}


def test_lora_after_the_conversion() -> None:
    peft = pytest.importorskip("peft")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = peft.get_peft_model(network(), peft.LoraConfig(target_modules=["0", "3"], r=2)).train()
    with pytest.warns(cd.UntrainedSitesWarning, match="peft"):
        cd.ELBO(model, "straight-through")(lambda: -F.cross_entropy(model(X), Y, reduction="none"))
    cd.unfreeze_sites(model)
    cd.ELBO(model, "straight-through")(lambda: -F.cross_entropy(model(X), Y, reduction="none")).loss.backward()
    assert all(site.encoder.expand_weight.grad is not None for site in cd.sites(model).values())
