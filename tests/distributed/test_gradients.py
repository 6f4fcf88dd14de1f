"""Two processes with a part of the batch each get the gradient that one gets from all of it, for the same noise."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

import contextual_dropout as cd
from contextual_dropout.nn import families
from contextual_dropout.training.estimators import LeaveOneOut, Reinforce
from contextual_dropout_lab.runs.fabric import share
from tests.distributed.ranks import Together
from tests.reliability.record import record

ROWS = 9
#: Every estimator, and one that resamples; "auto" is one of the others.
ESTIMATORS = [*(name for name in cd.estimators.names() if name != "auto"), "leave-one-out"]


class Net(nn.Module):
    """Three sites, each with earlier ones before it."""

    def __init__(self, kinds: tuple[str, ...]) -> None:
        super().__init__()
        sizes = (6, 12, 10, 8, 3)
        self.layers = nn.ModuleList(nn.Linear(i, o) for i, o in pairwise(sizes))
        self.sites = nn.ModuleList(
            cd.ContextualDropout(c, 0.4, family=kind, temperature=1.0)  # type: ignore[arg-type]
            for c, kind in zip(sizes[1:], kinds, strict=False)
        )

    def forward(self, x: Tensor) -> Tensor:
        for layer, site in zip(self.layers, self.sites, strict=False):
            x = site(F.leaky_relu(layer(x)))
        return self.layers[-1](x)  # type: ignore[no-any-return]


@contextmanager
def noise_of(part: slice, rows: int) -> Iterator[None]:
    """The n-th noise that is drawn is always the same; a process gets the rows of its part."""
    drawn, generator = 0, torch.Generator()
    originals = {family: family.noise for family in (families.Bernoulli, families.Gaussian)}

    def replacement(draw: str):  # type: ignore[no-untyped-def]
        def noise(like: Tensor) -> Tensor:
            nonlocal drawn
            drawn += 1
            generator.manual_seed(drawn)
            return getattr(torch, draw)(rows, like.shape[-1], generator=generator)[part]  # type: ignore[no-any-return]

        return staticmethod(noise)

    families.Bernoulli.noise = replacement("rand")  # type: ignore[method-assign]
    families.Gaussian.noise = replacement("randn")  # type: ignore[method-assign]
    try:
        yield
    finally:
        for family, original in originals.items():
            family.noise = staticmethod(original)  # type: ignore[method-assign]


def sharded(net: nn.Module) -> nn.Module:
    """By FSDP2, every layer and every site on its own."""
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for name, module in net.named_modules():
        if name.count(".") == 1:
            fully_shard(module, mesh=mesh)
    return fully_shard(net, mesh=mesh)


def whole(value: Tensor | None) -> Tensor:
    """On each process what is divided among them."""
    assert value is not None
    return value.full_tensor() if isinstance(value, DTensor) else value.clone()


def gradients(
    estimator: str, wrap: Callable[[nn.Module], nn.Module] = lambda net: net, rows: int = ROWS, steps: int = 2
) -> tuple[dict[str, Tensor], int]:
    """After a step of SGD, so that the encoders are no longer as they began; and how many passes there were."""
    torch.manual_seed(0)
    kinds = ("gaussian",) * 3 if "reparameterized" in estimator else ("bernoulli", "bernoulli", "gaussian")
    net, x, y = Net(kinds), torch.randn(rows, 6), torch.randint(3, (rows,))
    size, rank = (dist.get_world_size(), dist.get_rank()) if dist.is_initialized() else (1, 0)
    part, weight = share(rows, rank, size)
    model = wrap(net)
    chosen = Reinforce(LeaveOneOut()) if estimator == "leave-one-out" else estimator
    objective, passes = cd.ELBO(model, chosen, kl_weight=0.1), 0

    def log_likelihood() -> Tensor:
        nonlocal passes
        passes += 1
        return -F.cross_entropy(model(x[part]), y[part], reduction="none")

    optimizer = torch.optim.SGD(model.parameters(), 0.5)
    with noise_of(part, rows):
        for step in range(steps):
            optimizer.zero_grad()
            torch.manual_seed(step)  # of which sites are sampled
            (objective(log_likelihood).loss * weight).backward()
            if step < steps - 1:
                optimizer.step()
    return {name: whole(value.grad) for name, value in net.named_parameters()}, passes


WRAPPERS: tuple[Callable[[nn.Module], nn.Module], ...] = (DistributedDataParallel, sharded)
#: Of the pairs that have held so far.
differences: dict[tuple[str, str], float] = {}


def skip_where_it_does_not_run(wrap: Callable[[nn.Module], nn.Module]) -> None:
    if wrap is sharded and not hasattr(torch.cpu.Stream(), "record_event"):
        pytest.skip("the FSDP2 of this torch does not run on processors")


@pytest.mark.parametrize("wrap", WRAPPERS)
@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_two_processes_have_the_gradient_of_one(
    together: Together, estimator: str, wrap: Callable[[nn.Module], nn.Module]
) -> None:
    skip_where_it_does_not_run(wrap)
    (first, passes), (second, passes_of_second) = together(gradients, estimator, wrap)
    alone, passes_alone = gradients(estimator)
    assert passes == passes_of_second == passes_alone
    assert first.keys() == second.keys() == alone.keys()
    for name, value in alone.items():
        torch.testing.assert_close(first[name], second[name], rtol=0, atol=0)
        torch.testing.assert_close(first[name], value, rtol=1e-4, atol=1e-6)
        assert value.abs().sum() > 0, name
    largest = max((first[name] - value).abs().max().item() for name, value in alone.items())
    differences[estimator, wrap.__name__] = largest
    if len(differences) == len(ESTIMATORS) * len(WRAPPERS):  # else the claim would say too much
        record(
            "processes",
            "gradients",
            "Two processes with unequal parts of a batch have the gradient of one with all of it, for the same noise: "
            "every estimator, Bernoulli and Gaussian sites after one another, under DistributedDataParallel and FSDP2.",
            {
                "pairs of estimator and wrapper": len(differences),
                "largest difference": f"{max(differences.values()):.1e}",
            },
        )


@pytest.mark.parametrize("wrap", WRAPPERS)
@pytest.mark.parametrize("estimator", ["sequential-arm", "sampled-disarm", "reinforce", "reparameterized"])
def test_a_process_without_a_row_adds_nothing(
    together: Together, estimator: str, wrap: Callable[[nn.Module], nn.Module]
) -> None:
    """It does the one row of the batch, too, for the others wait for it; but that counts once."""
    skip_where_it_does_not_run(wrap)
    (first, _), (second, _) = together(gradients, estimator, wrap, 1)
    alone, _ = gradients(estimator, rows=1)
    for name, value in alone.items():
        torch.testing.assert_close(first[name], second[name], rtol=0, atol=0)
        torch.testing.assert_close(first[name], value, rtol=1e-4, atol=1e-6)
    assert sum(float(value.abs().sum()) for value in alone.values()) > 0


def with_sites_of_its_own(wrap: Callable[[nn.Module], nn.Module], steps: int) -> tuple[list[Tensor], list[list[int]]]:
    """The parameters after so many steps, and in which order the sites were drawn in each."""
    torch.manual_seed(0)
    net, x, y = Net(("bernoulli",) * 3), torch.randn(ROWS, 6), torch.randint(3, (ROWS,))
    model = wrap(net)
    objective, optimizer = cd.ELBO(model, "sampled-arm"), torch.optim.SGD(model.parameters(), 0.5)
    orders: list[list[int]] = []
    torch.manual_seed(1 + dist.get_rank())
    original = torch.randperm

    def noted(count: int) -> Tensor:
        orders.append((order := original(count)).tolist())
        return order

    torch.randperm = noted  # type: ignore[assignment]
    try:
        for _ in range(steps):
            optimizer.zero_grad()
            objective(lambda: -F.cross_entropy(model(x), y, reduction="none")).loss.backward()
            optimizer.step()
    finally:
        torch.randperm = original
    return [whole(parameter.detach()) for parameter in net.parameters()], orders


@pytest.mark.parametrize("wrap", WRAPPERS)
def test_processes_that_draw_other_sites_do_not_wait_for_each_other(
    together: Together, wrap: Callable[[nn.Module], nn.Module]
) -> None:
    """A pseudo pass that left out another part of the network than the other process's would never end."""
    skip_where_it_does_not_run(wrap)
    (first, orders), (second, others) = together(with_sites_of_its_own, wrap, 8)
    assert len(orders) == len(others) == 8
    assert orders != others
    for a, b in zip(first, second, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=0)
