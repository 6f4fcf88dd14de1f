"""Stacked recurrent networks with a site between their layers, where the fused kernel would hide the dropout."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from contextual_dropout.nn.encoder import Pooling
from contextual_dropout.nn.sequence_dropout import has_own_positions, pooled_positions
from contextual_dropout.nn.site import ContextualDropout

__all__ = ["ContextualGRU", "ContextualLSTM", "ContextualRNN", "between_layers"]


def between_layers(module: nn.RNNBase) -> int:
    """The number of features that one layer hands to the next."""
    return (module.proj_size or module.hidden_size) * (2 if module.bidirectional else 1)


class _Layered(nn.RNNBase):
    """Runs layer by layer; ``contextual_dropout[l]`` acts on what layer l hands to layer l + 1.

    A converted module gets one of the classes below; its parameters and their names stay as they are.
    """

    contextual_dropout: nn.ModuleList

    def forward(self, input: Any, hx: Any = None) -> tuple[Any, Any]:
        """Run as the torch class does; ``input`` is a tensor or a packed sequence."""
        finals = []
        for layer in range(self.num_layers):
            if layer > 0:
                input = self._drop(input, self.contextual_dropout[layer - 1])  # type: ignore[arg-type]
            input, final = functional_call(
                self._single_layer(layer), self._weights(layer), (input, self._rows(hx, layer))
            )
            finals.append(final)
        return input, _stack(finals)

    def _single_layer(self, layer: int) -> nn.RNNBase:
        """A one-layer network of the same kind without memory of its own."""
        kind = type(self).__mro__[2]
        size = self.input_size if layer == 0 else between_layers(self)
        options: dict[str, Any] = {
            "bias": self.bias,
            "batch_first": self.batch_first,
            "bidirectional": self.bidirectional,
        }
        if isinstance(self, nn.LSTM):
            options["proj_size"] = self.proj_size
        if isinstance(self, nn.RNN):
            options["nonlinearity"] = self.nonlinearity
        single: nn.RNNBase = kind(size, self.hidden_size, device="meta", **options)
        return single.train(self.training)

    def _weights(self, layer: int) -> dict[str, Tensor]:
        names = self._all_weights[2 * layer : 2 * layer + 2] if self.bidirectional else [self._all_weights[layer]]
        return {name.replace(f"_l{layer}", "_l0"): getattr(self, name) for group in names for name in group}

    def _rows(self, hx: Any, layer: int) -> Any:
        if hx is None:
            return None
        directions = 2 if self.bidirectional else 1
        rows = slice(directions * layer, directions * (layer + 1))
        return tuple(state[rows] for state in hx) if isinstance(hx, tuple) else hx[rows]

    def _drop(self, u: Any, site: ContextualDropout) -> Any:
        if not isinstance(u, PackedSequence):
            axis = 0 if self.batch_first else 1
            return site(u) if u.ndim == 3 else site(u.unsqueeze(axis)).squeeze(axis)
        padded, lengths = pad_packed_sequence(u, batch_first=self.batch_first)
        context = None if has_own_positions(site) else self._pooled(padded, lengths, site.pooling)
        in_order = u.sorted_indices is None
        return pack_padded_sequence(site(padded, context=context), lengths, self.batch_first, enforce_sorted=in_order)

    def _pooled(self, steps: Tensor, lengths: Tensor, pooling: Pooling) -> Tensor:
        """The encoder's context, pooled over real steps and not over padding."""
        steps = steps if self.batch_first else steps.transpose(0, 1)
        padding = torch.arange(steps.shape[1], device=steps.device) >= lengths.to(steps.device).unsqueeze(-1)
        return pooled_positions(steps, padding, pooling)


class ContextualLSTM(_Layered, nn.LSTM):
    """:class:`torch.nn.LSTM` with sites between its layers."""


class ContextualGRU(_Layered, nn.GRU):
    """:class:`torch.nn.GRU` with sites between its layers."""


class ContextualRNN(_Layered, nn.RNN):
    """:class:`torch.nn.RNN` with sites between its layers."""


def _stack(finals: list[Any]) -> Any:
    if isinstance(finals[0], tuple):
        return tuple(torch.cat(states) for states in zip(*finals, strict=True))
    return torch.cat(finals)
