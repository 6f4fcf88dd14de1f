"""Networks under ``torch.compile``: what can be done with compiled code, and what takes the network itself.

Dynamo follows a :class:`torch.overrides.TorchFunctionMode`, so that a recording sees the sites of compiled code too.
What it cannot do there is to look at every call, to run a part of a pass again, or to lift a stop-gradient afterwards.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
from torch import nn

__all__ = ["compiled_parts", "eagerly", "refuse_reruns", "uncompiled"]

Model = TypeVar("Model", bound=nn.Module)


def compiled_parts(model: nn.Module) -> dict[str, nn.Module]:
    """The outermost and inner modules that ``torch.compile`` or ``nn.Module.compile`` was called on, by name."""
    return {name: module for name, module in model.named_modules() if _is_compiled(module)}


def uncompiled(model: Model) -> Model:
    """The network that ``torch.compile`` wrapped, or the network itself."""
    original: Model = vars(model)["_modules"]["_orig_mod"] if _is_wrapper(model) else model
    return original


@contextmanager
def eagerly() -> Iterator[None]:
    """Inside, compiled code runs uncompiled, call by call."""
    if "torch._dynamo" not in sys.modules:  # then nothing is compiled, and importing it takes a second
        yield
        return
    with torch.compiler.set_stance("force_eager"):
        yield


def refuse_reruns(model: nn.Module, sites: Collection[nn.Module], estimator: object) -> None:
    """Raise if a site is in a compiled part: another mask cannot be put into compiled code.

    Raises:
        ValueError: there is such a site.
    """
    for name, part in compiled_parts(model).items():
        if any(module in sites for module in part.modules()):
            raise ValueError(
                f"{name or 'the model'} is compiled (torch.compile), and {type(estimator).__name__} runs parts of the "
                "pass again with other masks, for which it takes the uncompiled network: give that to ELBO and call it "
                "in the closure (model._orig_mod is what torch.compile wrapped), and compile after training; or train "
                "compiled with estimator='straight-through', or with Gaussian sites"
            )


def _is_compiled(module: nn.Module) -> bool:
    return _is_wrapper(module) or module._compiled_call_impl is not None


def _is_wrapper(module: Any) -> bool:
    """Whether it is what torch.compile returns; told by its name, as importing the class takes a second."""
    return type(module).__name__ == "OptimizedModule"
