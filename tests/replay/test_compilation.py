"""Training and inspection under torch.compile."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import pytest
import torch
import torch.nn.functional as F
from scipy import stats
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import contextual_dropout as cd
from tests.exact.enumeration import FAILURE_RATE, sampled_gradients

pytestmark = pytest.mark.filterwarnings(
    "ignore:Guards may run slower on Python 3.13.0:RuntimeWarning",
    "ignore:`torch.jit.script_method` is deprecated:DeprecationWarning",  # which inductor calls
    "ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning",  # Dynamo reads it of every input
)


@pytest.fixture(autouse=True)
def _fresh_compiler() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


class Net(nn.Module):
    """Two sites, the second of which reads what the first left, with batch normalisation between them."""

    def __init__(self, *families: str, checkpoints: bool = False) -> None:
        super().__init__()
        torch.manual_seed(0)
        options = {"temperature": 1.0, "reduction": 2}
        first, second = (cd.ContextualDropout(8, 0.3, family=family, **options) for family in families)  # type: ignore[arg-type]
        self.first = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), first)
        self.between = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Tanh())
        self.second = nn.Sequential(second, nn.Linear(8, 3))
        self.checkpoints = checkpoints

    def forward(self, x: Tensor) -> Tensor:
        x = checkpoint(self.first, x, use_reentrant=False) if self.checkpoints else self.first(x)
        out: Tensor = self.second(self.between(x))
        return out


def around(model: Net, **options: object) -> nn.Module:
    return torch.compile(model, **options)  # type: ignore[call-overload, no-any-return]


def inside(model: Net, **options: object) -> nn.Module:
    model.first = torch.compile(model.first, **options)  # type: ignore[call-overload]
    model.second.compile(**options)
    return model


def in_place(model: Net, **options: object) -> nn.Module:
    model.compile(**options)
    return model


COMPILED = [around, inside, in_place]
X, Y = torch.randn(6, 4, generator=torch.Generator().manual_seed(1)), torch.tensor([0, 1, 2, 0, 1, 2])


def log_likelihood(model: nn.Module) -> Callable[[], Tensor]:
    return lambda: -F.cross_entropy(model(X), Y, reduction="none")


def gradients(model: nn.Module, estimator: str, kl: str = "closed-form") -> tuple[Tensor, list[Tensor]]:
    """Of one step with a seed of its own: the loss, and each parameter's gradient."""
    model.zero_grad()
    torch.manual_seed(3)
    step = cd.ELBO(model, estimator, 0.5, kl=kl)(log_likelihood(model))  # type: ignore[arg-type]
    step.loss.backward()
    return step.loss.detach(), [parameter.grad for parameter in model.parameters() if parameter.grad is not None]


@pytest.mark.parametrize("kl", ["closed-form", "sampled"])
@pytest.mark.parametrize(
    ("estimator", "families", "compiled"),
    [
        *(("straight-through", ("bernoulli", "bernoulli"), compiled) for compiled in COMPILED),
        *(("reparameterized", ("gaussian", "gaussian"), compiled) for compiled in COMPILED),
        ("truncated-reparameterized", ("gaussian", "gaussian"), around),
        ("auto", ("gaussian", "gaussian"), around),
        ("straight-through", ("bernoulli", "gaussian"), around),
        ("concrete", ("gaussian", "bernoulli"), around),
    ],
)
def test_the_same_noise_gives_the_gradients_of_eager_code(
    estimator: str, families: tuple[str, ...], compiled: Callable[..., nn.Module], kl: str
) -> None:
    """Without a graph break (fullgraph), and compiled once for all steps."""
    loss, expected = gradients(Net(*families), estimator, kl)
    model = compiled(Net(*families), backend="aot_eager", fullgraph=True)
    for step in range(3):
        compiled_loss, actual = gradients(model, estimator, kl)
        torch.testing.assert_close(compiled_loss, loss)
        assert len(actual) == len(expected) == len(list(model.parameters()))
        for gradient, eager in zip(actual, expected, strict=True):
            torch.testing.assert_close(gradient, eager)
        if not step:
            graphs = torch._dynamo.utils.counters["stats"]["unique_graphs"]
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == graphs


@pytest.mark.parametrize(("estimator", "family"), [("straight-through", "bernoulli"), ("reparameterized", "gaussian")])
def test_inductor_gives_the_same_distribution_of_gradients(estimator: str, family: str) -> None:
    """Welch's test of every entry's mean, Bonferroni-corrected over all of them."""
    eager, compiled = Net(family, family), around(Net(family, family), fullgraph=True)
    samples = []
    for model, repeats in ((eager, 400), (compiled, 400)):
        objective = cd.ELBO(model, estimator, 0.5)
        closure = log_likelihood(model)
        rows = sampled_gradients(model, lambda objective=objective, closure=closure: objective(closure).loss, repeats)  # type: ignore[misc]
        samples.append(torch.cat([gradient.flatten(1) for gradient in rows.values()], 1).double())
    varies = samples[0].std(0) > 1e-6
    assert varies.sum() > 100
    p_values = stats.ttest_ind(*(sample[:, varies] for sample in samples), equal_var=False).pvalue
    assert p_values.min() > FAILURE_RATE / int(varies.sum())
    torch.testing.assert_close(samples[0].mean(0)[~varies], samples[1].mean(0)[~varies], atol=1e-5, rtol=0)
    assert not torch.equal(samples[1][0], samples[1][1])


@pytest.mark.parametrize("estimator", ["straight-through", "reparameterized"])
def test_compiled_steps_update_batch_normalisation_once(estimator: str) -> None:
    family = "gaussian" if estimator == "reparameterized" else "bernoulli"
    eager = Net(family, family)
    gradients(eager, estimator)
    model = Net(family, family)
    gradients(around(model, backend="aot_eager"), estimator)
    torch.testing.assert_close(dict(model.named_buffers()), dict(eager.named_buffers()))


def test_the_generators_are_where_an_eager_step_leaves_them() -> None:
    after = []
    for model in (Net("gaussian", "gaussian"), around(Net("gaussian", "gaussian"), backend="aot_eager")):
        gradients(model, "reparameterized")
        after.append(torch.get_rng_state())
    assert torch.equal(*after)


@pytest.mark.parametrize(("estimator", "family"), [("straight-through", "bernoulli"), ("reparameterized", "gaussian")])
def test_checkpoints_in_compiled_code_lose_no_draw(estimator: str, family: str) -> None:
    _, expected = gradients(Net(family, family), estimator)
    model = around(Net(family, family, checkpoints=True), backend="aot_eager", fullgraph=True)
    _, actual = gradients(model, estimator)
    torch.testing.assert_close(actual, expected)


@pytest.mark.parametrize("compiled", COMPILED)
@pytest.mark.parametrize("estimator", ["auto", "sequential-arm", "sampled-disarm"])
def test_estimators_with_reruns_take_the_uncompiled_network(estimator: str, compiled: Callable[..., nn.Module]) -> None:
    model = compiled(Net("bernoulli", "bernoulli"), backend="aot_eager")
    with pytest.raises(ValueError, match=r"compiled \(torch.compile\).*uncompiled network.*straight-through"):
        cd.ELBO(model, estimator)(log_likelihood(model))
    with torch.no_grad():
        assert cd.ELBO(model, estimator)(log_likelihood(model)).kl.shape == (6,)


@pytest.mark.parametrize("estimator", ["sequential-disarm", "independent-arm"])
def test_what_lies_between_the_sites_may_be_compiled_for_them(estimator: str) -> None:
    _, expected = gradients(Net("bernoulli", "bernoulli"), estimator)
    model = Net("bernoulli", "bernoulli")
    model.between.compile(backend="aot_eager", fullgraph=True)
    _, actual = gradients(model, estimator)
    torch.testing.assert_close(actual, expected)


def test_exact_gradients_of_sites_in_a_compiled_function_are_refused() -> None:
    model = Net("gaussian", "gaussian")
    function = torch.compile(lambda: -F.cross_entropy(model(X), Y, reduction="none"), backend="aot_eager")
    _, expected = gradients(Net("gaussian", "gaussian"), "reparameterized")
    torch.manual_seed(3)
    said = ""
    try:
        cd.ELBO(model, "reparameterized", 0.5)(function).loss.backward()
    except RuntimeError as error:
        said = str(error)
    if said:
        assert re.search(r"site 'first.2' ran in a compiled function.*truncated-reparameterized", said)
    else:  # torch may decide to run it as it stands: then it is right
        torch.testing.assert_close([parameter.grad for parameter in model.parameters()], expected)
    model.zero_grad()
    cd.ELBO(model, "truncated-reparameterized")(function).loss.backward()


# --- inspection -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("compiled", COMPILED)
def test_compiled_networks_can_be_inspected(compiled: Callable[..., nn.Module]) -> None:
    plain, model = Net("bernoulli", "gaussian"), compiled(Net("bernoulli", "gaussian"), backend="aot_eager")
    keep = []
    for network in (plain, model):
        network.eval()(X)  # compiled before anybody looks
        torch.manual_seed(5)
        keep.append(cd.keep_probabilities(network, X))
    names = [name.replace("_orig_mod.", "") for name in keep[1]]
    assert names == list(keep[0])
    assert compiled is inside or names == list(keep[1])
    torch.testing.assert_close(list(keep[1].values()), list(keep[0].values()))
    spread = list(cd.probe(model, X).sites.values())
    assert len(spread) == 2
    assert all(site.spread > 0.1 for site in spread)


@pytest.mark.parametrize("compiled", COMPILED)
def test_the_context_of_compiled_networks_can_be_frozen(compiled: Callable[..., nn.Module]) -> None:
    model = compiled(Net("bernoulli", "bernoulli"), backend="aot_eager")
    model(X)
    torch.manual_seed(5)
    frozen = cd.freeze_context(model, X).eval()
    torch.manual_seed(5)
    expected = cd.freeze_context(Net("bernoulli", "bernoulli"), X).eval()
    expected.load_state_dict({name.replace("_orig_mod.", ""): value for name, value in frozen.state_dict().items()})
    torch.testing.assert_close(frozen(X), expected(X))
    assert all((keep == keep[0]).all() for keep in cd.keep_probabilities(frozen, X).values())


@pytest.mark.parametrize("compiled", COMPILED)
def test_predictions_of_compiled_networks_are_sampled(compiled: Callable[..., nn.Module]) -> None:
    model = compiled(Net("bernoulli", "bernoulli").eval(), backend="aot_eager")
    model(X)
    samples = cd.predict(model, X, samples=8).samples
    assert (samples.std(0) > 1e-4).all()
    assert len({tuple(sample.flatten().tolist()) for sample in samples}) == 8


def test_compiled_networks_are_converted_before() -> None:
    network = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.3), nn.Linear(8, 3)).eval()
    wrapped = torch.compile(network, backend="aot_eager")
    with pytest.raises(ValueError, match=r"the model is compiled \(torch.compile\): convert first"):
        cd.contextualize(wrapped)  # type: ignore[type-var]
    with pytest.raises(ValueError, match=r"1 is compiled \(torch.compile\): convert first"):
        cd.contextualize(nn.Sequential(network[0], torch.compile(network[1])))  # type: ignore[arg-type]
    cd.contextualize(network, example=X)
    torch.testing.assert_close(wrapped(X), network(X))
    with cd.sampling(network):
        assert not torch.equal(wrapped(X), wrapped(X))


def test_networks_that_are_compiled_in_place_can_be_converted() -> None:
    network = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.3), nn.Linear(8, 3)).eval()
    network.compile(backend="aot_eager")
    plain = network(X)
    cd.contextualize(network, example=X)
    torch.testing.assert_close(network(X), plain)
    assert list(cd.keep_probabilities(network, X)) == ["1"]
    assert cd.predict(network, X, samples=4).samples.std(0).max() > 1e-4
