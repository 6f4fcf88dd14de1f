"""Running the scripts beside this file."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

__all__ = ["ROOT", "script"]

ROOT = Path(__file__).parents[2]


def script(name: str, *arguments: object) -> list[dict[str, Any]]:
    """What a script prints: lines of JSON."""
    command = [sys.executable, "-m", f"tests.reliability.{name}", *map(str, arguments)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]
