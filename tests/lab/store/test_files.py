"""Files are whole or not there; what is not whole is not read."""

from __future__ import annotations

import errno
import fcntl
import os
import threading
import time
from pathlib import Path

import pytest
import torch
from safetensors import safe_open

from contextual_dropout_lab.errors import Busy, ExperimentError
from contextual_dropout_lab.runs.run import run
from contextual_dropout_lab.runs.run_data import load_examples
from contextual_dropout_lab.runs.training import train
from contextual_dropout_lab.store.files import (
    hide_from_git,
    load_tensors,
    locked,
    read_json,
    remove_leftovers,
    replace_file,
    write_json,
    write_tensors,
)
from contextual_dropout_lab.store.networks import load_network
from tests.lab.runs.tiny import folders, tiny

STATE = {"digest": "0123456789ab", "model": {"weight": torch.arange(3000.0)}, "epoch": 5}


def test_an_error_leaves_what_was_there_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    write_json(path, {"epoch": 1})

    def fail() -> None:
        with replace_file(path) as temporary:
            temporary.write_text("half")
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert read_json(path) == {"epoch": 1}
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_that_cannot_be_written_to_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(ExperimentError, match=r"file/record\.json cannot be written .*see to it that"):
        write_json(tmp_path / "file" / "record.json", {})
    with pytest.raises(ExperimentError, match=r"file/lock cannot be written"), locked(tmp_path / "file" / "lock"):
        pass


def test_threads_that_write_the_same_file_do_not_meet(tmp_path: Path) -> None:
    path, failures = tmp_path / "record.json", list[Exception]()

    def write(number: int) -> None:
        try:
            for _ in range(50):
                write_json(path, [number] * 1000)
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        if path.exists():
            assert len(set(read_json(path))) == 1
    assert not failures
    assert list(tmp_path.iterdir()) == [path]


def test_the_same_tensors_give_the_same_bytes(tmp_path: Path) -> None:
    """With eight pieces of metadata, safetensors would write the same order twice once in 40,320 times."""
    paths = [tmp_path / "one", tmp_path / "other"]
    metadata = {key: f'"{key}\n\u00e9' for key in "tzckaqrs"}
    for path in paths:
        write_tensors(path, {"b": torch.ones(3), "a": torch.zeros(2, 2)}, metadata)
    assert paths[0].read_bytes() == paths[1].read_bytes()
    with safe_open(paths[0], framework="pt") as file:
        assert file.metadata() == metadata
        assert torch.equal(file.get_tensor("b"), torch.ones(3))


def test_files_of_tensors_have_the_mode_of_other_files(tmp_path: Path) -> None:
    write_tensors(tmp_path / "network", {"a": torch.zeros(2)}, {"k": "v"})
    write_json(tmp_path / "record", {})
    assert (tmp_path / "network").stat().st_mode == (tmp_path / "record").stat().st_mode


def test_what_a_library_left_beside_the_file_is_removed(tmp_path: Path) -> None:
    path = tmp_path / "network"
    attempt = replace_file(path)
    attempt.__enter__().with_name(".tmp123").write_text("half")  # and killed
    remove_leftovers(path)
    assert list(tmp_path.iterdir()) == []


def test_a_checkpoint_goes_through_no_other_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "not there"))
    config = tiny(epochs=1)
    train(config, load_examples(config), tmp_path)
    assert load_tensors(tmp_path / "checkpoint.pt")["epoch"] == 1
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint.pt"]


def test_a_checkpoint_that_is_cut_or_has_a_hole_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint.pt"
    torch.save(STATE, path)
    whole = path.read_bytes()
    cuts = {f"cut at {size}": whole[:size] for size in range(0, len(whole), 97)}
    holes = {f"hole at {at}": whole[:at] + bytes(512) + whole[at + 512 :] for at in range(0, len(whole) - 512, 499)}
    for name, content in (cuts | holes).items():
        if content == whole:
            continue
        path.write_bytes(content)
        with pytest.raises(ExperimentError, match=r"checkpoint\.pt cannot be read as a checkpoint .*delete it"):
            raise AssertionError(f"{name}: read as {load_tensors(path)}")


def test_a_file_of_something_else_is_not_a_checkpoint(tmp_path: Path) -> None:
    torch.save({"weight": torch.zeros(2)}, tmp_path / "checkpoint.pt")
    with pytest.raises(ExperimentError, match="not a checkpoint of a run: delete it"):
        load_tensors(tmp_path / "checkpoint.pt")


def test_a_run_never_takes_a_part_of_a_file_for_the_whole(tmp_path: Path) -> None:
    config, results = tiny(epochs=1), folders(tmp_path)
    run(config, results)
    directory = results.work / config.name
    readers = {
        results.path(config): lambda: results.read(config),
        directory / "predictions.safetensors": lambda: results.predictions(config),
        directory / "model.safetensors": lambda: load_network(directory),
        directory / "checkpoint.pt": lambda: load_tensors(directory / "checkpoint.pt"),
    }
    for path, read in readers.items():
        whole = path.read_bytes()
        for size in (*range(0, 64), *range(64, len(whole) - 1, len(whole) // 50), len(whole) - 2):
            path.write_bytes(whole[:size])
            with pytest.raises(ExperimentError, match=path.name):
                raise AssertionError(f"{size} of {len(whole)} bytes of {path.name} were read as {read()}")
        path.write_bytes(whole)
        assert read() is not None
    results.path(config).write_text("[]")
    with pytest.raises(ExperimentError, match="not a record of a run"):
        results.read(config)


def test_what_a_killed_process_left_empty_hides_a_folder_again(tmp_path: Path) -> None:
    (tmp_path / ".gitignore").touch()
    hide_from_git(tmp_path)
    assert (tmp_path / ".gitignore").read_text() == "*\n"


def test_a_file_is_on_the_disk_under_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """First its content, then, when it has its name, the folder: a machine may lose power in between."""
    synced, fsync = list[tuple[bool, bool]](), os.fsync

    def note(file: int) -> None:
        synced.append((os.path.isdir(f"/proc/self/fd/{file}"), (tmp_path / "record.json").exists()))
        fsync(file)

    monkeypatch.setattr(os, "fsync", note)
    write_json(tmp_path / "record.json", {})
    assert synced == [(False, False), (True, True)]


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS])
def test_a_file_system_without_locks_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    def refuse(file: int, operation: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", refuse)
    said = pytest.raises(ExperimentError, match=r"lock cannot be locked .*: its file system has no locks")
    with said as caught, locked(tmp_path / "lock", patience=60):
        pass
    assert not isinstance(caught.value, Busy)


def test_who_is_patient_waits_for_the_lock(tmp_path: Path) -> None:
    path, held = tmp_path / "lock", threading.Event()

    def hold() -> None:
        with locked(path):
            held.set()
            time.sleep(0.5)

    other = threading.Thread(target=hold)
    other.start()
    held.wait()
    with pytest.raises(Busy), locked(path):
        pass
    start = time.monotonic()
    with locked(path, patience=60):
        assert time.monotonic() - start > 0.2
    other.join()
