"""The refusal that a visitor gets when a request cannot be answered."""

__all__ = ["Refusal"]


class Refusal(Exception):
    """A request that is not answered: with which status of HTTP, and why, in a sentence for the page."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason
