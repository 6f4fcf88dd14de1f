"""The loaders of configurations, results, checkpoints, networks and sites."""

from __future__ import annotations

import io
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import yaml
from safetensors.torch import save_file

import contextual_dropout as cd
from contextual_dropout.prediction.classification import Prediction
from contextual_dropout_lab.errors import ExperimentError
from contextual_dropout_lab.models import load_weights, mlp
from contextual_dropout_lab.report.run_records import PARTS, read_records
from contextual_dropout_lab.runs.config import load_experiment
from contextual_dropout_lab.runs.curves import curves_path, read_curves, write_curves
from contextual_dropout_lab.runs.fabric import fabric_for
from contextual_dropout_lab.runs.methods import build_model
from contextual_dropout_lab.runs.run_data import load_examples
from contextual_dropout_lab.runs.training import Training, _restore, train
from contextual_dropout_lab.store.files import load_tensors
from contextual_dropout_lab.store.networks import FILE, load_network, save_network
from contextual_dropout_lab.store.results import PREDICTIONS
from tests.archives import saved
from tests.conversion.models import plain_mlp
from tests.lab.runs.tiny import folders, tiny
from tests.reliability.loaders import Loader, Mutant, only, part, value, written
from tests.reliability.mutations import LONG, as_json, in_safetensors, in_zip, mutated_value

CONFIG = tiny()
EXPERIMENT = {
    "base": {"data": "digits", "epochs": 2, "hidden": [4]},
    "settings": {"noisy": {"noise_sd": 1.0, "methods": {"mc": {"p": 0.1}}, "only": ["mc"]}},
    "methods": {"mc": {"conversion": "mc_dropout", "options": {}}},
    "presets": {"quick": {"base": {"epochs": 1}, "seeds": {"noisy": 2}, "methods": {"one": {"like": "mc"}}}},
}
RECORD = {
    **{name: {} for name in PARTS},
    **{"config": CONFIG.to_dict(), "digest": CONFIG.digest, "test": {"noise-0.5": {"accuracy": 1.0}}},
}


def runs() -> dict[str, Loader]:
    predicted = {"noise-0.5": [Prediction(torch.rand(2, 3, 10).softmax(-1))]}
    predictions = written(lambda folder: folders(folder).write_predictions(CONFIG, predicted))  # type: ignore[arg-type]
    drawn = written(lambda folder: write_curves(folders(folder), CONFIG, predicted["noise-0.5"], torch.arange(3)))
    curves = curves_path(folders(Path()), CONFIG).as_posix()
    recorded, kept = f"records/{CONFIG.name}.json", f"work/{CONFIG.name}/{PREDICTIONS}"
    return {
        "YAML": Loader(
            (value("f.yaml", EXPERIMENT, _as_yaml), part("f.yaml", _as_yaml(EXPERIMENT))),
            lambda folder: [run.digest for run in load_experiment(folder / "f.yaml").runs("quick")],
            (ExperimentError,),
        ),
        "record": Loader(
            (value(recorded, RECORD), part(recorded, as_json(RECORD))),
            lambda folder: (folders(folder).read(CONFIG), list(folders(folder).all("tiny"))),
            (ExperimentError,),
        ),
        "record of a report": Loader(
            (value(recorded, RECORD), part(recorded, as_json(RECORD))), _read_for_a_report, (ExperimentError,)
        ),
        "curves": Loader(
            (value(curves, json.loads(drawn)), part(curves, drawn)),
            lambda folder: read_curves(folders(folder), CONFIG),
            (ExperimentError,),
        ),
        "predictions": Loader(
            (part(kept, predictions), part(kept, *in_safetensors(predictions))),
            lambda folder: folders(folder).predictions(CONFIG),
            (ExperimentError,),
        ),
    }


def network_file() -> bytes:
    """Of the network of a tiny run."""
    model = build_model(CONFIG, (64,), 10)
    return written(lambda folder: save_network(folder, model, CONFIG, (64,), tuple("0123456789")))


def checkpoint_file() -> bytes:
    """Of a tiny run."""
    return written(lambda folder: train(CONFIG, load_examples(CONFIG), folder))


def sites_file() -> bytes:
    """Of a converted network."""
    converted = cd.contextualize(plain_mlp(), example=torch.zeros(1, 4))
    return written(lambda folder: cd.save_sites(converted, folder / "f"))


def networks() -> dict[str, Loader]:
    torch.manual_seed(0)
    small = mlp(4, (6,), classes=3)
    state = {"digest": "x", "model": small.state_dict(), "optimizer": {"lr": 0.1, "steps": [1, 2]}, "epoch": 3}
    checkpoint = written(lambda folder: torch.save(state, folder / "f"))
    weights, old = (
        written(lambda folder: torch.save(small.state_dict(), folder / "f", _use_new_zipfile_serialization=new))  # noqa: B023
        for new in (True, False)
    )
    plain = written(lambda folder: save_file(small.state_dict(), folder / "f"))
    network, sites = network_file(), sites_file()
    begun = checkpoint_file()
    state_of_run = torch.load(io.BytesIO(begun), weights_only=True)
    return {
        "checkpoint of a run": Loader(
            (value("f", state_of_run, saved), part("f", *in_zip(begun, "archive/data.pkl"))),
            _go_on(),
            (ExperimentError,),
        ),
        "checkpoint": Loader(
            (part("f", checkpoint), part("f", *in_zip(checkpoint, "f/data.pkl"))),
            only(load_tensors),
            (ExperimentError,),
        ),
        "network": Loader(
            (part(FILE, network), part(FILE, *in_safetensors(network)), _metadata(FILE, network)),
            load_network,
            (ExperimentError,),
        ),
        "sites": Loader(
            (part("f", sites), part("f", *in_safetensors(sites)), _metadata("f", sites)),
            only(_read_sites),
            (ValueError,),
        ),
        "weights": Loader(
            (
                *(part("f.pth", weights), part("f.pth", *in_zip(weights, "f/data.pkl")), part("f.pt", old)),
                *(part("f.safetensors", plain), part("f.safetensors", *in_safetensors(plain))),
            ),
            only(lambda path: load_weights(mlp(4, (6,), classes=3), path)),
            (ValueError,),
        ),
    }


def _metadata(name: str, file: bytes) -> Mutant:
    """What is written down beside the tensors of a safetensors file, mutated as the JSON that it is."""
    header, pack = in_safetensors(file)

    def mutant(chance: random.Random) -> tuple[str, bytes]:
        parsed = json.loads(header)
        key = chance.choice(sorted(parsed["__metadata__"]))
        inner = mutated_value(json.loads(parsed["__metadata__"][key]), chance)
        parsed["__metadata__"][key] = json.dumps(inner)
        return name, pack(json.dumps(parsed).encode())

    return mutant


def _go_on() -> Callable[[Path], object]:
    """From a checkpoint, with one network for all of them: each leaves it as it is, or overwrites it."""
    training = Training(CONFIG, load_examples(CONFIG), fabric_for(CONFIG))
    return only(lambda path: _restore(training, load_tensors(path), path))


def _read_for_a_report(folder: Path) -> object:
    sound, faults = read_records(folders(folder), "tiny")
    if faults:
        raise ExperimentError(str(faults))
    return sound


def _as_yaml(content: Any) -> bytes:
    text = yaml.safe_dump(content, sort_keys=False).replace(LONG, f"0x{5000 * 'f'}")
    return text.encode("utf-8", "surrogatepass")


def _read_sites(path: Path) -> object:
    """On a plain model, which must be as before if the file is refused."""
    model = plain_mlp()
    layers = [type(module) for module in model.modules()]
    try:
        return cd.load_sites(model, path)
    except ValueError:
        assert [type(module) for module in model.modules()] == layers
        raise
