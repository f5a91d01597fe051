"""Where a model attends: the attention modules of every stack, layer by layer, without running it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from attnwidgets.tracing.block_names import block_lists, recorded
from attnwidgets.tracing.recording.batch import by_stack
from attnwidgets.tracing.recording.borrow import unwrap
from attnwidgets.tracing.recording.twin import origin
from attnwidgets.tracing.trace import RecordedLayer, Trace

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import nn

_COUNTS = ("num_heads", "num_attention_heads", "n_heads", "nhead")


@dataclass(frozen=True)
class AttentionModule:
    """An attention module.

    Attributes:
        name: Its name in the model.
        module: The module.
        n_heads: How many heads it has; None where that is not told before it runs.
    """

    name: str
    module: nn.Module
    n_heads: int | None


def sites(model: Any) -> dict[str, tuple[AttentionModule, ...]]:
    """Return the attention modules of every stack, one a layer; a shared one stands there several times.

    Args:
        model: A transformers model, or a trace of one, which knows what was called.

    Raises:
        ValueError: Where there is none, or the trace has no model or none that could be recorded.
    """
    if isinstance(model, Trace):
        return _of_trace(model)
    inner = unwrap(model)
    found = []
    for path, blocks in block_lists(inner).items():
        for child, block in blocks.named_children():
            found += [
                AttentionModule(f"{path}.{child}{'.' if name else ''}{name}", module, _heads(module, inner))
                for name, module in _attentions(block)
            ]
    if not found:
        raise ValueError(
            f"{type(inner).__name__} has no list of blocks that attend: pass a trace of it instead."
        )
    depth = getattr(getattr(inner, "config", None), "num_hidden_layers", None)
    return {
        stack: tuple(own) * depth if len(own) == 1 and isinstance(depth, int) and depth > 1 else tuple(own)
        for stack, own in by_stack(inner, found).items()
    }


def _of_trace(trace: Trace) -> dict[str, tuple[AttentionModule, ...]]:
    bare = not any(table.layers for table in trace.stack_table.values())
    if trace.model is None or bare or not recorded(trace):
        why = "the model has no attention" if bare else trace.warning or "its numbers were given"
        raise ValueError(
            f"attention cannot be changed here: {why}; make a trace with aw.trace(model, tokenizer, text)."
        )
    modules = dict(unwrap(trace.model).named_modules())
    return {
        stack: tuple(
            AttentionModule(layer.call.name, modules[layer.call.name], layer.shape[0])
            for layer in table.layers
            if isinstance(layer, RecordedLayer)
        )
        for stack, table in trace.stack_table.items()
    }


def _attentions(block: nn.Module) -> list[tuple[str, nn.Module]]:
    """Return the innermost modules of a block that are called an attention."""

    def is_one(module: nn.Module) -> bool:
        kind = type(module).__name__.lower()
        return "attention" in kind or "attn" in kind

    named = [(name, module) for name, module in block.named_modules() if is_one(module)]
    return [
        (name, module)
        for name, module in named
        if not any(is_one(part) for part in module.modules() if part is not module)
        and next(module.parameters(), None) is not None
    ]


def _heads(module: nn.Module, model: nn.Module) -> int | None:
    for owner in (module, getattr(module, "config", None), getattr(model, "config", None)):
        for name in _COUNTS:
            count = getattr(owner, name, None)
            if isinstance(count, int):
                return count
    return None


def places_of(table: Mapping[str, tuple[AttentionModule, ...]]) -> dict[int, tuple[str, tuple[int, ...]]]:
    """Return the stack of every module and the layers that it is, by the module's id."""
    found: dict[int, tuple[str, tuple[int, ...]]] = {}
    for stack, own in table.items():
        for layer, site in enumerate(own):
            _, layers = found.get(id(site.module), (stack, ()))
            found[id(site.module)] = (stack, (*layers, layer))
    return found


class Turns:
    """Which layer a call is, where one module is several layers: they take turns."""

    def __init__(self, table: Mapping[str, tuple[AttentionModule, ...]]) -> None:
        self._places = places_of(table)
        self._calls: Counter[int] = Counter()

    def start(self) -> None:
        """Begin a pass."""
        self._calls.clear()

    def of(self, module: nn.Module) -> tuple[str, int] | None:
        """Return stack and layer of a call of a module or its twin; None for one that is no site."""
        own = id(origin(module))
        place = self._places.get(own)
        if place is None:
            return None
        stack, layers = place
        turn = self._calls[own]
        self._calls[own] += 1
        return stack, layers[turn % len(layers)]
