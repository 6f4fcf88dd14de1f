"""Soft answers: several people, several right answers; inputs that many examples share."""

from __future__ import annotations

import json
import math

import pytest
import torch
import torch.nn.functional as F

from contextual_dropout_lab.data import Batches
from contextual_dropout_lab.data.lookup import Lookup, noise_on_regions
from contextual_dropout_lab.errors import ConfigError
from contextual_dropout_lab.runs.config import RunConfig
from contextual_dropout_lab.runs.evaluation import noisy_inputs, parts, scores_of
from contextual_dropout_lab.runs.tasks import LEAST, TASKS, soft_targets, task_named

#: Two examples: answer 2 (1.0) and 0 (0.3); answer 1 (0.6) alone.
ANSWERS = torch.tensor([[[2.0, 0.0], [1.0, 0.3]], [[1.0, 0.0], [0.6, 0.0]]])
DENSE = torch.tensor([[0.3, 0.0, 1.0], [0.0, 0.6, 0.0]])


def test_targets() -> None:
    torch.testing.assert_close(soft_targets(ANSWERS, 3), DENSE)


def test_soft_likelihood_is_binary_cross_entropy() -> None:
    logits = torch.randn(2, 3)
    expected = -F.binary_cross_entropy_with_logits(logits, DENSE, reduction="none").sum(1)
    torch.testing.assert_close(TASKS["soft-answers"].log_likelihood(logits, ANSWERS), expected)
    prediction = TASKS["soft-answers"].prediction(logits[None].double())
    torch.testing.assert_close(
        TASKS["soft-answers"].predictive(prediction.samples, ANSWERS), expected.double(), atol=1e-6, rtol=1e-6
    )


@pytest.mark.parametrize(("label", "expected"), [([2, 1], [1.0, 0.6]), ([0, 0], [0.3, 0.0]), ([1, 2], [0.0, 0.0])])
def test_soft_accuracy(label: list[int], expected: list[float]) -> None:
    accuracy = TASKS["soft-answers"].accuracy(torch.tensor(label), ANSWERS)
    assert accuracy.tolist() == pytest.approx(expected)


@pytest.mark.parametrize("task", list(TASKS))
def test_stored_logits_give_the_samples_back(task: str) -> None:
    prediction = TASKS[task].prediction(torch.randn(4, 2, 3, dtype=torch.float64))
    again = TASKS[task].prediction(TASKS[task].logits(prediction.samples))
    torch.testing.assert_close(again.samples, prediction.samples)
    certain = TASKS[task].prediction(torch.tensor([[[1e5, -1e5, -1e5]]], dtype=torch.float64))
    assert TASKS[task].logits(certain.samples).half().isfinite().all()


def test_labels_that_are_out_of_the_question_have_figures() -> None:
    """Logits thousands apart, as Gaussian sites make them far from their data: all scores are numbers."""
    logits = torch.tensor([[2e3, 0.0, -2e3], [0.0, 300.0, 0.0]]).double().repeat(20, 1, 1)
    values = scores_of(TASKS["classification"].prediction(logits), torch.tensor([1, 0]))
    json.dumps(values, allow_nan=False)
    assert values["log_likelihood"] == pytest.approx((math.log(LEAST) - 300) / 2)


def test_figures_of_soft_answers() -> None:
    logits = torch.tensor([[-1.0, -2.0, 3.0], [2.0, 1.0, -3.0]]).double()
    samples = logits + 0.01 * torch.randn(20, 2, 3, dtype=torch.float64)  # answers 2 and 0: 1.0 and 0.0
    values = scores_of(TASKS["soft-answers"].prediction(samples), ANSWERS, "soft-answers")
    assert values["accuracy"] == pytest.approx(50)
    assert values["pavpu"]["0.05"]["value"] == pytest.approx(50)  # certain both times, right once
    assert "brier" not in values


def test_unknown_task() -> None:
    with pytest.raises(ConfigError, match="unknown task 'regression': expected one of classification, soft-answers"):
        task_named("regression")


def test_lookup_is_like_the_tensor_it_stands_for() -> None:
    table, rows = torch.rand(4, 3, 2), torch.tensor([0, 3, 3, 1, 2])
    lookup, tensor = Lookup(table, rows), table[rows]
    assert lookup.shape == tensor.shape
    assert torch.equal(lookup[1:3], tensor[1:3])
    one, other = (
        list(Batches(x, torch.arange(5), 2).epoch(torch.Generator().manual_seed(0))) for x in (lookup, tensor)
    )
    for (x, y), (expected_x, expected_y) in zip(one, other, strict=True):
        assert torch.equal(x, expected_x)
        assert torch.equal(y, expected_y)
    with pytest.raises(ValueError, match="rows go from 0 to 4: the table has 4"):
        Lookup(table, torch.tensor([0, 4]))


def test_noise_leaves_padding_alone() -> None:
    x = torch.ones(2, 3, 4)
    x[1, 2] = 0
    noisy = noise_on_regions(x, 5.0, torch.Generator().manual_seed(0))
    assert (noisy[1, 2] == 0).all()
    assert (noisy[0] != 1).all()


def test_noise_of_a_lookup_is_fixed() -> None:
    config = RunConfig("e", "s", "m", 0, noise_sd=1.0, test_batch_size=2, noise_draws=2)
    lookup = Lookup(torch.rand(4, 3, 2), torch.tensor([0, 3, 3, 1, 2]))
    first, second = (
        [torch.cat([part[0] for part in parts(copy, (), config)]) for copy in noisy_inputs(lookup, 1.0, config)]
        for _ in range(2)
    )
    assert torch.equal(torch.stack(first), torch.stack(second))
    noise = torch.stack(first) - lookup[0:5]
    assert len(noise.unique()) == noise.numel()  # draws, parts and examples have noise of their own
