"""The parameters of the network (theta), of the encoders (phi) and of the priors (eta)."""

from __future__ import annotations

from typing import Any

from torch import nn
from torch.nn.parameter import Parameter, is_lazy

from contextual_dropout.conversion.record import sites

__all__ = ["count_parameters", "parameter_groups", "unfreeze_sites"]


def parameter_groups(
    model: nn.Module,
    *,
    theta: dict[str, Any] | None = None,
    phi: dict[str, Any] | None = None,
    eta: dict[str, Any] | None = None,
) -> list[dict[str, Any]]:
    """Optimizer groups for the network, the encoders and the priors, each with its own options.

    Encoders and priors get no weight decay unless you ask for it: decay would pull their biases, which hold the initial
    drop rate, towards a rate of one half.

    Args:
        model: a network with sites.
        theta: options for the network's own parameters, e.g. ``{"lr": 1e-3, "weight_decay": 5e-4}``.
        phi: options for the encoders.
        eta: options for the priors.

    Example:
        >>> import torch, contextual_dropout as cd
        >>> model = nn.Sequential(nn.Linear(2, 3), cd.ContextualDropout(3))
        >>> optimizer = torch.optim.SGD(parameter_groups(model, theta={"weight_decay": 5e-4}, phi={"lr": 0.1}), lr=0.01)
        >>> [(group["name"], group["lr"], group["weight_decay"]) for group in optimizer.param_groups]
        [('theta', 0.01, 0.0005), ('phi', 0.1, 0.0), ('eta', 0.01, 0.0)]
    """
    split = _split(model)
    options: dict[str, dict[str, Any]] = {
        "theta": theta or {},
        "phi": {"weight_decay": 0.0} | (phi or {}),
        "eta": {"weight_decay": 0.0} | (eta or {}),
    }
    return [
        {"name": name, "params": [parameter for parameter in split[name] if parameter.requires_grad], **options[name]}
        for name in split
    ]


def count_parameters(model: nn.Module) -> dict[str, int]:
    """The number of parameters in theta, phi and eta; the sites added phi and eta.

    Example:
        >>> import contextual_dropout as cd
        >>> count_parameters(nn.Sequential(nn.Linear(2, 8), cd.ContextualDropout(8, reduction=4)))
        {'theta': 24, 'phi': 42, 'eta': 1}
    """
    return {name: sum(parameter.numel() for parameter in part) for name, part in _split(model).items()}


def unfreeze_sites(model: nn.Module) -> None:
    """Let all encoders, and the priors that are learned, have gradients again.

    For networks that were frozen after their conversion, as peft does when it adds LoRA; call it before the optimizer
    is made. ``cd.save_sites`` saves what the sites learned, which an adapter's own file does not hold.

    Example:
        >>> import contextual_dropout as cd
        >>> model = nn.Sequential(nn.Linear(2, 8), cd.ContextualDropout(8, prior="fixed")).requires_grad_(False)
        >>> unfreeze_sites(model)
        >>> [name for name, parameter in model.named_parameters() if parameter.requires_grad]  # doctest: +ELLIPSIS
        ['1.encoder.reduce_weight', ..., '1.encoder.expand_bias']
    """
    for site in sites(model).values():
        site.encoder.requires_grad_(True)
        site.prior_logit.requires_grad_(site.config["prior"] == "learned")


def _split(model: nn.Module) -> dict[str, list[Parameter]]:
    found = sites(model).values()
    phi = {id(parameter): parameter for site in found for parameter in site.encoder.parameters()}
    eta = {id(site.prior_logit): site.prior_logit for site in found}
    if any(is_lazy(parameter) for parameter in phi.values()):
        raise ValueError(
            "some sites do not know their number of features yet: give cd.contextualize an example=, or run a batch"
        )
    theta = [parameter for parameter in model.parameters() if id(parameter) not in phi and id(parameter) not in eta]
    return {"theta": theta, "phi": list(phi.values()), "eta": list(eta.values())}
