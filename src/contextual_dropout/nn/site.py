"""The contextual dropout site: encoder -> logits -> mask -> masked features.

A site knows its family and its prior, and nothing about estimators. Its random call is a torch function,
:func:`masked`, so that a :class:`torch.overrides.TorchFunctionMode` can watch or replace it; that is how
:mod:`contextual_dropout.replay.recording` records what a pass drew.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn
from torch.overrides import _pop_mode_temporarily, handle_torch_function, has_torch_function_unary

from contextual_dropout.nn import families
from contextual_dropout.nn.encoder import (
    CHANNELS,
    ENCODERS,
    LAZY_ENCODERS,
    Encoder,
    EncoderKind,
    Initialisation,
    Pooling,
    pool,
)
from contextual_dropout.nn.recomputation import sampler_for
from contextual_dropout.nn.stochastic import Stochastic
from contextual_dropout.nn.stop_gradient import Gate
from contextual_dropout.nn.untrained import notice_backward

__all__ = ["AttentionContext", "ContextualDropout", "LazyContextualDropout", "masked"]

AttentionContext = Literal["entropy", "scores", "queries", "weights"]
#: Outside of this range t makes biases or logits that float32 cannot represent.
TEMPERATURES = (1e-30, 1e30)
_CLOSED, _OPEN = Gate(open=False), Gate(open=True)


class ContextualDropout(Stochastic):
    """Dropout whose keep probabilities depend on the sample.

    ``alpha = h(U)``, ``z ~ q(z | alpha)``, ``x = U * z`` (Section 2 of the paper), with one logit per sample
    and per entry of the axis ``dim``; masks are broadcast over all other axes. In ``train()`` masks are
    sampled, in ``eval()`` the features are multiplied by the expected mask (the point estimate).

    A *position-wise* site (several batch axes) has separate logits for each position of a sample, from that position's
    features alone: nothing passes from one position to another, as causal networks need it.

    Args:
        features: C, the size of the axis ``dim``.
        p: initial drop rate, in (0, 1): the encoder's bias and the prior start at keep probability 1 - p.
        family: ``"bernoulli"`` or ``"gaussian"``.
        dim: the axis that gets its own logits: -1 after a linear layer, 1 (or -3) after a convolution, the
            head axis on attention weights. If it is the same axis as ``batch_dim``, the input is taken as one
            sample without a batch axis.
        reduction: gamma; the bottleneck has C // gamma units, or C if that is no more than gamma.
        temperature: t in sigma_t(alpha) = sigmoid(t * alpha); it scales the encoder's learning rate.
        batch_dim: the axis of the samples; or several axes, the samples' first, then those of positions that have
            separate logits: ``(0, 1)`` for tokens (B, T, C), ``(0, 2, 3)`` with ``dim=1`` for pixels.
        folded: whether the axis of the samples holds several rows of each sample, one sample after the other, as where
            heads or windows are folded into the batch: the objective then adds up the rows of each sample.
        pooling: what the encoder reads of the axes that masks are broadcast over: their ``"mean"``, or mean and mean
            absolute deviation side by side, ``"mean-deviation"``.
        encoder: ``"bottleneck"``, or ``"global"``: learned logits for each unit, the same for every sample.
        context_features: how many channels the encoder reads; by default ``features``, twice that with
            ``"mean-deviation"``.
        attention_context: the context of a site on attention weights, see
            :mod:`contextual_dropout.nn.attention_dropout`; ignored elsewhere.
        negative_slope: of the encoder's leaky ReLU; 0 is a ReLU.
        initialisation: of the encoder, ``"he"`` or ``"zero"`` (every sample starts at exactly p).
        prior: ``"learned"`` or ``"fixed"``: whether the prior's keep-logit eta is trained.
        prior_p: initial (or fixed) drop rate of the prior; p by default.
        rescale: divide by the initial expected mask, a constant, so that a site put in the place of an
            ``nn.Dropout`` keeps the scale of the activations.

    Shape:
        Input and output of any shape, the same for both; logits, noise and masks are (B, C), for a position-wise site
        (B, ..., C) with the positions in the order of ``batch_dim``.

    Example:
        >>> site = ContextualDropout(8, p=0.2, reduction=4)
        >>> u = torch.randn(5, 8)
        >>> site(u).shape, site.keep_probability(u).shape
        (torch.Size([5, 8]), torch.Size([5, 8]))
        >>> site.prior_keep_probability
        tensor(0.8000, grad_fn=<SigmoidBackward0>)
        >>> torch.equal(site.eval()(u), u * site.keep_probability(u))
        True
    """

    encoder: Encoder

    def __init__(
        self,
        features: int,
        p: float = 0.2,
        *,
        family: Literal["bernoulli", "gaussian"] = "bernoulli",
        dim: int = -1,
        reduction: int = 8,
        temperature: float = 0.01,
        batch_dim: int | Sequence[int] = 0,
        folded: bool = False,
        pooling: Pooling = "mean",
        encoder: EncoderKind = "bottleneck",
        context_features: int | None = None,
        attention_context: AttentionContext = "entropy",
        negative_slope: float = 0.1,
        initialisation: Initialisation = "he",
        prior: Literal["learned", "fixed"] = "learned",
        prior_p: float | None = None,
        rescale: bool = False,
    ) -> None:
        super().__init__()
        #: The options that the site was built with, as keywords; saving writes them.
        self.config: dict[str, Any] = {
            "features": features,
            "p": p,
            "family": family,
            "dim": dim,
            "reduction": reduction,
            "temperature": temperature,
            "batch_dim": list(batch_dim) if isinstance(batch_dim, tuple) else batch_dim,
            "folded": folded,
            "pooling": pooling,
            "encoder": encoder,
            "context_features": context_features,
            "attention_context": attention_context,
            "negative_slope": negative_slope,
            "initialisation": initialisation,
            "prior": prior,
            "prior_p": prior_p,
            "rescale": rescale,
        }
        _check_drop_rate("p", p)
        _check_drop_rate("prior_p", p if prior_p is None else prior_p)
        _check_positive_integer("features", features)
        _check_positive_integer("reduction", reduction)
        _check_positive_integer("context_features", features if context_features is None else context_features)
        _check_integer("dim", dim)
        _check_axes("batch_dim", batch_dim)
        _check_choice("pooling", pooling, tuple(CHANNELS))
        _check_choice("encoder", encoder, tuple(ENCODERS))
        _check_choice("attention_context", attention_context, get_args(AttentionContext))
        _check_choice("initialisation", initialisation, ("he", "zero"))
        _check_choice("prior", prior, ("learned", "fixed"))
        if not TEMPERATURES[0] <= temperature <= TEMPERATURES[1]:
            least, largest = TEMPERATURES
            raise ValueError(f"temperature must be a positive number from {least} to {largest}, got {temperature}")
        self.p = p
        self.family = families.by_name(family)
        self.dim = dim
        self.batch_dims = (batch_dim,) if isinstance(batch_dim, int) else tuple(batch_dim)
        self.folded = folded
        self.pooling: Pooling = pooling
        self.attention_context: AttentionContext = attention_context
        initial_logit = _keep_logit(p)
        logit = torch.tensor(initial_logit, dtype=torch.float64, device="cpu")  # sites may be built on the meta device
        self.scale = 1 / self.family.mean(logit).item() if rescale else 1.0
        self.encoder = self._build_encoder(
            encoder,
            features,
            context_features or features * CHANNELS[pooling],
            reduction=reduction,
            temperature=temperature,
            initial_logit=initial_logit,
            negative_slope=negative_slope,
            initialisation=initialisation,
        )
        prior_logit = torch.tensor([_keep_logit(p if prior_p is None else prior_p)])  # FSDP takes no scalars
        self.prior_logit = nn.Parameter(prior_logit, requires_grad=prior == "learned")

    def _build_encoder(self, kind: EncoderKind, features: int, context_features: int, **options: Any) -> Encoder:
        return ENCODERS[kind](features, context_features, **options)

    @property
    def features(self) -> int:
        """C, the number of logits per sample."""
        return self.encoder.features

    @property
    def prior_keep_probability(self) -> Tensor:
        """sigmoid(eta), a scalar, differentiable in eta."""
        return self.prior_logit.sum().sigmoid()

    def forward(self, u: Tensor, context: Tensor | None = None) -> Tensor:
        """Mask the features ``u``; the encoder reads ``context`` if given, else ``u``."""
        if self.stochastic:
            return masked(self, u, context)
        return self.apply_mask(u, self.family.mean(self.logits(u, context)))

    def keep_probability(self, u: Tensor, context: Tensor | None = None) -> Tensor:
        """sigma_t(alpha), (B, C) or (B, ..., C), differentiable in phi."""
        return self.logits(u, context).sigmoid()

    def logits(self, u: Tensor, context: Tensor | None = None, gate: Gate | None = None) -> Tensor:
        """Natural logits t * alpha, (B, C) or (B, ..., C).

        They, and what is made of them (masks, KL), are computed in single precision at least, also under autocast and
        where the encoder's parameters are of half precision: with t = 0.01 a drop rate of 0.2 is a logit alpha of
        139, where half precision could not tell one sample's rate from another's.

        Args:
            u: the features to be masked.
            context: what the encoder reads instead: (B, C_context), for a position-wise site (B, ..., C_context), or
                any shape with the axes ``batch_dim`` and ``dim``. Layers that compute nothing but contexts are not
                trained: the encoder's gradient stops at what it reads.
            gate: decides, when gradients flow back, whether they reach what the encoder read; by default they do not.
        """
        x = u if context is None else context
        dtype = torch.promote_types(self.encoder.expand_bias.dtype, torch.float32)
        if x.ndim == 0:
            raise ValueError(f"{self._label()} got a scalar; it needs an axis of {self.features} features")
        ready = context is not None and context.ndim == max(2, len(self._axes(u)[0]) + 1) != u.ndim
        pooled = x.to(dtype) if ready else self._pool(x, dtype)
        self._check_width(pooled, x, context is not None)
        pooled = pooled.detach() if gate is None else gate(pooled)
        if torch.is_autocast_enabled(u.device.type):
            with torch.autocast(u.device.type, enabled=False):
                logits: Tensor = self.encoder(pooled)
        else:
            logits = self.encoder(pooled)
        return logits

    def sampled(self, u: Tensor, logits: Tensor) -> Tensor:
        """The features under a fresh mask, drawn with these logits."""
        return self.apply_mask(u, self.family.sample(logits, self.family.noise(logits)))

    def apply_mask(self, u: Tensor, mask: Tensor) -> Tensor:
        """Multiply ``u`` by a mask like the logits, broadcast over the other axes, and by the constant rescale."""
        if self.scale != 1.0:
            mask = mask * self.scale
        if mask.shape == u.shape and self._is_matrix(u):
            return _product(u, mask)
        batch_dims, dim = self._axes(u)
        axes = (*batch_dims, dim)
        expected = tuple(u.shape[axis] for axis in axes) if batch_dims else (1, u.shape[dim])
        if mask.shape != expected:
            raise ValueError(
                f"{self._label()} has a mask of shape {tuple(mask.shape)} for an input of shape {tuple(u.shape)}, "
                f"which needs {expected}: a context must have as many samples as the input and, for a position-wise "
                f"site, as many positions, and features must be {u.shape[dim]}"
            )
        if batch_dims and list(axes) != sorted(axes):
            mask = mask.permute(sorted(range(len(axes)), key=axes.__getitem__))
        return _product(u, mask.reshape([size if axis in axes else 1 for axis, size in enumerate(u.shape)]))

    def _axes(self, u: Tensor) -> tuple[tuple[int, ...], int]:
        """The axes of samples and positions, and the axis of the features.

        An axis of samples or positions that is also that of the features is left out: a site for tokens (B, T, C)
        takes their sum (B, C) as well.
        """
        axes = (*self.batch_dims, self.dim)
        if not all(-u.ndim <= axis < u.ndim for axis in axes):
            raise ValueError(
                f"{self._label()} has dim={self.dim} and batch_dim={self.config['batch_dim']}, but its input has shape "
                f"{tuple(u.shape)}: give the axes of the features and of the samples"
            )
        *batch_dims, dim = (axis % u.ndim for axis in axes)
        return tuple(axis for axis in dict.fromkeys(batch_dims) if axis != dim), dim

    def _is_matrix(self, u: Tensor) -> bool:
        """Whether the input is (B, C) already, as after most linear layers."""
        return u.ndim == 2 and self.batch_dims == (0,) and self.dim in (-1, 1) and self.pooling == "mean"

    def _pool(self, u: Tensor, dtype: torch.dtype) -> Tensor:
        if self._is_matrix(u):
            return u.to(dtype)
        batch_dims, dim = self._axes(u)
        if not batch_dims:
            return pool(u.unsqueeze(0), (0,), dim + 1, dtype, self.pooling)
        return pool(u, batch_dims, dim, dtype, self.pooling)

    def _check_width(self, pooled: Tensor, x: Tensor, is_context: bool) -> None:
        expected = self.encoder.context_features
        if expected and pooled.shape[-1] != expected:  # a lazy encoder expects nothing yet
            name = "context_features" if is_context else "features"
            raise ValueError(
                f"{self._label()} got {'a context' if is_context else 'an input'} of shape {tuple(x.shape)} with "
                f"{pooled.shape[-1]} features on axis dim={self.dim}, but was built for {name}={expected}: change "
                f"{name}, or set dim to the axis of the {expected} features. In the place of one dropout layer that is "
                "used at several widths, cd.contextualize(model, example=...) puts a site for each"
            )

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *rest: Any) -> None:
        """Load the state, also with a prior that was saved as a scalar."""
        name = f"{prefix}prior_logit"
        if name in state_dict and state_dict[name].ndim == 0:
            state_dict[name] = state_dict[name].unsqueeze(0)
        super()._load_from_state_dict(state_dict, prefix, *rest)

    def _label(self) -> str:
        return f"{type(self).__name__}({self.features}, family={self.family.name!r})"

    def extra_repr(self) -> str:
        return (
            f"{self.features or 'lazy'}, p={self.p}, family={self.family.name!r}, dim={self.dim}, "
            f"reduction={self.encoder.reduction}, temperature={self.encoder.temperature}"
        )


class LazyContextualDropout(ContextualDropout):
    """A site that learns ``features`` from its first input and then becomes a :class:`ContextualDropout`.

    Takes all options of :class:`ContextualDropout` except ``features`` and ``context_features``, which the first
    context tells. ``dim=None`` is settled by the first input too: the second axis (channels, heads) if it has four axes
    or more, else the last. So is ``positions="own"``: all axes except ``dim`` become batch axes.

    Example:
        >>> site = LazyContextualDropout(p=0.1, dim=1)
        >>> site(torch.randn(2, 16, 4, 4)).shape
        torch.Size([2, 16, 4, 4])
        >>> type(site).__name__, site.features
        ('ContextualDropout', 16)
    """

    def __init__(
        self, p: float = 0.2, *, dim: int | None = -1, positions: Literal["own"] | None = None, **options: Any
    ) -> None:
        _check_choice("positions", positions, ("own", None))
        super().__init__(1, p, dim=-1 if dim is None else dim, **options)
        self._dim_is_open, self._positions_are_open = dim is None, positions == "own"

    def _build_encoder(self, kind: EncoderKind, features: int, context_features: int, **options: Any) -> Encoder:
        return LAZY_ENCODERS[kind](**options)

    def forward(self, u: Tensor, context: Tensor | None = None) -> Tensor:
        if self._dim_is_open:
            self.dim = 1 if u.ndim >= 4 else -1
        if self._positions_are_open:
            others = (axis for axis in range(u.ndim) if axis != self.dim % u.ndim)
            self.batch_dims = tuple(dict.fromkeys((self.batch_dims[0] % u.ndim, *others)))
            self.config["batch_dim"] = list(self.batch_dims) if len(self.batch_dims) > 1 else self.batch_dims[0]
        self.encoder.features = u.shape[self.dim]
        out = super().forward(u, context)
        read = self.encoder.context_features
        self.config |= {"features": self.features, "dim": self.dim}
        self.config["context_features"] = None if read == self.features * CHANNELS[self.pooling] else read
        del self._dim_is_open, self._positions_are_open
        self.__class__ = ContextualDropout  # type: ignore[assignment]
        return out


def masked(site: ContextualDropout, u: Tensor, context: Tensor | None = None) -> Tensor:
    """Features ``u`` under a freshly sampled mask of ``site``: one random call, visible to torch function modes."""
    if torch.compiler.is_dynamo_compiling():
        return _masked_in_compiled_code(site, u, context)
    if has_torch_function_unary(u):
        return handle_torch_function(masked, (u,), site, u, context)
    # The same closed gate that a recorded pass has: activation checkpointing, which repeats this call outside
    # of any recording, compares what the two passes saved for backward.
    logits = site.logits(u, context, _CLOSED)
    noise = site.family.noise(logits)
    sampler = sampler_for(noise)
    mask = site.family.sample(logits, noise) if sampler is None else sampler(site.family, logits, noise)
    out = site.apply_mask(u, _OPEN(mask))
    if site.training and site.encoder.trainable:
        notice_backward(site, out)
    return out


def _masked_in_compiled_code(site: ContextualDropout, u: Tensor, context: Tensor | None) -> Tensor:
    """:func:`masked` as Dynamo traces it: it follows modes, but does not let ``has_torch_function`` tell of them."""
    if torch._C._is_torch_function_mode_enabled():
        with _pop_mode_temporarily() as mode:
            out: Tensor = mode.__torch_function__(masked, (), (site, u, context))
        return out
    logits = site.logits(u, context, _CLOSED)
    return site.apply_mask(u, site.family.sample(logits, site.family.noise(logits)))


def _product(u: Tensor, mask: Tensor) -> Tensor:
    """u * mask, in the precision of u."""
    if u.dtype == torch.float16:  # whose range is too small for every mask of a large variance: 0 * inf would be NaN
        return (u * mask).half()
    return u * mask.to(u.dtype)


def _keep_logit(p: float) -> float:
    """The logit of 1 - p, exact also where 1 - p rounds to 1."""
    return math.log1p(-p) - math.log(p)


def _check_drop_rate(name: str, value: float) -> None:
    if not 0 < value < 1:
        raise ValueError(
            f"{name} is a drop rate strictly between 0 and 1, got {value}; to have no dropout, leave the site out"
        )


def _check_positive_integer(name: str, value: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ValueError(f"{name} must be a positive integer, got {value!r}")


def _check_integer(name: str, value: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool):
        raise ValueError(f"{name} must be an integer, the number of an axis, got {value!r}")


def _check_axes(name: str, value: int | Sequence[int]) -> None:
    axes = value if isinstance(value, list | tuple) else (value,)
    for axis in axes:
        _check_integer(name, axis)
    if not axes or len(set(axes)) < len(axes):
        raise ValueError(f"{name} must be an axis, or several different ones, the samples' first, got {value!r}")


def _check_choice(name: str, value: str | None, choices: tuple[str | None, ...]) -> None:
    if value not in choices:
        raise ValueError(f"unknown {name} {value!r}: expected one of {', '.join(map(repr, choices))}")
