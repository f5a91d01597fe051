"""The transformers model that a TransformerBridge was built around, known by its shape.

TransformerLens puts parts of its own, with hook points, in place of a model's parts, and keeps what they
stand for inside them. Attention is then computed outside transformers' attention interface.
"""

from __future__ import annotations

import weakref
from inspect import isfunction
from typing import TYPE_CHECKING, Any

from attnwidgets._tensors import is_module

if TYPE_CHECKING:
    from torch import nn

_COMPONENT = "_original_component"  # what a bridge's part stands for

# By bridge: the ids of its model's modules, and the model with its own parts.
_PLAIN: weakref.WeakKeyDictionary[nn.Module, tuple[tuple[int, ...], nn.Module]] = weakref.WeakKeyDictionary()


def is_hooked(model: nn.Module) -> bool:
    """Return whether a module is a model of TransformerLens: a TransformerBridge or a HookedTransformer."""
    return all(hasattr(model, name) for name in ("run_with_cache", "to_str_tokens"))


def without_bridge(hooked: nn.Module) -> nn.Module:
    """Return the transformers model of a bridge with its own parts, over the same parameters and hooks.

    The same object every time, so that interventions find its modules.

    Raises:
        TypeError: If the model of TransformerLens does not compute what the transformers model does: its
            weights were changed, or it has hooks. The message says how to show its cache.
    """
    name = type(hooked).__name__
    through_cache = (
        "show its own numbers through its cache: logits, cache = model.run_with_cache(text); "
        "aw.from_attentions(cache, model.to_str_tokens(text))"
    )
    original: Any = getattr(hooked, "original_model", None)
    if not is_module(original):
        raise TypeError(
            f"model is a {name}, which computes by itself, with changed weights; {through_cache}. Or pass "
            "the transformers model and its tokenizer"
        )
    if getattr(hooked, "_weights_processed", False):
        raise TypeError(
            f"model is a {name} whose weights were changed (compatibility mode), so it differs from the "
            f"transformers model; {through_cache}. Or make it without enable_compatibility_mode()"
        )
    library = type(hooked).__module__.partition(".")[0]
    changing = next((n for n, part in hooked.named_modules() if _foreign_hooks(part, library)), None)
    if changing is not None:
        raise TypeError(
            f"model is a {name} with a hook at {changing!r}, which may change what it computes; "
            f"{through_cache}. Or call model.reset_hooks(including_permanent=True)"
        )
    parts = tuple(map(id, original.modules()))
    known = _PLAIN.get(hooked)
    if known is None or known[0] != parts:
        known = _PLAIN[hooked] = (parts, _restored(original, library, {}))
    return known[1]


def _foreign_hooks(part: nn.Module, library: str) -> bool:
    """Return whether a hook point of a bridge has hooks in addition to those of the library itself."""
    if not vars(part).get("fwd_hooks"):
        return False
    for hook in vars(part)["_forward_hooks"].values():
        cells = [cell.cell_contents for cell in getattr(hook, "__closure__", None) or ()]
        functions = [function for function in cells if isfunction(function)]
        if not functions or not all(_is_of(function, library) for function in functions):
            return True
    return False


def _is_of(function: Any, library: str) -> bool:
    return str(getattr(function, "__module__", "")).partition(".")[0] == library


def _restored(module: nn.Module, library: str, made: dict[int, nn.Module]) -> nn.Module:
    """Return a module with the parts that a bridge's parts stand for, over the same parameters and hooks."""
    children = vars(module)["_modules"]
    if children.get(_COMPONENT) is not None:
        return _restored(children[_COMPONENT], library, made)
    if id(module) not in made:
        copy: nn.Module = object.__new__(type(module))
        made[id(module)] = copy
        vars(copy).update(vars(module))
        if _is_of(vars(copy).get("forward"), library):
            del vars(copy)["forward"]  # the class's own is what the bridge replaced
        vars(copy)["_modules"] = {
            name: part if part is None else _restored(part, library, made) for name, part in children.items()
        }
    return made[id(module)]
