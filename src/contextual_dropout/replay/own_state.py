"""The state of a model besides parameters and buffers, and whether a pass has changed it.

A pass that leaves something behind (a counter, a cache, a list of activations) or draws from a generator of the model's
own is not like the next one. Searched are the attributes of all modules and their contents, the closures of methods and
hooks, and the global names of the files that define the modules' classes; of installed packages only the instances.
"""

from __future__ import annotations

import functools
import pickle
import random
import sys
from collections import deque
from collections.abc import Iterable, Iterator
from types import BuiltinFunctionType, CellType, FunctionType, MappingProxyType, MethodType, ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from contextual_dropout.nn.site import ContextualDropout

__all__ = ["OwnState"]

_GENERATORS = (np.random.Generator, np.random.RandomState, np.random.BitGenerator, random.Random, torch.Generator)
_SIMPLE = (type(None), bool, int, float, complex, str, bytes, torch.dtype, torch.device, torch.Size)
_LEAVES = (*_SIMPLE, Tensor, np.ndarray, ModuleType, BuiltinFunctionType)
_MAPPINGS = (dict, MappingProxyType)
_SEQUENCES = (list, tuple, set, frozenset, deque)
#: The attributes of every module; empty except for hooks and what is looked at elsewhere.
_STANDARD = frozenset(vars(nn.Module()))
_OURS = __name__.partition(".")[0]
#: The depth of the search, and the most objects besides the modules: a trainer or a data set is not searched.
DEPTH, MOST = 8, 20_000


class OwnState:
    """The state of a model at one moment.

    Args:
        modules: all of them.
        others: other objects that a pass may change: a model that is not a module, arguments.

    Example:
        >>> class Counting(nn.Module):
        ...     calls = 0
        ...     def forward(self, x):
        ...         self.calls += 1
        >>> model = Counting()
        >>> state = OwnState([model])
        >>> model(0)
        >>> state.changed()
        True
    """

    def __init__(self, modules: list[nn.Module], others: Iterable[Any] = ()) -> None:
        self._contents: list[tuple[Any, list[Any]]] = []
        self._generators: list[tuple[Any, Any]] = []
        self._iterators = False
        self._seen: dict[int, Any] = {}
        level: list[Any] = [*modules, *others]
        most = len(level) + MOST
        for _ in range(DEPTH):
            level = [part for each in level if self._is_new(each) for part in self._parts(each)]
            if not level or len(self._seen) > most:
                break

    def drew(self) -> bool:
        """Whether a generator has moved since."""
        return any(not _same(_state(generator), state) for generator, state in self._generators)

    def restore_generators(self) -> None:
        """Put all generators back to where they were."""
        for generator, state in self._generators:
            _set_state(generator, state)

    def changed(self) -> bool:
        """Whether anything has changed; an iterator may have moved without a trace."""
        return self._iterators or self.drew() or not all(_alike(_items(held), was) for held, was in self._contents)

    def was_set_up(self) -> bool:
        """Whether something has changed, but only names that held nothing before: a cache or a flag has been filled."""
        filled = all(_filled(held, was) for held, was in self._contents)
        return filled and not self._iterators and not self.drew() and self.changed()

    def _is_new(self, value: Any) -> bool:
        if isinstance(value, _LEAVES) or id(value) in self._seen:
            return False
        self._seen[id(value)] = value  # no other object gets this id as long as we hold it
        return True

    def _note(self, holder: Any) -> list[Any]:
        items = _items(holder)
        self._contents.append((holder, items))
        return items

    def _parts(self, value: Any) -> Iterable[Any]:
        """The contents of a value, which is noted if it can change."""
        if isinstance(value, nn.Module):
            if not isinstance(value, ContextualDropout):  # notes of a site do not change later passes
                self._note(vars(value))
            return [*(v for k, v in vars(value).items() if v is not None and (k not in _STANDARD or v)), type(value)]
        if isinstance(value, _GENERATORS):
            self._generators.append((value, _state(value)))
            return ()
        if isinstance(value, (*_MAPPINGS, *_SEQUENCES, CellType)):
            return self._note(value)
        if isinstance(value, type):
            return self._defined_in(value)
        if isinstance(value, FunctionType):
            return (value.__closure__, value.__defaults__, value.__kwdefaults__, vars(value))
        if isinstance(value, MethodType):
            return value.__self__, value.__func__
        if isinstance(value, functools.partial):
            return value.func, value.args, value.keywords
        if isinstance(value, Iterator):
            self._iterators = True
            return ()
        inner = (getattr(value, name, None) for name in ("__func__", "fget", "__wrapped__"))
        return [*inner, *(self._note(vars(value)) if hasattr(value, "__dict__") else ())]

    def _defined_in(self, kind: type) -> Iterable[Any]:
        """The attributes of a class, and the generators and containers among the global names around it."""
        module = sys.modules.get(kind.__module__)
        if module is None or not _is_users(module):
            return kind.__bases__
        around = self._note(vars(module)) if self._is_new(vars(module)) else ()
        held = (value for value in around if isinstance(value, (*_GENERATORS, *_MAPPINGS, *_SEQUENCES)))
        return [*self._note(vars(kind)), *held, *kind.__bases__]


def _items(holder: Any) -> list[Any]:
    if isinstance(holder, _MAPPINGS):
        return [*holder, *holder.values()]
    if isinstance(holder, CellType):
        try:
            return [holder.cell_contents]
        except ValueError:  # not yet filled
            return []
    return list(holder)


def _alike(now: list[Any], before: list[Any]) -> bool:
    """Whether these are the same objects, or numbers and the like of the same value."""
    return len(now) == len(before) and all(
        a is b or (type(a) is type(b) and isinstance(a, _SIMPLE) and a == b) for a, b in zip(now, before, strict=True)
    )


def _filled(holder: Any, before: list[Any]) -> bool:
    """Whether everything that a holder had is still there; names that were new or held None may have got a value."""
    if not isinstance(holder, _MAPPINGS):
        return _alike(_items(holder), before)
    names, values = before[: len(before) // 2], before[len(before) // 2 :]
    kept = [(name, value) for name, value in zip(names, values, strict=True) if value is not None]
    return _alike([holder.get(name) for name, _ in kept], [value for _, value in kept])


def _state(generator: Any) -> Any:
    """The state of a generator."""
    if isinstance(generator, torch.Generator):
        return generator.get_state()
    if isinstance(generator, random.Random):
        return generator.getstate()
    if isinstance(generator, np.random.RandomState):
        return generator.get_state(legacy=False)
    return getattr(generator, "bit_generator", generator).state


def _set_state(generator: Any, state: Any) -> None:
    if isinstance(generator, torch.Generator | np.random.RandomState):
        generator.set_state(state)
    elif isinstance(generator, random.Random):
        generator.setstate(state)
    else:
        getattr(generator, "bit_generator", generator).state = state


def _same(state: Any, other: Any) -> bool:
    if isinstance(state, Tensor):
        return torch.equal(state, other)
    return pickle.dumps(state) == pickle.dumps(other)


def _is_users(module: ModuleType) -> bool:
    """Whether a file is the user's: not of this library, nor of an installed package."""
    file = getattr(module, "__file__", None) or ""
    package = module.__name__.partition(".")[0]
    return package != _OURS and package not in sys.stdlib_module_names and "-packages" not in file
