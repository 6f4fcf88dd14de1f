"""A converted model is the base model until it is trained, and the base model again when it is stripped."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path

import pytest
import torch
from torch import nn

import contextual_dropout as cd
from tests.conversion.models import MODELS, build, run

FAMILIES = ["bernoulli", "gaussian"]
pytestmark = pytest.mark.filterwarnings(
    "ignore::contextual_dropout.ConversionWarning", "ignore:The PyTorch API of nested tensors:UserWarning"
)


def probe(model: nn.Module, inputs: object) -> cd.Probe:
    return cd.probe(model, **inputs) if isinstance(inputs, dict) else cd.probe(model, *inputs)  # type: ignore[misc]


@pytest.mark.parametrize("grad", [True, False])
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("name", MODELS)
def test_eval_gives_the_base_outputs(name: str, family: str, grad: bool) -> None:
    model, inputs, options = build(name)
    with torch.set_grad_enabled(grad):
        base = run(model, inputs).detach()
        converted = cd.contextualize(model, family=family, inplace=False, example=inputs, **options)
        torch.testing.assert_close(run(converted, inputs).detach(), base, rtol=0, atol=1e-5)
        lazily = cd.contextualize(model, family=family, inplace=False, **options)
        torch.testing.assert_close(run(lazily, inputs).detach(), base, rtol=0, atol=1e-5)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("name", MODELS)
def test_base_parameters_stay_as_they_are(name: str, family: str) -> None:
    model, inputs, options = build(name)
    next(model.parameters()).requires_grad_(False)
    before = {key: (p, p.detach().clone(), p.requires_grad) for key, p in model.named_parameters()}
    keys = set(model.state_dict())
    cd.contextualize(model, family=family, example=inputs, **options)
    assert keys < set(model.state_dict())
    after = dict(model.named_parameters())
    for key, (parameter, value, requires_grad) in before.items():
        assert after[key] is parameter
        assert torch.equal(parameter, value)
        assert parameter.requires_grad == requires_grad


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("name", MODELS)
def test_strip_gives_the_base_model_back(name: str, family: str) -> None:
    model, inputs, options = build(name)
    text, keys = repr(model), list(model.state_dict())
    with torch.no_grad():
        base = run(model, inputs)
        for copied in (False, True):
            converted = cd.contextualize(copy.deepcopy(model), family=family, example=inputs, **options)
            stripped = cd.strip(copy.deepcopy(converted) if copied else converted)
            assert torch.equal(run(stripped, inputs), base)
            assert list(stripped.state_dict()) == keys
            assert repr(stripped) == text
            assert {type(m) for m in stripped.modules()} == {type(m) for m in model.modules()}
            assert not any(m._forward_hooks for m in stripped.modules())


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("name", MODELS)
def test_every_site_is_on_in_eval_without_autograd(name: str, family: str) -> None:
    model, inputs, options = build(name)
    converted = cd.contextualize(model, family=family, example=inputs, **options).eval()
    with torch.no_grad():
        result = probe(converted, inputs)
        with cd.sampling(converted):
            assert not torch.equal(run(converted, inputs), run(converted, inputs))
        assert torch.equal(run(converted, inputs), run(converted, inputs))
    assert list(result.sites) == list(cd.sites(converted)) == cd.conversion_of(converted).order
    assert all(site.spread > 0 for site in result.sites.values())


@pytest.mark.parametrize("name", MODELS)
def test_a_converted_model_can_be_copied_and_pickled(name: str) -> None:
    model, inputs, options = build(name)
    converted = cd.contextualize(model, example=inputs, **options)
    with torch.no_grad():
        expected = run(converted, inputs)
        for twin in (copy.deepcopy(converted), pickle.loads(pickle.dumps(converted))):
            assert torch.equal(run(twin, inputs), expected)
            probe(twin, inputs)
            cd.strip(twin)


@pytest.mark.parametrize("name", MODELS)
def test_sites_alone_are_saved_and_rebuilt(name: str, tmp_path: Path) -> None:
    model, inputs, options = build(name)
    converted = cd.contextualize(model, inplace=False, example=inputs, **options)
    for site in cd.sites(converted).values():
        nn.init.normal_(site.encoder.expand_weight)
        nn.init.normal_(site.prior_logit)
    cd.save_sites(converted, tmp_path / "sites.safetensors")
    rebuilt = cd.load_sites(copy.deepcopy(model), tmp_path / "sites.safetensors")
    with torch.no_grad():
        assert torch.equal(run(rebuilt, inputs), run(converted, inputs))
        assert not torch.equal(run(rebuilt, inputs), run(model, inputs))
    assert rebuilt.state_dict().keys() == converted.state_dict().keys()
    for key, tensor in converted.state_dict().items():
        assert torch.equal(rebuilt.state_dict()[key], tensor)
    probe(rebuilt, inputs)
    cd.strip(rebuilt)
    with torch.no_grad():
        assert torch.equal(run(rebuilt, inputs), run(model, inputs))


@pytest.mark.parametrize("name", ["mlp", "residual", "encoder", "lstm", "resnet18", "bert"])
def test_converted_models_train(name: str) -> None:
    """Every parameter that the plain model trains gets a gradient, and so does all of every site."""
    model, inputs, options = build(name)
    y = torch.arange(len(run(model, inputs))) % 3
    nn.functional.cross_entropy(run(model.train(), inputs), y).backward()
    trained = {key for key, parameter in model.named_parameters() if parameter.grad is not None}
    model.zero_grad()
    converted = cd.contextualize(model.eval(), example=inputs, **options).train()
    objective = cd.ELBO(converted, "sequential-disarm")
    objective(lambda: -nn.functional.cross_entropy(run(converted, inputs), y, reduction="none")).loss.backward()
    trained |= {f"{site}.{key}" for site, module in cd.sites(converted).items() for key, _ in module.named_parameters()}
    assert trained == {key for key, parameter in converted.named_parameters() if parameter.grad is not None}
