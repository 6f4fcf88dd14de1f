"""Every figure, by name."""

from contextual_dropout.report.figures.comparison import comparison
from contextual_dropout.report.figures.context import context_spread
from contextual_dropout.report.figures.curves import learning_curves
from contextual_dropout.report.figures.drop_probabilities import drop_probabilities
from contextual_dropout.report.figures.ensembles import ensembles
from contextual_dropout.report.figures.examples import examples, telling_examples
from contextual_dropout.report.figures.gallery import all_figures, save, save_all
from contextual_dropout.report.figures.normality import normality
from contextual_dropout.report.figures.style import NoData
from contextual_dropout.report.figures.uncertain import uncertain

__all__ = [
    "NoData",
    "all_figures",
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
