"""``contextual-dropout inspect``: what trained networks are uncertain about, and whether their t-tests hold."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path

from matplotlib.figure import Figure
from rich.console import Console
from torch import Tensor, nn

from contextual_dropout.prediction.classification import Classification
from contextual_dropout_lab.cli.inspect_questions import draw_questions, predict_questions
from contextual_dropout_lab.data import load, noisy_copies
from contextual_dropout_lab.report import ReportError, to_rich
from contextual_dropout_lab.report.method_names import ordered
from contextual_dropout_lab.report.normality import FEWEST, Normality
from contextual_dropout_lab.report.plots import normality, save, uncertain
from contextual_dropout_lab.report.tables import normality as normality_table
from contextual_dropout_lab.runs.config import RunConfig
from contextual_dropout_lab.runs.evaluation import TEST_NOISE_SEED, noise_name, sampled
from contextual_dropout_lab.runs.questions import QUESTION_DATA
from contextual_dropout_lab.runs.run_data import Examples, images_of, load_examples, normaliser
from contextual_dropout_lab.store.networks import load_network
from contextual_dropout_lab.store.results import Results

__all__ = ["inspect_runs"]

#: The fields that runs must share to be tested on the same inputs.
_SHARED = ("data", "network", "split", "validation_examples", "test_examples")


def inspect_runs(
    folders: list[Path], output: Path, count: int, noise: float | None, data: Path | None, console: Console
) -> None:
    """Draw box plots and Q-Q plots of every run as PNG, and print how often normality is rejected.

    Args:
        folders: of finished runs that were tested on the same images.
        output: for the plots.
        count: images in a plot.
        noise: on the test images; by default that of training.
        data: where the data sets are, if not in the usual places.
        console: for paths and the table.
    """
    networks = {folder: load_network(folder)[:2] for folder in dict.fromkeys(map(_folder, folders))}
    configs = [config for _, config in networks.values()]
    names, sd = _names(configs), _common_noise(configs, noise)
    examples = _test_examples(configs, data)
    if configs[0].data in QUESTION_DATA:
        answered = dict(zip(names, _answered(networks.values(), sd, data), strict=True))
        answered = {name: answered[name] for name in ordered(answered)}
        return draw_questions(answered, configs[0], examples, output, count, data, console)
    images = images_of(examples.test_x)
    x = next(noisy_copies(images, sd, 1, TEST_NOISE_SEED))
    found = {}
    for name, (folder, (model, config)) in zip(names, networks.items(), strict=True):
        prediction = _prediction(folder, model, config, x, sd)
        if len(prediction.samples) < FEWEST:
            console.print(f"left out: {_too_few(config, prediction)}", highlight=False, soft_wrap=True)
        else:
            found[name] = Normality(prediction)
    if not found:
        raise ReportError("there is nothing to draw: none of the runs has enough samples")
    found = {name: found[name] for name in ordered(found)}
    shape = _image_shape(configs[0], x, data)
    clean, noisy = (each.reshape(len(x), *shape) for each in (images, x))
    draw_boxes = partial(uncertain, clean, examples.test_y, examples.classes, noisy=noisy if sd > 0 else None)
    for path in _draw(found, draw_boxes, output, count):
        console.print(str(path), highlight=False, soft_wrap=True)
    console.print(to_rich(normality_table(found)))


def _answered(
    networks: Iterable[tuple[nn.Module, RunConfig]], sd: float, data: Path | None
) -> Iterator[Classification]:
    """Show each network's answers to test questions. Its word numbers are those of the questions it was trained on."""
    read: dict[int | None, Examples] = {}
    for model, config in networks:
        if config.train_examples not in read:
            read[config.train_examples] = _test_examples([config], data)
        yield predict_questions(model, config, read[config.train_examples], sd)


def _draw(found: dict[str, Normality], draw_boxes: Callable[..., Figure], output: Path, count: int) -> Iterator[Path]:
    """Draw both plots of every run; box plots show all runs."""
    predictions = {name: each.prediction for name, each in found.items()}
    for name, each in found.items():
        yield save(draw_boxes(predictions, name, count), output, f"uncertain-{name}", "png")
        if each.tested.any():  # else the table says that all are constant
            yield save(normality(name, each, count), output, f"normality-{name}", "png")


def _folder(path: Path) -> Path:
    """The folder of a run, given this folder or the network's file in it."""
    return (path.parent if path.suffix == ".safetensors" else path).resolve()


def _names(configs: list[RunConfig]) -> list[str]:
    """The methods where they tell the runs apart, else the runs' whole names."""
    methods = [config.method for config in configs]
    names = methods if len(set(methods)) == len(methods) else [config.name.replace("/", "-") for config in configs]
    twice = [name for name, times in Counter(names).items() if times > 1]
    if twice:
        raise ReportError(f"two of the folders have a run {twice[0]}: inspect them one by one")
    return names


def _common_noise(configs: list[RunConfig], noise: float | None) -> float:
    levels = sorted({config.noise_sd for config in configs})
    if noise is None and len(levels) > 1:
        found = " and ".join(f"{level:g}" for level in levels)
        raise ReportError(f"the runs were trained with noise of {found}: say which to test them at (--noise)")
    return levels[0] if noise is None else noise


def _test_examples(configs: list[RunConfig], data: Path | None) -> Examples:
    """The test examples of the runs; without training examples and other data sets, which are not needed."""
    first = configs[0]
    for config in configs:
        for field in _SHARED:
            one, other = getattr(first, field), getattr(config, field)
            if one != other:
                raise ReportError(
                    f"{first.name} and {config.name} differ in {field} ({one}, {other}) and cannot be shown side by "
                    "side: inspect them one by one"
                )
    count = first.train_examples if first.data in QUESTION_DATA else 0  # words come from training questions
    return load_examples(dataclasses.replace(first, ood=(), train_examples=count), data)


def _prediction(folder: Path, model: nn.Module, config: RunConfig, x: Tensor, sd: float) -> Classification:
    """The predictions that the run stored for its first draw of the noise; predicted again where it stored none."""
    if folder.as_posix().endswith(f"/{config.name}"):
        kept = Results(Path(), folder.parents[config.name.count("/")]).predictions(config) or {}
        if f"{noise_name(sd)}/0" in kept:
            return kept[f"{noise_name(sd)}/0"]
    return sampled(model, normaliser(config)(x), config, 0)


def _too_few(config: RunConfig, prediction: Classification) -> str:
    if len(prediction.samples) == 1:
        return f"{config.name} has one sample, as it is deterministic: no spread and no p-value"
    return f"{config.name} has {len(prediction.samples)} samples, a test of normality needs {FEWEST}"


def _image_shape(config: RunConfig, x: Tensor, data: Path | None) -> tuple[int, ...]:
    """The shape of one image, where inputs may be flat; the test set is not touched for it."""
    return tuple(x.shape[1:] if x.ndim == 4 else load(config.data, "train", data).images.shape[1:])
