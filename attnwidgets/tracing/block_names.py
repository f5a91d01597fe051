"""Places in a model: its blocks, and its tables of words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import nn

from attnwidgets.tracing.trace import RecordedLayer

if TYPE_CHECKING:
    from attnwidgets.tracing.trace import Trace

_LISTS = (nn.ModuleList, nn.ModuleDict, nn.Sequential)


def block_names(trace: Trace, model: nn.Module) -> dict[str, tuple[str, ...]]:
    """Return the modules of every stack's blocks, in order; without stacks whose blocks are not found.

    A block is the outermost element of a list of modules that holds one attention of its stack; where
    attention is not recorded, an element of the list of modules that attend (under the stack's name, where
    there are several).
    """
    modules = dict(model.named_modules())
    elements = {
        f"{name}.{child}" if name else child
        for name, module in modules.items()
        if isinstance(module, _LISTS)
        for child, _ in module.named_children()
    }
    found: dict[str, tuple[str, ...]] = {}
    for stack, table in trace.stack_table.items():
        if stack == "cross":
            continue
        names = [layer.call.name for layer in table.layers if isinstance(layer, RecordedLayer)]
        if len(names) == len(table.layers):
            blocks = [_block_of(name, set(names), elements) for name in names]
        else:
            depth = len(table.layers)
            lists = {name: part for name, part in block_lists(model).items() if len(part) == depth}
            if len(lists) > 1:
                lists = {name: part for name, part in lists.items() if stack in name.split(".")}
            paths = [f"{name}.{child}" for name, part in lists.items() for child, _ in part.named_children()]
            blocks = list(paths) if len(lists) == 1 else []
        if blocks and all(block is not None and block in modules for block in blocks):
            found[stack] = tuple(str(block) for block in blocks)
    return found


def _block_of(attention: str, own: set[str], elements: set[str]) -> str | None:
    parts = attention.split(".")
    for end in range(1, len(parts) + 1):
        name = ".".join(parts[:end])
        inside = [other for other in own if other == name or other.startswith(f"{name}.")]
        if name in elements and len(inside) == 1:
            return name
    return None


def block_lists(model: nn.Module) -> dict[str, nn.ModuleList]:
    """Return the outermost lists of modules that attend, by their names."""
    found: dict[str, nn.ModuleList] = {}
    for name, module in model.named_modules():
        inside = any(name.startswith(f"{outer}.") for outer in found)
        if isinstance(module, nn.ModuleList) and len(module) and not inside:
            kinds = {type(part).__name__.lower() for part in module[0].modules()}
            if any("attention" in kind or "attn" in kind for kind in kinds):
                found[name] = module
    return found


def recorded(trace: Trace) -> bool:
    """Return whether every layer's attention passes through the recording function."""
    return all(
        isinstance(layer, RecordedLayer) for found in trace.stack_table.values() for layer in found.layers
    )


def word_embeddings(model: nn.Module) -> list[nn.Module]:
    """Return the tables of words: the one the model names and its like, or else every embedding."""
    tables: list[nn.Module] = [module for module in model.modules() if isinstance(module, nn.Embedding)]
    try:
        ask = getattr(model, "get_input_embeddings", None)
        named = ask() if callable(ask) else None
    except NotImplementedError:
        # Models of two towers have no one table.
        named = None
    if not isinstance(named, nn.Embedding):
        return tables
    # A decoder may hold its own module over the same numbers (BART).
    return [module for module in tables if module.num_embeddings == named.num_embeddings]
