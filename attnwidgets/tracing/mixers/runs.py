"""The vectors that tokens add to each other in any block of a trace: by a description, or read off a pass."""

from __future__ import annotations

import threading
import weakref
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from attnwidgets._gradients import no_grad
from attnwidgets.tracing.algebra.block_runs import (
    block_of,
    has_description,
    require_every_block,
    require_whole,
)
from attnwidgets.tracing.algebra.blocks import tolerance
from attnwidgets.tracing.algebra.contributions import parts_of
from attnwidgets.tracing.anatomy.forward import forward_parameters, only_last_logits
from attnwidgets.tracing.layers import ModelLayer
from attnwidgets.tracing.mixers.log import MixerLog, by_number
from attnwidgets.tracing.mixers.parts import MixedParts, mixed_parts
from attnwidgets.tracing.model_state import named_modules
from attnwidgets.tracing.recording.borrow import borrowed, unwrap
from attnwidgets.tracing.recording.recorder import recording
from attnwidgets.tracing.rerun_trace import require_same_model
from attnwidgets.tracing.unsupported import UnsupportedModelError

if TYPE_CHECKING:
    from torch import Tensor, nn

    from attnwidgets.tracing.algebra.contributions import Parts, Stage
    from attnwidgets.tracing.mixers.mix import MixedBlock
    from attnwidgets.tracing.trace import Trace

_runs: weakref.WeakKeyDictionary[Trace, dict[str, dict[int, MixedBlock]]] = weakref.WeakKeyDictionary()
_lock = threading.RLock()


def parts_at(trace: Any, layer: int, stack: str, stage: Stage, method: str) -> Parts | MixedParts:
    """Return the vectors of a block of a trace at a stage; see `algebra.contributions.parts_of`.

    A block of attention that a layout describes is taken from it, which is fastest. Any other is read off a
    pass.

    Args:
        trace: Trace returned by `aw.trace`.
        layer: Number of the block, as in the model.
        stack: Name of the stack.
        stage: "attn", "res", "res_ln" or "enc".
        method: The method's name, for messages.

    Raises:
        UnsupportedModelError: If the block's vectors are unknown.
    """
    if is_described(trace, stack):
        return parts_of(block_of(trace, layer, stack, method), stage)
    return mixed_parts(mixed_block(trace, layer, stack, method), stage)


def is_described(trace: Any, stack: str) -> bool:
    """Return whether every block of a stack mixes tokens by attention alone, and has a layout that fits."""
    table = trace.stack_table[stack]
    return bool(table.layers) and not table.mixing and has_description(trace, stack)


def mixed_block(trace: Trace, layer: int, stack: str, method: str) -> MixedBlock:
    """Return a block's run. A block with attention takes another pass, which is cached with the trace.

    Raises:
        UnsupportedModelError: If the block's mixers were not recorded.
    """
    table = trace.stack_table[stack]
    if trace.model is not None:
        require_same_model(trace, method)
    if layer in table.mixing and layer not in table.numbers:
        return table.mixing[layer]
    with _lock:
        runs = _runs.setdefault(trace, {})
        if stack not in runs:
            runs[stack] = _run(trace, stack, method)
        if layer not in runs[stack]:
            block = next((block for block in table.blocks if block.number == layer), None)
            raise UnsupportedModelError(
                f"{method} is not available: the vectors of layer {layer} are unknown"
                + (f", {block.description}" if block is not None else "")
                + ": its heads are not joined by one linear projection."
            )
        return runs[stack][layer]


def mixed_chain(trace: Trace, stack: str, method: str) -> list[MixedBlock]:
    """Return the runs of all blocks of a stack, each adding to the output of the block before.

    Raises:
        UnsupportedModelError: If some mixing of tokens was not recorded, vectors are unknown, a
            norm follows their sums, or something unknown lies between them.
    """
    require_whole(trace, stack, method, attention=False)
    require_every_block(trace, stack, method, attention=False)
    blocks = {number: mixed_block(trace, number, stack, method) for number in trace.mixing_layers(stack)}
    for block in blocks.values():
        if not block.is_pre_norm:
            raise UnsupportedModelError(
                f"{method} is not available: it follows what is added to the residual stream, and what "
                f"{block.path} returns is not known as a sum of what it reads and what its mixers and other "
                "parts add. Methods of single layers and gradients still work."
            )
    for (lower, before), (upper, after) in pairwise(blocks.items()):
        difference = (after.hidden - before.output).norm()
        if not difference <= tolerance(before.output.dtype) * before.output.norm():
            raise UnsupportedModelError(
                f"{method} is not available: layer {upper} does not add to the output of layer {lower}; "
                "something unknown lies between them. Methods of single layers and gradients still work."
            )
    return list(blocks.values())


def _run(trace: Trace, stack: str, method: str) -> dict[int, MixedBlock]:
    """Run a trace's model again and return the blocks of a stack, with their attention, by number."""
    if trace.model is None:
        raise UnsupportedModelError(
            f"{method} needs the model, and this trace was made without one; use "
            "aw.trace(model, tokenizer, text)."
        )
    layers = trace.stack_table[stack].layers
    if not all(isinstance(layer, ModelLayer) for layer in layers):
        raise UnsupportedModelError(
            f"{method} is not available: {type(trace.model).__name__} computes attention outside "
            "transformers' attention interface, where it could not be followed to its value vectors. "
            "attention and rollout still work."
        )
    options: dict[str, Any] = {"return_dict": True}
    with borrowed(unwrap(trace.model)) as model:
        if "use_cache" in forward_parameters(model):
            options["use_cache"] = False
        options |= only_last_logits(model)  # logits are not needed
        log = MixerLog(named_modules(model), attention=True)

        def done(_: nn.Module, output: Tensor) -> None:
            log.done(session.calls[-1], output)

        recorder = recording(model, readers=[log.see], listeners=[done], keeps=True)
        with no_grad(), log.watching(), recorder as session:
            model(**{**trace.inputs, **options})
    return by_number(trace.stack_table[stack].blocks, log.blocks, 0, len(trace.axes(stack)[0]))
