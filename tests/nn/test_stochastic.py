from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import contextual_dropout as cd
from contextual_dropout.nn.stochastic import Stochastic


class Jitter(Stochastic):
    """A layer of one's own."""

    def forward(self, x: Tensor) -> Tensor:
        return x + torch.randn_like(x) if self.stochastic else x


def network() -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 6), Jitter(), nn.BatchNorm1d(6), nn.Linear(6, 3))


X = torch.linspace(-1, 1, 20).reshape(5, 4)


def test_it_samples_in_training_and_inside_sampling_only() -> None:
    model = network()
    assert not torch.equal(model(X), model(X))
    model.eval()
    assert torch.equal(model(X), model(X))
    with cd.sampling(model):
        assert not model[1].training
        assert not torch.equal(model(X), model(X))
    assert torch.equal(model(X), model(X))


@pytest.mark.parametrize(("training", "sampling"), [(True, False), (False, True), (True, True), (False, False)])
def test_either_flag_is_enough(training: bool, sampling: bool) -> None:
    layer = Jitter().train(training)
    layer.sampling = sampling
    assert layer.stochastic is (training or sampling)
    assert torch.equal(layer(X), X) is not layer.stochastic


@pytest.mark.parametrize("training", [True, False])
def test_flags_are_as_before_after_nested_blocks_and_errors(training: bool) -> None:
    model = network().train(training)

    def fails() -> None:
        with cd.sampling(model):
            with cd.sampling(model):
                pass
            assert model[1].sampling
            raise KeyError

    with pytest.raises(KeyError):
        fails()
    assert not model[1].sampling
    assert all(module.training is training for module in model.modules())


@pytest.mark.parametrize("rows", [1, 1000])
def test_predict_switches_it_on(rows: int) -> None:
    model = network().eval()
    samples = cd.predict(model, X, samples=10, rows=rows).samples
    assert samples.shape == (10, 5, 3)
    assert (samples.std(0) > 0).all()
    assert not model[1].sampling


def test_the_flag_is_no_part_of_the_state() -> None:
    assert not Jitter().state_dict()


def test_sites_are_stochastic_layers() -> None:
    assert isinstance(cd.ContextualDropout(4), Stochastic)
