"""What ``make artifacts`` packs: the same files give the same bytes, with the right checksums."""

from __future__ import annotations

import hashlib
import importlib.util
import io
import json
import tarfile
from pathlib import Path
from types import ModuleType

import pytest
import torch
from safetensors.torch import save_file

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def artifacts() -> ModuleType:
    spec = importlib.util.spec_from_file_location("artifacts", ROOT / "tools" / "artifacts.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A tree with one tracked network and one of a run."""
    for name in ("experiments/networks/a/seed-0.safetensors", "runs/a/seed-1/model.safetensors"):
        path = tmp_path / name
        path.parent.mkdir(parents=True)
        save_file({"w": torch.ones(3)}, path, {"config": json.dumps({"name": name})})
    tracked = tmp_path / "experiments/networks/a/seed-0.safetensors"
    (tmp_path / "experiments/networks/SHA256SUMS").write_text(
        f"{hashlib.sha256(tracked.read_bytes()).hexdigest()}  a/seed-0.safetensors\n"
    )
    return tmp_path


def test_networks_have_a_manifest(artifacts: ModuleType, root: Path) -> None:
    artifacts.pack_networks(root, root / "networks.tar.gz")
    with tarfile.open(root / "networks.tar.gz") as archive:
        files = {member.name: archive.extractfile(member).read() for member in archive}  # type: ignore[union-attr]
    manifest = json.loads(files.pop("MANIFEST.json"))
    assert {entry["path"]: entry["sha256"] for entry in manifest} == {
        name: hashlib.sha256(content).hexdigest() for name, content in files.items()
    }
    assert [entry["config"]["name"] for entry in manifest] == sorted(files)


def test_a_changed_network_is_refused(artifacts: ModuleType, root: Path) -> None:
    save_file({"w": torch.zeros(3)}, root / "experiments/networks/a/seed-0.safetensors")
    with pytest.raises(ValueError, match=r"a/seed-0\.safetensors has the SHA-256 checksum"):
        artifacts.pack_networks(root, root / "networks.tar.gz")


def test_the_same_files_give_the_same_bytes(artifacts: ModuleType, tmp_path: Path) -> None:
    for name in ("one.tar.gz", "two.tar.gz"):
        artifacts.pack(tmp_path / name, {"b": b"2", "a/c": b"13"})
    one, two = artifacts.write_sums(tmp_path)
    assert one.split()[0] == two.split()[0]
    assert artifacts.sums(tmp_path / "SHA256SUMS")["one.tar.gz"] == one.split()[0]
    with tarfile.open(fileobj=io.BytesIO((tmp_path / "one.tar.gz").read_bytes())) as archive:
        assert archive.getnames() == ["b", "a/c"]
        assert {(member.mtime, member.uid, member.uname) for member in archive} == {(0, 0, "")}


def test_records_are_all_there(artifacts: ModuleType) -> None:
    names = set(artifacts.found(ROOT, artifacts.RECORDS))
    tracked = ROOT / "experiments/results"
    assert {path.relative_to(ROOT).as_posix() for path in tracked.rglob("*.json")} <= names
    assert {"experiments/LOG.md", "benchmarks/results/core.json"} <= names
