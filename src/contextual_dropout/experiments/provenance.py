"""Where a result comes from: commit, versions, machine, time."""

from __future__ import annotations

import datetime
import platform
import subprocess
from importlib import metadata
from pathlib import Path
from typing import Any

__all__ = ["provenance"]

_PACKAGES = ("contextual-dropout", "torch", "numpy", "scipy", "torchmetrics", "lightning-fabric")


def provenance() -> dict[str, Any]:
    """Plain values for a result's record.

    Example:
        >>> sorted(provenance())
        ['commit', 'machine', 'python', 'time', 'uncommitted_changes', 'versions']
    """
    return {
        "commit": _git("rev-parse", "HEAD"),
        "uncommitted_changes": bool(_git("status", "--porcelain", "--untracked-files=no", "--", "src")),
        "versions": {name: _version(name) for name in _PACKAGES},
        "python": platform.python_version(),
        "machine": f"{platform.system()} {platform.machine()}",
        "time": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
    }


def _git(*arguments: str) -> str | None:
    """What git says of the checkout that the package lies in; None where there is none."""
    command = ["git", "-C", str(Path(__file__).parent), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
