"""The command ``contextual-dropout``."""

from __future__ import annotations

import sys

from contextual_dropout_lab.errors import not_installed

__all__ = ["main"]


def main() -> None:
    """Run the command. An error that the user can put right is printed as a line, not as a traceback."""
    try:
        _run()
    except ModuleNotFoundError as error:
        sys.exit(not_installed(error))
    except KeyboardInterrupt:
        print("interrupted; the same command resumes where it stopped", file=sys.stderr)
        sys.exit(130)


def _run() -> None:
    """Import what the command needs, some of it only when it is called."""
    from contextual_dropout_lab.cli.app import app
    from contextual_dropout_lab.data import DataError
    from contextual_dropout_lab.errors import ExperimentError
    from contextual_dropout_lab.report import ReportError

    try:
        app()
    except (ExperimentError, DataError, ReportError, OSError) as error:
        sys.exit(f"contextual-dropout: {error}")
