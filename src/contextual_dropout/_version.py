"""The version of the installed package, which pyproject.toml states once."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

__all__ = ["__version__"]

try:
    __version__ = version("contextual-dropout")
except PackageNotFoundError:  # on the path, but not installed
    __version__ = "unknown"
