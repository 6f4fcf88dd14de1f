from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from contextual_dropout_lab.data import Batches
from contextual_dropout_lab.data.lookup import Lookup
from tests.lab.data.gaussian import LIMIT, scores


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@settings(deadline=None)
@given(st.integers(1, 40), st.integers(1, 50))
def test_an_epoch_has_every_example_once_with_its_label(size: int, batch_size: int) -> None:
    inputs = torch.arange(size).float()[:, None].expand(-1, 3).clone()
    batches = Batches(inputs, torch.arange(size), batch_size)
    given_out = list(batches.epoch(generator()))
    assert len(given_out) == len(batches)
    assert [len(y) for _, y in given_out[:-1]] == [batch_size] * (len(batches) - 1)
    labels = torch.cat([y for _, y in given_out])
    assert labels.sort().values.tolist() == list(range(size))
    assert torch.equal(torch.cat([x for x, _ in given_out]), inputs[labels])


def test_epochs_differ_but_repeat_with_the_generator() -> None:
    batches = Batches(torch.rand(50, 4), torch.arange(50), 8, noise_sd=0.3)
    source = generator()
    first, second = (list(batches.epoch(source)) for _ in range(2))
    assert [y.tolist() for _, y in first] != [y.tolist() for _, y in second]
    again = list(batches.epoch(generator()))
    assert all(torch.equal(a, b) and torch.equal(y, z) for (a, y), (b, z) in zip(first, again, strict=True))


def test_the_noise_is_gaussian_and_fresh_every_epoch() -> None:
    inputs, source = torch.rand(500, 300, generator=generator(1)), generator()
    batches = Batches(inputs, torch.arange(500), 64, noise_sd=0.5)
    noises = []
    for _ in range(2):
        x, y = (torch.cat(parts) for parts in zip(*batches.epoch(source), strict=True))
        noises.append(((x.double() - inputs[y]) / 0.5)[y.argsort()])
    assert all(abs(score) < LIMIT for score in scores(torch.stack(noises)).values())
    correlation = torch.corrcoef(torch.stack([noise.flatten() for noise in noises]))[0, 1].item()
    assert abs(correlation) * inputs.numel() ** 0.5 < LIMIT


@pytest.mark.parametrize("noise_sd", [0.0, 0.3])
def test_batches_that_are_kept_stay_as_they_were(noise_sd: float) -> None:
    inputs = torch.rand(20, 4)
    before, kept, copies = inputs.clone(), [], []
    for x, y in Batches(inputs, torch.arange(20), 6, noise_sd).epoch(generator()):
        kept.append((x, y))
        copies.append((x.clone(), y.clone()))
    assert all(torch.equal(x, a) and torch.equal(y, b) for (x, y), (a, b) in zip(kept, copies, strict=True))
    for x, y in kept:  # nor does writing to a batch reach the data
        x.zero_()
        y.zero_()
    assert torch.equal(inputs, before)


def test_without_noise_the_order_alone_is_drawn() -> None:
    source, same = generator(), generator()
    list(Batches(torch.rand(10, 2), torch.arange(10), 4).epoch(source))
    torch.randperm(10, generator=same)
    assert torch.equal(source.get_state(), same.get_state())


def test_inputs_may_be_images() -> None:
    x, _ = next(Batches(torch.rand(5, 1, 4, 3), torch.arange(5), 2, noise_sd=0.1).epoch(generator()))
    assert x.shape == (2, 1, 4, 3)


@pytest.mark.parametrize(
    ("inputs", "labels", "batch_size", "noise_sd", "message"),
    [
        (torch.zeros(3, 2, dtype=torch.uint8), torch.zeros(3), 1, 0.0, "inputs are of torch.uint8: expected floating"),
        (torch.zeros(3, 2), torch.zeros(2), 1, 0.0, "3 inputs and 2 labels: expected as many of both"),
        (torch.zeros(0, 2), torch.zeros(0), 1, 0.0, "0 inputs and 0 labels"),
        (torch.zeros(3, 2), torch.zeros(3), 0, 0.0, "batch_size is 0: expected at least 1"),
        (torch.zeros(3, 2), torch.zeros(3), 1, -1.0, "standard deviation of the noise is -1.0"),
    ],
)
def test_what_does_not_fit_is_refused(
    inputs: torch.Tensor, labels: torch.Tensor, batch_size: int, noise_sd: float, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        Batches(inputs, labels, batch_size, noise_sd)


def test_batches_from_a_disk_are_those_from_memory() -> None:
    class OnDisk:
        """Notes which rows were asked for, batch by batch."""

        device, dtype = torch.device("cpu"), torch.float32

        def __init__(self, table: torch.Tensor) -> None:
            self.table, self.shape, self.asked = table, table.shape, list[list[int]]()

        def is_floating_point(self) -> bool:
            return True

        def index_select(self, dim: int, index: torch.Tensor, /) -> torch.Tensor:
            self.asked.append(index.tolist())
            if -1.0 in self.table[index]:
                raise OSError("the disk is broken")
            return self.table.index_select(dim, index)

    inputs, labels = torch.rand(20, 3), torch.arange(20)
    disk = OnDisk(inputs.clone())
    streamed = Batches(Lookup(disk, labels), labels, 6, noise_sd=0.1)
    for (x, y), (expected, row) in zip(
        streamed.epoch(generator()), Batches(inputs, labels, 6, noise_sd=0.1).epoch(generator()), strict=True
    ):
        assert torch.equal(x, expected)
        assert torch.equal(y, row)
    assert [len(rows) for rows in disk.asked] == [6, 6, 6, 2]
    epoch = streamed.epoch(generator())
    next(epoch)
    epoch.close()  # type: ignore[attr-defined]
    disk.table[:] = -1
    with pytest.raises(OSError, match="the disk is broken"):
        next(streamed.epoch(generator()))
