"""aw.circuits.head_loadings: which heads carry the output of one component to its reader at another token.

With weights of attention and deviations of norms held fixed and feed-forward layers cut, a model is linear in
its states. A vector is followed up through it, and the reader's direction down; where both meet, in the sum
that follows the heads of a layer, their product is the edge.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch

from attnwidgets._gradients import enable_grad, no_grad
from attnwidgets._selecting import at_most, element, pick
from attnwidgets._tables import Table, cells
from attnwidgets.circuits.components import Component, component_of
from attnwidgets.explanations.mixing.logit_targets import target_logits
from attnwidgets.explanations.results.trace_protocol import require_trace, resolve_stack
from attnwidgets.tracing.algebra.block_runs import block_of, chain_of
from attnwidgets.tracing.algebra.logit_parts import through_head
from attnwidgets.tracing.algebra.query_key import exact, exact_norm
from attnwidgets.tracing.algebra.residual_parts import ComponentParts
from attnwidgets.tracing.anatomy.output_heads import head_of
from attnwidgets.tracing.recording.attention_function import repeat_heads

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray
    from torch import Tensor

    from attnwidgets._tables import Columns
    from attnwidgets.tracing.algebra.blocks import Block
    from attnwidgets.tracing.algebra.steps import Norm

    Float = NDArray[np.float64]
    _Held = tuple[Norm, Tensor]  # a norm and its deviations

NAME = "head_loadings"
PAPER = "Kamath et al. 2025, Tracing Attention Computation Through Feature Interactions"
_LEAST = 0.1  # of the sizes of parts, below which their sum has no shares
_CLOSE = 0.01  # of the weight of an imported edge
_SHOWN = 3
_SENDERS = '("head", layer, head), ("mlp", layer), ("state", layer) or (layer, vector)'


class Loading(NamedTuple):
    """The part of an edge that a head carries.

    Attributes:
        layer: Number of the layer.
        head: Number of the head.
        share: Its part of the edge over the edge; NaN if parts of this layer cancel, down to a tenth of their
            sizes.
        value: The part of the edge that passes the head, in units of the reader.
    """

    layer: int
    head: int
    share: float
    value: float


@dataclass(frozen=True, repr=False)
class HeadLoadings(Table):
    """An edge by the heads that it passes.

    Attributes:
        sender: The writer.
        token: The token at which it writes.
        receiver: The reader.
        total: The edge, in units of the receiver.
        layers: Numbers of the layers between.
        values: The part of the edge that passes a head [layer, head]; NaN for heads that a layer does not
            have. Those of one layer and its bypass sum to the edge. A path passes several layers: values of
            different layers are not to be added.
        bypass: The part that passes no head of a layer [layer].
        direct: The part that passes a head and no other one, in any layer [layer, head]. These may be added.
        unread: The part that passes no head at all.
        warning: A caveat for the reader, or "".
    """

    sender: str
    token: int
    receiver: str
    total: float
    layers: tuple[int, ...]
    values: Float
    bypass: Float
    direct: Float
    unread: float
    warning: str = ""

    def shares(self, layer: int) -> Float:
        """Return the share of each head of a layer in the edge [head].

        Raises:
            ValueError: If the layer is not between both, or its parts cancel: the edge is less than a tenth
                of their sizes, and shares would be arbitrary.
        """
        (number,) = pick(layer, self.layers, "layer")
        at = self.layers.index(number)
        if not self._has_shares(at):
            raise ValueError(
                f"the parts of layer {number} cancel: they have a size of {self._size(at):.3g}, and their "
                f"sum is {self.total:.3g}. Shares would be arbitrary; read `.values`."
            )
        row = self.values[at] / self.total
        shares: Float = row[~np.isnan(row)]
        return shares

    def top(self, k: int | None = 10, *, direct: bool = False) -> list[Loading]:
        """Return the heads that carry most by size, the largest first.

        Args:
            k: Largest number of heads; None: all.
            direct: Rank paths through a single head.

        Raises:
            ValueError: If `k` is below 1.
        """
        values = self.direct if direct else self.values
        every = [
            Loading(
                self.layers[at],
                head,
                float(values[at, head] / self.total) if self._has_shares(at) else float("nan"),
                float(values[at, head]),
            )
            for at, head in np.argwhere(~np.isnan(values)).tolist()
        ]
        return at_most(sorted(every, key=lambda loading: -abs(loading.value)), k)

    def compared(self, weight: float) -> HeadLoadings:
        """Return these loadings, which say where their sum is not the weight of an imported edge, to 1 %."""
        if abs(self.total - weight) <= _CLOSE * max(abs(self.total), abs(weight)):
            return self
        warning = (
            f"The graph gives this link {weight:+.3g}, and this model {self.total:+.3g}: another precision, "
            "model, text or vector."
        )
        return replace(self, warning=warning)

    def _size(self, at: int) -> float:
        return float(np.nansum(np.abs(self.values[at])) + abs(self.bypass[at]))

    def _has_shares(self, at: int) -> bool:
        return abs(self.total) >= _LEAST * self._size(at) > 0

    def _columns(self) -> Iterator[Columns]:
        """Yield layer, head, value, direct."""
        heads = [*range(self.values.shape[1])]
        yield cells({"layer": self.layers, "head": heads}, {"value": self.values, "direct": self.direct})

    def __repr__(self) -> str:
        shown = ", ".join(
            f"head {loading.layer}.{loading.head} {loading.value:+.2f}" for loading in self.top(_SHOWN)
        )
        warning = f". {self.warning}" if self.warning else ""
        return (
            f"<HeadLoadings of {self.sender} at token {self.token} to {self.receiver}, {self.total:+.2f}: "
            f"{shown}{warning}>"
        )


def head_loadings(
    trace: Any,
    sender: Any,
    target: Any = None,
    *,
    token: int | str,
    foil: Any = None,
    reads: tuple[int, int | str, Any] | None = None,
    stack: str | None = None,
) -> HeadLoadings:
    """Return which heads carry the output of a component at a token to a logit, or to another reader.

    Weights of attention and deviations of norms are held fixed and feed-forward layers are cut, as in graphs
    of transcoders. The model is then linear in the written vector x, and for every layer l between

        edge = sum over h of  g_l+1 . head_lh(x_l)  +  g_l+1 . x_l

    where x_l is the part of x that arrives at layer l and g_l+1 the reader's direction, led back to its
    output. The sum over heads and the bypass is the edge, exactly, for one layer at a time. A soft cap or an
    activation in the output head is a line through the origin at its real value.

    Edges of `aw.circuits.edge_attribution` are direct: they pass no head, and heads are ends of them. The
    ends of such an edge, `edge.sender`, may be given here.

    Args:
        trace: A trace made by `aw.trace`.
        sender: The writer: ("head", layer, head), ("mlp", layer), or a component of a circuit;
            ("state", layer), all that a block reads; or (layer, vector), a vector [width] that is added to
            the output of a layer, such as a feature's activation times its decoder.
        target: The logit that reads, as for every method; by default the model's prediction.
        token: The token at which it is written: its number, or its label if no other has it.
        foil: Contrasting target.
        reads: Another reader, (layer, token, direction [width]): the product of a direction, such as an
            encoder's, with the input of the feed-forward layer of a block, after its norm.
        stack: Stack of a model that has several.

    Returns:
        HeadLoadings: `.values` [layer, head], `.bypass` [layer], `.total`, in logits or units of the
        direction; `.top(10)`, `.shares(layer)`; `.direct` [layer, head] of paths through a single head.

    Raises:
        ValueError: If no layer lies between, both a target and `reads` are given, or a vector has another
            width.
        IndexError: If a number is out of range.
        UnsupportedModelError: If no description fits the blocks or the output head.

    Source: Kamath et al. 2025, Tracing Attention Computation Through Feature Interactions (head loadings).

    Example:
        >>> model, tokenizer = aw.zoo.induction(letters="abcdefgh", length=16)
        >>> trace = aw.trace(model, tokenizer, "fadebcfadeb")
        >>> aw.circuits.head_loadings(trace, ("state", 1), "c", token=6)
        <HeadLoadings of state 1 at token 6 to 'c', +10.00: head 1.0 +10.00, head 1.1 +0.00>
    """
    require_trace(trace, f"circuits.{NAME}")
    if reads is None:
        logits = target_logits(trace, target, foil, method=f"circuits.{NAME}", stack=stack)
        (cell,) = logits.cells if len(logits.cells) == 1 else ((None, -1),)
        if logits.several:
            raise ValueError("target is a list; head_loadings follows one edge, to a single target.")
        stack = logits.stack
        slope = _slope(trace, stack, cell[0], [cell[1]])
        if logits.foil_cells:
            other = logits.foil_cells[0]
            slope = slope - _slope(trace, stack, other[0], [other[1]])
        label = f"{logits.labels!r}" + ("" if logits.foil is None else f" rather than {logits.foil.label!r}")
        return loadings_of(trace, stack, sender, token, slope, None, label)
    if target is not None or foil is not None:
        raise ValueError("reads names another reader than the target; give one of them.")
    stack = resolve_stack(trace, stack)
    (layer,) = pick(reads[0], trace.layers(stack), "layer")
    at = element(reads[1], trace.axes(stack)[0].units["token"].labels, "token")
    direction = direction_at(trace, stack, layer, at, reads[2])
    return loadings_of(trace, stack, sender, token, direction, layer, f"layer {layer} at token {at}")


def direction_at(trace: Any, stack: str, layer: int, token: int, given: Any) -> Tensor:
    """Return a direction [width] in the input of a layer's feed-forward part, at one token [token, width].

    Raises:
        ValueError: If it has another width.
    """
    states = block_of(trace, layer, stack, NAME).hidden
    direction = torch.zeros(states.shape, dtype=torch.float64)
    direction[token] = _vector(given, states.shape[1], "reads")
    return direction


def centred_logit(trace: Any, stack: str, position: int, index: int) -> Tensor:
    """Return the gradient [token, width] of a logit less the mean of all logits, at the last states."""
    size = trace.logits.shape[-1]
    mean = _slope(trace, stack, position, list(range(size)))
    return _slope(trace, stack, position, [index]) - mean


_AT_ONCE = 4096  # logits whose gradients are in memory together


def _slope(trace: Any, stack: str, position: int | None, indices: list[int]) -> Tensor:
    """Return the mean gradient of some logits at the last block's output [token, width]."""
    head = head_of(trace, stack, NAME, position)
    rows = head.rows(position)
    slope = torch.zeros(head.hidden.shape, dtype=torch.float64)
    with no_grad():
        for start in range(0, len(indices), _AT_ONCE):
            gradient = through_head(head, position, indices[start : start + _AT_ONCE])[0]
            slope[rows] += gradient.sum(0) / len(indices)
    return slope


def _vector(given: Any, width: int, name: str) -> Tensor:
    vector = torch.as_tensor(np.asarray(given.detach().cpu() if isinstance(given, torch.Tensor) else given))
    if vector.shape != (width,):
        raise ValueError(f"{name} holds a vector of shape {tuple(vector.shape)}; states have width {width}.")
    return vector.double()


def _sender(
    given: Any, trace: Any, stack: str, blocks: Sequence[Block], token: int
) -> tuple[str, int, Tensor]:
    """Return the label of a sender, the index of the first block that reads it, and its vector [width]."""
    numbers = list(trace.layers(stack))
    parts = tuple(given) if isinstance(given, (tuple, list)) else ()
    if parts[:1] == ("input",):
        return "input", 0, exact(blocks[0].hidden)[token]
    if len(parts) == len(("state", "layer")) and not (isinstance(parts[0], str) and parts[0] != "state"):
        if parts[0] == "state":
            (layer,) = pick(parts[1], numbers, "layer")
            return f"state {layer}", numbers.index(layer), exact(blocks[numbers.index(layer)].hidden)[token]
        (layer,) = pick(parts[0], numbers, "layer")
        vector = _vector(parts[1], blocks[0].hidden.shape[1], "sender")
        return f"a vector of layer {layer}", numbers.index(layer) + 1, vector
    if parts[:1] not in (("head",), ("mlp",)):
        raise ValueError(f"sender is {given!r}; a sender is {_SENDERS}.")
    component: Component = component_of(given, trace, stack)
    first = numbers.index(component.layer) + 1
    if first == len(blocks):
        return str(component), first, exact(blocks[0].hidden)[token]
    written = ComponentParts(trace, stack, blocks[: first + 1])
    names = [part.name for part in written.names]
    return str(component), first, written.at([token])[names.index(str(component)), 0]


def loadings_of(
    trace: Any,
    stack: str,
    sender: Any,
    token: int | str,
    direction: Tensor,
    reader: int | None,
    label: str,
) -> HeadLoadings:
    """Return the loadings of an edge; see `head_loadings`.

    Args:
        trace: The trace.
        stack: The stack.
        sender: The writer.
        token: Its token.
        direction: The reader's direction [token, width]: the last states, or those of a feed-forward layer.
        reader: Number of that layer; None for the last states.
        label: The label of the reader.
    """
    at = element(token, trace.axes(stack)[0].units["token"].labels, "token")
    blocks = chain_of(trace, stack, NAME)
    numbers = list(trace.layers(stack))
    name, first, vector = _sender(sender, trace, stack, blocks, at)
    last = len(blocks)
    if reader is not None:
        # A parallel block's feed-forward layer does not read the heads of its layer.
        last = numbers.index(reader) + (blocks[numbers.index(reader)].layout.order != "parallel")
    if first >= last:
        raise ValueError(f"no layer lies between {name} and {label}: no head carries anything.")
    with no_grad():
        frozen = [_Frozen.of(block) for block in blocks[first:last]]
        if reader is not None:
            frozen[-1] = frozen[-1].read_by(blocks[numbers.index(reader)])
    start = torch.zeros_like(direction)
    start[at] = vector
    total, values, bypass = _followed(frozen, start, direction, direct=False)
    unread, direct, _ = _followed(frozen, start, direction, direct=True)
    return HeadLoadings(name, at, label, total, tuple(numbers[first:last]), values, bypass, direct, unread)


def _followed(
    blocks: Sequence[_Frozen], start: Tensor, direction: Tensor, *, direct: bool
) -> tuple[float, Float, Float]:
    """Return an edge, its parts by head [layer, head], and the bypass of each layer [layer].

    With `direct`, the edge is the path without any head, and each head gets the path that passes no other
    head.
    """
    heads = max(len(block.weights) for block in blocks)
    values, bypass = np.full((len(blocks), heads), np.nan), np.zeros(len(blocks))
    with torch.inference_mode(mode=False), enable_grad():
        states = start.clone().requires_grad_()
        before, mixed, sums = [], [], []
        for block in blocks:
            before.append(states)
            mixed.append(block.mixed(states))
            sums.append(states if direct else states + block.written(mixed[-1]))
            states = block.after(sums[-1])
        edge = (states * direction).sum()
        slopes = torch.autograd.grad(edge, sums)
    with no_grad():
        for number, (block, slope) in enumerate(zip(blocks, slopes, strict=True)):
            parts = (mixed[number] * block.led_back(slope)).sum((1, 2))
            values[number, : len(parts)] = parts.numpy()
            bypass[number] = float((before[number] * slope).sum())
    return float(edge.detach()), values, bypass


@dataclass(frozen=True)
class _Frozen:
    """A block as a linear map of its states, its feed-forward layer cut; float64.

    Args:
        weights: Attention [head, query, key].
        value: W_V [width, kv head * dim].
        kv_heads: Number of heads of keys and values.
        norm: The norm before it, if any, and its deviations [token, 1].
        matrix: The output projection [head, dim, width].
        row: The deviations of a norm behind it, as factors [token].
        behind: Norms in the residual stream, with their deviations.
    """

    weights: Tensor
    value: Tensor
    kv_heads: int
    norm: _Held | None
    matrix: Tensor
    row: Tensor
    behind: tuple[_Held | None, ...]

    @classmethod
    def of(cls, block: Block) -> _Frozen:
        """Return a block, held fixed."""
        post = block.layout.order == "post"
        matrix, row, _ = block.branch()
        return cls(
            exact(block.weights()),
            exact(block.value_projection()[0]),
            len(block.values),
            None if post else _held(block.norm1, block.hidden),
            exact(matrix),
            exact(row),
            (_held(block.norm1, block.middle), _held(block.norm2, block.last)) if post else (),
        )

    def read_by(self, reader: Block) -> _Frozen:
        """Return the block with a feed-forward layer as its reader: its own or that of the next block."""
        if reader.layout.order == "post":
            return replace(self, behind=self.behind[:1])
        read = reader.hidden if reader.layout.order == "parallel" else reader.middle
        return replace(self, behind=(*self.behind, _held(reader.norm2, read)))

    def mixed(self, states: Tensor) -> Tensor:
        """Return the weighted sums of values [head, token, dim] of parts of the states [token, width]."""
        values = (_through(self.norm, states) @ self.value).unflatten(-1, (self.kv_heads, -1))
        return self.weights @ repeat_heads(values.transpose(0, 1)[None], len(self.weights))[0]

    def written(self, mixed: Tensor) -> Tensor:
        """Return the sum of the outputs of all heads [token, width]."""
        return torch.einsum("hnd,hdw->nw", mixed, self.matrix) * self.row[:, None]

    def led_back(self, slope: Tensor) -> Tensor:
        """Return the direction [head, token, dim] of each head's sums for one [token, width] behind them."""
        return torch.einsum("nw,hdw->hnd", slope * self.row[:, None], self.matrix)

    def after(self, states: Tensor) -> Tensor:
        """Return the block's output for a part of the sum that follows its heads."""
        for held in self.behind:
            states = _through(held, states)
        return states


def _held(norm: Norm | None, states: Tensor) -> _Held | None:
    """Return a norm with the deviations of the states that it reads."""
    if norm is None:
        return None
    precise = exact_norm(norm)
    return precise, precise.deviation(exact(states))


def _through(held: _Held | None, states: Tensor) -> Tensor:
    return states if held is None else held[0].direct(states) / held[1]
