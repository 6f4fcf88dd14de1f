"""Recognising, by their source, modules that read their training flag for dropout alone.

``F.scaled_dot_product_attention(q, k, v, dropout_p=self.p if self.training else 0.0)`` cannot be reached from outside
as long as the module is in eval mode. Where everything that a class does with the flag is dropout, as here, its modules
may be put in training mode instead, as ``nn.Dropout`` is.
"""

from __future__ import annotations

import ast
import functools
import inspect
import textwrap
from collections.abc import Iterator
from types import FunctionType
from typing import Any

from torch import nn

__all__ = ["drops_by_flag"]


@functools.cache
def drops_by_flag(kind: type[nn.Module]) -> bool:
    """Whether a class of modules reads its training flag for dropout alone, and not only as an argument of dropout.

    Arguments of dropout are left to :mod:`contextual_dropout.nn.functional_dropout`.

    Example:
        >>> class Block(nn.Module):
        ...     def forward(self, x):
        ...         return x if self.training else 2 * x
        >>> drops_by_flag(Block), drops_by_flag(nn.BatchNorm1d)
        (False, False)
    """
    kinds = [each for each in kind.__mro__ if each not in nn.Module.__mro__]
    if any(each.__module__.partition(".")[0] == "torch" for each in kinds):
        return False  # it is known which of torch's modules do nothing else
    readers = [each for each in kinds if any("training" in names for names in map(_names, vars(each).values()))]
    try:
        trees = [ast.parse(textwrap.dedent(inspect.getsource(each))) for each in readers]
    except (OSError, TypeError, SyntaxError):  # there is no source
        return False
    readings = [path for tree in trees for path in _readings(tree, ())]
    return all(map(_is_for_dropout, readings)) and not all(map(_is_argument, readings))


def _names(member: Any) -> tuple[str, ...]:
    """The names that a method reads."""
    function = inspect.unwrap(getattr(member, "fget", None) or getattr(member, "__func__", member))
    return function.__code__.co_names if isinstance(function, FunctionType) else ()


def _readings(node: ast.AST, above: tuple[ast.AST, ...]) -> Iterator[tuple[ast.AST, ...]]:
    """The paths to all places where something's ``training`` is read."""
    path = (*above, node)
    if isinstance(node, ast.Attribute) and node.attr == "training":
        yield path
    for child in ast.iter_child_nodes(node):
        yield from _readings(child, path)


def _is_for_dropout(path: tuple[ast.AST, ...]) -> bool:
    """Whether a reading is an argument of dropout, decides on a rate, or on a statement that is only dropout."""
    for parent, child in zip(path[-2::-1], path[:0:-1], strict=True):
        if isinstance(parent, ast.Call):
            return child is not parent.func and _is_named_dropout(parent.func)
        if isinstance(parent, ast.keyword):
            if _mentions_dropout(parent.arg or ""):
                return True
        elif isinstance(parent, ast.Assign | ast.AnnAssign):
            targets = parent.targets if isinstance(parent, ast.Assign) else [parent.target]
            return all(_is_named_dropout(target) for target in targets)
        elif isinstance(parent, ast.If):
            return child is parent.test and not parent.orelse and all(map(_only_drops, parent.body))
        elif not isinstance(parent, ast.IfExp | ast.BoolOp | ast.UnaryOp | ast.BinOp):
            return False
    return False


def _is_argument(path: tuple[ast.AST, ...]) -> bool:
    """Whether a reading is passed on as it is."""
    return isinstance(path[-2], ast.Call) or (
        isinstance(path[-2], ast.keyword) and path[-2].arg in ("training", "train")
    )


def _only_drops(statement: ast.stmt) -> bool:
    value = getattr(statement, "value", None) if isinstance(statement, ast.Assign) else None
    return isinstance(value, ast.Call) and _is_named_dropout(value.func)


def _is_named_dropout(node: ast.AST) -> bool:
    name = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
    return _mentions_dropout(name)


def _mentions_dropout(name: str) -> bool:
    return "drop" in name.lower() and "path" not in name.lower()  # a dropped path is a layer that is skipped
