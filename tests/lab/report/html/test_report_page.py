"""The page: complete, alone, harmless whatever names are in it, and made without touching anything."""

from __future__ import annotations

import json
import re
import shutil
import sys
from html import escape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from contextual_dropout_lab.report import ReportError, all_tables
from contextual_dropout_lab.report.html import html_page, select, write_report
from contextual_dropout_lab.runs.run_data import Examples
from contextual_dropout_lab.store.results import Results
from tests.lab.report.html.runs import keep
from tests.lab.report.records import record, write

HOSTILE = "<script>alert('&\"')"


class Elements(HTMLParser):
    """All elements with their attributes, and the text of scripts by id."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: dict[str | None, str] = {}
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        tag, attributes = self.found[-1] if self.found else ("", {})
        if tag == "script":
            name = attributes.get("id")
            self.scripts[name] = self.scripts.get(name, "") + data


def values(page: Elements) -> Any:
    return json.loads(page.scripts["values"])


@pytest.fixture(scope="module")
def text(kept: Results, data: Path) -> str:
    return html_page(select(["mnist"], kept), data)


def test_every_table_is_there_with_the_papers_figures(kept: Results, text: str) -> None:
    (selection,) = select(["mnist"], kept)
    tables = all_tables(selection.summary)
    assert "noisy-mnist" in tables
    for table in tables.values():
        assert f"<summary>{escape(table.title)}</summary>" in text
        for row in table.rows:
            assert all(f">{escape(cell)}</" in text for cell in row)


def test_every_figure_and_gallery_has_its_values(text: str) -> None:
    page = Elements(text)
    figures = [attributes["id"] for tag, attributes in page.found if tag == "figure"]
    galleries = [attributes["id"] for _, attributes in page.found if attributes.get("class") == "gallery"]
    assert figures == list(values(page)["figures"])
    assert galleries == list(values(page)["galleries"]) == ["e0-s0-gallery", "e0-s1-gallery"]
    assert len(figures) == 7 + 6
    links = [attributes["href"] for tag, attributes in page.found if tag == "a"]
    names = {attributes["id"] for _, attributes in page.found if "id" in attributes}
    assert {str(link).removeprefix("#") for link in links} <= names


def test_it_needs_nothing_else(text: str) -> None:
    for tag, attributes in Elements(text).found:
        for name in ("src", "href", "srcset", "data", "action"):
            address = attributes.get(name)
            assert address is None or address.startswith(("#", "data:")), (tag, address)
    style = text[text.index("<style>") : text.index("</style>")]
    assert "url(" not in style
    assert "@import" not in style


def test_names_are_only_text(results: Results, examples: Examples, data: Path) -> None:
    written = record("noisy", "contextual-bernoulli", 0, 87.0, deterministic=False)
    written["config"]["method"] = HOSTILE
    written["provenance"]["versions"] = {HOSTILE: "1"}
    sites = written["drop_probabilities"]["sites"]
    sites[HOSTILE] = {"all": sites["0"]["all"], f"class {HOSTILE}": sites["0"]["all"]}
    keep(results, written, examples)
    page = Elements(html_page(select(["mnist"], results), data))
    assert [tag for tag, _ in page.found].count("script") == 3
    assert not [attributes for _, attributes in page.found if any(name.startswith("on") for name in attributes)]
    found = values(page)
    (gallery,) = found["galleries"].values()
    assert gallery["methods"][0]["label"] == HOSTILE
    boxes = [attributes["value"] for tag, attributes in page.found if attributes.get("type") == "checkbox"]
    assert boxes == [HOSTILE]
    # Plotly takes some tags in text for markup; only names that are compared may hold them.
    shown = json.dumps([strip(plot) for plots in found["figures"].values() for plot in plots])
    assert "<script>" not in shown
    assert "&lt;script&gt;" in shown


def strip(value: Any) -> Any:
    """The value without ``meta``."""
    if isinstance(value, dict):
        return {key: strip(each) for key, each in value.items() if key != "meta"}
    return [strip(each) for each in value] if isinstance(value, list) else value


def snapshot(*folders: Path) -> dict[Path, tuple[int, bytes]]:
    paths = [path for folder in folders for path in sorted(folder.rglob("*")) if path.is_file()]
    return {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in paths}


def test_it_only_reads_and_is_the_same_every_time(kept: Results, data: Path, tmp_path: Path) -> None:
    before = snapshot(kept.records, kept.work, data)
    paths = [write_report(select(["mnist/noisy"], kept), tmp_path / name, data) for name in ("a", "b/c")]
    assert snapshot(kept.records, kept.work, data) == before
    assert paths[0] == tmp_path / "a" / "index.html"
    assert paths[0].read_bytes() == paths[1].read_bytes()
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["index.html"]


def test_what_is_not_done_is_told(results: Results, data: Path) -> None:
    write(results, record("noisy", "concrete", 0, 86.0))
    text = html_page(select(["mnist/noisy/concrete", "mnist/noisy/gating"], results), data)
    assert "mnist/noisy/gating has no record yet, and is left out." in text
    assert "the gallery are left out" in text
    assert not re.search(r"<fieldset class='methods'>", text)  # no lines, hence none to hide


def test_folders_of_this_machine_are_not_named(results: Results, examples: Examples, data: Path) -> None:
    written = record("noisy", "concrete", 0, 86.0)
    keep(results, written, examples)
    (path,) = results.work.rglob("*.safetensors")
    path.write_bytes(path.read_bytes()[:100])
    text = html_page(select(["mnist"], results), data)
    assert "…/predictions.safetensors is damaged" in text
    assert str(results.work) not in text
    shutil.rmtree(results.work)
    assert str(results.work.parent) not in html_page(select(["mnist"], results), data)


def test_the_page_opens_with_the_papers_table(text: str) -> None:
    first = text[text.index("<details") :]
    assert first.startswith("<details class='table' open><summary>Noisy MNIST (the paper&#x27;s Table 1)</summary>")
    assert text.count("<details class='table' open>") == 1


def test_figures_come_after_the_first_table_and_before_the_others(text: str) -> None:
    tables = [found.start() for found in re.finditer("<details class='table'", text)]
    figures = [found.start() for found in re.finditer("<figure ", text)]
    assert tables[0] < min(figures) < max(figures) < tables[1]


def test_tables_without_anything_of_ours_are_left_out(results: Results, data: Path) -> None:
    """The paper's table on original MNIST, if nothing was run on it, and tables that would say "No results yet"."""
    write(results, record("noisy", "concrete", 0, 86.0))
    text = html_page(select(["mnist"], results), data)
    titles = re.findall("<summary>(.*?)</summary>", text)
    assert titles[:3] == [
        escape("Noisy MNIST (the paper's Table 1)"),
        "Where we do not match the paper",  # finding no such score is a result
        escape("Complete results, noisy MNIST (the paper's appendix)"),
    ]
    assert not [title for title in titles if "original" in title or "clean" in title or title == "Ensembles"]
    assert "No results yet" not in text


def test_the_gallery_begins_with_our_method(text: str, results: Results, examples: Examples, data: Path) -> None:
    assert text.count("selected>Contextual Bernoulli</option>") == 2  # in both settings
    keep(results, record("noisy", "concrete", 0, 86.0), examples)
    assert " selected>" not in html_page(select(["mnist"], results), data)


def test_what_a_p_value_says_is_said_right(text: str) -> None:
    assert "on average over masks, the first answer is ahead of the second" in " ".join(text.split())
    assert "whatever the mask" not in text


def test_without_plotly_it_says_what_to_install(kept: Results, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "plotly.offline", None)
    with pytest.raises(ReportError, match=r"pip install 'contextual-dropout\[report\]'"):
        write_report(select(["mnist"], kept), tmp_path / "report")
    assert not (tmp_path / "report").exists()


def test_several_experiments_on_one_page(results: Results, data: Path) -> None:
    first, second = record("noisy", "concrete", 0, 86.0), record("noisy", "concrete", 0, 86.0)
    second["config"]["experiment"] = "mine"
    write(results, first, second)
    page = Elements(html_page(select(["mnist", "mine"], results), data))
    experiments = [attributes["id"] for _, attributes in page.found if attributes.get("class") == "experiment"]
    assert experiments == ["e0", "e1"]
