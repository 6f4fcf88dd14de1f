"""Crediting the mask of a row with its part of a batch's reward.

Rows that do not act on one another (most networks): a mask is credited with its own example's reward. Rows that do
(nodes of a graph, cells that attend to the whole batch): a mask also moves the log-likelihoods of its neighbours, so it
has to be credited with the reward of the whole batch. A score-function estimator that credits less is biased.
"""

from __future__ import annotations

from typing import Literal

from torch import Tensor

__all__ = ["Rows", "cost_of_examples", "reward_of_rows", "spread"]

#: Whether the rows of a batch act on one another.
Rows = Literal["independent", "coupled"]


def cost_of_examples(cost: Tensor, examples: int, rows: Rows) -> Tensor:
    """The cost of a draw for each example, (B,), from its cost for each of their rows, (R,).

    A folded site has R = r B rows, r of each example. Coupled rows belong to no example: each has an equal share.
    """
    if rows == "coupled":
        return (cost.sum() / examples).expand(examples)
    return cost if len(cost) == examples else cost.view(examples, -1).sum(1)


def reward_of_rows(reward: Tensor, rows: Rows) -> Tensor:
    """The reward that a mask is credited with: its example's (B,), or the whole batch's ()."""
    return reward.sum() if rows == "coupled" else reward


def spread(reward: Tensor, logits: Tensor) -> Tensor:
    """Rewards (B,) or () in the precision of logits (R, ..., C), and in a shape that can be multiplied with them.

    Example:
        >>> import torch
        >>> spread(torch.tensor([1.0, 2.0]), torch.zeros(4, 5, 3)).shape
        torch.Size([4, 1, 1])
    """
    reward = reward.to(logits.dtype)
    if reward.ndim == 0:
        return reward
    if len(reward) != len(logits):
        reward = reward.repeat_interleave(len(logits) // max(len(reward), 1))
    return reward.view(-1, *[1] * (logits.ndim - 1))
