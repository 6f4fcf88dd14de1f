"""Predicting with K sampled passes."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal, overload

import torch
from torch import Tensor, nn

from contextual_dropout.nn.stochastic import sampling_among
from contextual_dropout.prediction.classification import MultilabelPrediction, Prediction
from contextual_dropout.prediction.ensemble import Ensemble
from contextual_dropout.prediction.outputs import AnyPrediction, Output, Task, check_task, interpret, picker
from contextual_dropout.prediction.passes import Passes, run_passes
from contextual_dropout.prediction.regression import RegressionPrediction
from contextual_dropout.replay.generators import ONE_AT_A_TIME, isolated, seed_from, seed_of
from contextual_dropout.significance import TwoSampleTest

__all__ = ["Model", "members_of", "predict"]

#: A network, or an ensemble: a ``DeepEnsemble`` or a sequence of networks.
Model = Callable[..., Any] | Sequence[Callable[..., Any]] | nn.ModuleList


@overload
def predict(
    model: Model, *inputs: Any, task: Literal["multiclass", "binary"] = "multiclass", **options: Any
) -> Prediction: ...
@overload
def predict(model: Model, *inputs: Any, task: Literal["multilabel"], **options: Any) -> MultilabelPrediction: ...
@overload
def predict(model: Model, *inputs: Any, task: Literal["regression"], **options: Any) -> RegressionPrediction: ...
@overload
def predict(model: Model, *inputs: Any, task: Task, **options: Any) -> AnyPrediction: ...
def predict(
    model: Model,
    *inputs: Any,
    samples: int = 20,
    seed: int | None = None,
    generator: torch.Generator | None = None,
    task: Task = "multiclass",
    output: Output = None,
    rows: int | None = None,
    test: TwoSampleTest | None = None,
    **keywords: Any,
) -> AnyPrediction:
    """Predict with ``samples`` sampled masks, for any network with contextual or ordinary dropout, or an ensemble.

    Dropout samples, everything else is in eval mode. Everything before the first random call is computed once, and
    several samples at a time where that is faster (:mod:`contextual_dropout.prediction.passes`). Every module's mode,
    every buffer, the inputs and the global random states are as before afterwards, also when the model raises. All
    threads share these: calls from several of them wait for one another, each with the result that it would have alone.
    While one runs, other threads must neither call nor train the model, nor draw from the global random states.

    The members of an ensemble share the samples: of M members each gets ``samples // M`` passes, at least one, so
    that K may differ from ``samples``; a member without randomness runs once and counts as often as the others (once,
    if none is random).

    Args:
        model: the network; or an ensemble: a :class:`~contextual_dropout.baselines.DeepEnsemble`, or a list, tuple or
            ``nn.ModuleList`` of networks.
        inputs: for the model's forward, of any kind.
        samples: K.
        seed: makes the samples reproducible (on the same machine, with the same ``rows``); by default they are fresh
            each time.
        generator: on the CPU, instead of a seed; each call advances it.
        task: what the output means: logits (B, C) of classes that exclude one another ("multiclass") or do not
            ("multilabel"), one logit (B,) or (B, 1) of the positive class ("binary"), any numbers ("regression").
        output: which part of the model's output: a key, an index, or a function of it; see
            :func:`contextual_dropout.prediction.outputs.picker` for the default.
        rows: the most examples times samples to compute in one pass; by default chosen by the device.
        test: the significance test behind ``p_value``; by default ``paired_t``, for "multilabel" ``independent_t``.
        keywords: for the model's forward.

    Returns:
        A :class:`~contextual_dropout.Prediction`; for "multilabel" a
        :class:`~contextual_dropout.MultilabelPrediction`, for "regression" a
        :class:`~contextual_dropout.RegressionPrediction`.

    Raises:
        ValueError: if nothing in the model is random: K equal samples would pretend certainty.

    Example:
        >>> import contextual_dropout as cd
        >>> model = nn.Sequential(nn.Linear(4, 8), cd.ContextualDropout(8), nn.Linear(8, 3))
        >>> prediction = cd.predict(model, torch.randn(5, 4), samples=10, seed=0)
        >>> prediction.samples.shape, prediction.p_value.shape
        (torch.Size([10, 5, 3]), torch.Size([5]))
    """
    samples = _count("samples, the number of sampled passes,", samples)
    rows = None if rows is None else _count("rows, the examples times samples in one pass,", rows)
    check_task(task)
    seed = seed_from(seed, generator)
    with ONE_AT_A_TIME, torch.inference_mode(False), torch.no_grad():
        members = [Passes(member, inputs, keywords, picker(output)) for member in members_of(model)]
        if any(member.lazy for member in members):
            raise ValueError("the model has lazy layers that have not seen an input: call it once before")
        share = max(1, samples // len(members))
        with isolated(seed, [device for member in members for device in member.devices]):
            seeds = [seed, *(seed_of(seed, number) for number in range(1, len(members)))]
            outputs = [_sampled(*each, share, rows) for each in zip(members, seeds, strict=True)]
        if len(members) == 1 and len(outputs[0]) < samples and outputs[0].numel():
            raise ValueError(_NOTHING_RANDOM)
        most = max(len(output) for output in outputs)
        return interpret(torch.cat([output.expand(most, *output.shape[1:]) for output in outputs]), task, test)


def _count(name: str, value: Any) -> int:
    """Check that a value is a whole number of at least one, which may be numpy's or a tensor."""
    try:
        count = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} must be a whole number, got {value!r}") from None
    if count < 1:
        raise ValueError(f"{name} must be at least 1, got {count}")
    return count


def _sampled(passes: Passes, seed: int, samples: int, rows: int | None) -> Tensor:
    """The outputs of a member, (K, B, ...)."""
    with _without_trace(passes):
        return run_passes(passes, samples, rows, seed)


@contextmanager
def _without_trace(passes: Passes) -> Iterator[None]:
    """Let dropout sample inside, and put modes and buffers back afterwards."""
    try:
        with sampling_among(passes.modules):
            yield
    finally:
        passes.put_back()


def members_of(model: Any) -> list[Callable[..., Any]]:
    """The networks of an ensemble; anything else is its only network.

    An ensemble is a :class:`~contextual_dropout.baselines.DeepEnsemble`, or a list, tuple or ``nn.ModuleList`` that
    cannot be called itself; the attribute ``members`` of another network is not looked at.
    """
    if isinstance(model, Ensemble):
        model = model.members
    is_sequence = isinstance(model, list | tuple) and not callable(model)
    is_module_list = isinstance(model, nn.ModuleList) and type(model).forward is nn.ModuleList.forward
    members = list(model) if is_sequence or is_module_list else [model]
    bad = next((member for member in members if not callable(member)), None)
    if bad is not None or not members:
        got = "an empty ensemble" if bad is None else f"a {type(bad).__name__}"
        raise TypeError(f"model must be a network (any callable) or a sequence of networks, got {got}")
    return members


_NOTHING_RANDOM = (
    "nothing is sampled: the model drew no random number, so that all samples would be equal and look certain. Add "
    "sites with cd.contextualize(model), or dropout layers (nn.Dropout with p > 0); where dropout is called as a "
    "function, call it in eval mode too (F.dropout(x, p, self.training), which cd.predict switches on, and not "
    "`if self.training:`); instead of a plain function give the nn.Module, so that its dropout can be switched on. "
    "samples=1 gives the one deterministic output"
)
