"""Deep ensembles of trained runs, from their stored predictions, or from their networks."""

from __future__ import annotations

import itertools
import math
import random
import statistics
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from contextual_dropout.prediction.classification import MultilabelPrediction, Prediction
from contextual_dropout_lab.errors import ExperimentError
from contextual_dropout_lab.runs.config import RunConfig
from contextual_dropout_lab.runs.evaluation import averaged, noise_name, noisy_inputs, sampled, scores_of
from contextual_dropout_lab.runs.run_data import Examples, load_examples
from contextual_dropout_lab.store.networks import load_network
from contextual_dropout_lab.store.provenance import provenance
from contextual_dropout_lab.store.results import Results

__all__ = ["ensemble", "ensemble_records"]

#: How many seconds to wait for another process that is at the same ensembles.
PATIENCE = 3600.0
#: How many ensembles of a size are evaluated at most: of 20 networks there are 184,756 of 10.
MOST_SUBSETS = 100
_FIGURES = ("accuracy", "log_likelihood", "calibration_error")


def ensemble_records(configs: Iterable[RunConfig], results: Results, data_directory: Any = None) -> list[str]:
    """Write ``ensemble.json`` beside the records of every setting and method whose predictions are available.

    Predictions that a run did not keep are made again by its tracked network, if there is one. A record of more of
    these runs than can be had now is left as it is.

    Args:
        configs: the runs; those of one setting and method are the members.
        results: where records, predictions and tracked networks are.
        data_directory: where the data are, if not in the usual places.

    Returns:
        The names, experiment/setting/method, that were written.
    """
    written = []
    for name, group in itertools.groupby(sorted(configs, key=_group), key=_group):
        if not any((folder / name).exists() for folder in (results.work, results.networks) if folder is not None):
            continue
        with results.locked(name, PATIENCE):  # else one that saw fewer runs might write last
            if _write_record(list(group), results, data_directory):
                written.append(name)
    return written


def _write_record(configs: list[RunConfig], results: Results, data_directory: Any) -> bool:
    """Write the record of one setting and method; whether there was anything to write."""
    done = [config for config in configs if results.read(config) is not None]
    if not done:
        return False
    config = done[0]
    examples = load_examples(config, data_directory)
    found = {config.seed: _samples(config, results, examples) for config in done}
    kept = {seed: samples for seed, samples in found.items() if samples is not None}
    if not kept:
        return False
    members, sizes = list(kept.values()), range(1, len(kept) + 1)
    digests = [each.digest for each in done if each.seed in kept]
    if set(digests) < set(results.ensemble_digests(config)) <= {each.digest for each in done}:
        return False  # some networks are not here: the record of all of them stays
    results.write_ensemble(
        config,
        {
            "noise": noise_name(config.noise_sd),
            "total_samples": config.samples,
            "seeds": list(kept),
            "digests": digests,
            "commit": provenance()["commit"],
            "members": {str(size): _of_size(members, size, examples.test_y, config.task) for size in sizes},
        },
    )
    return True


def _samples(config: RunConfig, results: Results, examples: Examples) -> list[Tensor] | None:
    """(K, N, C) for every draw of the run's own noise, as they were kept, or as its tracked network gives them again.

    The network has half the digits; its masks are drawn of the same seeds. None where there is neither.
    """
    kept = results.predictions(config)
    if kept is not None:
        own = f"{noise_name(config.noise_sd)}/"
        return [prediction.samples for name, prediction in kept.items() if name.startswith(own)]
    path = results.network(config)
    if path is None or not path.exists():
        return None
    model, trained, _ = load_network(path)
    if trained.digest != config.digest:
        raise ExperimentError(f"{path} is of another configuration than the record of {config.name}: delete it")
    inputs = enumerate(noisy_inputs(examples.test_x, config.noise_sd, config))
    return [sampled(model, x, config, draw, examples.test_beside).samples for draw, x in inputs]


def ensemble(members: list[Tensor]) -> Tensor:
    """Samples (K, N, C) of an ensemble: M members share the K samples that one network has, as evenly as possible.

    Members without randomness give one each.

    Example:
        >>> ensemble([torch.rand(20, 5, 3)] * 3).shape
        torch.Size([20, 5, 3])
    """
    samples, count = len(members[0]), len(members)
    shares = [max(1, samples // count + (index < samples % count)) for index in range(count)]
    return torch.cat([member[:share] for member, share in zip(members, shares, strict=True)])


def _of_size(members: list[list[Tensor]], size: int, targets: Tensor, task: str) -> dict[str, Any]:
    """The mean over ensembles of this size, their number, and their standard deviation in accuracy."""
    kind = Prediction if task == "classification" else MultilabelPrediction
    results = []
    for subset in _subsets(len(members), size):
        chosen = [members[index] for index in subset]
        by_draw = [scores_of(kind(ensemble(list(samples))), targets, task) for samples in zip(*chosen, strict=True)]
        results.append(averaged(by_draw))
    known = [name for name in _FIGURES if name in results[0]]
    mean: dict[str, Any] = {name: statistics.fmean(result[name] for result in results) for name in known}
    deterministic = len(members[0][0]) == 1  # a test over as many samples as members would say nothing
    mean["pavpu"] = {
        threshold: statistics.fmean(result["pavpu"][threshold]["value"] for result in results)
        for threshold in results[0]["pavpu"]
        if not deterministic
    } or None
    accuracies = [result["accuracy"] for result in results]
    mean["accuracy_sd"] = statistics.stdev(accuracies) if len(accuracies) > 1 else None
    return {"subsets": len(results), **mean}


def _subsets(count: int, size: int) -> list[tuple[int, ...]]:
    """All subsets of this many members, or the same :data:`MOST_SUBSETS` of them each time, in their order."""
    if math.comb(count, size) <= MOST_SUBSETS:
        return list(itertools.combinations(range(count), size))
    chance, chosen = random.Random(0), set[tuple[int, ...]]()
    while len(chosen) < MOST_SUBSETS:
        chosen.add(tuple(sorted(chance.sample(range(count), size))))
    return sorted(chosen)


def _group(config: RunConfig) -> str:
    return f"{config.experiment}/{config.setting}/{config.method}"
