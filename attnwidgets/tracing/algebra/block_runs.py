"""A second run of a traced model that records the inputs, values and outputs of its blocks.

`_blocks` runs the model once for a stack and stores its blocks with the trace, under every layout that fits.
`block_of` returns a block under the layout that recomputes its output, and refuses it if the weights have
changed since.
"""

from __future__ import annotations

import threading
import weakref
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from attnwidgets._gradients import no_grad
from attnwidgets._selecting import spoken_range
from attnwidgets.tracing.algebra.blocks import WITHOUT, Block, fitting, require_chain, tail_dtype, tolerance
from attnwidgets.tracing.block_replay import RecordedBlock, captured
from attnwidgets.tracing.gradients.gradient_hooks import quantised_weights
from attnwidgets.tracing.layers import ModelLayer
from attnwidgets.tracing.model_state import weights_of
from attnwidgets.tracing.recording.borrow import origin, unwrap
from attnwidgets.tracing.trace import Trace
from attnwidgets.tracing.unsupported import UnsupportedModelError

if TYPE_CHECKING:
    from torch import nn

    from attnwidgets.tracing.algebra.known_layouts import Layout

    # A layout that fits, the name of the block, and the block.
    Fit = tuple[Layout, str, nn.Module]

# Blocks hold no reference to their trace, so they are freed with it.
_runs: weakref.WeakKeyDictionary[Trace, dict[str, dict[int, _BlockRun]]] = weakref.WeakKeyDictionary()
# The layout verified for each module: once per model, not once per trace.
_layout_of: weakref.WeakKeyDictionary[nn.Module, tuple[Layout, tuple[Any, ...]]] = weakref.WeakKeyDictionary()
# The layouts that fit, stack by stack.
_fitting: weakref.WeakKeyDictionary[Trace, dict[str, list[list[Fit]]]] = weakref.WeakKeyDictionary()
_lock = threading.RLock()
# A wrong layout does not come this close by chance (as a share of the tolerance), so others are not tried.
_SURE = 0.05


@dataclass
class _BlockRun:
    """A block of a pass, under each layout that fits it.

    Attributes:
        candidates: The block under each layout that fits.
        weights: Fingerprint of the weights it ran with.
        verified: The block under the layout that passed the check.
    """

    candidates: tuple[Block, ...]
    weights: int
    verified: Block | None = None


def block_of(trace: Any, layer: int, stack: str, method: str) -> Block:
    """Return a block of a trace, its layout verified on first use. The first call runs the model once.

    Args:
        trace: Trace returned by `aw.trace`.
        layer: Number of the layer, as in the model.
        stack: Name of the stack; with "cross", the block is returned from its cross-attention on.
        method: The method's name, for messages.

    Raises:
        UnsupportedModelError: If no layout describes the block, or its output differs from the layout's.
        ValueError: If a block returned NaN or infinite numbers; the message names the first such block.
    """
    with _lock:
        block_run = _blocks(trace, stack, method)[layer]
        if block_run.weights != weights_of(origin(block_run.candidates[0].module)):
            raise UnsupportedModelError(
                f"{method} is not available: the model changed after it was traced (the weights of layer "
                f"{layer} differ); trace it again, or restore them."
            )
        if block_run.verified is None:
            with no_grad():
                block = _verify(block_run.candidates, layer, method)
                attention = block.beyond if stack == "cross" else block
            if attention is None:
                raise UnsupportedModelError(
                    f"{method} is not available: no description of {type(block.module).__name__} names its "
                    f"cross-attention. {WITHOUT}"
                )
            block_run.verified = attention
        return block_run.verified


def require_whole(trace: Any, stack: str, method: str, *, attention: bool = True) -> None:
    """Raise an UnsupportedModelError if something mixes a stack's tokens that a method does not follow.

    With `attention` it follows recorded attention alone, otherwise all mixing that was recorded.
    """
    left_out = trace.left_out(stack, attention=attention)
    if left_out:
        raise UnsupportedModelError(
            f"{method} is not available: it follows tokens through every block, and {left_out}. Methods of "
            "single layers and gradients still work."
        )


def require_every_block(trace: Any, stack: str, method: str, *, attention: bool = True) -> None:
    """Raise an UnsupportedModelError if the states of some blocks of a stack were not recorded.

    With `attention` they are read around recorded attention, otherwise around all mixing that was recorded.
    """
    recorded = trace.layers(stack) if attention else trace.mixing_layers(stack)
    if not all(block.number in recorded for block in trace.anatomy.stacks[stack]):
        raise UnsupportedModelError(
            f"{method} is not available: it reads the states of every block, and in this model only those "
            f"that {'attend' if attention else 'mix tokens'} are recorded ({spoken_range(recorded)}). "
            "print(trace.anatomy) shows the others."
        )


def chain_of(trace: Any, stack: str, method: str) -> list[Block]:
    """Return all blocks of a stack, each reading the output of the block before.

    Raises:
        UnsupportedModelError: If some mixing of tokens was not recorded, no description fits a block, or
            something unknown lies between them.
    """
    require_whole(trace, stack, method)
    blocks = [block_of(trace, number, stack, method) for number in trace.layers(stack)]
    require_chain(blocks, method)
    return blocks


def _verify(candidates: tuple[Block, ...], layer: int, method: str) -> Block:
    """Return the block under the layout that recomputes its output best, if that is close enough."""
    module = origin(candidates[0].module)
    structure = structure_of(module)
    layout, verified_structure = _layout_of.get(module, (None, None))
    if verified_structure == structure:
        for block in candidates:
            if block.layout == layout:
                return block
    best, smallest = candidates[0], float("inf")
    for block in candidates:
        error = _error(block)
        best, smallest = (block, error) if error < smallest else (best, smallest)
        if smallest <= _SURE:
            break
    if not smallest <= 1:
        quantised = quantised_weights(module)
        if quantised:
            raise UnsupportedModelError(
                f"{method} is not available: it reads weights, and layer {layer} has quantised ones such as "
                f"{quantised}. Load the model without quantisation. {WITHOUT}"
            )
        raise UnsupportedModelError(
            f"{method} is not available: layer {layer}, {type(module).__name__}, does not compute what "
            f"the description of {best.layout.family} says (error: {smallest:.3g} times the tolerance). If "
            f"the model changed after it was traced, trace it again. {WITHOUT}"
        )
    _layout_of[module] = (best.layout, structure)
    return best


def _error(block: Block) -> float:
    """Return the error of a block's layout, in tolerances; infinite if its modules cannot be run."""
    try:
        return block.error()
    except (RuntimeError, TypeError, ValueError, AttributeError, IndexError):
        # Modules with these names that take other arguments or shapes.
        return float("inf")


def structure_of(block: nn.Module) -> tuple[Any, ...]:
    """Return a fingerprint of a block's modules: their classes, `forward` overrides and number of hooks."""
    hooks = ("_forward_hooks", "_forward_pre_hooks")  # torch exposes them in no other way
    return tuple(
        (type(part), id(vars(part).get("forward")), *(len(getattr(part, kind)) for kind in hooks))
        for part in block.modules()
    )


def require_description(trace: Any, stack: str, method: str) -> None:
    """Reject a trace with blocks that no layout fits, without running the model.

    Raises:
        UnsupportedModelError: If no layout fits; the message names the block's class and the methods that
            still work.
    """
    _layouts(trace, stack, method)


def has_description(trace: Any, stack: str) -> bool:
    """Return whether a layout fits every block of a stack, without running the model."""
    if isinstance(trace, Trace) and stack in _runs.get(trace, {}):
        return True
    try:
        _layouts(trace, stack, "")
    except UnsupportedModelError:
        return False
    return True


def norms_last(trace: Any, stack: str, method: str) -> bool:
    """Return whether a stack's blocks are post-norm, with norms of the sums instead of the inputs.

    If the layouts that fit disagree (OPT), the first block is run to decide.
    """
    orders = {layout.order == "post" for fits in _layouts(trace, stack, method)[:1] for layout, _, _ in fits}
    return (
        orders.pop()
        if len(orders) == 1
        else block_of(trace, trace.layers(stack)[0], stack, method).layout.order == "post"
    )


def _layouts(trace: Any, stack: str, method: str) -> list[list[Fit]]:
    """Return the layouts that fit around the attention module, by layer."""
    if getattr(trace, "model", None) is None or not isinstance(trace, Trace):
        raise UnsupportedModelError(
            f"{method} needs the model, and this trace was made without one; use "
            "aw.trace(model, tokenizer, text)."
        )
    model = unwrap(trace.model)
    by_stack = _fitting.setdefault(trace, {})
    cached = by_stack.get(stack)
    if cached is not None and all(model.get_submodule(name) is block for (_, name, block), *_ in cached):
        return cached
    layouts = []
    for layer in trace.stack_table[stack].layers:
        if not isinstance(layer, ModelLayer):
            raise UnsupportedModelError(
                f"{method} is not available: {type(model).__name__} computes attention outside transformers' "
                "attention interface, where it could not be followed to its value vectors. attention and "
                "rollout still work."
            )
        fits = list(fitting(model, layer.call.name))
        if not fits:
            raise UnsupportedModelError(
                f"{method} is not available: no description fits the block {owner(model, layer.call.name)} "
                f"(stack {stack!r}). {WITHOUT}"
            )
        layouts.append(fits)
    by_stack[stack] = layouts
    return layouts


def owner(model: nn.Module, name: str) -> str:
    """Return the class name of the block around an attention module: the first numbered part of its path."""
    parts = name.split(".")
    number = next((index for index, part in enumerate(parts) if part.isdigit()), len(parts))
    path = ".".join(parts[: number + 1])
    return type(model.get_submodule(path)).__name__


def _blocks(trace: Any, stack: str, method: str) -> dict[int, _BlockRun]:
    with _lock:
        by_stack = _runs.get(trace) if isinstance(trace, Trace) else None
        if by_stack is not None and stack in by_stack:
            return by_stack[stack]
        layouts = _layouts(trace, stack, method)
        recorded = captured(trace, stack, method)
        blocks = {}
        layers = trace.stack_table[stack].layers
        for fits, layer, (number, block) in zip(layouts, layers, recorded.layers.items(), strict=True):
            now, traced = block.attention.fingerprint(), layer.fingerprint()
            if not (now - traced).float().norm() <= tolerance(now.dtype) * traced.float().norm():
                raise UnsupportedModelError(
                    f"{method} is not available: the model changed after it was traced (the attention of "
                    f"layer {number} differs); trace it again."
                )
            candidates = _candidates(recorded.model, fits, block, method)
            blocks[number] = _BlockRun(candidates, weights_of(origin(candidates[0].module)))
        _runs.setdefault(trace, {})[stack] = blocks
        return blocks


def _candidates(model: nn.Module, fits: list[Fit], recorded: RecordedBlock, method: str) -> tuple[Block, ...]:
    """Return a recorded block under each layout whose attention modules are those that it called.

    Raises:
        UnsupportedModelError: If there is none: the block attends more than once, or in another order.
    """
    dtype = tail_dtype(recorded.hidden.dtype)
    called = [call.name for call in recorded.calls]
    values = [tensor[0].to(dtype) for tensor in recorded.values]
    candidates = []
    for layout, name, _ in fits:
        paths = [layout.attention] + ([layout.cross.attention] if layout.cross else [])
        names = [f"{name}.{path}".lstrip(".") for path in paths]
        if called not in (names, names[:1]):
            continue
        crossed = len(called) == len(names) > 1
        candidates.append(
            Block(
                model,
                model.get_submodule(name),
                layout if crossed else replace(layout, cross=None),
                recorded.calls[0],
                recorded.hidden[0].to(dtype),
                values[0],
                recorded.output[0].to(dtype),
                (recorded.calls[1], values[1]) if crossed else None,
            )
        )
    if not candidates:
        raise UnsupportedModelError(
            f"{method} is not available: no description fits {type(recorded.module).__name__}, which calls "
            f"the attention modules {', '.join(called)}. {WITHOUT}"
        )
    return tuple(candidates)
