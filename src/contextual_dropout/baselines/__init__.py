"""The methods that contextual dropout is compared with, one file each.

Each verb takes a network (its dropout layers say where) and returns one that trains with the objective named here and
predicts through :func:`contextual_dropout.predict`.

====================== ============================================================= =====================
verb                   what it does                                                  objective
====================== ============================================================= =====================
mc_dropout             a fixed drop rate, sampled also when predicting               PenalisedLikelihood
gaussian_dropout       multiplicative Gaussian noise of fixed variance               PenalisedLikelihood
concrete_dropout       one learned rate per layer, relaxed masks                     PenalisedLikelihood
bayes_by_backprop      Gaussian weights under a scale mixture                        PenalisedLikelihood
contextual_gating      the encoder's sigmoid as a deterministic scale                PenalisedLikelihood
gated_dropout          contextual gating, then dropout at a fixed rate               PenalisedLikelihood
learnable_dropout      learned rates per unit, the same for every sample             cd.ELBO
deep_ensemble          several networks, of any of these kinds                       that of its members
====================== ============================================================= =====================
"""

from contextual_dropout.baselines.bayes_by_backprop import bayes_by_backprop
from contextual_dropout.baselines.concrete_dropout import concrete_dropout
from contextual_dropout.baselines.contextual_gating import contextual_gating, gated_dropout
from contextual_dropout.baselines.deep_ensemble import DeepEnsemble, deep_ensemble
from contextual_dropout.baselines.gaussian_dropout import gaussian_dropout
from contextual_dropout.baselines.learnable_dropout import learnable_dropout
from contextual_dropout.baselines.mc_dropout import mc_dropout
from contextual_dropout.baselines.penalised import PenalisedLikelihood, Penalty

__all__ = [
    "DeepEnsemble",
    "PenalisedLikelihood",
    "Penalty",
    "bayes_by_backprop",
    "concrete_dropout",
    "contextual_gating",
    "deep_ensemble",
    "gated_dropout",
    "gaussian_dropout",
    "learnable_dropout",
    "mc_dropout",
]
