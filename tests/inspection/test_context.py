from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import contextual_dropout as cd
from contextual_dropout import freeze_context
from contextual_dropout.nn.encoder import GlobalLogits
from tests.chain import images, keeps, plain


def contextual(**options: object) -> nn.Sequential:
    """Rates that depend strongly on the sample and on earlier masks."""
    torch.manual_seed(1)
    settings = {"temperature": 5.0, "reduction": 2, "initialisation": "he"} | options
    return cd.contextualize(plain(), example=images(), **settings)  # type: ignore[arg-type]


@pytest.mark.parametrize("family", ["bernoulli", "gaussian"])
def test_rates_are_the_means_along_sampled_passes(family: str) -> None:
    """Convolutional and later sites: the same seed gives, by hand, the same mean over the same masks."""
    model, x = contextual(family=family), images(200)
    torch.manual_seed(3)
    frozen = freeze_context(model, x)
    torch.manual_seed(3)
    with torch.no_grad(), cd.sampling(model):
        u = model[:2](x)
        first = model[2].keep_probability(u)
        u = model[3:6](model[2](u))
        second = model[6].keep_probability(u)
    assert first.std(0).max() > 0.01
    assert second.std(0).max() > 0.01
    for frozen_keep, keep in zip(keeps(frozen, images()), (first, second), strict=True):
        torch.testing.assert_close(frozen_keep, keep.mean(0).expand_as(frozen_keep))
    expected_masks = keeps(model, x)[1].mean(0)
    assert not torch.allclose(second.mean(0), expected_masks, atol=1e-4)  # sampled upstream masks are another input


def test_the_original_is_as_before() -> None:
    model = contextual().train()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    frozen = freeze_context(model, images(20))
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    assert before.keys() == model.state_dict().keys()
    assert not any(isinstance(module, GlobalLogits) for module in model.modules())
    assert not any(site.sampling for each in (model, frozen) for site in cd.sites(each).values())
    assert all(module.training for each in (model, frozen) for module in each.modules())
    assert not any(module.training for module in freeze_context(model.eval(), images(20)).modules())


def test_everything_but_the_context_is_kept() -> None:
    model = contextual()
    for old, new in zip(cd.sites(model).values(), cd.sites(freeze_context(model, images(20))).values(), strict=True):
        assert new.encoder.temperature == old.encoder.temperature == 5.0
        assert (new.family, new.dim, new.scale, new.features) == (old.family, old.dim, old.scale, old.features)
        assert torch.equal(new.prior_logit, old.prior_logit)
        assert {key for key in old.config if old.config[key] != new.config[key]} == {"encoder"}
        assert new.encoder.trainable


def test_without_context_there_is_nothing_to_lose() -> None:
    model = cd.baselines.learnable_dropout(plain(), example=images())
    frozen = freeze_context(model, images(20))
    torch.testing.assert_close(frozen.eval()(images()), model.eval()(images()))


def test_a_site_called_twice_has_one_mean() -> None:
    site = cd.ContextualDropout(4, temperature=1.0, reduction=2, family="gaussian")

    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.site = site

        def forward(self, u: Tensor) -> Tensor:
            out: Tensor = self.site(u) + self.site(-u)
            return out

    u = torch.randn(30, 4)
    frozen = freeze_context(Twice(), u)
    expected = torch.cat([site.keep_probability(u), site.keep_probability(-u)]).mean(0)
    torch.testing.assert_close(frozen.site.keep_probability(u[:1])[0], expected)


@pytest.mark.parametrize("temperature", [1.0, 0.01])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_saturated_rates_stay_finite(temperature: float, dtype: torch.dtype) -> None:
    """Keep probabilities that are exactly 0 and 1, and one that only single precision takes for 1."""
    site = cd.ContextualDropout(4, temperature=temperature, initialisation="zero").to(dtype)
    logits = torch.tensor([-2000.0, 2000.0, 20.0, 0.0])
    site.encoder.expand_bias.data.copy_(logits / temperature)
    model, x = nn.Sequential(site, nn.Linear(4, 3)).to(dtype), torch.randn(10, 4, dtype=dtype)
    assert site.keep_probability(x)[0, :2].tolist() == [0, 1]
    frozen = freeze_context(model, x)
    assert frozen[0].encoder.expand_bias.isfinite().all()
    torch.testing.assert_close(frozen[0].keep_probability(x), site.keep_probability(x), rtol=1e-5, atol=1e-12)
    torch.testing.assert_close(frozen[0].logits(x)[0, 2:], logits[2:].to(dtype), rtol=1e-5, atol=1e-5)
    step = cd.ELBO(frozen)(lambda: -F.cross_entropy(frozen(x), torch.zeros(10).long(), reduction="none"))
    step.loss.backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in frozen.parameters())


def test_saved_and_loaded(tmp_path: Path) -> None:
    model = contextual()
    frozen = freeze_context(model, images(20)).eval()
    cd.save_sites(frozen, tmp_path / "sites.safetensors")
    torch.manual_seed(1)
    fresh = cd.load_sites(plain(), tmp_path / "sites.safetensors").eval()
    torch.testing.assert_close(fresh(images()), frozen(images()))


def test_keywords_reach_the_model() -> None:
    class Named(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.site = cd.ContextualDropout(4)

        def forward(self, *, features: Tensor) -> Tensor:
            out: Tensor = self.site(features)
            return out

    assert isinstance(freeze_context(Named(), features=torch.randn(3, 4)).site.encoder, GlobalLogits)


def test_a_model_without_sites_is_an_error() -> None:
    with pytest.raises(ValueError, match="no contextual dropout site"):
        freeze_context(plain(), images())
