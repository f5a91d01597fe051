"""The attention modules of a model, layer by layer, and the stack that each belongs to, without a run."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from attnwidgets.tracing.anatomy.block_names import block_lists, is_attention, recorded
from attnwidgets.tracing.layers import ModelLayer, is_trace
from attnwidgets.tracing.model_state import named_modules
from attnwidgets.tracing.recording.borrow import origin, unwrap
from attnwidgets.tracing.recording.wrappers import unpeft

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch import nn

    from attnwidgets.tracing.trace import Trace

_COUNTS = ("num_heads", "num_attention_heads", "n_heads", "nhead")

# Names of cross-attention modules: encoder_attn, EncDecAttention, crossattention, cross_attn, multihead_attn2
_CROSS = re.compile(r"enc_?dec|encoder_att|cross", re.IGNORECASE)
_TOWERS = (
    ("vision", "vision"),
    ("visual", "vision"),
    ("audio", "audio"),
    ("text", "text"),
    ("language", "text"),
)


@dataclass(frozen=True)
class AttentionModule:
    """An attention module.

    Attributes:
        name: Its name in the model.
        module: The module.
        n_heads: Its number of heads; None if neither it nor its config says so.
    """

    name: str
    module: nn.Module
    n_heads: int | None


def sites(model: Any) -> dict[str, dict[int, AttentionModule]]:
    """Return the attention modules of every stack, by their layers; a shared module appears several times.

    Args:
        model: A transformers model, or a trace, which has the modules that ran.

    Raises:
        ValueError: If there are none, or the trace has no model or no recorded attention.
    """
    if is_trace(model):
        return _of_trace(model)
    inner = unwrap(model)
    modules = [
        (int(child) if child.isdigit() else number, f"{path}.{child}{'.' if name else ''}{name}", module)
        for path, blocks in block_lists(inner).items()
        for number, (child, block) in enumerate(blocks.named_children())
        for name, module in _attentions(block)
    ]
    if not modules:
        raise ValueError(
            f"{type(inner).__name__} has no list of blocks that attend: pass a trace of it instead."
        )
    depth = getattr(getattr(inner, "config", None), "num_hidden_layers", None)
    table = {}
    for stack, members in by_stack(inner, [path for _, path, _ in modules]).items():
        indices = members * depth if len(members) == 1 and isinstance(depth, int) else members
        numbers = [modules[index][0] for index in indices]
        if len(set(numbers)) < len(numbers):  # one block for all layers, several in a block, or several lists
            numbers = list(range(len(indices)))
        chosen = [modules[index][1:] for index in indices]
        table[stack] = {
            number: AttentionModule(path, module, _heads(module, inner))
            for number, (path, module) in zip(numbers, chosen, strict=True)
        }
    return table


def _of_trace(trace: Trace) -> dict[str, dict[int, AttentionModule]]:
    bare = not any(table.layers for table in trace.stack_table.values())
    if trace.model is None or bare or not recorded(trace):
        missing = trace.no_attention or "the model has no attention"
        why = missing if bare else trace.warning or "its numbers were given"
        raise ValueError(
            f"attention cannot be changed here: {why}; make a trace with aw.trace(model, tokenizer, text)."
        )
    model = unwrap(trace.model)
    return {
        stack: {
            number: AttentionModule(layer.call.name, model.get_submodule(layer.call.name), layer.shape[0])
            for number, layer in zip(table.numbers, table.layers, strict=True)
            if isinstance(layer, ModelLayer)
        }
        for stack, table in trace.stack_table.items()
    }


def _attentions(block: nn.Module) -> list[tuple[str, nn.Module]]:
    """Return the innermost modules of a block whose class is named an attention, and that project."""
    return [
        (name, module)
        for name, module in named_modules(block).items()
        if is_attention(module)
        and not any(is_attention(part) for part in module.modules() if part is not module)
        and projects(module)
    ]


def projects(module: nn.Module) -> bool:
    """Return whether a module has matrices from which queries, keys or values of tokens come.

    Attention over the states of a token after earlier blocks has none: its query is a vector of weights, and
    its keys are the states.
    """
    if any(p.dim() > 1 for part in module.children() for p in part.parameters()):
        return True
    return sum(p.dim() > 1 for p in module.parameters(recurse=False)) > 1


def _heads(module: nn.Module, model: nn.Module) -> int | None:
    for owner in (module, getattr(module, "config", None), getattr(model, "config", None)):
        for name in _COUNTS:
            count = getattr(owner, name, None)
            if isinstance(count, int):
                return count
    return None


class Turns:
    """Tells which layer a call belongs to when one module serves as several layers, which take turns."""

    def __init__(self, table: Mapping[str, Mapping[int, AttentionModule]]) -> None:
        self._places: dict[int, tuple[str, tuple[int, ...]]] = {}
        for stack, modules in table.items():
            for layer, attention in modules.items():
                _, layers = self._places.get(id(attention.module), (stack, ()))
                self._places[id(attention.module)] = (stack, (*layers, layer))
        self._calls: Counter[int] = Counter()

    def start(self) -> None:
        """Begin a pass."""
        self._calls.clear()

    def of(self, module: nn.Module) -> tuple[str, int] | None:
        """Return stack and layer of a call of a module or its twin; None for any other module."""
        key = id(origin(module))
        if key not in self._places:
            return None
        stack, layers = self._places[key]
        turn = self._calls[key]
        self._calls[key] += 1
        return stack, layers[turn % len(layers)]


def by_stack(model: nn.Module, names: Sequence[str]) -> dict[str, list[int]]:
    """Return the attention modules of every stack.

    Args:
        model: The model.
        names: The modules' names in it, in the order of their calls, as often as they are called.

    Returns:
        By stack, indices of names, in order.
    """
    encoder = _encoder_of(unpeft(model))
    parts = set() if encoder is None else set(encoder.modules())
    inside = {name for name, module in named_modules(model).items() if module in parts} if parts else set()
    stacks: dict[str, list[int]] = {}
    outside = [name for name in names if name not in inside]
    if encoder is not None and outside and len(outside) < len(names):
        stacks = {"encoder": [], "decoder": [], "cross": []}
        for index, name in enumerate(names):
            tail = ".".join(name.split(".")[-3:])
            cross = name not in inside and bool(_CROSS.search(tail))
            stacks["encoder" if name in inside else "cross" if cross else "decoder"].append(index)
        return {name: members for name, members in stacks.items() if members}
    crossing = {
        index
        for index, name in enumerate(names)
        if _CROSS.search(name.split(".")[-1]) or "crossattention" in name
    }
    towers = list(dict.fromkeys(map(_tower, names)))
    if (
        outside
        and len(outside) == len(names)
        and crossing
        and len(crossing) < len(names)
        and len(towers) == 1
    ):
        rest = [index for index in range(len(names)) if index not in crossing]
        return {"decoder": rest, "cross": sorted(crossing)}
    short = dict(zip(towers, tower_names(towers), strict=True))
    for index, name in enumerate(names):
        stack = "cross" if index in crossing and len(towers) > 1 else short[_tower(name)]
        stacks.setdefault(stack, []).append(index)
    # Text first, in whatever order the towers run.
    return dict(sorted(stacks.items(), key=lambda item: item[0] != "text"))


def _encoder_of(model: Any) -> nn.Module | None:
    if not getattr(getattr(model, "config", None), "is_encoder_decoder", False):
        return None
    for owner in (model, getattr(model, "model", model)):
        encoder = getattr(owner, "encoder", None)
        if isinstance(encoder, torch.nn.Module):
            return encoder
    encoder = model.get_encoder() if hasattr(model, "get_encoder") else None
    return encoder if isinstance(encoder, torch.nn.Module) else None


def _tower(name: str) -> str:
    """Return the path of the list of layers that holds a module: its name up to the first number."""
    return re.split(r"\.\d+(?:\.|$)", name)[0]


def tower_names(paths: Sequence[str]) -> list[str]:
    """Return short names for lists of layers: "self" for one, else the tower ("text", "vision", "audio").

    Next to towers of pictures and sounds, a tower without a mark in its path is that of the text.
    """
    if len(paths) == 1:
        return ["self"]
    marks = [next((name for mark, name in _TOWERS if mark in path), "") for path in paths]
    unmarked = "text" if marks.count("") == 1 and "text" not in marks else ""
    names = [mark or unmarked or path for mark, path in zip(marks, paths, strict=True)]
    return names if len(set(names)) == len(names) else list(paths)
