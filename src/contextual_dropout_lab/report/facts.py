"""The origin of results: seeds, training, commits and versions."""

from __future__ import annotations

from contextual_dropout_lab.report.paper import TRAINING
from contextual_dropout_lab.report.summary import Summary

__all__ = ["facts"]


def facts(summary: Summary) -> dict[str, str]:
    """The facts as plain text, by their subject."""
    return {
        **{f"Seeds, {setting}": _seeds(summary, setting) for setting in summary.settings},
        **{f"Training, {setting}": _training(summary, setting) for setting in summary.settings},
        "Runs": f"{len(summary.records)}; training took {_cpu_hours(summary):.2f} CPU hours in all",
        "Commits": _commits(summary),
        "Versions": _versions(summary),
    }


def _seeds(summary: Summary, setting: str) -> str:
    """The number of seeds of each method, methods with as many together."""
    groups: dict[int, list[str]] = {}
    methods = summary.methods(setting)
    for method in methods:
        groups.setdefault(len(summary.runs[setting, method].seeds), []).append(summary.label(setting, method))
    if len(groups) == 1:
        return f"{next(iter(groups))} for each of {len(methods)} methods"
    return "; ".join(f"{count} ({', '.join(groups[count])})" for count in sorted(groups, reverse=True))


def _training(summary: Summary, setting: str) -> str:
    """Epochs and examples; of MNIST, where they are not the paper's, its own beside them."""
    records = [record for record in summary.records if record["config"]["setting"] == setting]
    pairs = sorted({(record["config"]["epochs"], record["data"]["train"]) for record in records})
    what = "questions" if records[0]["config"].get("task") == "soft-answers" else "images"
    text = " or ".join(f"{epochs} epochs on {examples:,} {what}" for epochs, examples in pairs)
    if pairs == [TRAINING] or records[0]["config"]["data"] != "mnist":
        return text
    return f"{text}, where the paper has {TRAINING[0]} on {TRAINING[1]:,}: figures do not compare with its own"


def _cpu_hours(summary: Summary) -> float:
    return float(sum(record["cost"]["train_cpu_seconds"] for record in summary.records)) / 3600


def _commits(summary: Summary) -> str:
    """Commits with their numbers of runs, and whether there were uncommitted changes."""
    counts: dict[str, int] = {}
    for record in summary.records:
        origin = record["provenance"]
        commit = origin["commit"][:12] if origin["commit"] else "unknown"
        name = f"{commit} with uncommitted changes" if origin["uncommitted_changes"] else commit
        counts[name] = counts.get(name, 0) + 1
    return ", ".join(f"{name} ({counts[name]} {'run' if counts[name] == 1 else 'runs'})" for name in sorted(counts))


def _versions(summary: Summary) -> str:
    """The versions of Python and packages; several where runs differ."""
    found: dict[str, set[str]] = {}
    for record in summary.records:
        origin = record["provenance"]
        for name, version in {"Python": origin["python"], **origin["versions"], "on": origin["machine"]}.items():
            found.setdefault(name, set()).add(version or "unknown")
    return ", ".join(f"{name} {' and '.join(sorted(versions))}" for name, versions in found.items())
