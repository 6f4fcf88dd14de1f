"""What is raised when data is missing, damaged or not what it was said to be."""

__all__ = ["DataError"]


class DataError(ValueError):
    """A data set cannot be used: the message says which file, what was found, what was expected and what to do."""
