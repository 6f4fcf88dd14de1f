"""The experiments on attention networks: what their Bernoulli arms differ in, and what they cost here."""

from __future__ import annotations

import pytest

from contextual_dropout.experiments.config import RunConfig, load_experiment
from contextual_dropout.experiments.questions import QUESTION_DATA

EXPERIMENTS = ("vqa", "easy-vqa", "vit")
SMALL = ("easy-vqa", "vit")


def arms(name: str) -> tuple[RunConfig, ...]:
    """With our context, with the paper's, and with the paper's context and estimator."""
    experiment = load_experiment(name)
    preset = next(iter(experiment.presets))
    methods = ("contextual-bernoulli", "contextual-bernoulli-constant", "contextual-bernoulli-independent")
    return tuple(experiment.run("noisy", method, 0, preset) for method in methods)


def differences(one: RunConfig, other: RunConfig) -> dict[str, tuple[object, object]]:
    """Of what the conversion and the objective are given."""
    first, second = (config.options | config.objective for config in (one, other))
    return {key: (first.get(key), second.get(key)) for key in first | second if first.get(key) != second.get(key)}


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_context_and_estimator_are_told_apart(name: str) -> None:
    ours, constant, independent = arms(name)
    assert differences(ours, constant) == {"attention_context": ("entropy", "weights")}
    assert differences(constant, independent) == {"estimator": ("sampled-arm", "independent-arm")}


@pytest.mark.parametrize("name", SMALL)
def test_by_default_a_processor_is_enough(name: str) -> None:
    experiment = load_experiment(name)
    assert next(iter(experiment.presets)) == "cpu"
    assert "paper" not in experiment.presets
    config = next(experiment.runs("cpu"))
    steps = config.epochs * -(-(config.train_examples or 60_000) // config.batch_size)
    seconds = (0.12 if config.data in QUESTION_DATA else 0.09) * steps  # measured
    assert seconds < 90
    assert (config.test_examples, config.noise_draws) in ((1000, 1), (2000, 1))
