"""Run a traced model once more and keep what its blocks read, mixed and returned."""

from __future__ import annotations

import threading
import weakref
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch

from attnwidgets.tracing.attention_function import UnsupportedModelError
from attnwidgets.tracing.blocks import WITHOUT, Block, fitting, tail_dtype, tolerance
from attnwidgets.tracing.borrow import borrowed, unwrap
from attnwidgets.tracing.recorder import Call, forward_parameters, recording
from attnwidgets.tracing.trace import RecordedLayer, Trace

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from torch import Tensor, nn

    from attnwidgets.tracing.layouts import Layout

    # A layout that fits, the block's name and the block.
    Fit = tuple[Layout, str, nn.Module]

# Blocks hold no reference to their trace, so that they go when it goes.
_runs: weakref.WeakKeyDictionary[Trace, dict[str, list[_Kept]]] = weakref.WeakKeyDictionary()
# Which layout was proved for a module, by module: once per model, not once per trace.
_proved: weakref.WeakKeyDictionary[nn.Module, tuple[Layout, tuple[Any, ...]]] = weakref.WeakKeyDictionary()
_lock = threading.RLock()


@dataclass
class _Kept:
    """One block of one pass with the layouts that may describe it, or the one that does."""

    block: Block
    candidates: tuple[Layout, ...]
    proved: bool = False


def block_of(trace: Any, layer: int, stream: str, method: str) -> Block:
    """Return one block of a trace, its description proved on first use. The first call runs the model once.

    Args:
        trace: What `aw.trace` returned.
        layer: Number of the layer, from 0.
        stream: Name of the stream.
        method: Who asks, for messages.

    Raises:
        UnsupportedModelError: If the block is not described, or does not compute what its description says.
        ValueError: If the block returned NaN or infinite numbers; the message names the first layer that did.
    """
    with _lock:
        kept = _blocks(trace, stream, method)[layer]
        if not kept.proved:
            with torch.no_grad():
                kept.block = _prove(kept, layer, method)
            kept.proved = True
        return kept.block


def _prove(kept: _Kept, layer: int, method: str) -> Block:
    """Return the block under the layout that recomputes its output best, if that is good enough."""
    block = kept.block
    known = _proved.get(block.module)
    structure = _structure(block.module)
    if known is not None and known[1] == structure and known[0] in kept.candidates:
        return replace(block, layout=known[0])
    tried = []
    for layout in kept.candidates:
        candidate = replace(block, layout=layout)
        try:
            tried.append((candidate.off(), candidate))
        except (RuntimeError, TypeError, AttributeError):
            # Modules of these names that take other arguments or shapes.
            tried.append((float("inf"), candidate))
    off, best = min(tried, key=lambda item: item[0])
    if not off <= 1:
        raise UnsupportedModelError(
            f"{method} is not available: layer {layer}, {type(block.module).__name__}, does not compute what "
            f"the description of {best.layout.family} says ({off:.3g} times the tolerance apart). If the "
            f"model was changed since it was traced, trace it again. {WITHOUT}"
        )
    _proved[block.module] = (best.layout, structure)
    return best


def _structure(block: nn.Module) -> tuple[Any, ...]:
    """Return what makes a block compute something else when it changes: its modules' classes and hooks."""
    hooks = ("_forward_hooks", "_forward_pre_hooks")  # torch tells of them in no other way
    return tuple((type(part), *(len(getattr(part, kind)) for kind in hooks)) for part in block.modules())


def described(trace: Any, stream: str, method: str) -> None:
    """Refuse a trace whose blocks no layout fits, without running the model.

    Raises:
        UnsupportedModelError: The message names the block's class and which methods still work.
    """
    _layouts(trace, stream, method)


def norms_last(trace: Any, stream: str, method: str) -> bool:
    """Return whether a stream's blocks norm what they mixed (post-norm) rather than what they read.

    Told from the descriptions where they agree; where a name leaves both open (OPT), the first block is
    proved.
    """
    orders = {
        layout.order == "post" for _, fits in _layouts(trace, stream, method)[:1] for layout, _, _ in fits
    }
    return orders.pop() if len(orders) == 1 else block_of(trace, 0, stream, method).layout.order == "post"


def _layouts(trace: Any, stream: str, method: str) -> list[tuple[str, list[Fit]]]:
    """Return, layer by layer, the attention module's name and the layouts that fit around it."""
    if getattr(trace, "model", None) is None or not isinstance(trace, Trace):
        raise UnsupportedModelError(
            f"{method} needs the model, and these numbers were given without one; make a trace with "
            "aw.trace(model, tokenizer, text)."
        )
    model = unwrap(trace.model)
    found = []
    for layer in trace.stream_table[stream].layers:
        if not isinstance(layer, RecordedLayer):
            raise UnsupportedModelError(
                f"{method} is not available: {type(model).__name__} computes attention outside transformers' "
                "attention interface, so its values are not known. attention and rollout still work."
            )
        name = layer.call.name
        fits = [] if stream == "cross" else list(fitting(model, name))
        if not fits:
            found_in = owner(model, name)
            raise UnsupportedModelError(
                f"{method} is not available: the block {found_in} (stream {stream!r}) is not described. "
                f"{WITHOUT}"
            )
        found.append((name, fits))
    return found


def owner(model: nn.Module, name: str) -> str:
    """Return the class name of the block around an attention module: what lies right below a number."""
    parts = name.split(".")
    numbers = [place for place, part in enumerate(parts) if part.isdigit()]
    path = ".".join(parts[: numbers[0] + 1]) if numbers else name
    return type(model.get_submodule(path)).__name__


def _blocks(trace: Any, stream: str, method: str) -> list[_Kept]:
    with _lock:
        kept = _runs.get(trace) if isinstance(trace, Trace) else None
        if kept is not None and stream in kept:
            return kept[stream]
        layouts = _layouts(trace, stream, method)
        blocks = _rerun(trace, layouts, method, stream)
        _runs.setdefault(trace, {})[stream] = blocks
        return blocks


@dataclass
class _Seen:
    """What is seen of one call of one block."""

    hidden: Tensor
    values: Tensor | None = None
    output: Tensor | None = None
    call: int = -1
    calls: int = 0


class _Watch:
    """Hooks around blocks and an edit that changes nothing: what each of their calls read and returned.

    Args:
        model: The model.
        names: Names of the attention modules whose blocks are watched.
    """

    def __init__(self, model: nn.Module, names: Iterable[str]) -> None:
        self.seen: dict[str, list[_Seen]] = {name: [] for name in names}
        self._names = {id(model.get_submodule(name)): name for name in self.seen}
        self._running: list[str] = []

    def hook(self, name: str, block: nn.Module) -> Iterator[Any]:
        """Hook a block and yield the handles."""

        def before(_: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
            given = args[0] if args else kwargs.get("hidden_states")
            if isinstance(given, torch.Tensor):
                self.seen[name].append(_Seen(given.detach()[0]))
                self._running.append(name)

        def after(_: nn.Module, __: tuple[Any, ...], output: Any) -> None:
            if self._running:
                first = output if isinstance(output, torch.Tensor) else output[0]
                self.seen[self._running.pop()][-1].output = first.detach()[0]

        yield block.register_forward_pre_hook(before, with_kwargs=True)
        yield block.register_forward_hook(after)

    def keep(self, index: int, module: nn.Module, weights: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Keep the values of an attention call, and count the calls of its block."""
        if self._running:
            found = self.seen[self._running[-1]][-1]
            found.calls += 1
            if self._names.get(id(module)) == self._running[-1]:
                found.values, found.call = value.detach()[0], index
        return weights, value


def _rerun(trace: Trace, layouts: Sequence[tuple[str, list[Fit]]], method: str, stream: str) -> list[_Kept]:
    """Run the model on the trace's inputs and return its blocks in order (a shared block once per call)."""
    model = unwrap(trace.model)
    watch = _Watch(model, [name for name, _ in layouts])
    options: dict[str, Any] = {"return_dict": True}
    takes = forward_parameters(model)
    if "use_cache" in takes:
        options["use_cache"] = False
    if "logits_to_keep" in takes:
        options["logits_to_keep"] = 1  # the head's work is not needed
    with ExitStack() as stack:
        stack.enter_context(borrowed(model))
        for name, fits in dict(layouts).items():
            for handle in watch.hook(name, fits[0][2]):
                stack.callback(handle.remove)
        session = stack.enter_context(recording(model, (watch.keep,)))
        model(**{**trace.inputs, **options})
    turns = {name: iter(found) for name, found in watch.seen.items()}
    blocks = [
        _kept(model, fits, next(turns[name], None), session.calls, f"layer {number}", method)
        for number, (name, fits) in enumerate(layouts)
    ]
    for number, kept in enumerate(blocks):
        query, then = kept.block.call.query[0], trace.query_key(number, stream)[0]
        if not (query - then).float().norm() <= tolerance(query.dtype) * then.float().norm():
            raise UnsupportedModelError(
                f"{method} is not available: the model was changed since it was traced (layer {number} has "
                "other queries than then); trace it again."
            )
    return blocks


def _kept(
    model: nn.Module,
    fits: list[Fit],
    found: _Seen | None,
    calls: Sequence[Call],
    where: str,
    method: str,
) -> _Kept:
    layout, _, module = fits[0]
    if found is None or found.values is None or found.output is None or found.calls != 1:
        several = found is not None and found.calls > 1
        why = "it attends more than once" if several else "it is not called with its hidden states"
        raise UnsupportedModelError(
            f"{method} is not available: no description fits {type(module).__name__}, {why}. {WITHOUT}"
        )
    if not found.output.isfinite().all():
        raise ValueError(
            f"{where} ({type(module).__name__}) is the first to return NaN or infinite numbers; look at the "
            f"model's "
            "weights and precision before explaining it."
        )
    dtype = tail_dtype(found.hidden.dtype)
    block = Block(
        model,
        module,
        layout,
        calls[found.call],
        found.hidden.to(dtype),
        found.values.to(dtype),
        found.output.to(dtype),
    )
    return _Kept(block, tuple(layout for layout, _, _ in fits))
