"""The ways to put a site into a model: each can build, attach and detach it.

None of them renames a parameter of the base model, and each can be undone exactly.
"""

from __future__ import annotations

from typing import Any, Protocol

from torch import Tensor, nn

from contextual_dropout.conversion import hugging_face
from contextual_dropout.conversion.calls import ModuleCalls
from contextual_dropout.conversion.functional import (
    SitePerCall,
    attach_calls,
    detach_calls,
    sites_for_calls,
    weights_options,
)
from contextual_dropout.conversion.multihead_attention import ContextualMultiheadAttention
from contextual_dropout.conversion.record import CHILD, Change
from contextual_dropout.conversion.recurrent import ContextualGRU, ContextualLSTM, ContextualRNN, between_layers
from contextual_dropout.conversion.widths import SitePerWidth
from contextual_dropout.nn.site import ContextualDropout, LazyContextualDropout

__all__ = [
    "PLACEMENTS",
    "After",
    "Attention",
    "Between",
    "InPlaceOf",
    "InPlaceOfCalls",
    "InterfaceAttention",
    "Placement",
    "ancestors_of",
    "assembled",
    "has_state_hooks",
    "name_taken",
    "restore_fused_paths",
]

#: The attribute of a site that holds the layer which it replaces.
REPLACED = "_contextual_dropout_replaced"
#: Axis of the channels, counted from the end so that inputs without a batch axis work too.
CHANNEL_AXIS: dict[type[nn.Module], int] = {
    nn.Dropout1d: -2,
    nn.Dropout2d: 1,
    nn.Dropout3d: -4,
    nn.FeatureAlphaDropout: 1,
}
#: The plain class of a recurrent network and the class that replaces it.
RECURRENT: dict[type[nn.Module], type[nn.Module]] = {
    nn.LSTM: ContextualLSTM,
    nn.GRU: ContextualGRU,
    nn.RNN: ContextualRNN,
}
CONVOLUTIONS = {
    **dict.fromkeys((nn.Conv1d, nn.ConvTranspose1d), -2),
    **dict.fromkeys((nn.Conv2d, nn.ConvTranspose2d), -3),
    **dict.fromkeys((nn.Conv3d, nn.ConvTranspose3d), -4),
}
#: The attributes in which a module keeps the hooks on its calls, and on its state dict.
CALL_HOOKS = (
    "_forward_hooks",
    "_forward_hooks_with_kwargs",
    "_forward_hooks_always_called",
    "_forward_pre_hooks",
    "_forward_pre_hooks_with_kwargs",
    "_backward_hooks",
    "_backward_pre_hooks",
    "_is_full_backward_hook",
)
STATE_HOOKS = (
    "_state_dict_hooks",
    "_state_dict_pre_hooks",
    "_load_state_dict_pre_hooks",
    "_load_state_dict_post_hooks",
)


class Placement(Protocol):
    """One way to put a site into a model."""

    kind: str

    def build(self, module: nn.Module, options: dict[str, Any]) -> nn.Module:
        """Build the site, or sites, for this module."""

    def attach(self, model: nn.Module, name: str, site: nn.Module) -> None:
        """Make the model use the site at the module called ``name``."""

    def detach(self, model: nn.Module, name: str) -> None:
        """Undo :meth:`attach`."""


def _site(features: int | None, options: dict[str, Any], **fixed: Any) -> ContextualDropout:
    settings = fixed | options
    if features is None or "positions" in options:  # the first input tells how many axes there are
        return LazyContextualDropout(**settings)
    return ContextualDropout(features, **({"dim": -1} | settings))


class InPlaceOf:
    """A site in the place of a dropout layer (or any layer without parameters), whose features the first input tells.

    The two share the hooks on their calls: a hook that is registered or removed, before or later, counts for both.
    """

    kind = "in place of"

    @staticmethod
    def build(module: nn.Module, options: dict[str, Any]) -> nn.Module:
        return _site(None, options, dim=CHANNEL_AXIS.get(type(module)))

    @staticmethod
    def attach(model: nn.Module, name: str, site: nn.Module) -> None:
        original = model.get_submodule(name)
        site.train(original.training)
        vars(site)[REPLACED] = original  # not by nn.Module.__setattr__, which would make it a submodule
        _share_hooks(original, site)
        model.set_submodule(name, site)
        _block_fused_paths(model, name, site)

    @staticmethod
    def detach(model: nn.Module, name: str) -> None:
        site = model.get_submodule(name)
        original: nn.Module = vars(site)[REPLACED]
        _remove_hook(site, _keep_out_of_fused_path)
        _share_hooks(site, original)
        model.set_submodule(name, original.train(site.training))


class After:
    """A site on the output of a layer: a forward hook, so that the layer's own parameters keep their names."""

    kind = "after"

    @staticmethod
    def build(module: nn.Module, options: dict[str, Any]) -> nn.Module:
        if isinstance(module, nn.Linear):
            return _site(module.out_features, options)
        for convolution, axis in CONVOLUTIONS.items():
            if isinstance(module, convolution):
                return _site(module.out_channels, options, dim=axis)  # type: ignore[arg-type]
        return _site(None, options, dim=None)

    @staticmethod
    def attach(model: nn.Module, name: str, site: nn.Module) -> None:
        module = model.get_submodule(name)
        module.add_module(CHILD, site.train(module.training))
        module.register_forward_hook(_mask_output)
        _block_nesting(model, name)

    @staticmethod
    def detach(model: nn.Module, name: str) -> None:
        module = model.get_submodule(name)
        delattr(module, CHILD)
        _remove_hook(module, _mask_output)


class Attention:
    """A site on the softmaxed weights of an ``nn.MultiheadAttention``."""

    kind = "on the weights of"

    @staticmethod
    def build(module: nn.Module, options: dict[str, Any]) -> nn.Module:
        assert isinstance(module, nn.MultiheadAttention)
        read = module.embed_dim if options.get("attention_context") == "queries" else None
        return _site(module.num_heads, {"context_features": read} | weights_options(options))

    @staticmethod
    def attach(model: nn.Module, name: str, site: nn.Module) -> None:
        module = model.get_submodule(name)
        module.add_module(CHILD, site.train(module.training))
        module.__class__ = ContextualMultiheadAttention
        _block_fused_paths(model, name, module)

    @staticmethod
    def detach(model: nn.Module, name: str) -> None:
        module = model.get_submodule(name)
        delattr(module, CHILD)
        _remove_hook(module, _keep_out_of_fused_path)
        module.__class__ = nn.MultiheadAttention


class InterfaceAttention:
    """A site on the softmaxed weights of an attention module of a Hugging Face model."""

    kind = "on the attention weights of"

    @staticmethod
    def build(module: nn.Module, options: dict[str, Any]) -> nn.Module:
        return _site(None, weights_options(options))

    @staticmethod
    def attach(model: nn.Module, name: str, site: nn.Module) -> None:
        module = model.get_submodule(name)
        hugging_face.use_site(model, module, site.train(module.training))

    @staticmethod
    def detach(model: nn.Module, name: str) -> None:
        hugging_face.remove_site(model, model.get_submodule(name))


class Between:
    """Sites between the layers of a stacked LSTM, GRU or RNN."""

    kind = "between the layers of"

    @staticmethod
    def build(module: nn.Module, options: dict[str, Any]) -> nn.Module:
        assert isinstance(module, nn.RNNBase)
        features, options = between_layers(module), dict(options)
        axes = (0, 1) if module.batch_first else (1, 0)
        own = options.pop("positions", None) == "own"
        settings = options | {"dim": -1, "batch_dim": axes if own else axes[0]}
        return nn.ModuleList(_site(features, settings) for _ in range(module.num_layers - 1))

    @staticmethod
    def attach(model: nn.Module, name: str, site: nn.Module) -> None:
        module = model.get_submodule(name)
        module.add_module(CHILD, site.train(module.training))
        module.__class__ = RECURRENT[type(module)]

    @staticmethod
    def detach(model: nn.Module, name: str) -> None:
        module = model.get_submodule(name)
        delattr(module, CHILD)
        module.__class__ = next(plain for plain, layered in RECURRENT.items() if type(module) is layered)


class InPlaceOfCalls:
    """Sites for dropout that a module calls as a function; see :mod:`~contextual_dropout.conversion.functional`.

    Args:
        found: the calls.
    """

    kind = "in place of F.dropout in"

    def __init__(self, found: ModuleCalls) -> None:
        self.found = found

    def build(self, module: nn.Module, options: dict[str, Any]) -> nn.Module:
        return sites_for_calls(self.found, options)[0]

    @staticmethod
    def attach(model: nn.Module, name: str, site: nn.Module) -> None:
        module = model.get_submodule(name)
        attach_calls(module, site.train(module.training))

    @staticmethod
    def detach(model: nn.Module, name: str) -> None:
        detach_calls(model.get_submodule(name))


_ALL: tuple[Placement, ...] = (InPlaceOf, After, Attention, InterfaceAttention, Between, InPlaceOfCalls(ModuleCalls()))
PLACEMENTS = {placement.kind: placement for placement in _ALL}


def assembled(change: Change, sites: list[ContextualDropout]) -> nn.Module:
    """Assemble what a placement attaches: the site of a change, or its sites put together as their names say."""
    prefix = change.name if change.kind == InPlaceOf.kind else f"{change.name}.{CHILD}" if change.name else CHILD
    tails = [name[len(prefix) :].lstrip(".") for name in change.sites]
    if change.kind == Between.kind:
        return nn.ModuleList(sites)
    if change.kind != InPlaceOfCalls.kind:
        return _of_widths(dict(zip(tails, sites, strict=True)))
    calls: dict[str, dict[str, ContextualDropout]] = {}
    for tail, site in zip(tails, sites, strict=True):
        call, _, width = tail.partition(".")
        calls.setdefault(call, {})[width] = site
    return SitePerCall({call: _of_widths(widths) for call, widths in calls.items()})


def _of_widths(sites: dict[str, ContextualDropout]) -> nn.Module:
    return sites[""] if "" in sites else SitePerWidth(sites)


def ancestors_of(model: nn.Module, name: str) -> list[nn.Module]:
    """The modules that contain the one called ``name``, outermost first."""
    return [model.get_submodule(".".join(name.split(".")[:depth])) for depth in range(name.count(".") + 1)]


def has_state_hooks(module: nn.Module) -> bool:
    """Whether a module has hooks on its state dict, which would be lost if a site replaced it."""
    return any(vars(module).get(name) for name in STATE_HOOKS)


def name_taken(module: nn.Module, placement: Placement) -> str | None:
    """The reason why a site cannot be inside a module, if something else has its name there."""
    if placement is InPlaceOf or not hasattr(module, CHILD):
        return None
    return f"it has an attribute {CHILD!r} of its own, which is where its site would be: rename that to convert it"


def _share_hooks(giver: nn.Module, taker: nn.Module) -> None:
    vars(taker).update({name: vars(giver)[name] for name in CALL_HOOKS if name in vars(giver)})


def _mask_output(module: nn.Module, inputs: Any, output: Any) -> Any:
    site: nn.Module = getattr(module, CHILD)
    if isinstance(output, Tensor):
        return site(output)
    if type(output) is tuple and isinstance(output[0], Tensor):
        return (site(output[0]), *output[1:])
    raise TypeError(
        f"a site after a {type(module).__name__} needs an output that is a tensor or a tuple that starts with one, got "
        f"{type(output).__name__}: choose a layer inside it"
    )


def _keep_out_of_fused_path(module: nn.Module, inputs: Any, output: Any) -> None:
    """Do nothing: the presence of a hook keeps torch from its fused encoder layer, where no site acts."""


def _block_fused_paths(model: nn.Module, name: str, module: nn.Module) -> None:
    """Keep torch from the fused paths of transformer encoders, so that evaluation goes through the modules."""
    if any(isinstance(ancestor, nn.TransformerEncoderLayer) for ancestor in ancestors_of(model, name)):
        module.register_forward_hook(_keep_out_of_fused_path)
    _block_nesting(model, name)


def _block_nesting(model: nn.Module, name: str) -> None:
    """Keep a transformer encoder from making nested tensors of padded batches, which sites cannot mask."""
    for ancestor in ancestors_of(model, name):
        if isinstance(ancestor, nn.TransformerEncoder) and ancestor.use_nested_tensor:
            vars(ancestor)["use_nested_tensor"] = False
            vars(ancestor)["contextual_dropout_unnested"] = True


def restore_fused_paths(model: nn.Module) -> None:
    """Undo the changes of transformer encoders that sites needed."""
    for module in model.modules():
        if vars(module).pop("contextual_dropout_unnested", False):
            vars(module)["use_nested_tensor"] = True


def _remove_hook(module: nn.Module, hook: Any) -> None:
    for key in [key for key, value in module._forward_hooks.items() if value is hook]:
        del module._forward_hooks[key]
