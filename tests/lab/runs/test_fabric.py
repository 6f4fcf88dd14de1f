"""Imports of a process that trains, and what it does not import."""

from __future__ import annotations

import json
import operator
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from lightning_utilities.core.imports import compare_version

from contextual_dropout_lab.runs.fabric import _compare_version

#: A second or more each, and not needed to train, to evaluate or to print a table.
HEAVY = ("lightning", "matplotlib", "pandas", "plotly", "scipy.stats", "sklearn", "torchmetrics", "transformers")
#: What training needs.
TO_TRAIN = ("lightning_fabric", "torch._dynamo")
CODE = f"""
import json, sys
from pathlib import Path

import contextual_dropout_lab.cli.app, contextual_dropout_lab.launch.local, contextual_dropout_lab.report
loaded = {{"by a sweep": [name for name in {HEAVY + TO_TRAIN} if name in sys.modules]}}

from contextual_dropout_lab.launch import slurm
from contextual_dropout_lab.runs import curves, ensembles, run
loaded["by imports"] = [name for name in {HEAVY} if name in sys.modules]

from tests.lab.runs.tiny import folders, tiny
config, results = tiny(epochs=1), folders(Path(sys.argv[1]))
run.run(config, results)
ensembles.ensemble_records([config], results)
loaded["by a run"] = [name for name in {HEAVY} if name in sys.modules]

from lightning_fabric.utilities import imports
print(json.dumps([loaded, imports._TORCHMETRICS_GREATER_EQUAL_1_0_0, imports._TORCH_GREATER_EQUAL_2_6]))
"""


def test_a_run_imports_nothing_that_it_does_not_need(tmp_path: Path) -> None:
    command = [sys.executable, "-c", CODE, str(tmp_path)]
    done = subprocess.run(command, cwd=Path(__file__).parents[3], capture_output=True, text=True, check=True)
    loaded, *known = json.loads(done.stdout)
    assert loaded == {"by a sweep": [], "by imports": [], "by a run": []}
    assert known == [True, True]  # Fabric knows all the same what is installed


@pytest.mark.parametrize("package", ["torch", "torchmetrics", "lightning_utilities", "nobody-has-this"])
@pytest.mark.parametrize("op", [operator.ge, operator.le, operator.eq])
@pytest.mark.parametrize("version", ["0.0.1", "1.0.0", "999"])
@pytest.mark.parametrize("base", [False, True])
def test_versions_compare_as_if_imported(
    package: str, op: Callable[[Any, Any], bool], version: str, base: bool
) -> None:
    arguments: dict[str, Any] = {"package": package, "op": op, "version": version, "use_base_version": base}
    assert _compare_version(**arguments) == compare_version(**arguments)
