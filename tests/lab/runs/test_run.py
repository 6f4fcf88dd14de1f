"""A run ends with the same numbers however often it was interrupted, and is not done twice."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning_fabric import Fabric
from torch import nn

from contextual_dropout_lab.data import DataError
from contextual_dropout_lab.errors import Busy, ConfigError, ExperimentError
from contextual_dropout_lab.runs import training
from contextual_dropout_lab.runs.contextuality import contextuality
from contextual_dropout_lab.runs.evaluation import evaluate, sampled, scores_of
from contextual_dropout_lab.runs.methods import build_model
from contextual_dropout_lab.runs.run import run
from contextual_dropout_lab.runs.run_data import load_examples
from contextual_dropout_lab.store.files import load_tensors, locked, sha256_of
from contextual_dropout_lab.store.networks import load_network
from contextual_dropout_lab.store.results import Results
from tests.lab.runs.tiny import comparable, folders, tiny


class Interrupted(Exception):
    pass


def stop_at(epoch: int) -> Any:
    def progress(done: int) -> None:
        if done == epoch:
            raise Interrupted

    return progress


METHODS: dict[str, dict[str, Any]] = {
    "contextual": {},
    "gaussian": {"options": {"family": "gaussian", "reduction": 4}},
    "mc": {"conversion": "mc_dropout", "options": {}, "objective": {}},
    "bayes": {"conversion": "bayes_by_backprop", "options": {}, "objective": {}},
    "reinforce": {"objective": {"estimator": "reinforce"}},
}


@pytest.mark.parametrize("method", METHODS)
def test_an_interrupted_run_ends_with_the_same_numbers(
    tmp_path: Path, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training, "CHECKPOINT_EVERY", 2)
    config = tiny(method, **METHODS[method])
    straight = run(config, folders(tmp_path / "straight"))
    results = folders(tmp_path / "interrupted")
    for epoch in (3, 5, 6):
        with pytest.raises(Interrupted):
            run(config, results, progress=stop_at(epoch))
        torch.manual_seed(epoch)  # whatever happens in between
    resumed = run(config, results)
    assert comparable(resumed) == comparable(straight)
    assert resumed["cost"]["train_cpu_seconds"] > 0


def test_a_killed_process_loses_nothing(tmp_path: Path) -> None:
    """SIGKILL at some moment of a slow run, twice; the third attempt ends it."""
    config = tiny(epochs=60)
    (tmp_path / "config.json").write_text(json.dumps(config.to_dict()))
    script = (
        "import json, sys; from pathlib import Path; import torch; torch.set_num_threads(1)\n"
        "from contextual_dropout_lab.runs.config import RunConfig\n"
        "from contextual_dropout_lab.store.results import Results\n"
        "from contextual_dropout_lab.runs.run import run\n"
        "folder = Path(sys.argv[1]); config = RunConfig.from_dict(json.loads((folder / 'config.json').read_text()))\n"
        "run(config, Results(folder / 'records', folder / 'work'), progress=lambda epoch: print(epoch, flush=True))\n"
    )
    for kill_after in (11, 23):
        process = subprocess.Popen([sys.executable, "-c", script, str(tmp_path)], stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        for line in process.stdout:
            if int(line) >= kill_after:
                os.kill(process.pid, signal.SIGKILL)
                break
        process.wait()
        process.stdout.close()
    started = []
    record = run(config, folders(tmp_path), progress=started.append)
    assert started[0] >= 15  # went on from a checkpoint
    assert comparable(record) == comparable(run(config, folders(tmp_path / "straight")))
    assert not list(tmp_path.rglob("*.tmp"))


def test_a_run_that_is_done_is_not_repeated(tmp_path: Path) -> None:
    results = folders(tmp_path)
    first = run(tiny(), results)
    before = results.path(tiny()).stat().st_mtime_ns
    assert run(tiny(), results, progress=stop_at(0)) == first
    assert results.path(tiny()).stat().st_mtime_ns == before


def test_another_configuration_takes_the_place_of_a_stale_record(tmp_path: Path) -> None:
    results = folders(tmp_path)
    run(tiny(), results)
    changed = tiny(p=0.4)
    assert results.read(changed) is None
    assert run(changed, results)["config"]["p"] == 0.4
    assert results.read(tiny()) is None


def test_a_stale_checkpoint_is_not_resumed(tmp_path: Path) -> None:
    results = folders(tmp_path)
    with pytest.raises(Interrupted):
        run(tiny(), results, progress=stop_at(5))
    changed = tiny(p=0.4)
    assert comparable(run(changed, results)) == comparable(run(changed, folders(tmp_path / "straight")))


def test_what_a_killed_process_left_half_written_is_removed(tmp_path: Path) -> None:
    results = folders(tmp_path)
    for path in (results.work / tiny().name / "checkpoint.pt", results.path(tiny())):
        path.parent.mkdir(parents=True)
        path.with_name(f".{path.name}.123.tmp").write_text("half")
    run(tiny(), results)
    assert not list(tmp_path.rglob("*.tmp"))


def test_two_processes_do_not_work_on_the_same_run(tmp_path: Path) -> None:
    results = folders(tmp_path)
    with locked(results.work / tiny().name / "lock"), pytest.raises(Busy, match="another process"):
        run(tiny(), results)


def test_not_even_with_only_the_records_in_common(tmp_path: Path) -> None:
    """Each would remove what the other is writing beside the record."""
    one, other = (Results(tmp_path / "records", tmp_path / work) for work in ("one", "other"))
    refused: list[str] = []

    def progress(epoch: int) -> None:
        if epoch == 1:
            with pytest.raises(Busy, match="another process"):
                run(tiny(), other)
            refused.append(tiny().name)

    run(tiny(), one, progress=progress)
    assert refused == [tiny().name]
    assert run(tiny(), other, progress=stop_at(0)) == one.read(tiny())


def test_git_sees_records_only(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "--quiet", str(tmp_path)], check=True)
    run(tiny(epochs=1), Results(tmp_path / "records", tmp_path / ".git" / "work"))
    command = ["git", "-C", str(tmp_path), "status", "--porcelain", "--untracked-files=all"]
    seen = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    folder = "?? records/tiny/noisy/contextual"
    assert seen.splitlines() == [f"{folder}/curves/seed-0.json", f"{folder}/seed-0.json"]


def test_a_damaged_checkpoint_is_named(tmp_path: Path) -> None:
    results = folders(tmp_path)
    with pytest.raises(Interrupted):
        run(tiny(), results, progress=stop_at(5))
    checkpoint = results.work / tiny().name / "checkpoint.pt"
    checkpoint.write_bytes(checkpoint.read_bytes()[:1000])
    with pytest.raises(ValueError, match=r"checkpoint\.pt cannot be read as a checkpoint .* delete it"):
        run(tiny(), results)


def without(state: dict[str, Any], key: str) -> dict[str, Any]:
    return {name: value for name, value in state.items() if name != key}


def with_moment(optimizer: dict[str, Any], value: Any) -> dict[str, Any]:
    first, *_ = optimizer["state"]
    return optimizer | {"state": optimizer["state"] | {first: optimizer["state"][first] | {"exp_avg": value}}}


OTHER_CONTENT: dict[str, Any] = {
    "no optimizer": lambda state: without(state, "optimizer"),
    "another network": lambda state: state | {"model": nn.Linear(2, 2).state_dict()},
    "another optimizer": lambda state: state | {"optimizer": {"state": {}, "param_groups": []}},
    "moments of another shape": lambda state: state | {"optimizer": with_moment(state["optimizer"], torch.zeros(3, 7))},
    "moments that are not numbers": lambda state: state | {"optimizer": with_moment(state["optimizer"], "none")},
    "a list": lambda state: state | {"model": []},
    "an epoch beyond the last": lambda state: state | {"epoch": 8},
    "no number of epochs": lambda state: state | {"epoch": "five"},
    "no learning curve": lambda state: state | {"history": {"epoch": 3}},
    "a learning curve of tensors": lambda state: state | {"history": [{"kl": torch.zeros(2)}]},
    "a learning curve without numbers": lambda state: state | {"history": [{"kl": float("nan")}]},
    "no seconds": lambda state: state | {"cpu_seconds": "five"},
    "seconds without end": lambda state: state | {"wall_seconds": float("inf")},
    "no commits": lambda state: state | {"commits": [[1]]},
    "no start": lambda state: state | {"start": 3},
    "a name of a megabyte": lambda state: state | {"model": {10**6 * "x": torch.zeros(2)}},
}


@pytest.mark.parametrize("change", OTHER_CONTENT)
def test_a_checkpoint_of_something_else_is_named(tmp_path: Path, change: str) -> None:
    results = folders(tmp_path)
    with pytest.raises(Interrupted):
        run(tiny(), results, progress=stop_at(5))
    checkpoint = results.work / tiny().name / "checkpoint.pt"
    torch.save(OTHER_CONTENT[change](load_tensors(checkpoint)), checkpoint)
    with pytest.raises(
        ExperimentError, match=r"checkpoint\.pt does not fit the run \(.*\): delete it to start again$"
    ) as caught:
        run(tiny(), results)
    assert len(str(caught.value)) < 1000


PLAIN: dict[str, Any] = {"conversion": "none", "options": {}, "objective": {}, "p": 0.0, "noise_sd": 0.0}


def test_the_last_batches_of_an_epoch_count_as_the_others_do() -> None:
    """Three batches of a third each, though four were to be summed, are the whole batch."""
    networks = []
    for size, accumulate in ((240, 1), (80, 4)):
        options = {"batch_size": size, "accumulate": accumulate, "optimizer": {"name": "sgd", "lr": 0.1}, **PLAIN}
        config = tiny(train_examples=240, **options)
        fabric = Fabric(accelerator="cpu", devices=1)
        trained = training.Training(config, load_examples(config), fabric)
        trained.run_epoch()
        networks.append(torch.cat([parameter.detach().flatten() for parameter in trained.model.parameters()]))
    torch.testing.assert_close(networks[0], networks[1])


#: Steps so long that numbers overflow.
DIVERGING: dict[str, tuple[dict[str, Any], str]] = {
    "in the last step": ({"epochs": 1, "batch_size": 256}, r"diverged in epoch 1 \(some of [01]\.\w+ is NaN"),
    "in the last step of an epoch": ({"epochs": 2, "batch_size": 256}, r"diverged in epoch 1 \(some of [01]\.\w+ is"),
    "within an epoch": ({"epochs": 2, "batch_size": 128}, r"diverged in epoch 1 \(the log-likelihood of example 0"),
}


@pytest.mark.parametrize("method", ["contextual", "mc"])
@pytest.mark.parametrize("when", DIVERGING)
def test_a_training_that_diverges_says_so_each_time(tmp_path: Path, when: str, method: str) -> None:
    changes, said = DIVERGING[when]
    config = tiny(method, optimizer={"name": "sgd", "lr": 1e300}, **METHODS[method], **changes)
    for _ in range(2):
        with pytest.raises(ExperimentError, match=rf"{said}.*: choose a smaller learning rate"):
            run(config, folders(tmp_path))


def test_a_checkpoint_of_a_training_that_diverged_is_named(tmp_path: Path) -> None:
    results = folders(tmp_path)
    with pytest.raises(Interrupted):
        run(tiny(), results, progress=stop_at(7))
    checkpoint = results.work / tiny().name / "checkpoint.pt"
    state = load_tensors(checkpoint)
    state["model"]["1.bias"].fill_(torch.nan)
    torch.save(state, checkpoint)
    with pytest.raises(ExperimentError, match=r"checkpoint\.pt is of a training that had diverged .*; delete it"):
        run(tiny(), results)


def test_predictions_without_figures_are_those_of_a_training_that_diverged(tmp_path: Path) -> None:
    """The parameters are numbers still, but their products are not."""
    config = tiny(epochs=1, batch_size=256, optimizer={"name": "sgd", "lr": 1e25})
    for _ in range(2):
        with pytest.raises(ExperimentError, match=r"is trained, but .* its training diverged, it seems; choose"):
            run(config, folders(tmp_path))


def test_a_run_says_which_weights_it_started_from(tmp_path: Path) -> None:
    results, plain = folders(tmp_path), tiny("plain", **PLAIN)
    tuned = tiny("tuned", start_from="{experiment}/noisy/plain/seed-{seed}")
    assert "start" not in run(plain, results)
    weights = results.work / plain.name / "model.safetensors"
    expected = {"sha256": sha256_of(weights)}
    with pytest.raises(Interrupted):
        run(tuned, results, progress=stop_at(5))
    results.path(plain).unlink()
    run(tiny("plain", **PLAIN | {"p": 0.1}), results)  # others take the place of the weights
    assert sha256_of(weights) != expected["sha256"]
    assert run(tuned, results)["start"] == expected
    pretrained = tiny("pretrained", weights=str(weights))
    assert run(pretrained, results)["start"] == {"sha256": sha256_of(weights)}


def test_weights_of_another_network_are_named(tmp_path: Path) -> None:
    results, plain = folders(tmp_path), tiny("plain", epochs=1, **PLAIN)
    run(plain, results)
    tuned = tiny("tuned", hidden=(12,), start_from=plain.name)
    with pytest.raises(
        ExperimentError, match=r"tuned/seed-0 cannot start from .*model\.safetensors does not fit(.|\n)*16"
    ):
        run(tuned, results)


@pytest.mark.parametrize(
    "template", ["{x}", "{", "{}", "{seed.real}", "/etc/{seed}", "../{seed}", "a/../../b", "a\0", ""]
)
def test_a_start_that_is_no_run_is_refused(tmp_path: Path, template: str) -> None:
    with pytest.raises(ConfigError, match="start_from must be the name of a run"):
        run(tiny(start_from=template), folders(tmp_path))


def test_the_record_says_all(tmp_path: Path) -> None:
    record = run(tiny(test_noise_sd=(0.0,), ood=("digits",)), folders(tmp_path))
    assert set(record["test"]) == {"noise-0.5", "noise-0"}
    figures = record["test"]["noise-0.5"]
    assert 10 < figures["accuracy"] <= 100
    assert figures["log_likelihood"] < 0
    assert set(figures["pavpu"]) == {"0.01", "0.05", "0.1"}
    assert sum(v for k, v in figures["pavpu"]["0.05"].items() if k != "value") == 64
    assert record["ood"]["digits"]["entropy"]["auroc"] == pytest.approx(50, abs=8)  # the same kind of images
    assert record["parameters"]["phi"] > 0
    assert [point["epoch"] for point in record["history"]] == [3, 6, 7]
    assert record["data"]["train"] == 256
    assert set(record["contextuality"]["sites"]) == {"0", "3"}
    assert set(record["drop_probabilities"]["sites"]["0"]) >= {"all", "right", "wrong", "class 3"}
    assert record["provenance"]["versions"]["torch"].partition("+")[0] == torch.__version__.partition("+")[0]
    json.dumps(record, allow_nan=False)


def test_validation_does_not_touch_the_test_set(tmp_path: Path) -> None:
    validation = run(tiny(split="validation", train_examples=None), folders(tmp_path))
    assert set(validation["data"]["sha256"]) == {"train", "validation"}
    assert validation["data"]["train"] == 1347 - 1347 // 4


def test_the_saved_network_is_the_trained_one(tmp_path: Path) -> None:
    results = folders(tmp_path)
    record = run(tiny(), results)
    model, config, classes = load_network(results.work / tiny().name)
    assert (config, classes) == (tiny(), tuple("0123456789"))
    again, _ = evaluate(model, config, load_examples(config))
    assert again["test"] == record["test"]


def test_predictions_are_kept(tmp_path: Path) -> None:
    results = folders(tmp_path)
    run(tiny(), results)
    kept = results.predictions(tiny())
    assert kept is not None
    assert {name: tuple(prediction.samples.shape) for name, prediction in kept.items()} == {
        "noise-0.5/0": (6, 64, 10),
        "noise-0.5/1": (6, 64, 10),
    }
    assert results.predictions(tiny(p=0.4)) is None  # of another configuration


def test_a_confident_mistake_has_a_finite_log_likelihood(tmp_path: Path) -> None:
    """Logits 150 apart: in single precision the label's probability is 0."""
    model = nn.Linear(3, 3, bias=False)
    nn.init.constant_(model.weight, 0.0)
    with torch.no_grad():
        model.weight[0] = 50.0
    prediction = sampled(model, torch.ones(4, 3), tiny(), 0)
    labels = torch.ones(4, dtype=torch.long)
    assert scores_of(prediction, labels)["log_likelihood"] == pytest.approx(-150)
    results = folders(tmp_path)
    results.write_predictions(tiny(), {"noise-0.5": [prediction]})
    kept = results.predictions(tiny())
    assert kept is not None
    assert scores_of(kept["noise-0.5/0"], labels)["log_likelihood"] == pytest.approx(-150, rel=1e-3)


def test_a_record_that_is_lost_is_made_again_without_training(tmp_path: Path) -> None:
    results = folders(tmp_path)
    record = run(tiny(), results)
    results.path(tiny()).unlink()
    epochs: list[int] = []
    again = run(tiny(), results, progress=epochs.append)
    assert comparable(again) == comparable(record)
    assert epochs == [7]


def test_missing_data_of_other_sets_are_missed_before_training(tmp_path: Path) -> None:
    epochs: list[int] = []
    with pytest.raises(DataError, match="kmnist"):
        run(tiny(ood=("kmnist",)), folders(tmp_path), data_directory=tmp_path, progress=epochs.append)
    assert epochs == []


def test_masks_are_not_taken_for_context() -> None:
    """Identical inputs: whatever keep probabilities vary by is masks, not samples."""
    torch.manual_seed(0)
    model = build_model(tiny(options={**tiny().options, "temperature": 1.0}), (64,), 10)
    x = torch.rand(1, 64).expand(200, 64)
    spread = contextuality(model, x, torch.zeros(200, dtype=torch.long), 3, 0)["sites"]
    assert spread["0"]["sd_over_samples"] == pytest.approx(0, abs=1e-9)
    hidden = spread["3"]
    assert hidden["sd_over_masks"] > 0.01
    # The mean over ten draws of the masks still moves a little.
    assert hidden["sd_over_samples"] < 0.5 * hidden["sd_over_masks"]
