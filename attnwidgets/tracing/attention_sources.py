"""The stacks in the argument of `aw.from_attentions`: a model's output, a mapping, or a cache of hooks."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from attnwidgets._errors import suggest

OUTPUTS = {
    "self": "attentions",
    "encoder": "encoder_attentions",
    "decoder": "decoder_attentions",
    "cross": "cross_attentions",
}
"""The attribute of a model's output that holds the attention of each stack."""

_PATTERN = re.compile(r"(?P<stack>\w+)\.(?P<layer>\d+)\.(?P<module>attn|cross_attn)\.hook_pattern")
_STACKS = {("blocks", "attn"): "self", ("encoder", "attn"): "encoder", ("decoder", "attn"): "decoder"}
_STACKS["decoder", "cross_attn"] = "cross"
_SHOWN = 6


def stacks_of(attentions: Any, no_weights: str) -> dict[str, Any]:
    """Return the weights of each stack, by its name.

    A model's output is read by its attributes; None and () count as absent. A mapping names stacks ("self",
    "encoder", "decoder", "cross", or as outputs do, "attentions", ...) or is a cache of hooks.

    Args:
        attentions: The argument of `aw.from_attentions`.
        no_weights: The advice to give if there are none.

    Raises:
        ValueError: For a mapping with an unknown name, a cache without patterns or without some layer's
            pattern, or an output without weights.
    """
    if any(hasattr(attentions, name) for name in OUTPUTS.values()):
        weights = {stack: getattr(attentions, name, None) for stack, name in OUTPUTS.items()}
        return _present(weights, no_weights)
    table = _table(attentions)
    if table is None:
        return {"self": attentions}
    if any(_is_hook(name) for name in table):
        return _of_hooks(table)
    stacks = {name: stack for stack, output in OUTPUTS.items() for name in (stack, output)}
    for name in table:
        if name not in stacks:
            raise ValueError(
                f"attentions is a mapping with the name {name!r}; a mapping's names are "
                f"{', '.join(map(repr, stacks))}, or those of a TransformerLens cache "
                f"(blocks.0.attn.hook_pattern, ...).{suggest(str(name), stacks)}"
            )
    return _present({stacks[name]: values for name, values in table.items()}, no_weights)


def _present(weights: Mapping[str, Any], no_weights: str) -> dict[str, Any]:
    """Return the stacks that have weights."""
    kept = {
        stack: values
        for stack, values in weights.items()
        if values is not None and not (isinstance(values, (tuple, list)) and not values)
    }
    if not kept:
        raise ValueError(
            f"attentions: the output holds none. {no_weights} Call it with output_attentions=True."
        )
    return kept


def _table(attentions: Any) -> Mapping[Any, Any] | None:
    """Return a mapping, also of an object that only behaves like one (TransformerLens' ActivationCache)."""
    if isinstance(attentions, Mapping):
        return attentions
    like = all(callable(getattr(attentions, name, None)) for name in ("items", "keys", "__getitem__"))
    # A table of numbers (a DataFrame) has items too.
    return dict(attentions.items()) if like and not hasattr(attentions, "__array__") else None


def _is_hook(name: object) -> bool:
    return isinstance(name, str) and name.rpartition(".")[2].startswith("hook_")


def _of_hooks(table: Mapping[Any, Any]) -> dict[str, Any]:
    """Return the patterns of a cache of hooks as a list of layers for each stack; drop other hooks."""
    others = [name for name in table if not _is_hook(name)]
    if others:
        raise ValueError(
            f"attentions is a cache of hooks, but {others[0]!r} does not name a hook; leave it out, or "
            "pass the patterns: [cache[f'blocks.{layer}.attn.hook_pattern'] for layer in range(n_layers)]."
        )
    by_layer: dict[str, dict[int, Any]] = {}
    for name, values in table.items():
        match = _PATTERN.fullmatch(name)
        stack = _STACKS.get((match["stack"], match["module"])) if match else None
        if match and stack is not None:
            by_layer.setdefault(stack, {})[int(match["layer"])] = values
    if not by_layer:
        names = ", ".join(map(repr, list(table)[:_SHOWN]))
        raise ValueError(
            f"attentions is a cache of hooks without attention patterns (it has {names}"
            f"{', ...' if len(table) > _SHOWN else ''}); keep blocks.0.attn.hook_pattern and so on, as "
            'run_with_cache(text, names_filter=lambda name: name.endswith("hook_pattern")) does.'
        )
    for stack, layers in by_layer.items():
        missing = sorted(set(range(max(layers))) - set(layers))
        if missing:
            known, lacking = (", ".join(map(str, numbers)) for numbers in (sorted(layers), missing))
            whose = "" if stack == "self" else f" of the {stack}"
            raise ValueError(
                f"attentions is a cache of hooks with patterns of layers {known}{whose}, without those of "
                f"{lacking}. Cache every layer's hook_pattern, or pass the patterns as a list, whose layers "
                "are then numbered from 0."
            )
    return {stack: [layers[number] for number in sorted(layers)] for stack, layers in by_layer.items()}
