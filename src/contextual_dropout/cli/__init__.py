"""The command ``contextual-dropout``."""

from __future__ import annotations

import sys

__all__ = ["main"]


def main() -> None:
    """Run the command. What a user can put right is told in a line, not as a traceback."""
    try:
        from contextual_dropout.cli.app import app
    except ModuleNotFoundError as error:
        sys.exit(f"{error.name} is not installed: pip install 'contextual-dropout[experiments]'")
    from contextual_dropout.data import DataError
    from contextual_dropout.experiments.errors import ExperimentError
    from contextual_dropout.report import ReportError

    try:
        app()
    except (ExperimentError, DataError, ReportError, OSError) as error:
        sys.exit(f"contextual-dropout: {error}")
    except KeyboardInterrupt:
        print("interrupted; the same command goes on where it stopped", file=sys.stderr)
        sys.exit(130)
