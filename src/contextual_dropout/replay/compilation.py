"""Handling networks under ``torch.compile``: what works in compiled code, and what needs the network itself.

Dynamo follows a :class:`torch.overrides.TorchFunctionMode`, so that a recording sees the sites of compiled code too.
There it cannot look at every call, run a part of a pass again, or lift a stop-gradient afterwards.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
from torch import nn

from contextual_dropout.nn.site import ContextualDropout

__all__ = ["eagerly", "part_with_sites", "refuse_reruns", "refuse_wrappers", "uncompiled"]

Model = TypeVar("Model", bound=nn.Module)


def part_with_sites(model: nn.Module) -> str | None:
    """The name of a part with sites that ``torch.compile`` or ``nn.Module.compile`` was called on, if there is one."""
    parts = [(name, part) for name, part in model.named_modules() if _is_compiled(part)]
    with_sites = (name for name, part in parts if any(isinstance(m, ContextualDropout) for m in part.modules()))
    return next(with_sites, None)


def uncompiled(model: Model) -> Model:
    """The network that ``torch.compile`` wrapped, or the network itself."""
    original: Model = vars(model)["_modules"]["_orig_mod"] if _is_wrapper(model) else model
    return original


@contextmanager
def eagerly() -> Iterator[None]:
    """Run compiled code uncompiled, call by call."""
    if "torch._dynamo" not in sys.modules:  # then nothing is compiled, and importing it takes a second
        yield
        return
    with torch.compiler.set_stance("force_eager"):
        yield


def refuse_reruns(part: str, estimator: object) -> None:
    """Raise for an estimator with reruns: a site is in a compiled part, where its mask cannot be replaced.

    Raises:
        ValueError: always.
    """
    raise ValueError(
        f"{part or 'the model'} is compiled (torch.compile), and {type(estimator).__name__} runs parts of the pass "
        "again with other masks, for which it takes the uncompiled network: give that to ELBO and call it in the "
        "closure (model._orig_mod is what torch.compile wrapped), and compile after training; or train compiled with "
        "estimator='straight-through', or with Gaussian sites"
    )


def refuse_wrappers(model: nn.Module) -> None:
    """Raise if ``torch.compile`` returned the model or a part of it, which would still call the unconverted module.

    Raises:
        ValueError: there is such a part.
    """
    for name, module in model.named_modules():
        if _is_wrapper(module):
            raise ValueError(
                f"{name or 'the model'} is compiled (torch.compile): convert first and compile afterwards, "
                "torch.compile(cd.contextualize(network)); what was compiled is its attribute _orig_mod"
            )


def _is_compiled(module: nn.Module) -> bool:
    return _is_wrapper(module) or module._compiled_call_impl is not None


def _is_wrapper(module: Any) -> bool:
    """Whether a module is what torch.compile returns; by its name, as importing the class takes a second."""
    return type(module).__name__ == "OptimizedModule"
