"""The paper's networks, plain: their dropout layers say where a method may act."""

from contextual_dropout_lab.models.mcan import mcan
from contextual_dropout_lab.models.mlp import mlp
from contextual_dropout_lab.models.resnet import resnet18
from contextual_dropout_lab.models.vit import vit
from contextual_dropout_lab.models.weights import load_weights
from contextual_dropout_lab.models.wide_resnet import wide_resnet

__all__ = ["load_weights", "mcan", "mlp", "resnet18", "vit", "wide_resnet"]
