"""Every plot, by name."""

from contextual_dropout_lab.report.plots.collection import all_plots, save, save_all
from contextual_dropout_lab.report.plots.context_variation import context_spread
from contextual_dropout_lab.report.plots.drop_probability_plot import drop_probabilities
from contextual_dropout_lab.report.plots.ensemble_sizes import ensembles
from contextual_dropout_lab.report.plots.example_panels import examples, telling_examples
from contextual_dropout_lab.report.plots.method_comparison import comparison
from contextual_dropout_lab.report.plots.quantile_plots import normality
from contextual_dropout_lab.report.plots.style import NoData
from contextual_dropout_lab.report.plots.training_curves import learning_curves
from contextual_dropout_lab.report.plots.uncertain_images import uncertain

__all__ = [
    "NoData",
    "all_plots",
    "comparison",
    "context_spread",
    "drop_probabilities",
    "ensembles",
    "examples",
    "learning_curves",
    "normality",
    "save",
    "save_all",
    "telling_examples",
    "uncertain",
]
