"""Predicting for a whole data set, batch by batch."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from contextual_dropout.prediction.outputs import AnyPrediction
from contextual_dropout.prediction.predict import Model, members_of, predict
from contextual_dropout.replay.generators import ONE_AT_A_TIME, Stream, seed_from, seed_of

__all__ = ["predict_batches", "predict_loader"]

#: Maps a batch to the arguments of the model: a mapping holds keywords, a tuple positional arguments.
Inputs = Callable[[Any], Any]


def first(batch: Any) -> Any:
    """The first item of a tuple or list, (x, y) for instance; anything else as it is."""
    return batch[0] if isinstance(batch, tuple | list) else batch


def predict_batches(
    model: Model,
    loader: Iterable[Any],
    *,
    seed: int | None = None,
    generator: torch.Generator | None = None,
    inputs: Inputs = first,
    **options: Any,
) -> Iterator[tuple[Any, Any]]:
    """Predict for one batch after the other; none is kept, so that the stream may be endless.

    Args:
        model: as for :func:`~contextual_dropout.predict`.
        loader: gives batches. If it is an iterator, which may wait for other threads, it must not draw from the global
            random states while these predict.
        seed: makes the samples reproducible: batch n has a seed that is made of ``seed`` and n alone, so that its
            samples depend neither on the batches before it nor on their number.
        generator: on the CPU, instead of a seed.
        inputs: maps a batch to the arguments of the model: a mapping is passed as keywords, a tuple as positional
            arguments, anything else as the only argument. By default the first item of a tuple or list, else the batch.
            Tensors are moved to the device of the model's first parameter.
        options: for :func:`~contextual_dropout.predict`: ``samples``, ``task``, ``output``, ``rows``, ``test``.

    Yields:
        (batch, prediction), as they come.

    Example:
        >>> model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 3))
        >>> batches = [(torch.randn(5, 4), torch.zeros(5)), (torch.randn(2, 4), torch.zeros(2))]
        >>> [tuple(p.mean.shape) for _, p in predict_batches(model, batches, samples=4)]
        [(5, 3), (2, 3)]
    """
    seed = seed_from(seed, generator)
    device = _device(model)
    batches = loader if isinstance(loader, Iterator) else _fetched(loader, lambda: ONE_AT_A_TIME)
    for index, batch in enumerate(batches):
        arguments = inputs(batch)
        keywords = dict(arguments) if isinstance(arguments, Mapping) else {}
        positional = () if keywords else arguments if isinstance(arguments, tuple) else (arguments,)
        positional, keywords = tree_map(lambda x: x.to(device) if isinstance(x, Tensor) else x, (positional, keywords))
        yield batch, predict(model, *positional, seed=seed_of(seed, index), **keywords, **options)


def predict_loader(
    model: Model,
    loader: Iterable[Any],
    *,
    seed: int | None = None,
    generator: torch.Generator | None = None,
    inputs: Inputs = first,
    **options: Any,
) -> Any:
    """Predict for a whole data set: one prediction over all batches, in the order of the loader.

    All K N C probabilities are kept, on the CPU; for streams beyond that see :func:`predict_batches`, whose
    arguments these are. Shows a progress bar if stderr is a terminal and rich is installed. The global random
    states are as before, although a ``DataLoader`` draws from them. Predictions of other threads take place between
    batches, and wait while one is fetched; neither changes the other's result.

    Returns:
        What :func:`~contextual_dropout.predict` returns for the task, with samples (K, N, ...).

    Example:
        >>> from torch.utils.data import DataLoader, TensorDataset
        >>> model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 3))
        >>> loader = DataLoader(TensorDataset(torch.randn(50, 4), torch.zeros(50)), batch_size=16)
        >>> predict_loader(model, loader, samples=10, seed=0).samples.shape
        torch.Size([10, 50, 3])
    """
    predictions: list[AnyPrediction] = []
    seed = seed_from(seed, generator)
    batches = _fetched(loader, Stream().drawn)
    total = len(loader) if isinstance(loader, Sized) else None
    for _, prediction in predict_batches(model, _shown(batches, total), seed=seed, inputs=inputs, **options):
        predictions.append(prediction.to("cpu"))
    if not predictions:
        raise ValueError("the loader gave no batch: there is nothing to predict")
    kind: Any = type(predictions[0])
    return kind.cat(predictions)


def _fetched(loader: Iterable[Any], apart: Callable[[], AbstractContextManager[Any]]) -> Iterator[Any]:
    """The batches, each fetched inside of ``apart()``: a loader draws random numbers when it is started and after."""
    with apart():
        iterator = iter(loader)
    while True:
        with apart():
            try:
                batch = next(iterator)
            except StopIteration:
                return
        yield batch


def _device(model: Any) -> torch.device | None:
    """The device of the first parameter, if there is one."""
    parameters = (p for module in members_of(model) if isinstance(module, nn.Module) for p in module.parameters())
    return next((parameter.device for parameter in parameters), None)


def _shown(batches: Iterator[Any], total: int | None) -> Iterator[Any]:
    """The batches, with a progress bar if the output is a terminal."""
    if not sys.stderr.isatty() or importlib.util.find_spec("rich") is None:
        return batches
    from rich.console import Console
    from rich.progress import track

    return iter(track(batches, "predicting", total, console=Console(stderr=True), transient=True))
