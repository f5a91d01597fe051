"""Free attention: the part of a row that can move to other keys without changing the head's output."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from attnwidgets._progress import progress
from attnwidgets._selecting import pick
from attnwidgets._tables import Table, cells
from attnwidgets.explanations.results.trace_protocol import provenance_of, require_trace, resolve_stack

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from numpy.typing import NDArray

    from attnwidgets._tables import Columns
    from attnwidgets.explanations.results.mixing_map import MixingMap
    from attnwidgets.tracing.interventions import Intervention
    from attnwidgets.tracing.trace import Trace

    Float = NDArray[np.float64]
    Bools = NDArray[np.bool_]

PAPER = "Brunner et al. 2020, On Identifiability in Transformers"
_RANK = 1e-10
_ZERO = 1e-9


@dataclass(frozen=True)
class FreeAttention(Table):
    """Alternative attention rows with the same head outputs; returned by `aw.statistics.free_attention`.

    Attributes:
        trace: The trace.
        stack: The stack.
        layers: Numbers of the layers.
        heads: Numbers of the heads.
        queries: Positions of the queries.
        movable: Share of a row that moves to other keys, 0 to 1 [layer, head, query]: half the sum of
            |a' - a|.
        rows: Alternative rows a' [key] by (layer, head, query); not negative, with a sum of 1.
        identifiable: Largest number of keys for which rows are unique [layer, head]: the rank of [V, 1], at
            most the head's dimension plus 1.
    """

    trace: Trace
    stack: str
    layers: tuple[int, ...]
    heads: tuple[int, ...]
    queries: tuple[int, ...]
    movable: Float
    rows: Mapping[tuple[int, int, int], Float]
    identifiable: NDArray[np.int64]

    def _columns(self) -> Iterator[Columns]:
        """Yield layer, head, query, movable."""
        axes = {"layer": self.layers, "head": self.heads, "query": self.queries}
        yield cells(axes, {"movable": self.movable})

    def row(self, layer: int, head: int, query: int, amount: float = 1.0) -> Float:
        """Return a row between the model's and the alternative [key]; all of them give the same output.

        Args:
            layer: Layer number.
            head: Head number.
            query: Position of the token.
            amount: From 0, the model's row, to 1, the alternative one.

        Raises:
            ValueError: If the amount is not in 0 to 1, or the row was not computed.
        """
        if not 0 <= amount <= 1:
            raise ValueError(f"amount must be from 0 to 1, not {amount}.")
        if (layer, head, query) not in self.rows:
            raise ValueError(
                f"row {query} of layer {layer}, head {head} was not computed; pass it to "
                "aw.statistics.free_attention."
            )
        row = _floats(self.trace.attention_rows(layer, [head], [query], self.stack)[0, 0])
        return row + amount * (self.rows[layer, head, query] - row)

    def to_map(self, amount: float = 1.0) -> MixingMap:
        """Return attention with all of these rows moved [layer, head, query, key]."""
        from attnwidgets.explanations.results.mixing_map import MixingMap

        query, key = self.trace.axes(self.stack)
        maps = np.stack(
            [_floats(self.trace.attention_rows(layer, self.heads, None, self.stack)) for layer in self.layers]
        )
        for layer, head, token in self.rows:
            maps[self.layers.index(layer), self.heads.index(head), token] = self.row(
                layer, head, token, amount
            )
        common = provenance_of(
            self.trace, self.stack, "free_attention", paper=PAPER, options={"amount": amount}
        )
        common["provenance"] |= {"title": "attention, free part moved"}
        return MixingMap(
            maps.astype(common["dtype"]), query=query, key=key, layers=self.layers, heads=self.heads, **common
        )

    def intervention(self, amount: float = 1.0) -> Intervention:
        """Return the intervention that gives the model these rows of a layer; predictions do not change.

        Raises:
            ValueError: If there are several layers: the values of a layer depend on the layers below it to
                the last digit.
        """
        from attnwidgets.intervene.edit_attention import edit_attention

        if len(self.layers) > 1:
            raise ValueError(f"an intervention needs one layer, not {len(self.layers)}: pass layer=.")
        matrix = np.asarray(self.to_map(amount).layer(self.layers[0]), dtype=np.float64)
        return edit_attention(self.trace, {self.layers[0]: list(self.heads)}, matrix, stack=self.stack)

    def __repr__(self) -> str:
        layers, heads, queries = self.movable.shape
        size = f"layer {layers}, head {heads}, query {queries}"
        moves = f"{np.nanmean(self.movable):.2f} of a row moves on average"
        return f"<FreeAttention [{size}]: {moves}>"


def free_attention(
    trace: Any,
    layer: Any = None,
    head: Any = None,
    query: Any = None,
    *,
    stack: str | None = None,
) -> FreeAttention:
    """Return the share of attention rows that can move to other tokens without changing the heads' output.

    With V the values of a head [key, dim] and a row a, every a' with a' V = a V gives the same output. If
    there are more keys than dimensions, such a' exist, and attention says less than it seems to. Here a' has
    to be as valid as attention: not negative, with a sum of 1, and only on keys that the query may read. The
    row that overlaps least with a solves the linear program min a . a' (its vertices have no more non-zero
    keys than the rank of [V, 1]). The share of a that it moves is a lower bound.

    Rows of a head are independent: any subset of them may move. n rows of n keys take n programs of some
    milliseconds each; for long texts pass the rows of interest.

    Args:
        trace: A trace by `aw.trace`, with its model.
        layer: A layer number, several or a slice; None: all.
        head: The same for heads.
        query: The same for tokens.
        stack: Which attention, in models with several stacks.

    Returns:
        FreeAttention: `.movable` [layer, head, query], a share from 0 (the row is unique) to 1 (all of it
        can move), `.row(...)`, `.to_map()`, `.intervention()`.

    Raises:
        ValueError: If the stack is unknown, or the trace has no model.
        IndexError: If the layer, head or token is out of range.

    Source: Brunner et al. 2020, section 3 (the null space of V); the program is ours.

    Example:
        >>> trace = aw.trace(*aw.demo_model("encoder"), "The cat sat on the mat. " * 4)
        >>> free = aw.statistics.free_attention(trace, layer=0, head=1, query=[2, 3])
        >>> free.movable.shape, int(free.identifiable[0, 0])
        ((1, 1, 2), 30)
    """
    from attnwidgets.tracing.anatomy.attention_modules import sites

    require_trace(trace, "statistics.free_attention")
    sites(trace)
    name = resolve_stack(trace, stack)
    layers = pick(slice(None) if layer is None else layer, trace.layers(name), "layer")
    heads = pick(slice(None) if head is None else head, range(trace.n_heads(name)), "head")
    queries = pick(slice(None) if query is None else query, range(len(trace.axes(name)[0])), "token")
    movable = np.zeros((len(layers), len(heads), len(queries)))
    ranks = np.zeros(movable.shape[:2], dtype=np.int64)
    rows: dict[tuple[int, int, int], Float] = {}
    for at in progress(list(np.ndindex(ranks.shape)), "moving attention"):
        number = layers[at[0]], heads[at[1]]
        values, readable = _values(trace, name, *number)
        weights = _floats(trace.attention_rows(number[0], [number[1]], queries, name)[0])
        ranks[at] = _basis(values).shape[1]
        for index, (token, row) in enumerate(zip(queries, weights, strict=True)):
            alternative = least_overlapping_row(row, values, readable[token])
            rows[number[0], number[1], token] = alternative
            movable[at][index] = np.abs(alternative - row).sum() / 2
    return FreeAttention(trace, name, layers, heads, queries, movable, rows, ranks)


def effective_attention(trace: Any, layer: int, head: int, *, stack: str | None = None) -> Float:
    """Return attention without its part in the null space of V [query, key]: the part that has an effect.

    Args:
        trace: A trace by `aw.trace`, with its model.
        layer: Layer number.
        head: Head number.
        stack: Which attention, in models with several stacks.

    Returns:
        Rows projected on the space that V's columns span, [query, key] in float64. Entries may be negative,
        and rows need not sum to 1. High: read with effect. Near zero: no effect on the head's output.

    Raises:
        IndexError: If the layer or head is out of range.
        ValueError: If the stack is unknown, or the trace has no model.

    Source: Brunner et al. 2020, equation 4.

    Example:
        >>> trace = aw.trace(*aw.demo_model("encoder"), "The cat sat on the mat.")
        >>> aw.statistics.effective_attention(trace, layer=0, head=1).shape
        (9, 9)
    """
    name = resolve_stack(trace, stack)
    (layer,) = pick(layer, trace.layers(name), "layer")
    (head,) = pick(head, range(trace.n_heads(name)), "head")
    basis = _basis(_values(trace, name, layer, head)[0], ones=False)
    weights = _floats(trace.attention_rows(layer, [head], None, name)[0])
    return weights @ basis @ basis.T


def least_overlapping_row(weights: Float, values: Float, readable: Bools) -> Float:
    """Return the row that overlaps least with `weights` and gives the same mixture of `values`.

    This is `weights` itself if no other weights do.

    Args:
        weights: Row of attention [key], not negative.
        values: Values [key, dim].
        readable: Keys that may have weight [key].
    """
    from scipy.optimize import linprog

    keys = np.flatnonzero(readable | (weights > 0))
    row = weights[keys]
    # Orthonormal columns, so that the program is well conditioned.
    basis = _basis(values[keys])
    if len(keys) <= basis.shape[1] or not row.max(initial=0) > 0:
        return weights
    mixture = basis.T @ row
    solved = linprog(row / row.max(), A_eq=basis.T, b_eq=mixture, bounds=(0, None), method="highs")
    if solved.status != 0:
        return weights
    solution = np.maximum(solved.x, 0)
    # The solver is accurate to 1e-7; solving the equations on the vertex's keys gives the exact vertex.
    used = solution > _ZERO
    rest = mixture - basis[used].T @ solution[used]
    exact = np.zeros_like(solution)
    exact[used] = solution[used] + np.linalg.lstsq(basis[used].T, rest, rcond=None)[0]
    if (exact >= 0).all():
        solution = exact
    if np.abs(basis.T @ solution - mixture).max() > _ZERO:
        return weights
    result = np.zeros_like(weights)
    result[keys] = solution
    return result


def _basis(values: Float, *, ones: bool = True) -> Float:
    """Return orthonormal columns that span those of [V, 1] [key, rank]."""
    matrix = np.concatenate([values, np.ones((len(values), 1))], axis=1) if ones else values
    left, sizes, _ = np.linalg.svd(matrix, full_matrices=False)
    return left[:, sizes > _RANK * sizes.max(initial=0)]


def _values(trace: Trace, stack: str, layer: int, head: int) -> tuple[Float, Bools]:
    """Return a head's values [key, dim] and a mask of the keys that every query may read [query, key]."""
    from attnwidgets.tracing.block_replay import captured

    block = captured(trace, stack, "free_attention").layers[layer]
    by_kv_head = block.values[block.call][0]
    repeats = trace.n_heads(stack, layer) // len(by_kv_head)
    values: Float = by_kv_head[head // repeats].detach().double().cpu().numpy()
    shape = tuple(len(axis) for axis in trace.axes(stack))
    allowed = block.attention.readable()
    allowed = allowed[0, 0 if allowed.shape[1] == 1 else head]
    return values, np.broadcast_to(allowed.cpu().numpy(), shape)


def _floats(weights: Any) -> Float:
    return np.asarray(weights, dtype=np.float64)
