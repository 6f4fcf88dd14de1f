"""Errors that a user can put right."""

__all__ = ["Busy", "ConfigError", "ExperimentError", "NotReady", "not_installed"]


class ExperimentError(ValueError):
    """A run cannot be done, or its files not be read, and what to do about it: no traceback is needed."""


class ConfigError(ExperimentError):
    """A configuration that cannot be run, and why."""


class Busy(ExperimentError):
    """Another process works on the same run."""


class NotReady(ExperimentError):
    """A run that has to be done before this one is not done."""


def not_installed(error: ModuleNotFoundError) -> str:
    """The advice about a package that the experiments need.

    Example:
        >>> not_installed(ModuleNotFoundError(name="typer"))
        "typer is not installed: pip install 'contextual-dropout[experiments]'"
    """
    return f"{error.name} is not installed: pip install 'contextual-dropout[experiments]'"
