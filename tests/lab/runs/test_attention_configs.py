"""The experiments on attention networks: what their Bernoulli arms differ in, and the paper's settings."""

from __future__ import annotations

import re

import pytest
from torch import nn

from contextual_dropout_lab.models.mcan import OVERRIDES, mcan
from contextual_dropout_lab.runs.config import RunConfig, load_experiment
from contextual_dropout_lab.runs.methods import rate_factor

EXPERIMENTS = ("vqa", "easy-vqa", "vit")


def arms(name: str) -> tuple[RunConfig, ...]:
    """Runs with our context, with the paper's, and with the paper's context and estimator."""
    experiment = load_experiment(name)
    preset = next(iter(experiment.presets))
    methods = ("contextual-bernoulli", "contextual-bernoulli-constant", "contextual-bernoulli-independent")
    return tuple(experiment.run("noisy", method, 0, preset) for method in methods)


def differences(one: RunConfig, other: RunConfig) -> dict[str, tuple[object, object]]:
    """The differences between the arguments of the conversion and of the objective."""
    first, second = (config.options | config.objective for config in (one, other))
    return {key: (first.get(key), second.get(key)) for key in first | second if first.get(key) != second.get(key)}


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_context_and_estimator_are_told_apart(name: str) -> None:
    ours, constant, independent = arms(name)
    assert differences(ours, constant) == {"attention_context": ("entropy", "weights")}
    assert differences(constant, independent) == {"estimator": ("sampled-arm", "independent-arm")}


def test_the_papers_schedule() -> None:
    """Appendix C.2: min(2.5e-5 epoch, 1e-4), after the tenth epoch a fifth of it every two epochs."""
    experiment = load_experiment("vqa")
    for setting, sd in {"original": 0, "noisy": 5}.items():
        for config in (experiment.run(setting, method, 0, "paper") for method in experiment.methods):
            rates = [config.optimizer["lr"] * rate_factor(config, epoch) for epoch in range(config.epochs)]
            assert rates == pytest.approx([2.5e-5, 5e-5, 7.5e-5, *[1e-4] * 7, 2e-5, 2e-5, 4e-6])
            assert config.optimizer["betas"] == [0.9, 0.98]
            assert (config.batch_size, config.p, config.noise_sd, config.samples) == (64, 0.1, sd, 20)


def test_the_papers_bottlenecks() -> None:
    """Gamma 8, ReLU, and what makes 61M parameters of 58M: the pattern of the configuration is that of the network."""
    for config in arms("vqa"):
        assert (config.options["reduction"], config.options["negative_slope"]) == (8, 0)
        assert config.options["overrides"] == OVERRIDES
    names = [name for name, module in mcan(20, size="tiny", layers=6).named_modules() if isinstance(module, nn.Dropout)]
    (pattern,) = OVERRIDES
    assert sum(re.fullmatch(pattern, name) is not None for name in names) == 12
