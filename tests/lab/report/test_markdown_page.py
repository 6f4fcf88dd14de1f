"""The page has every table and plot, names their origin, and is the same every time."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from contextual_dropout_lab.report import all_tables, results_page, save_all, summarise, write_page
from contextual_dropout_lab.report.table import escaped
from contextual_dropout_lab.store.results import Results
from tests.lab.report.records import record, write


@pytest.fixture(scope="module")
def page(complete: Results) -> str:
    """The page, made once: all plots are drawn for it."""
    return results_page(complete, "mnist")


def test_every_table_is_there(complete: Results, page: str) -> None:
    for table in all_tables(summarise(complete, "mnist")).values():
        assert f"## {escaped(table.title)}\n" in page


def test_header(page: str) -> None:
    assert "- Seeds, noisy: 3 for each of 11 methods." in page
    assert "- Training, noisy: 200 epochs on 60,000 images." in page
    assert "- Runs: 66; training took 33.00 CPU hours in all." in page
    assert "- Commits: 0123456789ab (66 runs)." in page
    assert "Python 3.11, torch 2.0" in page


def test_partial_results(results: Results) -> None:
    changed = record("noisy", "concrete", 0, 86.0, epochs=5)
    changed["provenance"] |= {"commit": None, "uncommitted_changes": True}
    write(results, changed, *(record("noisy", "mc-gaussian", seed, 86.0, epochs=5) for seed in (0, 1)))
    page = results_page(results, "mnist")
    assert "- Seeds, noisy: 2 (MC Gaussian); 1 (Concrete)." in page
    assert "5 epochs on 60,000 images, where the paper has 200 on 60,000: figures do not compare" in page
    assert "unknown with uncommitted changes (1 run)" in page
    assert "- Not drawn: ensembles" in page


def test_figures_of_the_page_are_those_that_are_saved(complete: Results, page: str, tmp_path: Path) -> None:
    save_all(complete, "mnist", tmp_path / "figures" / "mnist")
    embedded = re.findall(r"!\[.*?\]\((.*?)\)", page)
    assert sorted(embedded) == sorted(str(path.relative_to(tmp_path)) for path in tmp_path.glob("figures/mnist/*.svg"))


def test_same_bytes(complete: Results, page: str, tmp_path: Path) -> None:
    write_page(complete, "mnist", tmp_path / "RESULTS.md")
    assert (tmp_path / "RESULTS.md").read_bytes() == page.encode()


def test_reports_do_not_train() -> None:
    code = (
        "import sys, contextual_dropout_lab.report; "
        "print([name for name in sys.modules if name.startswith('lightning_fabric') "
        "or name == 'contextual_dropout_lab.runs.training'])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
