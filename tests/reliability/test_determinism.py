"""The same seed, the same bits: again, in another process, and with another number of threads.

What torch promises of threads is little: random numbers are drawn one after another whatever their number, and
elementwise functions are the same; products of matrices are not, even of small ones. So with several threads a network
is compared whose layers, and the encoders of its sites, have no such product.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import contextual_dropout as cd
from contextual_dropout.training.estimators import names
from tests.reliability.record import budget, record

THREADS = (1, 2, 4)
#: Far above the 32,768 elements from which on torch uses several threads.
LARGE = (1000, 1000)
WIDTH, CLASSES = 12, 3
#: Of a batch: few, and so many that its features, too, are far above that.
ROWS, MANY = 8, 10_000
Build = Callable[..., nn.Module]


class Elementwise(nn.Module):
    """A network without products of matrices."""

    def __init__(self, **options: str) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.randn(WIDTH))
        self.first = cd.ContextualDropout(WIDTH, encoder="global", temperature=1.0, **options)  # type: ignore[arg-type]
        self.second = cd.ContextualDropout(WIDTH, encoder="global", temperature=1.0, **options)  # type: ignore[arg-type]

    def forward(self, x: Tensor) -> Tensor:
        u = self.second(torch.tanh(self.first(x * self.scale)))
        out: Tensor = u.unflatten(1, (CLASSES, -1)).sum(2)
        return out


def ordinary(**options: str) -> nn.Module:
    """A network with convolutions, products of matrices and contexts."""
    conv = cd.ContextualDropout(2, dim=1, reduction=2, temperature=1.0, **options)  # type: ignore[arg-type]
    dense = cd.ContextualDropout(8, reduction=2, temperature=1.0, **options)  # type: ignore[arg-type]
    features = nn.Sequential(nn.Unflatten(1, (1, WIDTH)), nn.Conv1d(1, 2, 3), nn.ReLU(), conv, nn.Flatten())
    return nn.Sequential(features, nn.Linear(20, 8), nn.ReLU(), dense, nn.Linear(8, CLASSES))


def masks(family: str) -> Tensor:
    """Of a large batch."""
    torch.manual_seed(1)
    site = cd.ContextualDropout(LARGE[1], family=family, encoder="global")  # type: ignore[arg-type]
    return site(torch.ones(LARGE)).detach()  # type: ignore[no-any-return]


def trained(build: Build, estimator: str, steps: int, rows: int) -> Tensor:
    """All parameters after a few steps, and predictions with them."""
    torch.manual_seed(1)
    model = build(family="gaussian" if "reparameterized" in estimator else "bernoulli")
    objective, optimizer = cd.ELBO(model, estimator), torch.optim.Adam(cd.parameter_groups(model), 1e-2)
    x, y = torch.randn(rows, WIDTH), torch.randint(CLASSES, (rows,))
    for _ in range(steps):
        optimizer.zero_grad()
        objective(lambda: -F.cross_entropy(model(x), y, reduction="none")).loss.backward()
        optimizer.step()
    samples = cd.predict(model, x, samples=5, seed=2).samples
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()] + [samples.flatten()])


def fingerprints(build: Build, steps: int, rows: int = ROWS) -> dict[str, str]:
    """Of the masks of both families, and of a network trained with every estimator."""
    found = {family: masks(family) for family in ("bernoulli", "gaussian")}
    found |= {name: trained(build, name, steps, rows) for name in names()}
    return {name: hashlib.sha256(tensor.numpy().tobytes()).hexdigest() for name, tensor in found.items()}


@pytest.fixture(autouse=True)
def _as_many_threads_as_before() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.mark.slow
def test_a_seed_gives_the_same_bits_with_any_number_of_threads() -> None:
    steps = budget(2, 100)
    found = []
    for threads in THREADS:
        torch.set_num_threads(threads)
        found.append(fingerprints(Elementwise, steps, MANY))
    assert found[0] == found[1] == found[2]
    assert len(set(found[0].values())) > len(names()) // 2  # "auto" and a few others are the same here
    record(
        "numerics",
        "numerics-threads",
        "Masks, training with every estimator and predictions are the same to the last bit with 1, 2 and 4 threads (of "
        "a network without products of matrices, which torch itself rounds differently).",
        {
            "results compared": len(found[0]),
            "numbers of threads": len(THREADS),
            "steps of each training": steps,
            "features of a batch": MANY * WIDTH,
        },
    )


@pytest.mark.slow
def test_a_seed_gives_the_same_bits_again_and_in_another_process() -> None:
    steps = budget(2, 100)
    torch.set_num_threads(1)
    first, again = (fingerprints(ordinary, steps) for _ in range(2))
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "PYTHONHASHSEED": "7"}
    command = [sys.executable, "-m", "tests.reliability.test_determinism", str(steps)]
    root = Path(__file__).parents[2]
    seconds = budget(250, 1500)
    done = subprocess.run(
        command, capture_output=True, text=True, check=True, cwd=root, env=environment, timeout=seconds
    )
    assert first == again == dict(line.split() for line in done.stdout.splitlines())
    record(
        "numerics",
        "numerics-repeated",
        "Masks, training with every estimator and predictions are the same to the last bit when they are repeated "
        "under a seed, in the same process and in another one.",
        {"results compared": len(first), "times each": 3, "steps of each training": steps},
    )


if __name__ == "__main__":
    torch.set_num_threads(1)
    print("\n".join(f"{name} {value}" for name, value in fingerprints(ordinary, int(sys.argv[1])).items()))
