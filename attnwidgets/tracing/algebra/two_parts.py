"""States in two parts, one of them relevant, passed through the blocks of a model and its output head.

Contextual decomposition (Murdoch et al. 2018; Hsu et al. 2025, CD-T, section 3): every state is the sum of
the part that comes from some sources (relevant) and of the rest. Linear maps act on both parts, norms do too
with the deviation of their sum, attention keeps the weights that it had, a bias is shared in proportion to
the sizes of both parts, component by component, and a nonlinear function of the irrelevant part alone is
irrelevant: f(b + g) = [f(b + g) - f(g)] + f(g).

A product of two projections (a gated feed-forward layer, which the paper does not cover) counts as such a
function, too, where b is small next to the whole. If the parts are as large as the whole, it would square the
components that cancel in their sum, block after block, until rounding leaves nothing of the sum. There, half
of the product follows each factor's parts ("divided").
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from attnwidgets.tracing.algebra.steps import Affine, Gated, Norm, Scale
from attnwidgets.tracing.recording.attention_function import repeat_heads

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from torch import Tensor

    from attnwidgets.tracing.algebra.decomposed_layer import DecomposedLayer
    from attnwidgets.tracing.algebra.steps import Step
    from attnwidgets.tracing.anatomy.output_heads import Head

    # Takes a slice of copies and a component's parts; returns the parts to continue with.
    Change = Callable[[slice, "TwoParts"], "TwoParts"]

# A CPU is fastest with chunks that stay in its caches; an accelerator needs larger ones.
_CHUNK_BYTES = 2**27
_ACCELERATOR_CHUNK_BYTES = 2**30


@dataclass(frozen=True)
class TwoParts:
    """A state as the sum of two parts, for several choices of the sources.

    Attributes:
        relevant: The part from the sources [copy, token, ...].
        irrelevant: The rest [copy, token, ...].
    """

    relevant: Tensor
    irrelevant: Tensor

    @property
    def whole(self) -> Tensor:
        """The state [copy, token, ...]."""
        return self.relevant + self.irrelevant

    def __len__(self) -> int:
        return len(self.relevant)

    def __getitem__(self, copies: slice) -> TwoParts:
        """Return the parts of some copies."""
        return TwoParts(self.relevant[copies], self.irrelevant[copies])

    def __add__(self, other: TwoParts) -> TwoParts:
        """Return the parts of a sum."""
        return TwoParts(self.relevant + other.relevant, self.irrelevant + other.irrelevant)

    def map(self, function: Callable[[Tensor], Tensor]) -> TwoParts:
        """Return both parts after a linear function."""
        return TwoParts(function(self.relevant), function(self.irrelevant))

    def biased(self, bias: Tensor | None) -> TwoParts:
        """Return the parts after a bias was added, shared by their sizes, component by component.

        A bias where both parts are zero is irrelevant.
        """
        if bias is None:
            return self
        sizes = self.map(torch.abs)
        total = sizes.whole
        share = torch.where(total > 0, sizes.relevant / torch.where(total > 0, total, 1.0), 0.0)
        added = share * bias
        return TwoParts(self.relevant + added, self.irrelevant + (bias - added))

    def through(self, steps: Iterable[Step], *, divided: bool = False) -> TwoParts:
        """Return the parts after some steps; see `after`."""
        parts = self
        for step in steps:
            parts = parts.after(step, divided=divided)
        return parts

    def after(self, step: Step, *, divided: bool = False) -> TwoParts:
        """Return the parts after a step.

        Args:
            step: The step.
            divided: Whether half of a product follows each factor's parts; otherwise the product of the
                irrelevant parts is irrelevant, and the rest relevant.
        """
        if isinstance(step, Norm):
            deviation = step.deviation(self.whole)
            return self.map(lambda part: step.direct(part) / deviation).biased(step.shift)
        if isinstance(step, Affine):
            return self.map(lambda part: part @ step.matrix).biased(step.bias)
        if isinstance(step, Scale):
            return self.map(step)
        if isinstance(step, Gated):
            gate, up = self.after(step.gate), self.after(step.up)
            opened, alone = step.function(gate.whole), step.function(gate.irrelevant)
            if divided:
                both = TwoParts(opened - alone, alone).map(lambda part: part * up.whole)
                return (both + up.map(lambda part: part * opened)).map(lambda part: part / 2)
            rest = alone * up.irrelevant
            return TwoParts(opened * up.whole - rest, rest)
        rest = step.function(self.irrelevant)
        return TwoParts(step.function(self.whole) - rest, rest)


def all_irrelevant(states: Tensor, copies: int) -> TwoParts:
    """Return states [token, dim] of which nothing is relevant yet, [copy, token, dim]."""
    rest = states.expand(copies, *states.shape).clone()
    return TwoParts(torch.zeros_like(rest), rest)


def from_tokens(states: Tensor, spans: Sequence[Sequence[int]]) -> TwoParts:
    """Return states [token, dim] of which some tokens are relevant: a copy for every span of tokens."""
    chosen = torch.zeros(len(spans), len(states), 1, dtype=torch.bool, device=states.device)
    for copy, span in enumerate(spans):
        chosen[copy, list(span)] = True
    zero = states.new_zeros(())
    return TwoParts(torch.where(chosen, states, zero), torch.where(chosen, zero, states))


def through_block(
    layer: DecomposedLayer,
    parts: TwoParts,
    heads: Change | None = None,
    mlp: Change | None = None,
    *,
    divided: bool = False,
) -> TwoParts:
    """Return the parts of a block's output [copy, token, dim].

    Args:
        layer: The block.
        parts: The parts of its input.
        heads: Sees, and may change, the heads' mixed values [copy, token, head, head dim].
        mlp: The same for the feed-forward layer's output [copy, token, dim].
        divided: How products are split; see `TwoParts.after`.
    """
    tokens, width = parts.relevant.shape[1:]
    wide = [step.matrix.shape[1] for step in layer.feed if isinstance(step, Affine)]
    wide += [2 * step.up.matrix.shape[1] for step in layer.feed if isinstance(step, Gated)]
    numbers = 4 * tokens * (max(wide, default=0) + 2 * width + 2 * len(layer.matrix))
    limit = _CHUNK_BYTES if parts.relevant.device.type == "cpu" else _ACCELERATOR_CHUNK_BYTES
    size = max(1, limit // (numbers * parts.relevant.element_size()))
    done = [
        _through_block(layer, parts[copies], copies, heads, mlp, divided=divided)
        for copies in (slice(at, min(at + size, len(parts))) for at in range(0, len(parts), size))
    ]
    return TwoParts(
        torch.cat([part.relevant for part in done]), torch.cat([part.irrelevant for part in done])
    )


def _through_block(
    layer: DecomposedLayer,
    parts: TwoParts,
    copies: slice,
    heads: Change | None,
    mlp: Change | None,
    *,
    divided: bool,
) -> TwoParts:
    block = layer.block
    order, norm1, norm2 = block.layout.order, block.norm1, block.norm2
    read = parts if order == "post" or norm1 is None else parts.after(norm1)
    values = read.after(layer.value)
    mixed = values.map(lambda part: _mixed(layer, part))
    mixed = mixed if heads is None else heads(copies, mixed)
    attended = mixed.map(lambda part: part.flatten(2) @ layer.matrix).biased(layer.bias)
    middle = parts + attended
    start = middle
    if order == "post":
        start = middle if norm1 is None else middle.after(norm1)
        fed = start.through(layer.feed, divided=divided)
    else:
        seen = parts if order == "parallel" else middle
        fed = (seen if norm2 is None else seen.after(norm2)).through(layer.feed, divided=divided)
    last = start + (fed if mlp is None else mlp(copies, fed))
    return last.after(norm2) if order == "post" and norm2 is not None else last


def _mixed(layer: DecomposedLayer, values: Tensor) -> Tensor:
    """Return mixed values [copy, token, head, head dim] of values [copy, token, kv head * head dim]."""
    kv, _, size = layer.block.values.shape
    by_head = repeat_heads(values.unflatten(-1, (kv, size)).transpose(1, 2), len(layer.weights))
    return torch.matmul(layer.weights, by_head).transpose(1, 2)


def through_head_in_two(
    head: Head, position: int | None, indices: Sequence[int], parts: TwoParts
) -> TwoParts:
    """Return the parts of some logits [copy, target].

    Args:
        head: The model's output head.
        position: Row of logits [token, vocabulary]; None for [class].
        indices: Columns of the logits.
        parts: The parts of the last block's output [copy, token, dim].
    """
    rows = head.rows(position)
    state = parts.map(lambda part: part[:, rows]).through(head.before)
    state = state.map(lambda part: part.mean(1, keepdim=True))
    last = max(index for index, step in enumerate(head.steps) if isinstance(step, Affine))
    for index, step in enumerate(head.steps):
        if index == last and isinstance(step, Affine):
            columns = list(indices)
            bias = None if step.bias is None else step.bias[columns]
            state = state.after(Affine(step.matrix[:, columns], bias))
        else:
            state = state.after(step)
    return state.map(lambda part: part[:, 0])
