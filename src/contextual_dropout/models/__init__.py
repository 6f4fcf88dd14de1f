"""The paper's networks, plain: their dropout layers say where a method may act."""

from contextual_dropout.models.mlp import mlp

__all__ = ["mlp"]
