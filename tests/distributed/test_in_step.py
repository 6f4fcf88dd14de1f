"""Processes that train together stay the same, and wait for one another only where they must."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

import contextual_dropout as cd
from contextual_dropout_lab.runs.fabric import share
from tests.distributed.ranks import Together
from tests.reliability.record import budget, record

STEPS = budget(5, 200)
#: Passes of a step.
PASSES = {"sequential-arm": 3, "sampled-disarm": 2, "straight-through": 1}
#: One more in the first step of a score-function estimator, which asks whether rows act on one another.
ASKED = {"sequential-arm": 1, "sampled-disarm": 1, "straight-through": 0}
#: Those of which it has held so far.
in_step: set[str] = set()


class Counted(DistributedDataParallel):
    """Counts what the processes exchange."""

    reductions = broadcasts = 0

    def _sync_buffers(self) -> None:
        self.broadcasts += 1
        super()._sync_buffers()


def count_reduction(model, bucket):  # type: ignore[no-untyped-def]  # torch reads the annotations, as types
    model.reductions += 1
    mean = bucket.buffer() / dist.get_world_size()
    return dist.all_reduce(mean, async_op=True).get_future().then(lambda done: done.value()[0])


def train(estimator: str, rows: int) -> tuple[Counted, int]:
    """A net with batch normalisation, on other data and masks in each process; and the number of its passes."""
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), cd.ContextualDropout(4, 0.5, dim=1),
        nn.Conv2d(4, 1, 3), nn.BatchNorm2d(1), cd.ContextualDropout(1, 0.5, dim=1),
        nn.Flatten(), nn.Linear(16, 3),
    )  # fmt: skip
    model = Counted(net)
    model.register_comm_hook(model, count_reduction)
    objective, passes = cd.ELBO(model, estimator, kl_weight=0.1), 0
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    torch.manual_seed(100 + dist.get_rank())
    for _ in range(STEPS):
        x, y = torch.randn(rows, 2, 8, 8), torch.randint(3, (rows,))

        def log_likelihood(x: Tensor = x, y: Tensor = y) -> Tensor:
            nonlocal passes
            passes += 1
            return -F.cross_entropy(model(x), y, reduction="none")

        optimizer.zero_grad()
        objective(log_likelihood).loss.backward()
        optimizer.step()
    return model, passes


def trained(estimator: str, rows: int) -> tuple[dict[str, Tensor], int, int, int]:
    model, passes = train(estimator, rows)
    parameters = {name: value.detach() for name, value in model.named_parameters()}
    return parameters, passes, model.reductions, model.broadcasts


@pytest.mark.parametrize("estimator", PASSES)
def test_pseudo_passes_exchange_nothing(together: Together, estimator: str) -> None:
    first, second = together(trained, estimator, 6)
    for name, value in first[0].items():
        torch.testing.assert_close(second[0][name], value, rtol=0, atol=0)
    for result in (first, second):
        # In each step all passes, one reduction and one broadcast.
        assert result[1:] == (PASSES[estimator] * STEPS + ASKED[estimator], STEPS, STEPS)
    in_step.add(estimator)
    if in_step == set(PASSES):
        record(
            "processes",
            "in-step",
            "Two processes that train on data and masks of their own have the same parameters after all steps, bit by "
            "bit, and exchange gradients and buffers once a step, however many passes an estimator makes.",
            {"estimators": len(in_step), "steps of each": STEPS},
        )


def test_no_process_skips_a_pass(together: Together) -> None:
    """With two rows the one unit's two masks are equal in most steps: one process alone would leave the pass out."""
    first, second = together(trained, "sequential-arm", 2)
    assert first[1] == second[1] == 3 * STEPS + 1
    record(
        "processes",
        "no-pass-skipped",
        "A process whose pseudo pass would change nothing makes it all the same, so that the other never waits.",
        {"steps": STEPS, "passes of each process": first[1]},
    )


def buffers_of_the_first() -> list[Tensor]:
    """After one more pass, which begins with an exchange."""
    model, _ = train("sequential-arm", 6)
    before = {name: value.clone() for name, value in model.named_buffers()}
    model.eval()
    with torch.no_grad():
        model(torch.zeros(1, 2, 8, 8))
    return [*before.values(), *model.buffers()]


def test_buffers_are_exchanged_in_the_next_pass_still(together: Together) -> None:
    first, second = together(buffers_of_the_first)
    half = len(first) // 2
    assert any((a != b).any() for a, b in zip(first[:half], second[:half], strict=True))
    for a, b in zip(first[half:], second[half:], strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=0)


@pytest.mark.parametrize("size", [1, 2, 3, 8])
@pytest.mark.parametrize("rows", [1, 2, 7, 128])
def test_the_weighted_mean_over_processes_is_the_mean_over_rows(rows: int, size: int) -> None:
    values = torch.arange(rows, dtype=torch.float64) ** 2
    parts = [share(rows, rank, size) for rank in range(size)]
    mean = sum(values[part].mean() * weight for part, weight in parts) / size
    torch.testing.assert_close(mean, values.mean())
    assert sum(len(values[part]) for part, weight in parts if weight) == rows
