"""Hook points: where states are in a model, by the name of a module or of a TransformerLens hook.

A Hugging Face name is a module's path ("encoder.layer.2", "model.layers.5.self_attn.o_proj"), optionally with
".output" (the default) or ".input"; a path may begin further in or further out than in the model, as
"layers.5" or "model.layers.5" do. A hook name is one of

    blocks.L.hook_resid_pre    the input of block L
    blocks.L.hook_resid_mid    the residual stream between its attention and its MLP
    blocks.L.hook_resid_post   the output of block L
    blocks.L.hook_attn_out     the output of its attention, as added to the residual stream
    blocks.L.hook_mlp_out      the output of its MLP, as added to the residual stream
    blocks.L.attn.hook_z       the concatenated outputs of its heads, before the output projection
    blocks.L.mlp.hook_post     its MLP's hidden units
    hook_embed                 the output of the token embedding

with "encoder.L." or "decoder.L." instead of "blocks.L." in a model with two stacks of blocks.

Hooks inside a block are located by the block's layout (`attnwidgets.tracing.algebra.known_layouts`).
"""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from torch import nn

from attnwidgets._errors import suggest
from attnwidgets._selecting import listed
from attnwidgets.tracing.algebra.blocks import fitting
from attnwidgets.tracing.algebra.known_layouts import LAYOUTS
from attnwidgets.tracing.anatomy.block_names import block_lists
from attnwidgets.tracing.model_state import named_modules
from attnwidgets.tracing.unsupported import UnsupportedModelError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from attnwidgets.tracing.algebra.known_layouts import Layout

Side = Literal["input", "output"]


@dataclass(frozen=True)
class HookPoint:
    """A hook point of a model.

    Args:
        name: The name that was resolved to it.
        module: The module's path in the (unwrapped) model.
        side: Whether its states are the module's input or output.
        call: Index of the module's call in a pass, if blocks share one module (ALBERT); None for any call.
        residual: Whether its states are as wide as the residual stream.
        block: Number of the block it belongs to; None outside blocks.
    """

    name: str
    module: str
    side: Side = "output"
    call: int | None = None
    residual: bool = False
    block: int | None = None


_Answer = tuple[str, Side]  # a module in a block, and its side


def _attn_out(layout: Layout, block: nn.Module) -> _Answer | None:
    # If it is not a module, it scales by a number, without a hook point.
    path = layout.after if isinstance(_part(block, layout.after), nn.Module) else layout.out
    return path, "output"


def _mlp_out(layout: Layout, block: nn.Module) -> _Answer | None:
    steps = [path for path in layout.mlp if isinstance(_part(block, path), nn.Module)]
    return (steps[-1], "output") if steps else None


def _between(layout: Layout) -> _Answer | None:
    norm = {"pre": layout.norm2, "post": layout.norm1}.get(layout.order, "")
    return (norm, "input") if norm else None


def _hidden_units(layout: Layout, block: nn.Module) -> _Answer | None:
    """Return the last projection of the MLP, whose input are the hidden units."""
    last = [
        f"{path}.{name}".rstrip(".")
        for path in layout.mlp
        for name, module in _modules(_part(block, path))
        if isinstance(module, nn.Linear) or type(module).__name__ == "Conv1D"
    ]
    return (last[-1], "input") if last else None


def _part(block: nn.Module, path: str) -> Any:
    part: Any = block
    for name in path.split("."):
        part = getattr(part, name, None)
    return part


def _modules(part: Any) -> list[tuple[str, nn.Module]]:
    return list(named_modules(part).items()) if isinstance(part, nn.Module) else []


# A block's layout tells where its hooks are.
_HOOKS: Mapping[str, Callable[[Layout, nn.Module], _Answer | None]] = {
    "hook_attn_out": _attn_out,
    "hook_mlp_out": _mlp_out,
    "attn.hook_z": lambda layout, _: (layout.out, "input"),
    "hook_resid_mid": lambda layout, _: _between(layout),
    "mlp.hook_post": _hidden_units,
}
_ENDS: Mapping[str, Side] = {
    "hook_resid_pre": "input",
    "hook_resid_post": "output",
    "hook_normalized_resid_post": "output",
}
_RESIDUAL = ("hook_attn_out", "hook_mlp_out", "hook_resid_mid")
_HOOK_NAMES = (*_ENDS, *_HOOKS)
_IN_BLOCK = re.compile(r"(blocks|encoder|decoder)\.(\d+)\.((?:.+\.)?hook_\w+)")
_EMBEDDING = "hook_embed"


def resolve_hook_point(
    model: nn.Module, name: str, *others: str, lists: Mapping[str, nn.ModuleList] | None = None
) -> HookPoint:
    """Return the hook point of a name in a model; of several names, the first that exists.

    Args:
        model: The model without wrappers (`attnwidgets.tracing.recording.borrow.unwrap`).
        name: A module's path or a hook name; see the module's docstring.
        others: Names to try if `name` does not exist.
        lists: The model's lists of blocks (`block_lists`); computed if None.

    Raises:
        ValueError: If the module, block or hook is unknown; the message lists those that exist.
        UnsupportedModelError: If the hook is not described for this family of models.
    """
    if not name:
        raise ValueError(
            "site is not known: the SAE's files do not say where its states are. Pass site=, for example "
            '"blocks.5.hook_resid_post" or a module of the model.'
        )
    try:
        return _by_hook(model, name, lists) or _by_module(model, name)
    except ValueError:
        points = _existing(model, others)
        if not points:
            raise
        return points[0]


def _existing(model: nn.Module, names: Iterable[str]) -> list[HookPoint]:
    """Return the hook points of the names that exist in a model."""
    points = []
    for name in names:
        with suppress(ValueError):
            points.append(resolve_hook_point(model, name))
    return points


def _by_hook(
    model: nn.Module, name: str, lists: Mapping[str, nn.ModuleList] | None = None
) -> HookPoint | None:
    if name == _EMBEDDING:
        ask = getattr(model, "get_input_embeddings", None)
        embedding = ask() if callable(ask) else None
        path = next((path for path, module in named_modules(model).items() if module is embedding), None)
        if embedding is None or path is None:
            raise UnsupportedModelError(f"{name}: {type(model).__name__} does not name its token embedding.")
        return HookPoint(name, path, residual=True)
    match = _IN_BLOCK.fullmatch(name)
    if match is None:
        if "hook_" in name:
            raise ValueError(f"site {name!r} is not a known hook. {_listing(model)}")
        return None
    stack, number, hook = match[1], int(match[2]), match[3]
    hook = "attn.hook_z" if hook == "hook_z" else hook
    if hook not in _HOOK_NAMES:
        raise ValueError(
            f"site {name!r}: hook {hook!r} is not known.{suggest(hook, _HOOK_NAMES)} There are "
            f"{listed(_HOOK_NAMES)}; any module can be named by its path in the model."
        )
    path, block, call = _block(block_lists(model) if lists is None else lists, model, stack, number, name)
    if hook in _ENDS:
        return HookPoint(name, path, _ENDS[hook], call, residual=True, block=number)
    inner, side = _described(model, path, block, hook, name)
    return HookPoint(name, inner, side, call, residual=hook in _RESIDUAL, block=number)


def _block(
    lists: Mapping[str, nn.ModuleList], model: nn.Module, stack: str, number: int, name: str
) -> tuple[str, nn.Module, int | None]:
    """Return a block's path, the block, and the index of its call if blocks share one module."""
    if stack != "blocks":
        lists = {path: blocks for path, blocks in lists.items() if stack in path.split(".")}
    if len(lists) != 1:
        has = f"has {listed(lists)}" if lists else "has no list of blocks that attend"
        raise ValueError(
            f"site {name!r} does not determine the blocks: {type(model).__name__} {has}. "
            "Name the module instead, by its path in the model."
        )
    path, blocks = next(iter(lists.items()))
    depth = getattr(getattr(model, "config", None), "num_hidden_layers", len(blocks))
    shared = len(blocks) == 1 and isinstance(depth, int) and depth > 1
    count = depth if shared else len(blocks)
    if number >= count:
        raise ValueError(
            f"site {name!r}: block {number} does not exist in {type(model).__name__}, which has {count} "
            f"(0 to {count - 1})."
        )
    index = 0 if shared else number
    return f"{path}.{index}", blocks[index], number if shared else None


def in_block(model: nn.Module, block: str, number: int, hook: str) -> HookPoint:
    """Return the hook point of a hook within a block, by the block's path; see the module's docstring.

    Args:
        model: The model without wrappers.
        block: Path of the block.
        number: Number of the block.
        hook: "mlp.hook_post", "hook_mlp_out", ...

    Raises:
        UnsupportedModelError: If the hook is not described for this family of models.
    """
    inner, side = _described(model, block, model.get_submodule(block), hook, f"{block}.{hook}")
    return HookPoint(f"{block}.{hook}", inner, side, block=number)


def _described(model: nn.Module, path: str, block: nn.Module, hook: str, name: str) -> tuple[str, Side]:
    """Return a module of a block and its side, by the layouts that fit the block."""
    fits = _layouts(model, path)
    if not fits:
        # Blocks that read the keys and values of an earlier block (Gemma 4) run the same code as that block.
        parent = path.rpartition(".")[0]
        blocks = model.get_submodule(parent).named_children()
        first = next(child for child, sibling in blocks if type(sibling) is type(block))
        fits = _layouts(model, f"{parent}.{first}")
    if not fits:
        # Some blocks are groups of a single block (ALBERT).
        inner = [child for child, module in named_modules(block).items() if isinstance(module, nn.ModuleList)]
        for child in inner:
            path = f"{path}.{child}.0"
            fits = _layouts(model, path)
            if fits:
                block = model.get_submodule(path)
                break
    # The most specific layouts come first; others with the same modules may mean something else.
    same = [layout for layout in fits if layout.paths == fits[0].paths]
    answers = {_HOOKS[hook](layout, block) for layout in same}
    answer = answers.pop() if len(answers) == 1 else None
    if answer is None:
        why = "can be read in two ways" if answers else "is not described"
        raise UnsupportedModelError(
            f"site {name!r}: {hook} of {type(block).__name__} {why}; name the module instead, by its "
            "path in the model, with .input or .output."
        )
    return f"{path}.{answer[0]}", answer[1]


def _layouts(model: nn.Module, path: str) -> list[Layout]:
    """Return the layouts that fit a block, the most specific first."""
    inside = {name for name, _ in model.get_submodule(path).named_modules(remove_duplicate=False)}
    attentions = dict.fromkeys(layout.attention for layout in LAYOUTS if layout.attention in inside)
    result = (fitting(model, f"{path}.{name}") for name in attentions)
    fits = [fit for matches in result for fit, where, _ in matches if where == path]
    ranks = {(layout.family, layout.order): rank for rank, layout in enumerate(LAYOUTS)}
    return sorted(fits, key=lambda layout: ranks[layout.family, layout.order])


def _by_module(model: nn.Module, name: str) -> HookPoint:
    paths = {path for path in named_modules(model) if path}
    stem, _, end = name.rpartition(".")
    tries: list[tuple[str, Side]] = [(name, "output")]
    if end in {"input", "output"}:
        tries.append((stem, "input" if end == "input" else "output"))
    for path, side in tries:
        own_path = _path_in_model(path, paths)
        if own_path is not None:
            return _module_point(model, name, own_path, side)
    raise ValueError(
        f"site {name!r} is not a module of {type(model).__name__}.{suggest(name, paths)} {_listing(model)}"
    )


def _path_in_model(path: str, paths: set[str]) -> str | None:
    """Return the path in the model of a module whose path may begin further in or further out."""
    if path in paths:
        return path
    ends = [longer for longer in paths if longer.endswith(f".{path}")]
    if len(ends) == 1:
        return ends[0]
    parts = path.split(".")
    shorter = (".".join(parts[begin:]) for begin in range(1, len(parts) - 1))
    return next((tail for tail in shorter if tail in paths), None)


def _module_point(model: nn.Module, name: str, path: str, side: Side) -> HookPoint:
    for blocks, modules in block_lists(model).items():
        parts = path.removeprefix(f"{blocks}.").split(".")
        if path.startswith(f"{blocks}.") and parts[0].isdigit() and int(parts[0]) < len(modules):
            return HookPoint(name, path, side, residual=len(parts) == 1, block=int(parts[0]))
    return HookPoint(name, path, side)


def _listing(model: nn.Module) -> str:
    lists = block_lists(model).items()
    blocks = ", ".join(f"{path}.0 to {path}.{len(modules) - 1}" for path, modules in lists)
    hooks = ", ".join(f"blocks.L.{hook}" for hook in _HOOK_NAMES)
    return f"Its blocks are {blocks or 'not found'}; hooks are {hooks} and hook_embed."


def hook_points_of_blocks(model: nn.Module) -> list[HookPoint]:
    """Return the hook points of the residual stream in a model with one stack of blocks, by hook names."""
    names = ["hook_embed", "blocks.0.hook_resid_pre"]
    for blocks in block_lists(model).values():
        depth = max(len(blocks), getattr(getattr(model, "config", None), "num_hidden_layers", 0) or 0)
        hooks = ("hook_resid_post", "hook_mlp_out", "hook_attn_out")
        names += [f"blocks.{number}.{hook}" for number in range(depth) for hook in hooks]
    return _existing(model, names)


def hook_name(model: nn.Module, site: HookPoint) -> str:
    """Return the TransformerLens name of a hook point, or else the name it was resolved from."""
    if _IN_BLOCK.fullmatch(site.name) or site.name == _EMBEDDING:
        return site.name
    if site.block is None or len(block_lists(model)) != 1 or not site.residual:
        return site.name
    return f"blocks.{site.block}.hook_resid_{'pre' if site.side == 'input' else 'post'}"
