"""A row of a kernel's weights, and the steps that give each of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from attnwidgets.explanations.results.trace_protocol import require_trace, resolve_stack
from attnwidgets.tracing.anatomy.blocks import ATTENTION, overlap
from attnwidgets.tracing.unsupported import UnsupportedModelError

if TYPE_CHECKING:
    from attnwidgets.tracing.mixers.chains import Chain
    from attnwidgets.tracing.mixers.kernels import Kernel
    from attnwidgets.tracing.mixers.mix import Mix
    from attnwidgets.tracing.trace import Trace

Float = NDArray[np.float64]

_TOLERANCE = 1e-9  # error of a weight that is computed twice in float64, relative to the row


@dataclass(frozen=True)
class KernelRow:
    """A query of a head or channel of a block that mixes tokens without attention.

    Attributes:
        kind: How the head mixes tokens: "state space", "gated delta rule", ...
        kernel: The kernel with its recorded arguments.
        group: Number of the head or channel among those of the kernel.
        query: The position that reads.
        channels: Number of channels, if each has a separate kernel; 0 if each head has.
        reach: How many tokens a convolution in front of the kernel mixes into a position, itself included.
        weights: alpha of the query [position], up to the query.
    """

    kind: str
    kernel: Kernel
    group: int
    query: int
    channels: int
    reach: int
    weights: Float

    def chain(self, key: int) -> Chain:
        """Return the steps that give the weight of a position.

        Raises:
            IndexError: If the position is not up to the query.
            ArithmeticError: If the steps do not lead to the weight.
        """
        if not 0 <= key < len(self.weights):
            raise IndexError(f"key {key} is out of range: query {self.query} reads 0 to {self.query}")
        chain = self.kernel.chain(self.group, self.query, key)
        error = abs(chain.weight - self.weights[key])
        if not error <= _TOLERANCE * max(np.abs(self.weights).max(), abs(chain.start / chain.total)):
            raise ArithmeticError(
                f"the steps from position {key} to {self.query} give {chain.weight:.6g}, and the {self.kind} "
                f"has {self.weights[key]:.6g}"
            )
        return chain


def mixer_at(trace: Any, layer: int, head: int, stack: str) -> tuple[str, Mix | None, int]:
    """Return a head's kind of mixer, its mixing (None for attention) and its number in that mixer.

    Raises:
        IndexError: If the block has no such head.
        UnsupportedModelError: If its mixing was not recorded.
    """
    table = getattr(trace, "stack_table", {}).get(stack)
    if table is None or layer not in table.mixing:
        return ATTENTION, None, head
    block = next(block for block in trace.anatomy.stacks[stack] if block.number == layer)
    first = 0
    for mixer in block.mapped:
        heads = max(mixer.heads, 1)
        if first <= head < first + heads:
            if mixer.stack:
                return mixer.kind, None, head - first
            mixes = table.mixing[layer].mixes
            mix = next((mix for mix in mixes if overlap(mixer.path, mix.path)), None)
            if mix is None:
                raise UnsupportedModelError(f"how {mixer.path} mixes tokens was not recorded")
            return mixer.kind, mix, head - first
        first += heads
    raise IndexError(f"head {head} is out of range: layer {layer} has head 0 to {first - 1}")


def kernel_row(
    trace: Trace, layer: int, head: int, query: int, *, channel: int | None = None, stack: str | None = None
) -> KernelRow | None:
    """Return a row of a kernel's weights; None for a head that attends (see `attention_row`).

    Args:
        trace: A trace made by `aw.trace`, or by `aw.from_qkv` with `rule=`.
        layer: Number of the block.
        head: Number of the head, as in `aw.mixing`.
        query: Index of the query's token.
        channel: Number of the channel, if each has a separate kernel; None: the channel with the largest
            weights in this row.
        stack: Stack of a model that has several; the trace's default if omitted.

    Raises:
        IndexError: If the head, query or channel is out of range.
        ValueError: If the stack is unknown.
        UnsupportedModelError: If the block's mixing was not recorded, is a convolution, or differs from the
            output of the kernel (under an intervention on its rows).
    """
    require_trace(trace, "kernel_row")
    stack = resolve_stack(trace, stack)
    kind, mix, number = mixer_at(trace, layer, head, stack)
    if mix is None:
        return None
    if not mix.kernel.has_state:
        raise UnsupportedModelError(
            f"a weight of layer {layer} ({kind}) is not a chain of steps: no state carries what a token "
            "writes to later ones. aw.mixing(trace) shows its shares."
        )
    if not 0 <= query < mix.n_tokens:
        raise IndexError(f"query {query} is out of range: layer {layer} has query 0 to {mix.n_tokens - 1}")
    weights = mix.proved.kernel.rows([query])[:, 0].detach().cpu().numpy()
    channels = len(weights) if len(weights) == mix.n_channels else 0
    if channels:
        read = np.abs(weights[:, : max(query, 1)]).sum(axis=1)
        number = int(read.argmax()) if channel is None else channel
        if not 0 <= number < channels:
            raise IndexError(
                f"channel {number} is out of range: layer {layer} has channel 0 to {channels - 1}"
            )
    return KernelRow(kind, mix.kernel, number, query, channels, mix.reach, weights[number])
