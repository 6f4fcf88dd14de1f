"""The objective's gradients are the same whether pseudo passes replay what the true pass computed or not."""

from __future__ import annotations

import warnings

import torch
from torch import Tensor, nn

import contextual_dropout as cd
from tests.generated.case import Case, Refused, Wrong, refusal
from tests.generated.refusals import TORCH_SAYS

__all__ = ["check_gradients"]


def check_gradients(case: Case, model: nn.Module) -> None:
    """Compares a step with replay and one without.

    Raises:
        Wrong: gradients differ, or one of the two is refused.
        Refused: both are, with the same words; or that without replay, as the pass cannot be computed again.
    """
    (with_replay, said), (without, also_said) = (_gradients(case, model, replay) for replay in (True, False))
    if case.network.own_generators and also_said is not None and "run a second time" in also_said:
        raise Refused(also_said)  # a generator of the network's own: only a replay can give its draws again
    if said != also_said:
        raise Wrong(f"ELBO: with replay {said or 'it works'}; without {also_said or 'it works'}")
    if said is not None:
        raise Refused(said)
    if case.network.own_generators:
        return  # each pass draws other numbers from it: as good a sample, but another one
    for name, gradient in with_replay.items():
        other = without[name]
        rounding = 1e-5 * max(1.0, float(other.nan_to_num(0, 0, 0).abs().max()))
        if not torch.allclose(gradient, other, rtol=1e-4, atol=rounding, equal_nan=True):
            difference = float((gradient - other).abs().max())
            raise Wrong(f"ELBO: the gradient of {name} differs by {difference:.2g} with and without replay")


def _gradients(case: Case, model: nn.Module, replay: bool) -> tuple[dict[str, Tensor], str | None]:
    """The gradients by name, or what the library or torch said instead."""
    network, model = case.network, case.network.fresh(model).train()
    objective = cd.ELBO(model, case.estimator, replay=replay)

    def log_likelihood() -> Tensor:
        return -network.pick(model(network.inputs())).flatten(1).square().mean(1)

    try:
        with warnings.catch_warnings():
            for expected in (cd.SaturationWarning, cd.CoupledRowsWarning):
                warnings.simplefilter("ignore", expected)
            objective(log_likelihood).loss.backward()
    except Exception as error:
        said = refusal(error) or next((words for words in TORCH_SAYS if words in str(error)), None)
        if said is None:
            raise Wrong(f"ELBO (replay={replay}) fails: {error!r}") from error
        return {}, said
    zero = torch.zeros(1)
    return {name: zero if p.grad is None else p.grad for name, p in model.named_parameters()}, None
