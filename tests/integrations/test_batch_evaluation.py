"""Sampled predictions for a batch: logits and p-values agree on the class, positions keep their shape."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import contextual_dropout as cd
from contextual_dropout.integrations.batch_evaluation import BatchEvaluation, evaluate
from contextual_dropout.prediction.outputs import interpret


def evaluated(logits: Tensor, task: Any) -> BatchEvaluation:
    return BatchEvaluation(interpret(logits, task, None), (logits.shape[1],), None)


def test_logits_are_finite_and_those_of_the_mean() -> None:
    sure = torch.tensor([[[300.0, -300.0, 0.0]], [[310.0, -320.0, 5.0]]])
    mean = (sure.double().log_softmax(-1).logsumexp(0) - math.log(2)).float()
    torch.testing.assert_close(evaluated(sure, "multiclass").logits, mean)
    odds = nn.functional.logsigmoid(sure.double()).logsumexp(0) - nn.functional.logsigmoid(-sure.double()).logsumexp(0)
    torch.testing.assert_close(evaluated(sure, "multilabel").logits, odds.float())
    impossible = evaluated(torch.tensor([[[0.0, -math.inf]]]), "multiclass").logits
    assert impossible.isfinite().all()


def test_the_highest_logit_is_the_label() -> None:
    """Also of means that are equal in single precision: one rule for what is compared with labels, and the p-value."""
    moved = 0
    for seed in range(40):
        generator = torch.Generator().manual_seed(seed)
        half = torch.randn(4, 200, 1, generator=generator)
        ahead = torch.cat([half, -half])[torch.randperm(8, generator=generator)]  # as often as the rival is
        rival = torch.where(torch.rand(ahead.shape, generator=generator) < 0.5, -ahead, torch.nextafter(-ahead, ahead))
        found = evaluated(torch.cat([ahead, rival, torch.full_like(ahead, -9)], -1), "multiclass")
        prediction = found.prediction
        assert isinstance(prediction, cd.Prediction)
        assert torch.equal(found.logits.argmax(-1), prediction.label)
        torch.testing.assert_close(found.logits.softmax(-1), prediction.mean)
        moved += int((prediction.mean.log().argmax(-1) != prediction.label).sum())
    assert moved > 100  # where rounding would have named another class


def test_log_likelihoods_of_another_shape_are_refused() -> None:
    model, x = nn.Sequential(nn.Linear(4, 3), nn.Dropout(0.5)), torch.randn(5, 4)
    for wrong in (lambda out: out.sum(), lambda out: out, lambda out: None):
        with pytest.raises(ValueError, match=r"log_likelihood must return one number for each of 5 examples, \(5,\)"):
            evaluate(model, x, wrong, samples=3)
