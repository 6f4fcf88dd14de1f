"""The provenance of a result: commit, versions, machine, time."""

from __future__ import annotations

import datetime
import functools
import platform
import subprocess
from importlib import metadata
from pathlib import Path
from typing import Any

__all__ = ["provenance"]

_PACKAGES = ("contextual-dropout", "torch", "numpy", "scipy", "torchmetrics", "lightning-fabric")


@functools.cache
def provenance() -> dict[str, Any]:
    """Plain values for a result's record, as they are when a process first asks: it keeps to the code of that time.

    Example:
        >>> sorted(provenance())
        ['commit', 'machine', 'python', 'time', 'uncommitted_changes', 'versions']
    """
    return {
        "commit": _git("rev-parse", "HEAD"),
        "uncommitted_changes": bool(_git("status", "--porcelain", "--untracked-files=no", "--", ":/src")),
        "versions": {name: _version(name) for name in _PACKAGES},
        "python": platform.python_version(),
        "machine": f"{platform.system()} {platform.machine()}",
        "time": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
    }


def _git(*arguments: str) -> str | None:
    """The state of the checkout that the package is tracked in, by git; None where there is none."""
    here = Path(__file__)
    try:
        for command in (("ls-files", "--error-unmatch", here.name), arguments):
            full = ["git", "-C", str(here.parent), *command]
            done = subprocess.run(full, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
