"""The stacks in the argument of `aw.from_attentions`: a model's output, a mapping, or a cache of hooks."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from attnwidgets._errors import suggest
from attnwidgets.tracing.recording.wrappers import is_table

if TYPE_CHECKING:
    from torch import Tensor

OUTPUTS = {
    "self": "attentions",
    "encoder": "encoder_attentions",
    "decoder": "decoder_attentions",
    "cross": "cross_attentions",
}
"""The attribute of a model's output that holds the attention of each stack."""

_PATTERN = re.compile(r"(?P<stack>\w+)\.(?P<layer>\d+)\.(?P<module>(self_|cross_)?attn)\.hook_pattern")
# Names in TransformerLens: in a decoder or encoder, then in its encoder-decoders and in those of its bridge.
_STACKS = {("blocks", "attn"): "self"}
_STACKS |= {
    ("encoder", "attn"): "encoder",
    ("decoder", "attn"): "decoder",
    ("decoder", "cross_attn"): "cross",
}
_STACKS |= {("encoder_blocks", "attn"): "encoder", ("decoder_blocks", "self_attn"): "decoder"}
_STACKS["decoder_blocks", "cross_attn"] = "cross"
# The number of a layer in the path of a module, and whose attention the module computes.
_MODULE = re.compile(r"(?P<before>.*?)\.(?P<layer>\d+)\.(?P<module>.+)")
_SHOWN = 6
_MAPS = 4  # dimensions of attention weights
_ROUNDING = 0.02  # of a row's sum, in half precision


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
        weights = {stack: weights_in(attentions, stack) for stack in OUTPUTS}
        return _present(weights, no_weights)
    table = _table(attentions)
    if table is None:
        return {"self": attentions}
    if any(_is_hook(name) for name in table):
        return _of_hooks(table)
    if table and all(hasattr(entry, "output") and hasattr(entry, "inputs") for entry in table.values()):
        return _of_modules(table)
    stacks = {name: stack for stack, output in OUTPUTS.items() for name in (stack, output)}
    for name in table:
        if name not in stacks:
            raise ValueError(
                f"attentions is a mapping with the name {name!r}; a mapping's names are "
                f"{', '.join(map(repr, stacks))}, or those of a TransformerLens cache "
                f"(blocks.0.attn.hook_pattern, ...).{suggest(str(name), stacks)}"
            )
    return _present({stacks[name]: values for name, values in table.items()}, no_weights)


def weights_in(output: Any, stack: str, real: Tensor | None = None) -> Any:
    """Return the weights of a stack in a model's output, those in windows as maps over tokens; None without.

    An output with a second field for tokens with global attention has windows in the first. `real` is
    [batch, token], 0 where tokens are padding.
    """
    layers = getattr(output, OUTPUTS[stack], None)
    field = OUTPUTS[stack].replace("attentions", "global_attentions")
    if not hasattr(output, field) or not layers:
        return layers
    from attnwidgets.tracing.attention_windows import over_tokens

    return over_tokens(layers, getattr(output, field), real)


def _present(weights: Mapping[str, Any], no_weights: str) -> dict[str, Any]:
    """Return the stacks that have weights."""
    present = {
        stack: values
        for stack, values in weights.items()
        if values is not None and not (isinstance(values, (tuple, list)) and not values)
    }
    if not present:
        raise ValueError(
            f"attentions: the output holds none. {no_weights} Call it with output_attentions=True."
        )
    return present


def holds_attention(value: Any) -> bool:
    """Return whether a value may be an argument of `aw.from_attentions`, as a model, text or path is not."""
    is_array = not isinstance(value, str) and (
        isinstance(value, Sequence) or (hasattr(value, "shape") and hasattr(value, "__array__"))
    )
    return is_array or is_table(value) or any(hasattr(value, name) for name in OUTPUTS.values())


def _table(attentions: Any) -> Mapping[Any, Any] | None:
    """Return a mapping, also from an object that behaves like it (caches of TransformerLens, nnsight)."""
    if isinstance(attentions, Mapping):
        return attentions
    # A table of numbers (a DataFrame) has keys too.
    like = is_table(attentions) and not hasattr(attentions, "__array__")
    return {name: attentions[name] for name in attentions.keys()} if like else None  # noqa: SIM118 - no mapping


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
    return _in_order(by_layer, "hook_pattern")


def _of_modules(table: Mapping[Any, Any]) -> dict[str, Any]:
    """Return the weights that attention modules returned with their output (nnsight's cache of modules)."""
    result = []
    for path, entry in table.items():
        match = _MODULE.fullmatch(str(path))
        weights = [part for part in _parts(entry.output) if _is_softmax(part)]
        if match is not None and "att" in match["module"].lower() and weights:
            result.append(
                (match["before"].lower(), match["module"].lower(), int(match["layer"]), weights[-1])
            )
    both = all(any(side in before for before, *_ in result) for side in ("encoder", "decoder"))
    by_layer: dict[str, dict[int, Any]] = {}
    for before, module, layer, values in result:
        by_layer.setdefault(_stack_of(before, module) if both else "self", {})[layer] = values
    if not by_layer:
        raise ValueError(
            "attentions is a cache of modules, none of which returned attention weights, as under sdpa. Load "
            'the model with attn_implementation="eager" and cache one forward pass, or let '
            "aw.trace(model, text) record it: it takes the model of nnsight itself."
        )
    return _in_order(by_layer, "attention module")


def _stack_of(before: str, module: str) -> str:
    """Return the stack of an attention module of an encoder-decoder, by the two parts of its path."""
    if "decoder" not in before:
        return "encoder"
    return "cross" if re.search("enc|cross", module) else "decoder"


def _parts(output: Any) -> Sequence[Any]:
    return output if isinstance(output, tuple) else ()


def _is_softmax(values: Any) -> bool:
    """Return whether these are rows of attention [batch, head, query, key], and not a position bias."""
    if not hasattr(values, "detach") or values.dim() != _MAPS or not values.numel():
        return False
    sums = values.detach().float().sum(-1)
    return bool((values >= 0).all()) and bool(((sums - 1).abs() < _ROUNDING).all())


def _in_order(by_layer: Mapping[str, Mapping[int, Any]], entry: str) -> dict[str, Any]:
    """Return each stack's layers as a list.

    Raises:
        ValueError: If a layer is missing; names it.
    """
    for stack, layers in by_layer.items():
        missing = sorted(set(range(max(layers))) - set(layers))
        if missing:
            cached, lacking = (", ".join(map(str, numbers)) for numbers in (sorted(layers), missing))
            whose = "" if stack == "self" else f" of the {stack}"
            raise ValueError(
                f"attentions is a cache with patterns of layers {cached}{whose}, without those of "
                f"{lacking}. Cache every layer's {entry}, or pass the patterns as a list, whose layers "
                "are then numbered from 0."
            )
    return {stack: [layers[number] for number in sorted(layers)] for stack, layers in by_layer.items()}
