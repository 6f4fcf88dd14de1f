"""Fabric, without the seconds that its import takes for what nobody asked for.

To learn the version of torchmetrics, ``lightning_fabric`` imports it, and with it matplotlib and transformers where
they are installed: half of the time that a run needed to begin. Here it reads versions from what is known of installed
packages, and gets the same answers. Whoever imports ``lightning_fabric`` first decides; either way is right.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import metadata
from typing import Any

from lightning_utilities.core import imports
from packaging.version import Version

__all__ = ["DDPStrategy", "Fabric", "TorchCheckpointIO"]


def _compare_version(
    package: str, op: Callable[[Version, Version], bool], version: str, use_base_version: bool = False
) -> bool:
    """``lightning_utilities.core.imports.compare_version`` without an import."""
    try:
        found = Version(metadata.version(package))
    except metadata.PackageNotFoundError:
        return False
    return op(Version(found.base_version) if use_base_version else found, Version(version))


@contextmanager
def _versions_without_imports() -> Iterator[None]:
    module: Any = imports
    by_import = module.compare_version
    module.compare_version = _compare_version
    try:
        yield
    finally:
        module.compare_version = by_import


with _versions_without_imports():
    from lightning_fabric import Fabric
    from lightning_fabric.plugins import TorchCheckpointIO
    from lightning_fabric.strategies.ddp import DDPStrategy
