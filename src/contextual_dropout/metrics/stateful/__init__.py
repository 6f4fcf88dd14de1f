"""The metrics over many batches and processes: thin classes of torchmetrics around the functions one folder up."""

from contextual_dropout.metrics.stateful.ood import OutOfDistribution
from contextual_dropout.metrics.stateful.pavpu import PAvPU
from contextual_dropout.metrics.stateful.selective import RiskCoverage
from contextual_dropout.metrics.stateful.vqa import VQAAccuracy

__all__ = ["OutOfDistribution", "PAvPU", "RiskCoverage", "VQAAccuracy"]
