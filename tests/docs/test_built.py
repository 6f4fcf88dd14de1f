"""The site builds without a warning, needs no network, and documents every public name."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import subprocess
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
import typer.main
from playwright.sync_api import Page, expect

from contextual_dropout_lab.cli.app import app
from tests.browser.layout import cut, too_wide
from tests.docs.test_text import CODE, TEXTS

ROOT = Path(__file__).parents[2]
PUBLIC = (
    *("contextual_dropout", "contextual_dropout.baselines", "contextual_dropout.metrics"),
    *(
        "contextual_dropout.significance",
        "contextual_dropout.training.estimators",
        "contextual_dropout.training.schedules",
    ),
    *("contextual_dropout.integrations.lightning", "contextual_dropout.integrations.transformers"),
    *("contextual_dropout_lab.data", "contextual_dropout_lab.data.vqa", "contextual_dropout_lab.models"),
)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    return folder


@pytest.fixture(scope="module")
def inventory(site: Path) -> dict[str, str]:
    """What is documented, as ``{name: role}``, and on which page there is an anchor for it."""
    entries = zlib.decompress((site / "objects.inv").read_bytes().split(b"\n", 4)[4]).decode()
    found = {}
    for line in entries.splitlines():
        name, role, _, location, _ = line.split(maxsplit=4)
        page, _, anchor = location.partition("#")
        if f'id="{name if anchor == "$" else anchor}"' in (site / page).read_text(encoding="utf-8"):
            found[name] = role
    return found


def modules() -> Iterator[ModuleType]:
    yield from map(importlib.import_module, PUBLIC)


@pytest.mark.slow
def test_every_public_name_is_documented(inventory: dict[str, str]) -> None:
    missing = []
    for module in modules():
        for name in module.__all__:
            value, public = getattr(module, name), f"{module.__name__}.{name}"
            if isinstance(value, ModuleType):
                documented = inventory.get(value.__name__) == "py:module"
            elif inspect.isclass(value) or inspect.isroutine(value):
                # A function may share its public name with the module that holds it: then its own name counts.
                own = f"{value.__module__}.{value.__qualname__}"
                documented = own in inventory or inventory.get(public, "py:module") != "py:module"
            else:
                documented = public in inventory
            missing += [] if documented else [public]
    assert missing == []


@pytest.mark.slow
def test_what_the_text_imports_is_documented(inventory: dict[str, str]) -> None:
    examples = [path.read_text(encoding="utf-8") for path in (ROOT / "examples").glob("*.py")]
    missing = set()
    for code in (*(code for _, code in CODE), *examples):
        for node in ast.walk(ast.parse(code)):
            if not isinstance(node, ast.ImportFrom) or not str(node.module).startswith("contextual_dropout"):
                continue
            for name in (each.name for each in node.names):
                value = getattr(importlib.import_module(str(node.module)), name)
                names = {f"{node.module}.{name}", f"{getattr(value, '__module__', '')}.{name}"}
                missing |= set() if names & set(inventory) else {f"{node.module}.{name}"}
    assert missing == set()


@pytest.mark.slow
def test_what_the_text_names_is_documented(inventory: dict[str, str]) -> None:
    """Classes and functions by their full names; of modules the pages say what they are for."""
    named = {name for text in TEXTS.values() for name in re.findall(r"`(contextual_dropout(?:_lab)?\.[\w.]+\w)", text)}
    assert "contextual_dropout.nn.sequence_dropout.SequenceDropout" in named
    assert {name for name in named if name.rpartition(".")[2][0].isupper()} <= set(inventory)


@pytest.mark.slow
def test_every_command_is_documented(site: Path) -> None:
    page = (site / "api/commands.html").read_text(encoding="utf-8")
    for name, command in typer.main.get_command(app).commands.items():  # type: ignore[attr-defined]
        _, heading, section = page.partition(f'<h2 id="{name}"')
        assert heading, name
        section = section.partition("<h2")[0]
        for parameter in command.params:
            shown = parameter.name.upper() if parameter.param_type_name == "argument" else parameter.opts[0]
            assert f"<code>{shown}</code>" in section, f"{name} {shown}"


@pytest.mark.slow
def test_search_works_on_pages_from_the_disk(site: Path, page: Page) -> None:
    page.goto((site / "api/index.html").as_uri())
    # Key by key: the page listens to keys, and a text that is filled in while it loads would go unseen. Without a
    # hyphen: the page complains of a query that ends with one, which a slow machine shows it half-way.
    page.get_by_role("textbox", name="Search").press_sequentially("choosing an estimator")
    found = page.locator(".md-search-result__item h1")
    expect(found.filter(has_text="Choosing an estimator")).to_be_visible()


@pytest.mark.slow
def test_no_line_of_code_is_cut(site: Path, page: Page) -> None:
    """At 1280 pixels: a comment that one must scroll to is not read."""
    cut_off = "all => all.filter((e) => e.scrollWidth > e.clientWidth).length"
    found = {}
    for path in sorted({*site.rglob("*.html")} - {site / "404.html"}):  # which is for servers only
        page.goto(path.as_uri())
        found[path.name] = page.locator("pre code").evaluate_all(cut_off)
    assert len(found) > 20
    assert not any(found.values()), found


@pytest.mark.slow
@pytest.mark.parametrize("width", [390])
@pytest.mark.parametrize("name", ["index", "how-it-works", "estimators", "predicting", "report", "api/index"])
def test_pages_fit_on_a_phone(site: Path, page: Page, name: str, width: int) -> None:
    """Wide tables, equations and code scroll by themselves; the page does not."""
    page.goto((site / f"{name}.html").as_uri())
    expect(page.locator("h1").first).to_be_visible()
    assert not too_wide(page)
    assert not cut(page, "article h1, article h2, article p, article li, article img")


@pytest.mark.slow
def test_no_page_asks_the_network_for_anything(site: Path) -> None:
    fetched = re.compile(r"<(?:script|img|iframe)[^>]*\ssrc=.?(?:https?:)?//|<link[^>]*\shref=.?(?:https?:)?//")
    pages = list(site.rglob("*.html"))
    assert len(pages) > 20
    assert [page.name for page in pages if fetched.search(page.read_text(encoding="utf-8"))] == []


@pytest.mark.slow
def test_equations_and_docstrings_are_rendered(site: Path) -> None:
    how = (site / "how-it-works.html").read_text(encoding="utf-8")
    assert how.count("<math ") > 40
    for page in site.rglob("*.html"):
        text = re.sub(r"<(pre|code)\b.*?</\1>", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
        assert "arithmatex" not in text, page
        assert not re.search(r":(func|class|mod|data|meth|attr):`|={4,} ={4,}|&gt;&gt;&gt;", text), page


@pytest.mark.slow
def test_results_and_examples_are_pages(site: Path) -> None:
    for page in (*ROOT.glob("experiments/RESULTS-*.md"), *ROOT.glob("examples/*.py")):
        built = (site / page.relative_to(ROOT)).with_suffix(".html")
        assert built.exists()
        assert built.name in (site / "index.html").read_text(encoding="utf-8"), "not in the navigation"
