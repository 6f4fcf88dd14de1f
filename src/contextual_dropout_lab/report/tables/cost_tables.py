"""Tables of how large the models are, and what training and prediction cost."""

from __future__ import annotations

from contextual_dropout_lab.report.method_names import label
from contextual_dropout_lab.report.paper import IN_THE_PAPER, PARAMETERS, PARAMETERS_BY_REDUCTION
from contextual_dropout_lab.report.summary import Runs, Summary
from contextual_dropout_lab.report.table import MISSING, Table, number, of_seeds

__all__ = ["cost", "model_sizes"]

_PARTS = ("theta", "phi", "eta")


def model_sizes(summary: Summary) -> Table:
    """The paper's "Model size comparison among different methods", column MLP."""
    known = _first_runs(summary)
    methods = summary.methods(summary.settings[0], [*known, *PARAMETERS])
    columns = ("Method", "Paper", "Ours", "theta", "phi", "eta")
    ten, paper = PARAMETERS_BY_REDUCTION[10], PARAMETERS_BY_REDUCTION[32]
    notes = (
        f"The paper's 311K follow from a reduction of 32 ({paper:,} parameters); the reduction of 10 that its text "
        f"names, and that we use, gives {ten:,}.",
        "theta: the network with what a baseline adds to it; phi: the encoders; eta: the priors.",
    )
    rows = tuple(_size(method, known.get(method)) for method in methods)
    return Table("Model sizes (the paper's appendix)", columns, rows, notes)


def cost(summary: Summary) -> Table:
    """CPU time of a step, a run and a prediction; ratios to MC dropout of the same setting."""
    columns = (
        *("Setting", "Method", "Seeds", "ms a step", "ratio", "CPU minutes a run"),
        *("prediction, ms an example", "ratio"),
    )
    rows = tuple(
        _cost(summary, summary.runs[setting, method])
        for setting in summary.settings
        for method in summary.methods(setting)
    )
    notes = (
        "CPU time of one thread, mean ± sd over seeds, on machines that did other work too. Where the commits of the "
        "runs differ so may their machines, by a factor of three and more: ratios (to MC dropout) hold on one only.",
    )
    return Table("Cost of training and prediction", columns, rows, notes)


def _first_runs(summary: Summary) -> dict[str, Runs]:
    """Runs of every method in the first setting that has any: sizes are the same in all."""
    return {method: runs for (_, method), runs in reversed(summary.runs.items())}


def _size(method: str, runs: Runs | None) -> tuple[str, ...]:
    named = IN_THE_PAPER.get(method, method)
    paper = f"{PARAMETERS[named] // 1000}K" if named in PARAMETERS else MISSING
    if runs is None:
        return (label(method), paper, *[MISSING] * 4)
    parts = [runs.first["parameters"][part] for part in _PARTS]
    return (runs.label, paper, *(f"{count:,}" for count in (sum(parts), *parts)))


def _cost(summary: Summary, runs: Runs) -> tuple[str, ...]:
    reference = summary.of(runs.setting, "mc-bernoulli")
    minutes = runs.at("cost", "train_cpu_seconds")
    return (
        *(runs.setting, runs.label, str(len(runs.seeds))),
        of_seeds(runs.at("cost", "step_cpu_ms"), 3),
        _ratio(runs, reference, "step_cpu_ms"),
        number(minutes.mean / 60 if minutes else None, 1),
        of_seeds(runs.at("cost", "predict_cpu_ms_per_example"), 4),
        _ratio(runs, reference, "predict_cpu_ms_per_example"),
    )


def _ratio(runs: Runs, reference: Runs | None, name: str) -> str:
    ours, theirs = runs.at("cost", name), reference.at("cost", name) if reference else None
    return number(ours.mean / theirs.mean if ours and theirs and theirs.mean else None, 2)
