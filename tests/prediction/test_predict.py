"""`cd.predict`: what it takes, what it gives, and what it leaves as it was."""

from __future__ import annotations

import concurrent.futures
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import contextual_dropout as cd
from tests.networks import batch, build
from tests.predictions import Net, assert_unchanged, snapshot


@pytest.mark.parametrize("rows", [1, 1000])
@pytest.mark.parametrize("training", [True, False])
def test_predict_leaves_no_trace(training: bool, rows: int) -> None:
    model = build("residual", "bernoulli", "gaussian").train(training)
    model[1].norm1.eval()
    before = snapshot(model)
    cd.predict(model, batch()[0], samples=3, rows=rows)
    assert_unchanged(before, model)


def test_predict_leaves_no_trace_of_an_error() -> None:
    model = build("residual", "bernoulli", "gaussian")
    before = snapshot(model)
    with pytest.raises(RuntimeError):
        cd.predict(model, torch.zeros(2, 5, 5, 5, dtype=torch.float64))
    assert_unchanged(before, model)


class Counting(nn.Module):
    """Changes buffers in place and by assignment, and its input."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))
        self.register_buffer("last", torch.zeros(3))
        self.dropout, self.passes = nn.Dropout(0.5), 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        self.passes += 1
        self.last = x.detach()[0]
        out: Tensor = self.dropout(x.mul_(2))
        if self.passes == 3:
            raise KeyError("midway")
        return out


@pytest.mark.parametrize("samples", [2, 5])
def test_buffers_and_inputs_are_as_before(samples: int) -> None:
    model, x = Counting(), torch.ones(4, 3)
    before, last = snapshot(model), model.last
    if samples == 2:
        prediction = cd.predict(model, x, samples=2, rows=1, task="regression")
        assert set(prediction.samples.unique().tolist()) <= {0.0, 4.0}  # 2 x / (1 - p): no input was doubled twice
    else:
        with pytest.raises(KeyError, match="midway"):
            cd.predict(nn.Sequential(nn.Dropout(0.1), model), x, samples=5, rows=1)
    assert_unchanged(before, model)
    assert model.last is last
    assert torch.equal(x, torch.ones(4, 3))


def test_a_seed_or_a_generator_fixes_the_samples() -> None:
    model = build("mlp", "bernoulli")
    x, _ = batch()

    def run(**options: Any) -> Tensor:
        return cd.predict(model, x, samples=4, **options).samples

    assert torch.equal(run(seed=1), run(seed=1))
    assert not torch.equal(run(seed=1), run(seed=2))
    assert not torch.equal(run(), run())
    generator = torch.Generator().manual_seed(5)
    first, second = run(generator=generator), run(generator=generator)
    assert not torch.equal(first, second)
    assert torch.equal(first, run(generator=generator.manual_seed(5)))
    with pytest.raises(ValueError, match="seed or generator, not both"):
        run(seed=1, generator=generator)


def test_batch_norm_stays_in_eval() -> None:
    model = nn.Sequential(nn.BatchNorm1d(3), cd.ContextualDropout(3), nn.BatchNorm1d(3)).train()
    model[0].running_mean.fill_(7.0)
    samples = cd.predict(model, torch.zeros(5, 3), samples=50, task="regression", rows=100).samples
    value = -7 / (1 + 1e-5)
    assert ((samples - value).abs() < 1e-3).logical_or(samples.abs() < 1e-3).all()
    assert samples.unique().numel() == 2


@pytest.mark.parametrize("form", ["tensor", "tuple", "dict", "object"])
def test_any_inputs_and_outputs(form: str) -> None:
    model, x = Net(form), torch.randn(2, 4)
    expected = cd.predict(Net("tensor"), x).samples.shape
    assert cd.predict(model, x).samples.shape == expected
    assert cd.predict(model, {"x": x}, scale=[{"s": torch.tensor(2.0)}]).samples.shape == expected
    assert (cd.predict(model, x=x, scale=1e-9).mean - 1 / 3).abs().max() < 1e-6


def test_output_picks_the_logits() -> None:
    x = torch.randn(2, 4)
    assert cd.predict(Net("dict"), x, output="logits").samples.shape == (20, 2, 3)
    assert cd.predict(Net("tuple"), x, output=0).samples.shape == (20, 2, 3)
    assert cd.predict(Net("nested"), x, output=lambda out: out["b"][1]).samples.shape == (20, 2, 3)
    with pytest.raises(TypeError, match=r"it returned dict with 'a': tensor \(2,\), 'b': list; pick them with output="):
        cd.predict(Net("nested"), x)
    with pytest.raises(TypeError, match=r"output='c' is not in the model's output"):
        cd.predict(Net("nested"), x, output="c")
    with pytest.raises(TypeError, match=r"output='b' picks list of .* instead of a tensor"):
        cd.predict(Net("nested"), x, output="b")


def test_hugging_face_outputs() -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.BertConfig(
        vocab_size=50, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32, num_labels=3
    )
    model = transformers.BertForSequenceClassification(config).eval()
    batch = {"input_ids": torch.randint(50, (4, 7)), "attention_mask": torch.ones(4, 7, dtype=torch.long)}
    before = snapshot(model)
    for rows in (1, 100):
        prediction = cd.predict(model, **batch, samples=8, rows=rows)
        assert prediction.samples.shape == (8, 4, 3)
        assert (prediction.samples.std(0) > 0).all()
    assert_unchanged(before, model)


def test_nothing_random_is_an_error() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.0))
    for rows in (1, 100):
        with pytest.raises(ValueError, match=r"nothing is sampled.*cd\.contextualize.*nn\.Dropout"):
            cd.predict(model, torch.randn(2, 3), rows=rows)
    assert cd.predict(model, torch.randn(2, 3), samples=1).samples.shape == (1, 2, 3)
    with pytest.raises(ValueError, match="nothing is sampled"):
        cd.predict(lambda x: model(x), torch.randn(2, 3))


def test_ensembles() -> None:
    x = torch.randn(2, 3)
    plain = [nn.Linear(3, 4).eval() for _ in range(3)]
    prediction = cd.predict(plain, x)
    with torch.no_grad():
        expected = torch.stack([member(x).softmax(-1) for member in plain])
    assert torch.equal(prediction.samples, expected)
    assert torch.equal(cd.predict(nn.ModuleList(plain), x).samples, expected)
    assert torch.equal(cd.predict(cd.baselines.DeepEnsemble(plain), x).samples, expected)
    stochastic = [nn.Sequential(nn.Linear(3, 9), nn.Dropout(0.5), nn.Linear(9, 4)) for _ in range(2)]
    assert cd.predict([*stochastic, plain[0]], x, samples=20).samples.shape == (6 + 6 + 6, 2, 4)
    assert cd.predict(stochastic, x, samples=1).samples.shape == (2, 2, 4)
    with pytest.raises(TypeError, match="an empty ensemble"):
        cd.predict([], x)
    with pytest.raises(TypeError, match="a str"):
        cd.predict(["model"], x)  # type: ignore[list-item]


def test_dtypes_and_inference_mode() -> None:
    model = nn.Sequential(nn.Linear(3, 9), nn.Dropout(0.5), nn.Linear(9, 4))
    assert cd.predict(model.bfloat16(), torch.randn(2, 3).bfloat16()).samples.dtype == torch.float32
    assert cd.predict(model.double(), torch.randn(2, 3).double()).samples.dtype == torch.float64
    with torch.inference_mode():
        x = torch.randn(2, 3).double()
        for rows in (1, 4, 1000):
            assert cd.predict(model, x, rows=rows).mean.shape == (2, 4)


def test_functional_calls_without_a_batch() -> None:
    def model(x: Tensor) -> Tensor:
        return F.dropout(x, 0.5)

    assert cd.predict(model, torch.ones(2, 3), samples=7).samples.shape == (7, 2, 3)
    assert cd.predict(lambda: torch.rand(2, 3), samples=7).samples.shape == (7, 2, 3)


def test_bad_input() -> None:
    model, (x, _) = build("mlp", "bernoulli"), batch()
    with pytest.raises(ValueError, match="samples, the number of sampled passes, must be at least 1, got 0"):
        cd.predict(model, x, samples=0)
    with pytest.raises(ValueError, match=r"rows, .* must be at least 1, got 0"):
        cd.predict(model, x, rows=0)
    with pytest.raises(ValueError, match="unknown task 'poisson': expected one of 'multiclass'"):
        cd.predict(model, x, task="poisson")  # type: ignore[call-overload]
    with pytest.raises(ValueError, match="leave it out with task='regression'"):
        cd.predict(model, x, task="regression", test=cd.significance.wilcoxon)
    with pytest.raises(ValueError, match="needs one logit per input"):
        cd.predict(model, x, task="binary")
    with pytest.raises(ValueError, match=r"needs logits \(B, C\), got \(7, 4, 1\)"):
        cd.predict(model, x, output=lambda out: out.unsqueeze(-1))
    with pytest.raises(ValueError, match="task='binary' or 'regression'"):
        cd.predict(model, x, output=lambda out: out[:, :1])
    with pytest.raises(ValueError, match="expected floating-point logits"):
        cd.predict(model, x, output=lambda out: out.argmax(-1))
    with pytest.raises(ValueError, match="lazy layers"):
        cd.predict(nn.Sequential(nn.LazyLinear(3), nn.Dropout()), x)


def test_threads_wait_for_one_another() -> None:
    model = nn.Sequential(nn.Linear(4, 8), cd.ContextualDropout(8, p=0.5), nn.Linear(8, 3)).eval()
    x = torch.randn(5, 4)
    expected = cd.predict(model, x, samples=5, seed=0).samples
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda _: cd.predict(model, x, samples=5, seed=0).samples, range(40)))
    assert all(torch.equal(result, expected) for result in results)
    assert torch.equal(model(x), model(x))


def test_members_of_an_ensemble_count_alike() -> None:
    constant = nn.Linear(1, 1)
    nn.init.zeros_(constant.weight)
    nn.init.ones_(constant.bias)
    noisy = nn.Sequential(nn.Dropout(0.5))
    prediction = cd.predict([constant, noisy], torch.zeros(2, 1), samples=20, task="regression")
    assert prediction.mean.flatten().tolist() == [0.5, 0.5]


def test_an_empty_batch_with_ordinary_dropout() -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 3))
    assert cd.predict(model, torch.zeros(0, 4), samples=5).mean.shape == (0, 3)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"samples": "20"}, "samples, .* must be a whole number, got '20'"),
        ({"samples": 20.0}, r"samples, .* must be a whole number, got 20\.0"),
        ({"samples": None}, "samples, .* must be a whole number, got None"),
        ({"rows": 12.5}, r"rows, .* must be a whole number, got 12\.5"),
        ({"seed": "a"}, "seed must be a whole number, got 'a'"),
        ({"seed": 1.5}, r"seed must be a whole number, got 1\.5"),
        ({"generator": 3}, r"generator must be a torch\.Generator, got 3; a number is a seed"),
        ({"test": "wilcoxon"}, r"test='wilcoxon': expected a function of cd\.significance"),
    ],
)
def test_arguments_of_another_type_are_named(options: dict[str, Any], message: str) -> None:
    model, (x, _) = build("mlp", "bernoulli"), batch()
    with pytest.raises(TypeError, match=message):
        cd.predict(model, x, **options)
    with pytest.raises(TypeError, match=message):
        cd.predict_loader(model, [x], **options)


def test_counts_and_seeds_of_numpy_and_torch_are_numbers() -> None:
    model, (x, _) = build("mlp", "bernoulli"), batch()
    plain = cd.predict(model, x, samples=6, seed=3)
    for three, six in ((np.int64(3), np.int64(6)), (torch.tensor(3), torch.tensor(6))):
        assert torch.equal(cd.predict(model, x, samples=six, seed=three).samples, plain.samples)
