"""The paper's networks, plain: their dropout layers say where a method may act."""

from contextual_dropout.models.mcan import mcan
from contextual_dropout.models.mlp import mlp
from contextual_dropout.models.resnet import resnet18
from contextual_dropout.models.vit import vit
from contextual_dropout.models.weights import load_weights
from contextual_dropout.models.wide_resnet import wide_resnet

__all__ = ["load_weights", "mcan", "mlp", "resnet18", "vit", "wide_resnet"]
