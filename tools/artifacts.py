"""Build what a release carries into dist/artifacts: ``make artifacts``.

* the wheel and the source distribution;
* ``networks.tar.gz``: the trained networks present here, with ``MANIFEST.json``: checksum, size and run;
* ``records.tar.gz``: records, benchmarks, pages of results with their figures, and the report, if there is one;
* ``SHA256SUMS``: checksums of all of these, for ``sha256sum -c SHA256SUMS``.

The archives hold no dates and no names of users: the same files give the same bytes.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

from safetensors import safe_open

ROOT = Path(__file__).parents[1]
#: Where trained networks are: the tracked ones and those of finished runs.
NETWORKS = ("experiments/networks/**/*.safetensors", "runs/**/model.safetensors")
RECORDS = (
    *("experiments/*.md", "experiments/results/**/*.json", "experiments/figures/**/*.svg"),
    *("experiments/reliability/*.json", "experiments/compatibility/*.json", "benchmarks/results/*.json"),
    "report/**/*",
)


def main(root: Path = ROOT) -> None:
    """Build everything; a folder of an earlier build is emptied first."""
    target = root / "dist" / "artifacts"
    target.mkdir(parents=True, exist_ok=True)
    for path in target.iterdir():
        path.unlink()
    subprocess.run([sys.executable, "-m", "build", "--outdir", str(target), str(root)], check=True)
    pack_networks(root, target / "networks.tar.gz")
    pack(target / "records.tar.gz", {name: (root / name).read_bytes() for name in found(root, RECORDS)})
    for line in write_sums(target):
        print(line)


def found(root: Path, patterns: tuple[str, ...]) -> list[str]:
    """The files of these patterns, by their paths from the root, in order."""
    paths = {path for pattern in patterns for path in root.glob(pattern) if path.is_file()}
    return sorted(path.relative_to(root).as_posix() for path in paths)


def pack_networks(root: Path, path: Path) -> None:
    """Write the archive of trained networks with its manifest.

    Raises:
        ValueError: a tracked network does not have the checksum in experiments/networks/SHA256SUMS.
    """
    files = {name: (root / name).read_bytes() for name in found(root, NETWORKS)}
    tracked = sums(root / "experiments" / "networks" / "SHA256SUMS")
    manifest = []
    for name, content in files.items():
        checksum = hashlib.sha256(content).hexdigest()
        expected = tracked.get(name.removeprefix("experiments/networks/"), checksum)
        if checksum != expected:
            raise ValueError(f"{name} has the SHA-256 checksum {checksum}: expected {expected}")
        with safe_open(root / name, framework="numpy") as file:
            config = json.loads((file.metadata() or {}).get("config", "null"))
        manifest.append({"path": name, "sha256": checksum, "bytes": len(content), "config": config})
    pack(path, {"MANIFEST.json": (json.dumps(manifest, indent=1) + "\n").encode(), **files})


def sums(path: Path) -> dict[str, str]:
    """The checksums in a file of the kind that ``sha256sum`` writes, by name; none without the file."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return {name: checksum for checksum, name in (line.split("  ", 1) for line in lines)}


def pack(path: Path, files: dict[str, bytes]) -> None:
    """Write an archive that depends on names and contents alone."""
    with (
        path.open("wb") as raw,
        gzip.GzipFile(filename="", fileobj=raw, mode="wb", mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))


def write_sums(folder: Path) -> Iterator[str]:
    """Write SHA256SUMS of all files of a folder, and give its lines."""
    names = sorted(path.name for path in folder.iterdir() if path.name not in ("SHA256SUMS", ".gitignore"))
    lines = [f"{hashlib.sha256((folder / name).read_bytes()).hexdigest()}  {name}" for name in names]
    (folder / "SHA256SUMS").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    yield from lines


if __name__ == "__main__":
    main()
