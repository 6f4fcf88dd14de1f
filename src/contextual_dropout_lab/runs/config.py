"""Configurations of runs: one YAML file per experiment, a base and small differences from it.

.. code-block:: yaml

    base: {epochs: 200, ...}             # fields of RunConfig
    settings: {noisy: {noise_sd: 1.0}}   # between settings; methods: for one of them there; only: which of them
    methods: {mc-bernoulli: {...}}       # what differs between methods
    presets: {quick: {base: {...}, seeds: {noisy: 2}}}

A file that starts with ``extends: mnist`` has only what differs from that experiment.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any, Literal

from contextual_dropout_lab.errors import ConfigError
from contextual_dropout_lab.runs.config_checks import PARTS, check_name, check_parts, mapping, short, typed
from contextual_dropout_lab.store.yaml_files import MAX_CHARACTERS, parse_yaml

__all__ = ["Experiment", "RunConfig", "experiment_names", "load_experiment"]

_PACKAGED = resources.files("contextual_dropout_lab") / "configs"


@dataclass(frozen=True)
class RunConfig:
    """One run, completely: the same values give the same result.

    Attributes:
        experiment: e.g. "mnist".
        setting: a data setting of the experiment, e.g. "noisy".
        method: a row of its tables, e.g. "contextual-bernoulli".
        seed: of initialisation, data order, noise and masks.
        data: the data set's name.
        task: "classification", or "soft-answers" where several people answered.
        noise_sd: of the Gaussian noise on the inputs in training, on the 0-1 scale.
        test_noise_sd: noise levels to test at; "in distribution" is ``noise_sd``.
        network: "mlp", "wide_resnet", "resnet18", "vit" or "mcan".
        network_options: its keywords, e.g. depth and width.
        hidden: layers of the MLP.
        p: drop rate of the network's dropout layers.
        start_from: the name of a run whose trained network this one starts from; "{experiment}" and "{seed}" stand
            for its own.
        weights: a file of pretrained weights of the plain network to begin with, e.g. torchvision's of ResNet-18.
        weights_skip: parts of the network that keep their own values, e.g. ["fc"] for another number of classes.
        conversion: the verb that makes the method of the plain network.
        options: keywords of the verb.
        objective: keywords of the objective: ``estimator``, ``kl_weight``, ``warmup_epochs``, ``kl``.
        optimizer: ``name`` ("adam" or "sgd"), ``lr`` and other keywords of torch's class; where they differ ``phi_lr``
            and ``eta_lr``; ``milestones``, epochs after which all rates are multiplied by ``factor``, and
            ``warmup_epochs``, in which they grow to their full size.
        epochs: of training.
        batch_size: of training.
        accumulate: batches whose gradients are summed for one step.
        augmentation: "none", "crop-flip", "resized-crop-flip", or "resized-crop-flip-224" to that size.
        normalisation: "none", "cifar" or "imagenet": of the noisy inputs, by channel.
        precision: of Lightning Fabric, e.g. "bf16-mixed".
        memory_format: "contiguous" or "channels_last".
        split: "test" trains on the whole training set; "validation" holds ``validation_examples`` of it out.
        validation_examples: size of the validation split.
        train_examples: how many training examples to use; by default all.
        test_examples: how many test examples to use; by default all.
        on_error: "raise" an error for an image file that cannot be decoded, or "skip" those, with a warning that names
            and counts them.
        samples: K.
        test_batch_size: examples to predict at a time; by default all at once.
        noise_draws: over how many draws of the test noise results are averaged.
        ood: data sets whose images are out of distribution.
        evaluate_every: epochs between two points of the learning curve.
        devices: processes that train together, each on its part of every batch.
    """

    experiment: str
    setting: str
    method: str
    seed: int
    data: str = "mnist"
    task: str = "classification"
    noise_sd: float = 0.0
    test_noise_sd: tuple[float, ...] = ()
    network: str = "mlp"
    network_options: dict[str, Any] = field(default_factory=dict)
    hidden: tuple[int, ...] = (300, 100)
    p: float = 0.2
    start_from: str | None = None
    weights: str | None = None
    weights_skip: tuple[str, ...] = ()
    conversion: str = "none"
    options: dict[str, Any] = field(default_factory=dict)
    objective: dict[str, Any] = field(default_factory=dict)
    optimizer: dict[str, Any] = field(default_factory=dict)
    epochs: int = 200
    batch_size: int = 128
    accumulate: int = 1
    augmentation: str = "none"
    normalisation: str = "none"
    precision: str = "32-true"
    memory_format: str = "contiguous"
    split: Literal["test", "validation"] = "test"
    validation_examples: int = 10_000
    train_examples: int | None = None
    test_examples: int | None = None
    on_error: Literal["raise", "skip"] = "raise"
    samples: int = 20
    test_batch_size: int | None = None
    noise_draws: int = 5
    ood: tuple[str, ...] = ()
    evaluate_every: int = 10
    devices: int = 1

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> RunConfig:
        """Make a configuration from plain values, as JSON and YAML have them."""
        fields = {each.name: each for each in dataclasses.fields(cls)}
        if not isinstance(values, dict):
            raise ConfigError(f"a run's configuration must be a mapping, got {short(values)}")
        unknown = sorted(str(name) for name in values if name not in fields)
        missing = sorted(
            name
            for name, each in fields.items()
            if name not in values
            and each.default is dataclasses.MISSING
            and each.default_factory is dataclasses.MISSING
        )
        if unknown or missing:
            raise ConfigError(
                f"a run's configuration has unknown fields {unknown} and lacks {missing}; the fields are "
                f"{', '.join(fields)}"
            )
        for name in ("experiment", "setting", "method"):
            check_name(name, values[name])
        return cls(**{name: typed(name, value, fields[name].type) for name, value in values.items()})

    def to_dict(self) -> dict[str, Any]:
        """The configuration as plain values."""
        values: dict[str, Any] = json.loads(json.dumps(dataclasses.asdict(self)))
        return values

    @property
    def digest(self) -> str:
        """Twelve hexadecimal digits that stand for all values.

        Those that are as by default do not count, so that a field that is added later leaves older records valid.
        """
        defaults = RunConfig("", "", "", 0).to_dict()
        values = {name: value for name, value in self.to_dict().items() if value != defaults[name]}
        return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:12]

    @property
    def name(self) -> str:
        """experiment/setting/method/seed-n, where its files are."""
        return f"{self.experiment}/{self.setting}/{self.method}/seed-{self.seed}"


@dataclass(frozen=True)
class Experiment:
    """A configuration file: the settings, methods and presets that can be run."""

    name: str
    base: dict[str, Any]
    settings: dict[str, dict[str, Any]]
    methods: dict[str, dict[str, Any]]
    presets: dict[str, dict[str, Any]]

    def run(self, setting: str, method: str, seed: int, preset: str, **overrides: Any) -> RunConfig:
        """One run: base, preset, setting, method, the setting's own values for the method and ``overrides``.

        Each goes over what comes before it. A candidate of the preset is ``like`` a method but for a few values; what
        was chosen for a setting does not belong to it.
        """
        chosen = _choose("preset", preset, self.presets)
        of_setting = dict(_choose("setting", setting, self.settings))
        of_setting.pop("only", None)
        own = of_setting.pop("methods", {})
        for name in own:
            _choose(f"method of the setting {setting}", name, self.methods)
        difference = dict(chosen.get("methods", {}).get(method, {}))
        like = difference.pop("like", method)
        values = _merged(
            self.base,
            chosen.get("base", {}),
            of_setting,
            _choose("method", like, self.methods),
            own.get(method, {}),
            difference,
            overrides,
        )
        name = chosen.get("name", self.name)
        return RunConfig.from_dict({**values, "experiment": name, "setting": setting, "method": method, "seed": seed})

    def runs(self, preset: str) -> Iterator[RunConfig]:
        """All runs of a preset: setting by setting in its order, seed by seed, all methods."""
        chosen = _choose("preset", preset, self.presets)
        for setting, seeds in chosen.get("seeds", {}).items():
            methods = _choose("setting", setting, self.settings).get("only") or chosen.get("methods", self.methods)
            for seed in range(seeds):
                for method in methods:
                    yield self.run(setting, method, seed, preset)


def experiment_names() -> list[str]:
    """The experiments that come with the package."""
    return sorted(Path(each.name).stem for each in _PACKAGED.iterdir() if each.name.endswith(".yaml"))


def load_experiment(name_or_path: str | Path) -> Experiment:
    """An experiment of the package by name, or one's own by the path of its YAML file.

    A file that ``extends`` another has only what differs from it.

    Raises:
        ConfigError: there is no such experiment, or its file cannot be understood.
    """
    values = _read(name_or_path)
    seen = [str(name_or_path)]
    while "extends" in values:
        parent = str(values.pop("extends"))
        if parent in seen:
            raise ConfigError(f"{' extends '.join([*seen, parent])}: no end to that")
        seen.append(parent)
        values = _merged(_read(parent), values)
    missing = [part for part in PARTS if part not in values]
    if missing:
        raise ConfigError(f"{name_or_path} must have the mappings {', '.join(PARTS)}; it lacks {', '.join(missing)}")
    check_parts(values, str(name_or_path))
    return Experiment(Path(name_or_path).stem, **values)


def _read(name_or_path: str | Path) -> dict[str, Any]:
    try:
        if Path(name_or_path).suffix in (".yaml", ".yml"):
            with open(name_or_path, encoding="utf-8") as file:
                source = file.read(MAX_CHARACTERS + 1)
        elif str(name_or_path) in experiment_names():
            source = (_PACKAGED / f"{name_or_path}.yaml").read_text(encoding="utf-8")
        else:
            raise ConfigError(
                f"no experiment {str(name_or_path)!r}: the package has {', '.join(experiment_names())}; one of your "
                "own is given as the path of a .yaml file"
            )
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{name_or_path} cannot be read ({error}): expected a file of UTF-8 text") from error
    values = parse_yaml(source, str(name_or_path))
    if not isinstance(values, dict) or not set(values) <= {*PARTS, "extends"}:
        raise ConfigError(f"{name_or_path} must have the mappings {', '.join(PARTS)} and nothing else")
    for part in set(values) & set(PARTS):
        mapping(values, part, str(name_or_path))
    return values


def _choose(kind: str, name: str, choices: dict[str, dict[str, Any]]) -> dict[str, Any]:
    if name not in choices:
        raise ConfigError(f"unknown {kind} {name!r}: expected one of {', '.join(choices)}")
    return choices[name]


def _merged(*parts: dict[str, Any]) -> dict[str, Any]:
    """Merge later parts over earlier ones, mapping by mapping."""
    result: dict[str, Any] = {}
    for part in parts:
        for key, value in part.items():
            old = result.get(key)
            result[key] = _merged(old, value) if isinstance(old, dict) and isinstance(value, dict) else value
    return result
