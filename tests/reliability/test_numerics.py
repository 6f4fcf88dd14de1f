"""Training and prediction with numbers at the edges of every precision: no NaN, finite gradients, right answers."""

from __future__ import annotations

import warnings
from collections import Counter

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

import contextual_dropout as cd
from contextual_dropout.prediction.outputs import Task
from contextual_dropout.training.estimators import names
from tests.reliability.extremes import DTYPES, FAMILIES, KINDS, SCALES, Case, cases, thorough
from tests.reliability.record import FULL, record

ESTIMATORS = tuple(names())
#: Gradients of a Gaussian KL are as large as exp(40): parameters of float16 cannot have them, nor any parameters those
#: times 1e30.
BERNOULLI = cases(("bernoulli",))
GAUSSIAN = cases(("gaussian",), tuple(name for name in DTYPES if name != "float16"), SCALES[:-1])
STEPS = st.one_of(
    st.tuples(st.sampled_from([name for name in ESTIMATORS if "reparameterized" not in name]), BERNOULLI),
    st.tuples(st.sampled_from(ESTIMATORS), GAUSSIAN),
)
TASKS: tuple[Task, ...] = ("multiclass", "multilabel", "binary", "regression")
MEASURES = ("mean", "confidence", "entropy", "mutual_information", "variation_ratio", "p_value", "label")


@pytest.mark.slow
def test_a_step_of_training_is_finite_whatever_the_numbers() -> None:
    tried: Counter[str] = Counter()

    @thorough(120, 3000)
    @given(STEPS)
    def holds(chosen: tuple[str, Case]) -> None:
        estimator, case = chosen
        for kl in ("closed-form", "sampled"):
            model, x, y = case.build()

            def log_likelihood(model: torch.nn.Module = model, x: Tensor = x, y: Tensor = y) -> Tensor:
                with case.autocast():
                    return -F.cross_entropy(model(x), y, reduction="none")

            with warnings.catch_warnings():
                warnings.simplefilter("ignore", cd.SaturationWarning)
                step = cd.ELBO(model, estimator, kl=kl)(log_likelihood)  # type: ignore[arg-type]
            step.loss.backward()
            assert step.loss.isfinite()
            assert step.kl.shape == step.log_likelihood.shape == (case.batch,)
            assert kl == "sampled" or (step.kl >= -1e-5).all()
            gradients = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
            assert gradients
            assert all(gradient.isfinite().all() for gradient in gradients)
            tried.update([estimator, case.family, case.kind, case.precision, "steps"])

    holds()
    assert not FULL or set(tried) >= {*ESTIMATORS, *FAMILIES, *KINDS, *DTYPES}
    record(
        "numerics",
        "numerics-training",
        "A step of training is finite, all gradients included, for every estimator, family, kind of site, precision "
        "(Gaussian sites: all but float16), logits of up to 1e4 in size, inputs of 1e-45 to 1e30 (1e15 at Gaussian "
        "sites, whose KL has gradients of up to 1e17) and batches of none or one.",
        {"steps of training": tried["steps"], "estimators": len(ESTIMATORS), "precisions": len(DTYPES)},
    )


@pytest.mark.slow
def test_a_prediction_is_finite_and_in_range_whatever_the_numbers() -> None:
    tried: Counter[str] = Counter()

    @thorough(120, 3000)
    @given(cases(), st.sampled_from([1, 2, 9]), st.sampled_from(TASKS), st.integers(1, 40))
    def holds(case: Case, samples: int, task: Task, rows: int) -> None:
        model, x, _ = case.build()
        pick = (lambda out: out[:, 0]) if task == "binary" else None
        with case.autocast():
            prediction = cd.predict(model, x, samples=samples, task=task, output=pick, rows=rows, seed=case.seed)
            point = model.eval()(x)
        assert point.isfinite().all()
        assert prediction.samples.shape[:2] == (samples, case.batch)
        assert prediction.samples.isfinite().all()
        assert len(repr(prediction)) > 0
        if isinstance(prediction, cd.RegressionPrediction):
            assert prediction.std.isfinite().all()
            ends = prediction.quantile([0.0, 1.0])
            assert torch.equal(ends, torch.stack([prediction.samples.amin(0), prediction.samples.amax(0)]))
        else:
            _check_measures(prediction, samples)
        tried.update([case.precision, task, "predictions"])

    holds()
    assert not FULL or set(tried) >= {*DTYPES, *TASKS}
    record(
        "numerics",
        "numerics-prediction",
        "Predictions, their probabilities, entropies and p-values are finite and in range for the same numbers, also "
        "with a single sample and without any input.",
        {"predictions": tried["predictions"], "tasks": len(TASKS), "precisions": len(DTYPES)},
    )


def _check_measures(prediction: cd.Prediction | cd.MultilabelPrediction, samples: int) -> None:
    for name in MEASURES:
        values = getattr(prediction, name)
        assert values.shape[:1] == (len(prediction),), name
        assert values.double().isfinite().all(), name
        assert (values >= 0).all(), name
    assert (prediction.confidence <= 1 + 1e-6).all()
    assert (prediction.mutual_information <= prediction.entropy + 1e-6).all()
    assert (prediction.p_value <= 1).all()
    if samples == 1:
        assert not prediction.certain(0.05).any()
