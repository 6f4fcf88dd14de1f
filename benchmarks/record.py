"""What a benchmark writes down: its figures, and under what they were measured."""

from __future__ import annotations

import json
import platform
import subprocess
import time
from pathlib import Path

import torch

HERE = Path(__file__).parent


def commit() -> str:
    result = subprocess.run(["git", "describe", "--always", "--dirty"], capture_output=True, text=True, check=False)
    return result.stdout.strip() or "unknown"


def write(name: str, start: float, **figures: object) -> None:
    """Write ``figures`` to results/NAME.json; ``start`` is when the measuring began."""
    seconds = round(time.time() - start, 1)
    versions = {"torch": torch.__version__, "python": platform.python_version(), "machine": platform.machine()}
    target = HERE / "results" / f"{name}.json"
    target.parent.mkdir(exist_ok=True)
    target.write_text(json.dumps({**figures, "commit": commit(), **versions, "seconds": seconds}, indent=2) + "\n")
    print(f"\nwritten to {target.relative_to(HERE.parent)} in {seconds} s")
