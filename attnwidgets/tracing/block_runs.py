"""Run a traced model once more and keep what its blocks read, mixed and returned."""

from __future__ import annotations

import threading
import weakref
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch

from attnwidgets.tracing.attention_function import UnsupportedModelError
from attnwidgets.tracing.blocks import WITHOUT, Block, fitting, tail_dtype
from attnwidgets.tracing.borrow import borrowed, unwrap
from attnwidgets.tracing.recorder import Call, forward_parameters, recording
from attnwidgets.tracing.trace import RecordedLayer, Trace

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch import Tensor, nn

    from attnwidgets.tracing.layouts import Layout

# Blocks hold no reference to their trace, so that they go when it goes.
_runs: weakref.WeakKeyDictionary[Trace, dict[str, tuple[_Kept, ...]]] = weakref.WeakKeyDictionary()
_lock = threading.RLock()


@dataclass(frozen=True)
class _Kept:
    """One block of one pass with the layouts that may describe it."""

    block: Block
    others: tuple[Layout, ...]


def block_of(trace: Any, layer: int, stream: str, method: str) -> Block:  # noqa: ANN401 - anything given as a trace
    """Return one block of a trace, its description proved on first use. The first call runs the model once.

    Args:
        trace: What `aw.trace` returned.
        layer: Number of the layer, from 0.
        stream: Name of the stream.
        method: Who asks, for messages.

    Raises:
        UnsupportedModelError: If the block is not described, or does not compute what its description says.
    """
    kept = _blocks(trace, stream, method)[layer]
    refused: UnsupportedModelError | None = None
    for layout in (kept.block.layout, *kept.others):
        block = kept.block if layout is kept.block.layout else replace(kept.block, layout=layout)
        try:
            with torch.no_grad():
                block.prove()
        except UnsupportedModelError as error:
            refused = refused or error
            continue
        except (RuntimeError, TypeError, AttributeError) as error:
            # A module of that name that takes other arguments or shapes.
            refused = refused or UnsupportedModelError(
                f"{type(block.module).__name__} is not built as the description of {layout.family} says ({error}). {WITHOUT}"
            )
            continue
        return block
    raise UnsupportedModelError(f"{method} is not available: {refused}") from refused


def described(trace: Any, stream: str, method: str) -> None:  # noqa: ANN401 - anything given as a trace
    """Refuse a trace whose blocks no layout fits, without running the model.

    Raises:
        UnsupportedModelError: The message names the block's class and which methods still work.
    """
    _layouts(trace, stream, method)


def _layouts(trace: Any, stream: str, method: str) -> list[tuple[str, list[tuple[Layout, str, nn.Module]]]]:  # noqa: ANN401
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
            owner = _owner(model, name)
            raise UnsupportedModelError(
                f"{method} is not available: the block {owner} (stream {stream!r}) is not described. {WITHOUT}"
            )
        found.append((name, fits))
    return found


def _owner(model: nn.Module, name: str) -> str:
    """Return the class name of the block an attention module lies in: the module right below a numbered one."""
    parts = name.split(".")
    numbers = [place for place, part in enumerate(parts) if part.isdigit()]
    path = ".".join(parts[: numbers[0] + 1]) if numbers else name
    return type(model.get_submodule(path)).__name__


def _blocks(trace: Any, stream: str, method: str) -> tuple[_Kept, ...]:  # noqa: ANN401
    with _lock:
        kept = _runs.get(trace) if isinstance(trace, Trace) else None
        if kept is not None and stream in kept:
            return kept[stream]
        layouts = _layouts(trace, stream, method)
        blocks = _rerun(trace, layouts)
        _runs.setdefault(trace, {})[stream] = blocks
        return blocks


@dataclass
class _Seen:
    """What hooks and the recorder see of one call of one block."""

    hidden: Tensor
    values: Tensor | None = None
    output: Tensor | None = None
    call: int = -1


def _rerun(trace: Trace, layouts: Sequence[tuple[str, list[tuple[Layout, str, nn.Module]]]]) -> tuple[_Kept, ...]:
    """Run the model on the trace's inputs and return its blocks in order (a shared block once per call)."""
    model = unwrap(trace.model)
    seen: dict[str, list[_Seen]] = {name: [] for name, _ in layouts}
    names = {id(model.get_submodule(name)): name for name in seen}

    def start(name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        given = args[0] if args else kwargs.get("hidden_states")
        if isinstance(given, torch.Tensor):
            seen[name].append(_Seen(given.detach()[0]))

    def end(name: str, output: Any) -> None:  # noqa: ANN401 - a tensor, or a tuple that starts with one
        first = output if isinstance(output, torch.Tensor) else output[0]
        if seen[name]:
            seen[name][-1].output = first.detach()[0]

    def keep(index: int, module: nn.Module, weights: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        name = names.get(id(module))
        if name is not None and seen[name]:
            seen[name][-1].values, seen[name][-1].call = value.detach()[0], index
        return weights, value

    options: dict[str, Any] = {"return_dict": True}
    takes = forward_parameters(model)
    if "use_cache" in takes:
        options["use_cache"] = False
    if "logits_to_keep" in takes:
        options["logits_to_keep"] = 1  # the head's work is not needed
    with ExitStack() as stack:
        stack.enter_context(borrowed(model))
        for name, fits in {name: fits for name, fits in layouts}.items():
            block = fits[0][2]
            before = block.register_forward_pre_hook(
                lambda _, args, kwargs, name=name: start(name, args, kwargs), with_kwargs=True
            )
            after = block.register_forward_hook(lambda _, __, output, name=name: end(name, output))
            stack.callback(before.remove)
            stack.callback(after.remove)
        session = stack.enter_context(recording(model, (keep,)))
        model(**{**trace.inputs, **options})
    turns = {name: iter(found) for name, found in seen.items()}
    return tuple(_kept(model, fits, next(turns[name], None), session.calls) for name, fits in layouts)


def _kept(
    model: nn.Module, fits: list[tuple[Layout, str, nn.Module]], found: _Seen | None, calls: Sequence[Call]
) -> _Kept:
    layout, _, module = fits[0]
    if found is None or found.values is None or found.output is None:
        raise UnsupportedModelError(
            f"what {type(module).__name__} read and returned could not be kept: it is called in another way. {WITHOUT}"
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
    return _Kept(block, tuple(other for other, _, _ in fits[1:]))
