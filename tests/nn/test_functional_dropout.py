"""Dropout that is called as a function samples in `cd.sampling` and `cd.predict`, and nowhere else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import contextual_dropout as cd
from contextual_dropout.nn.dropout_flag import drops_by_flag
from tests.predictions import assert_same_distribution

Dropout = Callable[[Tensor, float, bool], Tensor]
FUNCTIONS: dict[str, Dropout] = {
    "dropout": F.dropout,
    "dropout, by name": lambda x, p, training: F.dropout(input=x, p=p, training=training),
    "dropout1d": lambda x, p, training: F.dropout1d(x[..., None], p, training)[..., 0],
    "dropout2d": lambda x, p, training: F.dropout2d(x[..., None, None], p, training)[..., 0, 0],
    "dropout3d": lambda x, p, training: F.dropout3d(x[..., None, None, None], p, training)[..., 0, 0, 0],
    "alpha_dropout": F.alpha_dropout,
    "feature_alpha_dropout": lambda x, p, training: F.feature_alpha_dropout(x[..., None], p, training)[..., 0],
    "torch.dropout": torch.dropout,
    "torch.dropout, by name": lambda x, p, training: torch.dropout(x, p=p, train=training),
    "native_dropout": lambda x, p, training: torch.native_dropout(x, p, training)[0],
}


class Functional(nn.Module):
    """One dropout as a function beside one as a layer."""

    def __init__(self, dropout: Dropout, p: float = 0.5) -> None:
        super().__init__()
        self.dropout, self.p = dropout, p
        self.layer = nn.Dropout(0.1)
        self.enter, self.leave = nn.Linear(4, 8), nn.Linear(8, 3)
        self.norm = nn.BatchNorm1d(8)

    def forward(self, x: Tensor) -> Tensor:
        return self.leave(self.dropout(self.norm(self.enter(self.layer(x))), self.p, self.training))  # type: ignore[no-any-return]


def in_train_mode(model: Functional, x: Tensor, samples: int) -> Tensor:
    """What the dropout function does in training, everything else being in eval mode."""
    dropout = model.dropout
    model.dropout = lambda u, p, training: dropout(u, p, True)
    model.layer.train()
    with torch.no_grad():
        outs = [model(x) for _ in range(samples)]
    model.dropout = dropout
    model.eval()
    return torch.stack(outs).double()


@pytest.mark.parametrize("rows", [1, 1000])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_functional_dropout_samples_beside_layers(name: str, rows: int) -> None:
    torch.manual_seed(0)
    model, x = Functional(FUNCTIONS[name]).eval(), torch.randn(2, 4)
    plain = model(x)
    samples = cd.predict(model, x, samples=400, rows=rows, seed=1, task="regression").samples.double()
    assert_same_distribution(samples, in_train_mode(model, x, 400))
    assert torch.equal(model(x), plain)


def test_functional_dropout_samples_in_a_block_of_sampling() -> None:
    model, x = Functional(F.dropout).eval(), torch.ones(2, 4)
    model.layer.p = 0.0
    with cd.sampling(model), cd.sampling(model):
        assert not torch.equal(model(x), model(x))
        assert not model.training
        assert not model.norm.training
    assert torch.equal(model(x), model(x))


def test_every_call_samples_inside_and_none_outside() -> None:
    x = torch.ones(5, 100)
    with cd.sampling(nn.ModuleList()):
        assert not torch.equal(F.alpha_dropout(x, 0.5), x)
        assert not torch.equal(F.dropout(x, 0.5), x)
        assert torch.equal(F.dropout(x, 0.0, False), x)
        assert not F.dropout(x, 1.0, False).any()
        assert not torch.equal(F.dropout(x, 0.5, False), x)
    assert torch.equal(F.dropout(x, 0.5, False), x)


def test_functional_dropout_of_a_compiled_network() -> None:
    torch.manual_seed(0)
    model, x = Functional(F.dropout).eval(), torch.randn(2, 4)
    compiled = torch.compile(model, backend="aot_eager")
    samples = cd.predict(compiled, x, samples=300, seed=1, task="regression").samples.double()
    assert_same_distribution(samples, in_train_mode(model, x, 300))
    assert torch.equal(compiled(x), compiled(x))


class Rated(nn.Module):
    """Attention whose rate follows the flag, as most networks write it."""

    def __init__(self) -> None:
        super().__init__()
        self.p, self.enter = 0.5, nn.Linear(4, 8)

    def forward(self, x: Tensor) -> Tensor:
        h = self.enter(x).unflatten(-1, (2, 4))[:, None]
        return F.scaled_dot_product_attention(h, h, h, dropout_p=self.p if self.training else 0.0).flatten(1)


class Guarded(Rated):
    def forward(self, x: Tensor) -> Tensor:
        x = self.enter(x)
        if self.training and self.p > 0:
            x = F.dropout(x, self.p)
        return x


class Mixed(Rated):
    """The flag decides something else too."""

    def forward(self, x: Tensor) -> Tensor:
        rate = self.p if self.training else 0.0
        return F.dropout(self.enter(x), rate) + (1.0 if self.training else 0.0)


class Normalised(nn.BatchNorm1d):
    def forward(self, x: Tensor) -> Tensor:
        return F.dropout(super().forward(x), 0.5 if self.training else 0.0)


@pytest.mark.parametrize("kind", [Rated, Guarded])
def test_modules_that_use_their_flag_for_dropout_alone_sample(kind: type[Rated]) -> None:
    model, x = kind().eval(), torch.randn(2, 4)
    assert (cd.predict(model, x, samples=20, task="regression").samples.std(0) > 0).any()
    assert not model.training
    assert torch.equal(model(x), model(x))


@pytest.mark.parametrize("kind", [Mixed, Normalised, Functional, nn.Linear, cd.ContextualDropout])
def test_other_modules_stay_in_eval_mode(kind: type[nn.Module]) -> None:
    assert not drops_by_flag(kind)


def test_attention_of_hugging_face_models_samples() -> None:
    """Whose own dropout is a function, at a rate that is 0 in eval mode; and once only where a site is in its place."""
    transformers = pytest.importorskip("transformers")
    sizes: dict[str, Any] = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = transformers.BertConfig(
        **sizes, vocab_size=50, intermediate_size=32, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.5
    )
    model = transformers.BertForSequenceClassification(config).eval()
    ids = torch.randint(50, (2, 7))
    assert (cd.predict(model, ids, samples=10, task="regression", output="logits").samples.std(0) > 0).all()
    converted = cd.contextualize(model, example=ids, exclude=nn.Dropout)
    with cd.sampling(converted), torch.no_grad():
        dropped, kept = [], converted(ids).logits.shape
        for site in cd.sites(converted).values():
            site.register_forward_hook(lambda module, inputs, out: dropped.append((inputs[0], out)))
        converted(ids)
    (weights, out), *rest = dropped
    assert not rest
    assert kept == (2, 2)
    factors = (out / weights).unique()
    assert len(factors) <= 2  # 0 and one scale: an ordinary dropout on top would show as a third
