"""The package as a whole: its version, what importing it loads, and that its settings agree with one another."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import yaml

import contextual_dropout as cd

ROOT = Path(__file__).parents[1]
#: What only extras install, and torchmetrics, which takes seconds and is imported when it is first needed.
LATER = (
    *("accelerate", "fastapi", "h5py", "lightning", "lightning_fabric", "matplotlib", "onnx", "pandas", "PIL"),
    *("plotly", "rich", "sklearn", "submitit", "torchmetrics", "transformers", "typer", "uvicorn", "yaml"),
)


def test_the_version_is_stated_once_more_for_citations_and_nowhere_else() -> None:
    (version,) = re.findall(r'^version = "(.+)"$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    assert cd.__version__ == version
    assert yaml.safe_load((ROOT / "CITATION.cff").read_text())["version"] == version


def test_importing_the_library_loads_neither_the_lab_nor_an_extra() -> None:
    """What torch loads by itself does not count."""
    code = f"""
import sys
import torch
before = set(sys.modules)
import contextual_dropout
loaded = {{name.partition(".")[0] for name in set(sys.modules) - before}}
print(sorted(loaded & {{"contextual_dropout_lab", *{LATER!r}}}))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.strip() == "[]"


def test_the_workflow_and_the_hooks_call_targets_that_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for name in (".github/workflows/check.yml", ".pre-commit-config.yaml"):
        text = (ROOT / name).read_text(encoding="utf-8")
        assert yaml.safe_load(text)
        called = [word for line in re.findall(r"\bmake ([a-z -]+)", text) for word in line.split()]
        assert called
        assert set(called) <= targets, name


def test_the_workflow_names_the_versions_that_the_package_supports() -> None:
    jobs = yaml.safe_load((ROOT / ".github/workflows/check.yml").read_text(encoding="utf-8"))["jobs"]
    classified = re.findall(r"Python :: (3\.\d+)", (ROOT / "pyproject.toml").read_text())
    assert jobs["versions"]["strategy"]["matrix"]["python"] == classified
    (oldest,) = re.findall(r'"torch>=([\d.]+)', (ROOT / "pyproject.toml").read_text())
    assert jobs["versions"]["strategy"]["matrix"]["torch"] == ["oldest", "newest"]
    assert any(f"torch=={oldest}.0" in str(step) for step in jobs["versions"]["steps"])
