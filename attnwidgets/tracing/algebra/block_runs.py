"""Run a traced model once more and keep what its blocks read, mixed and returned."""

from __future__ import annotations

import threading
import weakref
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch

from attnwidgets.tracing.algebra.blocks import WITHOUT, Block, fitting, tail_dtype, tolerance
from attnwidgets.tracing.block_replay import RecordedBlock, captured
from attnwidgets.tracing.layers import RecordedLayer
from attnwidgets.tracing.recording.attention_function import UnsupportedModelError
from attnwidgets.tracing.recording.borrow import unwrap
from attnwidgets.tracing.recording.twin import origin
from attnwidgets.tracing.trace import Trace

if TYPE_CHECKING:
    from torch import nn

    from attnwidgets.tracing.algebra.block_layout import Layout

    # A layout that fits, the block's name and the block.
    Fit = tuple[Layout, str, nn.Module]

# Blocks hold no reference to their trace, so that they go when it goes.
_runs: weakref.WeakKeyDictionary[Trace, dict[str, list[_Kept]]] = weakref.WeakKeyDictionary()
# Which layout was proved for a module, by module: once per model, not once per trace.
_proved: weakref.WeakKeyDictionary[nn.Module, tuple[Layout, tuple[Any, ...]]] = weakref.WeakKeyDictionary()
# The layouts that fit, stack by stack.
_fitting: weakref.WeakKeyDictionary[Trace, dict[str, list[list[Fit]]]] = weakref.WeakKeyDictionary()
_lock = threading.RLock()
# A share of the tolerance that a wrong description does not come near by chance: others need not be tried.
_SURE = 0.05


@dataclass
class _Kept:
    """One block of one pass under every layout that may describe it, or under the one that does.

    Attributes:
        candidates: The block under every layout that fits.
        weights: What tells the weights that it ran with from others.
        proved: The block under the layout that was proved.
    """

    candidates: tuple[Block, ...]
    weights: tuple[tuple[int, int], ...]
    proved: Block | None = None


def block_of(trace: Any, layer: int, stack: str, method: str) -> Block:
    """Return one block of a trace, its description proved on first use. The first call runs the model once.

    Args:
        trace: What `aw.trace` returned.
        layer: Number of the layer, from 0.
        stack: Name of the stack; of "cross", the block as its cross-attention sees it.
        method: Who asks, for messages.

    Raises:
        UnsupportedModelError: If the block is not described, or does not compute what its description says.
        ValueError: If a block returned NaN or infinite numbers; the message names the first that did.
    """
    with _lock:
        kept = _blocks(trace, stack, method)[layer]
        if kept.weights != _weights(origin(kept.candidates[0].module)):
            raise UnsupportedModelError(
                f"{method} is not available: the model was changed since it was traced (layer {layer} has "
                "other weights than then); trace it again, or put them back."
            )
        if kept.proved is None:
            with torch.no_grad():
                found = _prove(kept.candidates, layer, method)
                beyond = found.beyond if stack == "cross" else found
            if beyond is None:
                raise UnsupportedModelError(
                    f"{method} is not available: no description of {type(found.module).__name__} names its "
                    f"cross-attention. {WITHOUT}"
                )
            kept.proved = beyond
        return kept.proved


def _prove(candidates: tuple[Block, ...], layer: int, method: str) -> Block:
    """Return the block under the layout that recomputes its output best, if that is good enough."""
    module = origin(candidates[0].module)
    known = _proved.get(module)
    structure = structure_of(module)
    if known is not None and known[1] == structure:
        again = next((block for block in candidates if block.layout == known[0]), None)
        if again is not None:
            return again
    best, off = candidates[0], float("inf")
    for block in candidates:
        found = _off(block)
        best, off = (block, found) if found < off else (best, off)
        if off <= _SURE:
            break
    if not off <= 1:
        raise UnsupportedModelError(
            f"{method} is not available: layer {layer}, {type(module).__name__}, does not compute what "
            f"the description of {best.layout.family} says ({off:.3g} times the tolerance apart). If the "
            f"model was changed since it was traced, trace it again. {WITHOUT}"
        )
    _proved[module] = (best.layout, structure)
    return best


def _off(block: Block) -> float:
    """Return by how much a block's description misses its output; infinite where it cannot be followed."""
    try:
        return block.off()
    except (RuntimeError, TypeError, ValueError, AttributeError):
        # Modules of these names that take other arguments or shapes.
        return float("inf")


def structure_of(block: nn.Module) -> tuple[Any, ...]:
    """Return what makes a block compute something else when it changes: its modules' classes and hooks."""
    hooks = ("_forward_hooks", "_forward_pre_hooks")  # torch tells of them in no other way
    return tuple(
        (type(part), id(vars(part).get("forward")), *(len(getattr(part, kind)) for kind in hooks))
        for part in block.modules()
    )


def _weights(block: nn.Module) -> tuple[tuple[int, int], ...]:
    """Return what changes when a weight does: where it lies, and how often it was written to."""
    return tuple(
        (p.data_ptr(), 0 if p.is_inference() else p._version)  # noqa: SLF001 - torch has no public name for it
        for p in block.parameters()
    )


def described(trace: Any, stack: str, method: str) -> None:
    """Refuse a trace whose blocks no layout fits, without running the model.

    Raises:
        UnsupportedModelError: The message names the block's class and which methods still work.
    """
    _layouts(trace, stack, method)


def norms_last(trace: Any, stack: str, method: str) -> bool:
    """Return whether a stack's blocks norm what they mixed (post-norm) rather than what they read.

    Told from the descriptions where they agree; where a name leaves both open (OPT), the first block is
    proved.
    """
    orders = {layout.order == "post" for fits in _layouts(trace, stack, method)[:1] for layout, _, _ in fits}
    return orders.pop() if len(orders) == 1 else block_of(trace, 0, stack, method).layout.order == "post"


def _layouts(trace: Any, stack: str, method: str) -> list[list[Fit]]:
    """Return, layer by layer, the layouts that fit around the attention module."""
    if getattr(trace, "model", None) is None or not isinstance(trace, Trace):
        raise UnsupportedModelError(
            f"{method} needs the model, and these numbers were given without one; make a trace with "
            "aw.trace(model, tokenizer, text)."
        )
    model = unwrap(trace.model)
    known = _fitting.setdefault(trace, {})
    kept = known.get(stack)
    if kept is not None and all(model.get_submodule(name) is block for (_, name, block), *_ in kept):
        return kept
    found = []
    for layer in trace.stack_table[stack].layers:
        if not isinstance(layer, RecordedLayer):
            raise UnsupportedModelError(
                f"{method} is not available: {type(model).__name__} computes attention outside transformers' "
                "attention interface, so its values are not known. attention and rollout still work."
            )
        fits = list(fitting(model, layer.call.name))
        if not fits:
            raise UnsupportedModelError(
                f"{method} is not available: the block {owner(model, layer.call.name)} (stack {stack!r}) "
                f"is not described. {WITHOUT}"
            )
        found.append(fits)
    known[stack] = found
    return found


def owner(model: nn.Module, name: str) -> str:
    """Return the class name of the block around an attention module: what lies right below a number."""
    parts = name.split(".")
    numbers = [place for place, part in enumerate(parts) if part.isdigit()]
    path = ".".join(parts[: numbers[0] + 1]) if numbers else name
    return type(model.get_submodule(path)).__name__


def _blocks(trace: Any, stack: str, method: str) -> list[_Kept]:
    with _lock:
        kept = _runs.get(trace) if isinstance(trace, Trace) else None
        if kept is not None and stack in kept:
            return kept[stack]
        layouts = _layouts(trace, stack, method)
        recorded = captured(trace, stack, method)
        blocks = []
        for number, (fits, block) in enumerate(zip(layouts, recorded.layers, strict=True)):
            query, then = block.attention.query[0], trace.query_key(number, stack)[0]
            if not (query - then).float().norm() <= tolerance(query.dtype) * then.float().norm():
                raise UnsupportedModelError(
                    f"{method} is not available: the model was changed since it was traced (layer {number} "
                    "has other queries than then); trace it again."
                )
            views = tuple(_viewed(recorded.model, fits, block, method))
            blocks.append(_Kept(views, _weights(origin(views[0].module))))
        _runs.setdefault(trace, {})[stack] = blocks
        return blocks


def _viewed(model: nn.Module, fits: list[Fit], recorded: RecordedBlock, method: str) -> list[Block]:
    """Return a recorded block under every layout whose attentions are those that it called.

    Raises:
        UnsupportedModelError: If there is none: it attends more than once, or in another order.
    """
    dtype = tail_dtype(recorded.hidden.dtype)
    called = [call.name for call in recorded.calls]
    values = [tensor[0].to(dtype) for tensor in recorded.values]
    found = []
    for layout, name, _ in fits:
        paths = [layout.attention] + ([layout.cross.attention] if layout.cross else [])
        names = [f"{name}.{path}".lstrip(".") for path in paths]
        if called not in (names, names[:1]):
            continue
        crossed = len(called) == len(names) > 1
        found.append(
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
    if not found:
        raise UnsupportedModelError(
            f"{method} is not available: no description fits {type(recorded.module).__name__}, which calls "
            f"the attentions {', '.join(called)}. {WITHOUT}"
        )
    return found
