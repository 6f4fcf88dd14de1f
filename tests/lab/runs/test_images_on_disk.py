"""Runs on folders of image files: those that fit into memory, and those that are decoded batch by batch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from contextual_dropout_lab.data import DamagedImagesWarning, DataError
from contextual_dropout_lab.data.loading import IMAGE_FILES
from contextual_dropout_lab.data.lookup import Lookup
from contextual_dropout_lab.errors import ConfigError, ExperimentError
from contextual_dropout_lab.models import wide_resnet
from contextual_dropout_lab.runs import run_data
from contextual_dropout_lab.runs.config import RunConfig, load_experiment
from contextual_dropout_lab.runs.methods import build_model
from contextual_dropout_lab.runs.run import run
from contextual_dropout_lab.runs.run_data import AUGMENTATIONS, images_of, load_examples
from contextual_dropout_lab.store.networks import load_network
from tests.lab.data.test_image_folder import image_net, unpack
from tests.lab.runs.test_convolutional import GAUSSIAN, small
from tests.lab.runs.tiny import folders


def on_disk(data: str = "imagenet", **changes: Any) -> RunConfig:
    values = {"data": data, "noise_sd": 0.0, "epochs": 2, "batch_size": 5, "normalisation": "imagenet"}
    values |= {"augmentation": "resized-crop-flip", "train_examples": None, "test_examples": None}
    return small(**GAUSSIAN | values | changes)


@pytest.fixture
def images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The same 12 and 12 images of 3 classes under two names, at 16 pixels: at the real size, a step takes seconds."""
    for name in ("imagenet", "tiny-imagenet-20"):
        unpack(image_net(), tmp_path / "data" / name)
        monkeypatch.setitem(IMAGE_FILES, name, 16)
    monkeypatch.setitem(run_data.STREAMED, "imagenet", 16)
    return tmp_path / "data"


def test_a_run_from_disk_has_the_numbers_of_one_from_memory(tmp_path: Path, images: Path) -> None:
    streamed, kept = (
        run(on_disk(data), folders(tmp_path / data), data_directory=images) for data in ("imagenet", "tiny-imagenet-20")
    )
    assert streamed["data"]["train"] == streamed["data"]["test"] == 12
    for part in ("history", "test", "contextuality", "drop_probabilities"):
        assert streamed[part] == kept[part]


def test_a_few_images_have_all_classes(images: Path) -> None:
    for data in ("imagenet", "tiny-imagenet-20"):
        loaded = load_examples(on_disk(data, train_examples=4, test_examples=3), images)
        assert (loaded.y.tolist(), loaded.test_y.tolist()) == ([0, 1, 2, 0], [0, 1, 2])
    held_out = load_examples(on_disk(split="validation", validation_examples=3), images)
    assert (len(held_out.x), held_out.test_y.tolist()) == (9, [0, 1, 2])
    assert isinstance(held_out.x, Lookup)
    assert isinstance(held_out.test_x, Lookup)
    assert {*held_out.x.rows.tolist(), *held_out.test_x.rows.tolist()} == set(range(12))


def test_the_sizes_of_imagenet(tmp_path: Path) -> None:
    unpack(image_net(), tmp_path / "imagenet")
    config = load_experiment("imagenet").run("finetuned", "contextual-gaussian", 0, "paper")
    loaded = load_examples(config, tmp_path)
    assert (tuple(loaded.x.shape), tuple(loaded.test_x.shape)) == ((12, 3, 256, 256), (12, 3, 224, 224))
    augment = AUGMENTATIONS[config.augmentation]
    assert augment is not None
    batch = loaded.x.index_select(0, torch.tensor([3, 5]))
    assert 0 <= batch.min() < batch.max() <= 1
    assert augment(batch, torch.Generator().manual_seed(0)).shape == (2, 3, 224, 224)
    assert loaded.test_x[0:2].min() < 0  # normalised


@pytest.mark.parametrize("data", ["imagenet", "tiny-imagenet-20"])
def test_damaged_images_are_fatal_or_left_out_by_choice(tmp_path: Path, images: Path, data: str) -> None:
    damaged = images / data / "train" / "n02" / "n02_1.JPEG"
    damaged.write_bytes(damaged.read_bytes()[:200])
    with pytest.raises(DataError, match=r"n02_1\.JPEG cannot be decoded"):
        run(on_disk(data), folders(tmp_path), data_directory=images)
    with pytest.warns(DamagedImagesWarning, match=r"1 of 12 images were left out:\n.*n02_1\.JPEG"):
        record = run(on_disk(data, on_error="skip"), folders(tmp_path), data_directory=images)
    assert record["data"]["train"] == 11


def test_what_cannot_be_done_from_disk_is_said(images: Path) -> None:
    for changes in ({"noise_sd": 0.1}, {"test_noise_sd": [0.1]}, {"ood": ["mnist"]}):
        with pytest.raises(ConfigError, match="imagenet is read from disk as it is used, without noise"):
            load_examples(on_disk(**changes), images)
    with pytest.raises(ExperimentError, match="too many to be shown"):
        images_of(load_examples(on_disk(), images).test_x)
    with pytest.raises(ConfigError, match="on_error must be one of raise, skip, got 'ignore'"):
        on_disk(on_error="ignore")


def test_a_run_begins_with_a_file_of_weights(tmp_path: Path, images: Path) -> None:
    """The head of other classes is left out. A trained network is loaded where the file is not."""
    pretrained = wide_resnet(10, 1, classes=7)
    torch.save(pretrained.state_dict(), path := tmp_path / "pretrained.pth")
    config = on_disk(epochs=0, weights=str(path), weights_skip=["fc"])
    results = folders(tmp_path)
    run(config, results, data_directory=images)
    path.unlink()
    model, _, _ = load_network(results.work / config.name)
    state = model.state_dict()
    assert state["fc.weight"].shape == (3, 64)
    assert all(torch.equal(value, state[name]) for name, value in pretrained.state_dict().items() if "fc" not in name)
    assert torch.equal(state["fc.weight"], build_model(config, (3, 16, 16), 3).state_dict()["fc.weight"])


def test_weights_that_do_not_fit_are_an_error_of_the_configuration(tmp_path: Path, images: Path) -> None:
    torch.save(wide_resnet(10, 1, classes=7).state_dict(), path := tmp_path / "pretrained.pth")
    results = folders(tmp_path)
    for weights, message in ((path, r"fc.weight: shape \(3, 64\)"), (tmp_path / "none.pth", "there is no file of w")):
        with pytest.raises(
            ConfigError, match=rf"(?s)cifar/noisy/gaussian/seed-0 cannot start from its weights: .*{message}"
        ):
            run(on_disk(weights=str(weights)), results, data_directory=images)
    with pytest.raises(ConfigError, match="both start_from and weights"):
        run(on_disk(weights="some.pth", start_from="some/other/run/seed-0"), results, data_directory=images)
