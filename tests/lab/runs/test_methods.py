from __future__ import annotations

import pytest

from contextual_dropout_lab.runs.methods import build_model, build_optimizer
from tests.lab.runs.tiny import tiny

#: Conversion: what of its parameters decay must leave alone, beside none of the plain network's.
EXEMPT = {
    "concrete_dropout": {"drop_logit"},
    "bayes_by_backprop": {"log_scale", "layer"},
    "contextual_gating": {"encoder"},
    "learnable_dropout": {"encoder", "prior_logit"},
    "mc_dropout": set[str](),
}


@pytest.mark.parametrize("conversion", EXEMPT)
def test_weight_decay_leaves_learned_rates_alone(conversion: str) -> None:
    config = tiny(conversion=conversion, options={}, optimizer={"name": "sgd", "lr": 0.1, "weight_decay": 0.01})
    model = build_model(config, (64,), 10)
    groups = build_optimizer(config, model).param_groups
    decayed = {id(parameter) for group in groups for parameter in group["params"] if group["weight_decay"]}
    assert all(group["weight_decay"] in (0.0, 0.01) for group in groups)
    assert sum(len(group["params"]) for group in groups) == len(list(model.parameters()))
    for name, parameter in model.named_parameters():
        assert (id(parameter) in decayed) == EXEMPT[conversion].isdisjoint(name.split(".")), name


def test_without_decay_there_are_no_more_groups() -> None:
    """Checkpoints of such runs, which older versions wrote, can still be resumed."""
    config = tiny(conversion="concrete_dropout", options={})
    groups = build_optimizer(config, build_model(config, (64,), 10)).param_groups
    assert [group["name"] for group in groups] == ["theta", "phi", "eta"]
