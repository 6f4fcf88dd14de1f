"""The page of results: generated from records, never edited by hand."""

from __future__ import annotations

from pathlib import Path

from contextual_dropout_lab.report.facts import facts
from contextual_dropout_lab.report.plots import all_plots
from contextual_dropout_lab.report.summary import Summary, summarise
from contextual_dropout_lab.report.table import escaped, to_markdown
from contextual_dropout_lab.report.tables import all_tables
from contextual_dropout_lab.store.files import replace_file
from contextual_dropout_lab.store.results import Results

__all__ = ["results_page", "write_page"]

_READING = (
    "Lines are means over seeds, bands and error bars one standard deviation between them. The log-likelihood of "
    "learning curves is of training, with sampled masks; their accuracy is of the test set, with expected masks. Drop "
    "probabilities are means over the units of a site; the glyphs show their quantiles over test images."
)


def results_page(results: Results, experiment: str) -> str:
    """The page in Markdown: where the scores come from, tables, plots.

    Plots are embedded as figures/<experiment>/<name>.svg, where ``save_all`` is to put them.
    """
    summary = summarise(results, experiment)
    tables = [to_markdown(table) for table in all_tables(summary).values()]
    return "\n".join([_header(summary), *tables, _plots(summary)])


def write_page(results: Results, experiment: str, path: Path) -> None:
    """Write the page, all of it or nothing."""
    text = results_page(results, experiment)
    with replace_file(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def _header(summary: Summary) -> str:
    lines = [
        f"# Results: {escaped(summary.experiment)}",
        "",
        "Generated from the tracked records of single runs; do not edit. Every figure of ours is a mean over seeds, "
        "with the standard deviation between them (n - 1) where there are several. The paper is Fan et al., "
        "*Contextual Dropout*, ICLR 2021.",
        "",
        *(f"- {escaped(name)}: {escaped(text)}." for name, text in facts(summary).items()),
    ]
    return "\n".join(lines) + "\n"


def _plots(summary: Summary) -> str:
    drawn, skipped = all_plots(summary)
    lines = ["## Figures", "", _READING, ""]
    for name in drawn:
        caption = name.replace("-", " ").capitalize()
        lines += [f"![{escaped(caption)}](figures/{summary.experiment}/{name}.svg)", ""]
    lines += [f"- Not drawn: {escaped(name)} ({escaped(reason)})." for name, reason in skipped.items()]
    return "\n".join(lines).rstrip() + "\n"
