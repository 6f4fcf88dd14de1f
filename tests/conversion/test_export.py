"""torch.export and ONNX of a converted model, as point estimate and as sampler, with a dynamic batch."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import torch
from scipy import stats
from torch import nn

import contextual_dropout as cd

FAILURE_RATE = 2e-5
pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning", "ignore::UserWarning")
BATCH = torch.export.Dim("batch")


def network(family: str) -> tuple[nn.Module, torch.Tensor]:
    torch.manual_seed(0)
    x = torch.randn(3, 3, 6, 6)
    model = nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Dropout2d(0.4), nn.Flatten(), nn.Linear(64, 2)
    )
    model = cd.contextualize(model.eval(), family=family, example=x, initialisation="he", temperature=1.0)  # type: ignore[arg-type]
    return model, x


@pytest.mark.parametrize("family", ["bernoulli", "gaussian"])
@torch.no_grad()
def test_torch_export(family: str) -> None:
    model, x = network(family)
    point = torch.export.export(model, (x,), dynamic_shapes=({0: BATCH},)).module()
    larger = torch.cat([x, x + 1])
    torch.testing.assert_close(point(larger), model(larger))
    with cd.sampling(model):
        sampler = torch.export.export(model, (x,), dynamic_shapes=({0: BATCH},)).module()
    assert not torch.equal(sampler(larger), sampler(larger))


@pytest.mark.skipif(
    torch.__version__ < "2.7",
    reason="the exporter of torch 2.6 cannot translate batch normalisation with the onnxscript of today",
)
@pytest.mark.parametrize("family", ["bernoulli", "gaussian"])
@torch.no_grad()
def test_onnx(family: str, tmp_path: Path) -> None:
    """onnxruntime's own Bernoulli is inverted; our masks are comparisons with uniforms, and their means show it."""
    model, x = network(family)
    point = _onnx(model, x, tmp_path / "point.onnx")
    larger = torch.cat([x, x + 1])
    np.testing.assert_allclose(_run(point, larger), model(larger).numpy(), atol=1e-5)
    masks_only = nn.Sequential(*model[:4]).eval()  # type: ignore[index]
    with cd.sampling(masks_only):
        sampler = _onnx(masks_only, x, tmp_path / "sampler.onnx")
    features = nn.Sequential(*model[:3]).eval()(x)  # type: ignore[index]
    draws = 3000
    outputs = np.stack([_run(sampler, x) for _ in range(draws)])
    site = model[3]  # type: ignore[index]
    keep = site.keep_probability(features)
    mean = site.apply_mask(features, site.family.mean(site.logits(features)))
    variance = keep * (1 - keep) / 0.6**2 if family == "bernoulli" else (1 - keep) / keep
    error = (features.square() * variance[..., None, None] / draws).sqrt().numpy()
    bound = stats.norm.ppf(1 - FAILURE_RATE / (2 * keep.numel()))  # one independent comparison per mask
    assert (np.abs(outputs.mean(0) - mean.numpy()) <= bound * error + 1e-6).all()
    assert (outputs.std(0)[error > 1e-4] > 0).all()


def _onnx(model: nn.Module, x: torch.Tensor, path: Path) -> onnxruntime.InferenceSession:
    torch.onnx.export(model, (x,), dynamic_shapes=({0: BATCH},), dynamo=True, verbose=False).save(path)
    return onnxruntime.InferenceSession(path)


def _run(session: onnxruntime.InferenceSession, x: torch.Tensor) -> np.ndarray:
    (name,) = (entry.name for entry in session.get_inputs())
    (output,) = session.run(None, {name: x.numpy()})
    return output
