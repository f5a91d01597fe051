"""The names of a model's blocks, and its word embeddings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import nn

from attnwidgets.tracing.layers import ModelLayer
from attnwidgets.tracing.model_state import modules_of

if TYPE_CHECKING:
    from attnwidgets.tracing.trace import Trace


def block_names(trace: Trace, model: nn.Module) -> dict[str, tuple[str, ...]]:
    """Return the module names of every stack's blocks, in order; those without attention as well.

    If attention was not recorded, they are the elements of the module list that attends (of several, the list
    with the stack's name in its path). A stack whose blocks are unknown is omitted.
    """
    names: dict[str, list[str]] = {}
    for stack, table in trace.stack_table.items():
        if stack == "cross":
            continue
        if table.blocks:
            names[stack] = [block.path for block in table.blocks]
            continue
        depth = len(table.layers)
        lists = {name: part for name, part in block_lists(model).items() if len(part) == depth}
        if len(lists) > 1:
            lists = {name: part for name, part in lists.items() if stack in name.split(".")}
        if len(lists) == 1:
            names[stack] = [
                f"{name}.{child}" for name, part in lists.items() for child, _ in part.named_children()
            ]
    return {
        stack: tuple(paths)
        for stack, paths in names.items()
        if all(path and _has(model, path) for path in paths)
    }


def _has(model: nn.Module, path: str) -> bool:
    """Return whether a model has a module at a path."""
    try:
        model.get_submodule(path)
    except AttributeError:
        return False
    return True


def is_attention(module: nn.Module) -> bool:
    """Return whether a module's class is named an attention."""
    kind = type(module).__name__.lower()
    return "attention" in kind or "attn" in kind


def block_lists(model: nn.Module) -> dict[str, nn.ModuleList]:
    """Return the outermost module lists whose modules attend, by their names."""
    lists: dict[str, nn.ModuleList] = {}
    seen: set[nn.Module] = set()

    def look(module: nn.Module, name: str) -> None:
        if module in seen:
            return
        seen.add(module)
        if isinstance(module, nn.ModuleList) and any(
            is_attention(part) for block in module for part in block.modules()
        ):
            lists[name] = module
            # Most modules are in blocks: they need not be looked at.
            return
        for child_name, child in module.named_children():
            look(child, f"{name}.{child_name}" if name else child_name)

    look(model, "")
    return lists


def recorded(trace: Trace) -> bool:
    """Return whether every layer's attention was recorded in a pass, where it can be changed."""
    return all(
        isinstance(layer, ModelLayer) for stack in trace.stack_table.values() for layer in stack.layers
    )


def word_embeddings(model: nn.Module) -> list[nn.Module]:
    """Return the word embeddings: the model's input embedding and others of its size, or else all."""
    tables: list[nn.Module] = [module for module in modules_of(model) if isinstance(module, nn.Embedding)]
    try:
        ask = getattr(model, "get_input_embeddings", None)
        named = ask() if callable(ask) else None
    except NotImplementedError:
        # Two-tower models name no embedding.
        named = None
    if not isinstance(named, nn.Embedding):
        return tables
    # A decoder may have another module over the same weights (BART).
    return [module for module in tables if module.num_embeddings == named.num_embeddings]
