"""Pages that are not written in docs/: examples, results and what else the repository says about itself.

They have the paths on the site that they have in the repository, and links between the two work in both places.
"""

from __future__ import annotations

import ast
import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[2]
SHOWN = (
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "LICENSE",
    "RELEASING.md",
    "SECURITY.md",
    "benchmarks/results/*.json",
    "experiments/*.md",
    "experiments/figures/**/*.svg",
)
LINK = re.compile(r"(?<=\]\()([^)#:\s]+)(?=[)#])")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Name the examples and the pages of results in the navigation."""
    sections = {name: entries for section in config.nav or () for name, entries in section.items()}
    sections["Examples"] += [f"examples/{path.stem}.md" for path in sorted(ROOT.glob("examples/*.py"))]
    sections["Results"][:0] = [f"experiments/{path.name}" for path in sorted(ROOT.glob("experiments/RESULTS-*.md"))]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages."""
    for path in sorted(path for pattern in SHOWN for path in ROOT.glob(pattern)):
        files.append(File.generated(config, path.relative_to(ROOT).as_posix(), abs_src_path=str(path)))
    for path in sorted(ROOT.glob("examples/*.py")):
        page = notebook(path.read_text(encoding="utf-8"), f"examples/{path.name}")
        content = "\n".join(("---", "hide: [toc]", "---", *page))
        files.append(File.generated(config, f"examples/{path.stem}.md", content=content))
    return files


def on_page_markdown(markdown: str, page: Page, files: Files, **_: Any) -> str:
    """Point links at where the files of the repository are on the site."""
    here = page.file.src_uri
    in_docs = not page.file.generated_by

    def moved(link: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join("docs" if in_docs else "", posixpath.dirname(here), link.group(1)))
        target = re.sub(r"^examples/(\w+)\.py$", r"examples/\1.md", target.removeprefix("docs/"))
        return posixpath.relpath(target, posixpath.dirname(here)) if files.get_file_from_path(target) else link.group(1)

    return LINK.sub(moved, markdown)


def notebook(source: str, name: str) -> Iterator[str]:
    """The lines of a page: docstring and cells of prose (``# %% [markdown]``) as they are, cells of code as code."""
    yield ast.get_docstring(ast.parse(source)) or ""
    for cell in re.split(r"^# %%", source, flags=re.MULTILINE)[1:]:
        kind, _, text = cell.partition("\n")
        if "[markdown]" in kind:
            yield from (line.removeprefix("#").removeprefix(" ") for line in text.rstrip().splitlines())
        elif text.strip():
            yield from ("", "```python", text.strip(), "```", "")
    yield from ("", f"The whole of it is `{name}`; run it with `python {name}`.")
