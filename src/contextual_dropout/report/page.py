"""The page of results: generated from records, never edited by hand."""

from __future__ import annotations

from pathlib import Path

from contextual_dropout.experiments.files import replace_file
from contextual_dropout.experiments.paper import TRAINING
from contextual_dropout.experiments.results import Results
from contextual_dropout.report.figures import all_figures
from contextual_dropout.report.methods import label
from contextual_dropout.report.summary import Summary, summarise
from contextual_dropout.report.table import escaped, to_markdown
from contextual_dropout.report.tables import all_tables

__all__ = ["results_page", "write_page"]

_READING = (
    "Lines are means over seeds, bands and error bars one standard deviation between them. The log-likelihood of "
    "learning curves is of training, with sampled masks; their accuracy is of the test set, with expected masks. Drop "
    "probabilities are means over the units of a site; the glyphs show their quantiles over test images."
)


def results_page(results: Results, experiment: str) -> str:
    """The page in Markdown: where the figures come from, bars, tables, figures.

    Figures are embedded as figures/<experiment>/<name>.svg, where ``save_all`` is to put them.
    """
    summary = summarise(results, experiment)
    tables = [to_markdown(table) for table in all_tables(summary).values()]
    return "\n".join([_header(summary), *tables, _figures(summary)])


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
        *(f"- Seeds, {escaped(setting)}: {_seeds(summary, setting)}." for setting in summary.settings),
        *(f"- Training, {escaped(setting)}: {_training(summary, setting)}." for setting in summary.settings),
        f"- Runs: {len(summary.records)}; training took {_cpu_hours(summary):.2f} CPU hours in all.",
        f"- Commits: {_commits(summary)}.",
        f"- Versions: {_versions(summary)}.",
    ]
    return "\n".join(lines) + "\n"


def _seeds(summary: Summary, setting: str) -> str:
    """How many seeds each method has, methods with as many together."""
    groups: dict[int, list[str]] = {}
    methods = summary.methods(setting)
    for method in methods:
        groups.setdefault(len(summary.runs[setting, method].seeds), []).append(escaped(label(method)))
    if len(groups) == 1:
        return f"{next(iter(groups))} for each of {len(methods)} methods"
    return "; ".join(f"{count} ({', '.join(groups[count])})" for count in sorted(groups, reverse=True))


def _training(summary: Summary, setting: str) -> str:
    """Epochs and examples; where they are not the paper's, its own beside them."""
    records = [record for record in summary.records if record["config"]["setting"] == setting]
    pairs = sorted({(record["config"]["epochs"], record["data"]["train"]) for record in records})
    text = " or ".join(f"{epochs} epochs on {examples:,} images" for epochs, examples in pairs)
    if pairs == [TRAINING]:
        return text
    return f"{text}, where the paper has {TRAINING[0]} on {TRAINING[1]:,}: figures do not compare with its own"


def _cpu_hours(summary: Summary) -> float:
    return float(sum(record["cost"]["train_cpu_seconds"] for record in summary.records)) / 3600


def _commits(summary: Summary) -> str:
    """Each with its number of runs; uncommitted changes are told."""
    counts: dict[str, int] = {}
    for record in summary.records:
        origin = record["provenance"]
        commit = f"`{origin['commit'][:12]}`" if origin["commit"] else "unknown"
        name = f"{commit} with uncommitted changes" if origin["uncommitted_changes"] else commit
        counts[name] = counts.get(name, 0) + 1
    return ", ".join(f"{name} ({counts[name]} runs)" for name in sorted(counts))


def _versions(summary: Summary) -> str:
    """Of Python and packages; several where runs differ."""
    found: dict[str, set[str]] = {}
    for record in summary.records:
        origin = record["provenance"]
        for name, version in {"Python": origin["python"], **origin["versions"], "on": origin["machine"]}.items():
            found.setdefault(name, set()).add(version or "unknown")
    return ", ".join(f"{name} {' and '.join(map(escaped, sorted(versions)))}" for name, versions in found.items())


def _figures(summary: Summary) -> str:
    drawn, skipped = all_figures(summary)
    lines = ["## Figures", "", _READING, ""]
    for name in drawn:
        caption = name.replace("-", " ").capitalize()
        lines += [f"![{escaped(caption)}](figures/{summary.experiment}/{name}.svg)", ""]
    lines += [f"- Not drawn: {escaped(name)} ({escaped(reason)})." for name, reason in skipped.items()]
    return "\n".join(lines).rstrip() + "\n"
