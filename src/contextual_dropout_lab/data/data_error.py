"""The error for data that is missing, damaged or not in the expected form."""

__all__ = ["DataError"]


class DataError(ValueError):
    """A data set cannot be used: the message says which file, what was found, what was expected and what to do."""
