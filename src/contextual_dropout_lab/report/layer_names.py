"""The layers that drop something: their names in print."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["layer_labels"]


def layer_labels(names: Sequence[str], network: str, hidden: Sequence[int]) -> dict[str, str]:
    """Layers of an MLP by what they mask; those of other networks keep the names that they have there.

    Args:
        names: of the layers, in call order.
        network: what kind of network it is.
        hidden: sizes of the MLP's hidden layers.

    Example:
        >>> layer_labels(["0", "3", "6"], "mlp", (300, 100))
        {'0': 'input', '3': 'hidden 1', '6': 'hidden 2'}
        >>> layer_labels(["block.dropout"], "wide_resnet", (300, 100))
        {'block.dropout': 'block.dropout'}
    """
    if network != "mlp" or len(names) != len(hidden) + 1:
        return {name: name for name in names}
    return {name: f"hidden {index}" if index else "input" for index, name in enumerate(names)}
