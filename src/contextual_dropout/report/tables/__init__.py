"""Every table, by name."""

from contextual_dropout.report.summary import Summary
from contextual_dropout.report.table import Table
from contextual_dropout.report.tables.bars import bars
from contextual_dropout.report.tables.calibration import calibration
from contextual_dropout.report.tables.comparison import (
    clean_to_noisy,
    complete,
    differences,
    noisy_mnist,
    of_the_paper,
    original_log_likelihood,
)
from contextual_dropout.report.tables.context import context_spread, context_value
from contextual_dropout.report.tables.cost import cost, model_sizes
from contextual_dropout.report.tables.detection import detection
from contextual_dropout.report.tables.ensembles import ensembles
from contextual_dropout.report.tables.figures import figures
from contextual_dropout.report.tables.groups import groups, has_groups
from contextual_dropout.report.tables.normality import normality
from contextual_dropout.report.tables.protocol import protocol

__all__ = [
    "all_tables",
    "bars",
    "calibration",
    "clean_to_noisy",
    "complete",
    "context_spread",
    "context_value",
    "cost",
    "detection",
    "differences",
    "ensembles",
    "figures",
    "groups",
    "has_groups",
    "model_sizes",
    "noisy_mnist",
    "normality",
    "of_the_paper",
    "original_log_likelihood",
    "protocol",
]


def all_tables(summary: Summary) -> dict[str, Table]:
    """All of them, in the order of the page; those of the paper only for the paper's experiment."""
    paper = (
        {
            "noisy-mnist": noisy_mnist(summary),
            "bars": bars(summary),
            "differences": differences(summary),
            "complete-original": complete(summary, "original"),
            "complete-noisy": complete(summary, "noisy"),
            "original-log-likelihood": original_log_likelihood(summary),
            "clean-to-noisy": clean_to_noisy(summary),
            "model-sizes": model_sizes(summary),
        }
        if of_the_paper(summary)
        else {}
    )
    each = {
        f"{name}-{setting}": table(summary, setting)
        for setting in summary.settings
        for name, table in (("figures", figures), ("calibration", calibration), ("detection", detection))
    }
    by_group = {
        f"groups-{setting}": groups(summary, setting) for setting in summary.settings if has_groups(summary, setting)
    }
    return (
        paper
        | each
        | by_group
        | {
            "cost": cost(summary),
            "context-spread": context_spread(summary),
            "context-value": context_value(summary),
            "ensembles": ensembles(summary),
            "protocol": protocol(summary),
        }
    )
