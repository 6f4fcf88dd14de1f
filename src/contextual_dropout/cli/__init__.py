"""The command ``contextual-dropout``."""

from __future__ import annotations

import sys

__all__ = ["main"]


def main() -> None:
    """Run the command; without the packages it needs, say which."""
    try:
        from contextual_dropout.cli.app import app
    except ModuleNotFoundError as error:
        sys.exit(f"{error.name} is not installed: pip install 'contextual-dropout[experiments]'")
    app()
