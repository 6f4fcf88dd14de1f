"""Keeping several processes that train one model in step.

A process that waits in a collective operation for one that does not come waits for ever. So the number of passes of a
step never depends on what one process drew, and pseudo passes start no collective operation of their own.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

__all__ = [
    "exchange_buffers",
    "is_sharded",
    "processes",
    "refuse_wrapped",
    "sum_over_processes",
    "without_buffer_broadcasts",
]


def processes() -> int:
    """The number of processes that train together; 1 without a process group."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def sum_over_processes(values: Tensor) -> Tensor:
    """The sum of the processes' values, the same on all of them."""
    if processes() == 1:
        return values
    total = values.clone()
    dist.all_reduce(total)
    return total


def is_sharded(model: nn.Module) -> bool:
    """Whether parts of the model (FSDP's) collect their parameters when they are called: no call may be left out."""
    if processes() == 1:
        return False
    from torch.distributed.fsdp import FSDPModule, FullyShardedDataParallel

    return any(isinstance(module, FSDPModule | FullyShardedDataParallel) for module in model.modules())


def refuse_wrapped(model: nn.Module, verb: str) -> None:
    """Raise if a wrapper, which looks at the parameters once, when it is made, would miss those of new sites."""
    from torch.distributed.fsdp import FSDPModule, FullyShardedDataParallel

    for name, module in model.named_modules():
        if isinstance(module, DistributedDataParallel | FSDPModule | FullyShardedDataParallel):
            kind = "FSDP" if not isinstance(module, DistributedDataParallel) else type(module).__name__
            raise ValueError(
                f"{kind} (at {name or 'the model itself'}) would not synchronise sites that are added now, so that "
                f"they would differ between processes: {verb} before wrapping"
            )


def exchange_buffers(model: nn.Module) -> None:
    """Exchange buffers now, as :class:`~torch.nn.parallel.DistributedDataParallel` would at the start of its next pass.

    So a pass can be recorded from the buffers that it computes with.
    """
    for wrapper in _wrappers(model):
        if wrapper.will_sync_module_buffers():  # type: ignore[no-untyped-call]
            wrapper._sync_buffers()  # type: ignore[no-untyped-call]
            wrapper.require_forward_param_sync = False


@contextmanager
def without_buffer_broadcasts(model: nn.Module) -> Iterator[None]:
    """Exchange no buffers in the passes inside, which follow the true one: they were exchanged before it.

    :class:`~torch.nn.parallel.DistributedDataParallel` would do so again in the first of them, and then leave it out
    in the next step.
    """
    wrappers = _wrappers(model)
    before = [wrapper.require_forward_param_sync for wrapper in wrappers]
    for wrapper in wrappers:
        wrapper.require_forward_param_sync = False
    try:
        yield
    finally:
        for wrapper, value in zip(wrappers, before, strict=True):
            wrapper.require_forward_param_sync = value


def _wrappers(model: nn.Module) -> list[DistributedDataParallel]:
    modules = model.modules() if processes() > 1 else ()
    return [module for module in modules if isinstance(module, DistributedDataParallel)]
