"""Every table, by name."""

from contextual_dropout_lab.report.summary import Summary
from contextual_dropout_lab.report.table import Table
from contextual_dropout_lab.report.tables.calibration_scores import calibration
from contextual_dropout_lab.report.tables.context_effects import context_spread, context_value
from contextual_dropout_lab.report.tables.cost_tables import cost, model_sizes
from contextual_dropout_lab.report.tables.detection_scores import detection
from contextual_dropout_lab.report.tables.ensemble_scores import ensembles
from contextual_dropout_lab.report.tables.group_scores import groups, has_groups
from contextual_dropout_lab.report.tables.method_order import has_order, order
from contextual_dropout_lab.report.tables.normality_tests import normality
from contextual_dropout_lab.report.tables.paper_tables import (
    beside_the_paper,
    clean_to_noisy,
    complete,
    differences,
    noisy_mnist,
    of_its_size,
    of_the_paper,
    original_log_likelihood,
)
from contextual_dropout_lab.report.tables.protocol_table import protocol
from contextual_dropout_lab.report.tables.scores import score_table

__all__ = [
    "all_tables",
    "beside_the_paper",
    "calibration",
    "clean_to_noisy",
    "complete",
    "context_spread",
    "context_value",
    "cost",
    "detection",
    "differences",
    "ensembles",
    "groups",
    "has_groups",
    "has_order",
    "model_sizes",
    "noisy_mnist",
    "normality",
    "of_its_size",
    "of_the_paper",
    "order",
    "original_log_likelihood",
    "protocol",
    "score_table",
]


def all_tables(summary: Summary) -> dict[str, Table]:
    """All tables, in the order of the page; first the paper's, as far as it has such an experiment."""
    each = {
        f"{name}-{setting}": table(summary, setting)
        for setting in summary.settings
        for name, table in (("figures", score_table), ("calibration", calibration), ("detection", detection))
    }
    by_group = {
        f"groups-{setting}": groups(summary, setting) for setting in summary.settings if has_groups(summary, setting)
    }
    return (
        (_of_mnist(summary.configured) if of_the_paper(summary) else _of_others(summary))
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


def _of_mnist(summary: Summary) -> dict[str, Table]:
    return {
        "noisy-mnist": noisy_mnist(summary),
        "differences": differences(summary),
        "complete-original": complete(summary, "original"),
        "complete-noisy": complete(summary, "noisy"),
        "original-log-likelihood": original_log_likelihood(summary),
        "clean-to-noisy": clean_to_noisy(summary),
        "model-sizes": model_sizes(summary),
    }


def _of_others(summary: Summary) -> dict[str, Table]:
    """The paper's scores beside ours where runs are of its size, else the orders of the methods."""
    found = {}
    for setting in summary.settings:
        if of_its_size(summary, setting):
            found[f"paper-{setting}"] = beside_the_paper(summary, setting)
        elif has_order(summary, setting):
            found[f"order-{setting}"] = order(summary, setting)
    return found
