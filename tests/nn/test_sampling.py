"""Sampling in one thread is not disturbed by another."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest
import torch
from torch import nn

import contextual_dropout as cd


def network() -> nn.Sequential:
    return nn.Sequential(nn.Linear(8, 32), cd.ContextualDropout(32, p=0.5), nn.Dropout(0.5), nn.Linear(32, 3)).eval()


@contextmanager
def sampled_by_another_thread(model: nn.Module) -> Iterator[None]:
    inside, leave = threading.Event(), threading.Event()

    def stay() -> None:
        with cd.sampling(model):
            inside.set()
            leave.wait()

    thread = threading.Thread(target=stay)
    thread.start()
    inside.wait()
    try:
        yield
    finally:
        leave.set()
        thread.join()


def test_a_model_that_another_thread_samples_from_is_refused() -> None:
    """The first to leave would have switched sampling off for the other, who would have put it on for good."""
    model, x = network(), torch.randn(4, 8)
    expected = model(x)
    with sampled_by_another_thread(model):
        with pytest.raises(RuntimeError, match="another thread samples from this model"), cd.sampling(model):
            pass
        with pytest.raises(RuntimeError, match="another thread"):
            cd.predict(model, x)
        with pytest.raises(RuntimeError, match="another thread"), cd.sampling(model[1]):  # a part of it
            pass
        cd.predict(network(), x)  # another model is fine
    assert torch.equal(model(x), expected)
    with cd.sampling(model), cd.sampling(model):  # one thread may
        assert cd.predict(model, x).samples.std(0).max() > 0
    assert torch.equal(model(x), expected)


def test_the_fused_path_stays_off_until_the_last_thread_has_left() -> None:
    """It has no dropout: samples would be equal."""
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.5, batch_first=True).eval()
    x = torch.randn(2, 3, 8)
    with ExitStack() as other, ExitStack() as this:
        other.enter_context(sampled_by_another_thread(network()))
        this.enter_context(cd.sampling(layer))
        other.close()
        with torch.no_grad():
            assert not torch.equal(layer(x), layer(x))
    assert torch.backends.mha.get_fastpath_enabled()
