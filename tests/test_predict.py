from __future__ import annotations

import concurrent.futures
import random
import sys
import types
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from scipy import stats
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import contextual_dropout as cd
from contextual_dropout import passes as passes_module
from contextual_dropout.state import BufferState, stateful_buffers
from tests.networks import NETWORKS, batch, build

Snapshot = tuple[list[bool], list[Tensor], Tensor, Any]


def snapshot(model: nn.Module) -> Snapshot:
    flags = [module.training for module in model.modules()]
    flags += [module.sampling for module in model.modules() if isinstance(module, cd.ContextualDropout)]
    buffers = [buffer.clone() for buffer in model.buffers()]
    return flags, buffers, torch.get_rng_state(), random.getstate()


def assert_unchanged(before: Snapshot, model: nn.Module) -> None:
    after = snapshot(model)
    assert after[0] == before[0]
    assert all(torch.equal(a, b) for a, b in zip(after[1], before[1], strict=True))
    assert torch.equal(after[2], before[2])
    assert after[3] == before[3]


def by_hand(model: nn.Module, *inputs: Any, samples: int) -> Tensor:
    buffers, outs = BufferState(stateful_buffers(model.modules())), []
    with torch.no_grad(), cd.sampling(model):
        for _ in range(samples):
            outs.append(model(*inputs).softmax(-1))
            buffers.restore()  # every sample is one of the model that was given
    return torch.stack(outs)


def assert_same_distribution(a: Tensor, b: Tensor) -> None:
    """Means and variances of (K, ...) samples agree; all comparisons together fail by chance at a rate of 2e-5."""
    bound = stats.norm.ppf(1 - 2e-5 / (4 * a[0].numel()))
    for x, y in ((a, b), ((a - a.mean(0)).square(), (b - b.mean(0)).square())):
        error = (x.var(0) / len(x) + y.var(0) / len(y)).sqrt()
        assert ((x.mean(0) - y.mean(0)).abs() <= bound * error + 1e-12).all()


class Spy:
    """Counts in which way passes were run."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.ways: list[str] = []
        for name in ("_batched", "_looped", "_plain"):
            monkeypatch.setattr(passes_module, name, self._wrap(name, getattr(passes_module, name)))

    def _wrap(self, name: str, function: Callable[..., Tensor]) -> Callable[..., Tensor]:
        def wrapped(*args: Any) -> Tensor:
            out = function(*args)
            self.ways.append(name)  # only if it came to an end
            return out

        return wrapped


@pytest.fixture
def spy(monkeypatch: pytest.MonkeyPatch) -> Spy:
    return Spy(monkeypatch)


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


@pytest.mark.parametrize("family", ["bernoulli", "gaussian"])
@pytest.mark.parametrize("name", NETWORKS)
def test_every_way_has_the_distribution_of_a_loop_by_hand(name: str, family: str, spy: Spy) -> None:
    model = build(name, family, family).eval()
    x, _ = batch(3)
    torch.manual_seed(0)
    expected = by_hand(model, x, samples=1000)
    for rows in (1, 60, 3000):  # looped; 50 batched chunks of 20; one
        samples = cd.predict(model, x, samples=1000, seed=rows, rows=rows).samples
        torch.testing.assert_close(samples.sum(-1), torch.ones(1000, 3, dtype=torch.float64))
        assert_same_distribution(samples, expected)
    assert spy.ways[0] == "_looped"
    # vmap follows neither an in-place change of a tensor of the prefix nor control flow on values
    loops = name in ("inplace", "attention", "remembering")
    assert spy.ways[1:] == ["_looped" if loops else "_batched"] * 2


@pytest.mark.parametrize("rows", [1, 12, 1000])
@pytest.mark.parametrize("family", ["bernoulli", "gaussian", "dropout"])
def test_samples_and_rows_are_independent(family: str, rows: int) -> None:
    """All K samples differ, and so do the rows of one batch, although the inputs are equal."""
    layer = nn.Dropout(0.5) if family == "dropout" else cd.ContextualDropout(40, 0.5, family=family)  # type: ignore[arg-type]
    model = nn.Sequential(nn.Linear(5, 40), layer, nn.Linear(40, 3))
    samples = cd.predict(model, torch.ones(4, 5), samples=12, rows=rows).samples.flatten(0, 1)
    distances = torch.cdist(samples, samples) + torch.eye(len(samples))
    assert (distances > 0).all()


@pytest.mark.parametrize("rows", [1, 1000])
def test_the_prefix_is_computed_once(rows: int) -> None:
    class Prefix(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            out = torch.tanh(x)
            return out

    count = 0
    model = nn.Sequential(nn.Linear(3, 8), Prefix(), cd.ContextualDropout(8), nn.Linear(8, 2))

    class Count(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            nonlocal count
            count += func is torch.ops.aten.tanh.default
            return func(*args, **(kwargs or {}))

    with Count():
        cd.predict(model, torch.randn(2, 3), samples=6, rows=rows)
    assert count == 1


def test_batch_norm_stays_in_eval() -> None:
    model = nn.Sequential(nn.BatchNorm1d(3), cd.ContextualDropout(3), nn.BatchNorm1d(3)).train()
    model[0].running_mean.fill_(7.0)
    samples = cd.predict(model, torch.zeros(5, 3), samples=50, task="regression", rows=100).samples
    value = -7 / (1 + 1e-5)
    assert ((samples - value).abs() < 1e-3).logical_or(samples.abs() < 1e-3).all()
    assert samples.unique().numel() == 2


class Net(nn.Module):
    """Any input, any output."""

    def __init__(self, form: str) -> None:
        super().__init__()
        self.form = form
        self.layers = nn.Sequential(nn.Linear(4, 20), nn.Dropout(0.5), nn.Linear(20, 3))

    def forward(self, x: Any, scale: Any = 1.0) -> Any:
        x = x["x"] if isinstance(x, dict) else x
        scale = scale[0]["s"] if isinstance(scale, list) else scale
        logits = self.layers(x) * scale
        hidden = torch.zeros(2)
        forms = {
            "tensor": logits,
            "tuple": (logits, hidden),
            "dict": {"hidden": hidden, "logits": logits},
            "object": types.SimpleNamespace(logits=logits),
            "nested": {"a": hidden, "b": [hidden, logits]},
        }
        return forms[self.form]


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


def layers_with_dropout() -> dict[str, tuple[nn.Module, tuple[int, ...]]]:
    class Last(nn.Module):
        def forward(self, x: Any) -> Tensor:
            x = x[0] if isinstance(x, tuple) else x
            return x.mean(1)  # type: ignore[no-any-return]

    encoder = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.3, batch_first=True)
    fused = nn.TransformerEncoder(encoder, 2, enable_nested_tensor=False)
    return {
        "dropout": (nn.Sequential(nn.Linear(8, 50), nn.Dropout(0.5), nn.Linear(50, 3)), (8,)),
        "dropout2d, in place": (
            nn.Sequential(nn.Conv2d(2, 9, 3), nn.Dropout2d(0.5, inplace=True), nn.Flatten(), nn.Linear(81, 3)),
            (2, 5, 5),
        ),
        "alpha": (nn.Sequential(nn.Linear(8, 50), nn.SELU(), nn.AlphaDropout(0.3), nn.Linear(50, 3)), (8,)),
        "transformer": (nn.Sequential(fused, Last(), nn.Linear(8, 3)), (5, 8)),
        "lstm": (nn.Sequential(nn.LSTM(8, 6, 2, batch_first=True, dropout=0.4), Last(), nn.Linear(6, 3)), (5, 8)),
    }


@pytest.mark.parametrize("rows", [1, 1000])
@pytest.mark.parametrize("name", layers_with_dropout())
def test_ordinary_dropout_is_sampled_too(name: str, rows: int) -> None:
    torch.manual_seed(0)
    model, shape = layers_with_dropout()[name]
    model.eval()
    x = torch.randn(3, *shape)
    samples = cd.predict(model, x, samples=600, rows=rows, seed=1).samples.double()
    assert (samples.std(0) > 0).all()
    assert_same_distribution(samples, by_hand(model, x, samples=600).double())
    assert torch.backends.mha.get_fastpath_enabled()


class HostNoise(nn.Module):
    """Draws from Python's generator, or from one of its own."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind, self.dropout = kind, nn.Dropout(0.1)
        self.generator = torch.Generator().manual_seed(0)

    def forward(self, x: Tensor) -> Tensor:
        if self.kind == "own":
            return self.dropout(x) + torch.rand(len(x), 1, generator=self.generator)  # type: ignore[no-any-return]
        return self.dropout(x) + random.random()  # type: ignore[no-any-return]


@pytest.mark.parametrize("rows", [1, 1000])
@pytest.mark.parametrize("kind", ["python", "own"])
def test_other_generators_are_not_shared_by_the_samples(kind: str, rows: int) -> None:
    model, x = HostNoise(kind), torch.zeros(2, 3)
    before = snapshot(model)
    samples = cd.predict(model, x, samples=10, task="regression", rows=rows, seed=1).samples
    assert samples[:, 0, 0].unique().numel() == 10
    assert_unchanged(before, model)
    if kind != "own":
        assert torch.equal(samples, cd.predict(model, x, samples=10, task="regression", rows=rows, seed=1).samples)


def test_hidden_random_calls() -> None:
    """Random numbers in scripted code, and in a custom autograd function, are out of a torch function mode's sight."""

    class Noise(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return x + torch.rand_like(x)

    class Model(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.tanh(Noise.apply(torch.tanh(x)))  # type: ignore[no-any-return, no-untyped-call]

    for rows in (1, 1000):
        samples = cd.predict(Model(), torch.zeros(2, 3), samples=5, rows=rows).samples
        assert samples[:, 0, 0].unique().numel() == 5


def test_a_tensor_of_the_prefix_that_is_changed_later() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.dropout = nn.Dropout(0.5)

        def forward(self, x: Tensor) -> Tensor:
            u = x + 1
            out: Tensor = self.dropout(u) * 0 + u
            u.mul_(2)
            return out + u

    for rows in (1, 4, 1000):
        samples = cd.predict(Model(), torch.zeros(2, 3), samples=6, rows=rows, task="regression").samples
        assert torch.equal(samples, torch.full((6, 2, 3), 3.0))


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
    assert torch.equal(cd.predict(types.SimpleNamespace(members=tuple(plain)), x).samples, expected)  # type: ignore[call-overload]
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


def loader(examples: int = 50, size: int = 16) -> DataLoader[Any]:
    x = torch.randn(examples, 4, generator=torch.Generator().manual_seed(0))
    return DataLoader(TensorDataset(x, torch.arange(examples)), batch_size=size)


def test_predict_loader() -> None:
    model = nn.Sequential(nn.Linear(4, 30), nn.Dropout(0.2), nn.Linear(30, 3))
    before = snapshot(model)
    prediction = cd.predict_loader(model, loader(), samples=40, seed=0)
    assert_unchanged(before, model)
    assert isinstance(prediction, cd.Prediction)
    assert prediction.samples.shape == (40, 50, 3)
    assert torch.equal(prediction.samples, cd.predict_loader(model, loader(), samples=40, seed=0).samples)
    x = loader().dataset.tensors[0]  # type: ignore[attr-defined]
    assert_same_distribution(prediction.samples, cd.predict(model, x, samples=40).samples)  # in the loader's order
    with pytest.raises(ValueError, match="the loader gave no batch"):
        cd.predict_loader(model, [])


def test_a_batch_does_not_depend_on_those_before_it() -> None:
    model = nn.Sequential(nn.Linear(4, 30), nn.Dropout(0.2), nn.Linear(30, 3))
    a, b, other = torch.randn(3, 4), torch.randn(3, 4), torch.randn(9, 4)
    one, two = (
        [p.samples for _, p in cd.predict_batches(model, batches, seed=3)] for batches in ([a, b], [other, b, a])
    )
    assert torch.equal(one[1], two[1])
    same_input = [p.samples for _, p in cd.predict_batches(model, [a, a], seed=3)]
    assert not torch.equal(*same_input)


def test_batches_of_any_kind() -> None:
    model, x = Net("tensor"), torch.randn(2, 4)
    batches = {"tensor": x, "tuple": (x, 0), "list": [x, 0], "dict": {"x": x, "scale": 2.0}, "both": ({"x": x}, 0)}
    for one in batches.values():
        ((given, prediction),) = cd.predict_batches(model, [one], samples=3)
        assert given is one
        assert prediction.samples.shape == (3, 2, 3)
    prediction = cd.predict_loader(model, [(0, x, 2.0)], samples=3, inputs=lambda b: b[1:], task="multilabel")
    assert isinstance(prediction, cd.MultilabelPrediction)
    assert prediction.test is cd.significance.independent_t


def test_a_progress_bar_on_a_terminal(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("rich")
    model = nn.Sequential(nn.Linear(4, 3), nn.Dropout(0.2))
    cd.predict_loader(model, loader(), samples=2)
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert cd.predict_loader(model, loader(), samples=2).samples.shape == (2, 50, 3)
    assert "predicting" in capsys.readouterr().err


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


@pytest.mark.parametrize("batch_size", [1, 32])
def test_lists_that_the_network_changes_are_its_own(batch_size: int) -> None:
    """A list that a call before the first random one returned, and that is changed then, is a new one in each pass."""

    class Reversing(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.drop = nn.Dropout(0.5)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            order = torch.arange(4).tolist()
            order.reverse()
            return self.drop(x) * 0 + torch.tensor(order, dtype=x.dtype)

    samples = cd.predict(Reversing(), torch.ones(batch_size, 4), samples=6, task="regression").samples
    assert (samples == torch.tensor([3.0, 2.0, 1.0, 0.0])).all()
