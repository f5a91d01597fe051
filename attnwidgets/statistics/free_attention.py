"""The part of attention that can move without changing anything: free, since what a head returns stays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from attnwidgets._progress import progress
from attnwidgets._selecting import pick
from attnwidgets.explanations.results.trace_protocol import provenance_of, require_trace, resolve_stack

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from attnwidgets.explanations.results.mixing_map import MixingMap
    from attnwidgets.tracing.interventions import Intervention
    from attnwidgets.tracing.trace import Trace

    Float = NDArray[np.float64]
    Bools = NDArray[np.bool_]

PAPER = "Brunner et al. 2020, On Identifiability in Transformers"
_RANK = 1e-10
_ZERO = 1e-9


@dataclass(frozen=True)
class FreeAttention:
    """Other attention rows with which heads return the same; made by `aw.free_attention`.

    Attributes:
        trace: The trace.
        stack: The stack.
        layers: Layers that were looked at.
        heads: Heads that were.
        queries: Tokens whose rows were.
        movable: How much of a row moves to other keys, 0 to 1 [layer, head, query]: half the sum of
            |a' - a|.
        rows: The other rows a' by (layer, head, query) [key]; none is negative, and each sums to one.
        identifiable: How many keys a row may have before any of it is free [layer, head]: the rank of
            [V, 1], at most the head's dimension plus one.
    """

    trace: Trace
    stack: str
    layers: tuple[int, ...]
    heads: tuple[int, ...]
    queries: tuple[int, ...]
    movable: Float
    rows: Mapping[tuple[int, int, int], Float]
    identifiable: NDArray[np.int64]

    def row(self, layer: int, head: int, query: int, amount: float = 1.0) -> Float:
        """Return a row that is moved by a share of what it can move [key]; each is as good as the model's.

        Args:
            layer: Layer number.
            head: Head number.
            query: Position of the token.
            amount: 0, the model's row, to 1, the other one.

        Raises:
            ValueError: Where the amount is not 0 to 1, or the row was not looked at.
        """
        if not 0 <= amount <= 1:
            raise ValueError(f"amount must be 0 to 1, not {amount}.")
        if (layer, head, query) not in self.rows:
            raise ValueError(
                f"row {query} of layer {layer}, head {head} was not looked at; ask for it by name."
            )
        own = self.trace.attention_layer(layer, self.stack)[head, query].double().numpy()
        return own + amount * (self.rows[layer, head, query] - own)

    def to_map(self, amount: float = 1.0) -> MixingMap:
        """Return attention with every row that was looked at moved [layer, head, query, key]."""
        from attnwidgets.explanations.results.mixing_map import MixingMap

        query, key = self.trace.axes(self.stack)
        maps = np.stack(
            [
                self.trace.attention_layer(layer, self.stack)[list(self.heads)].double().numpy()
                for layer in self.layers
            ]
        )
        for layer, head, token in self.rows:
            at = self.layers.index(layer), self.heads.index(head), token
            maps[at] = self.row(layer, head, token, amount)
        common = provenance_of(
            self.trace, self.stack, "free_attention", paper=PAPER, options={"amount": amount}
        )
        common["provenance"] |= {"title": "attention, free part moved"}
        return MixingMap(
            maps.astype(common["dtype"]), query=query, key=key, layers=self.layers, heads=self.heads, **common
        )

    def intervention(self, amount: float = 1.0) -> Intervention:
        """Return the edit that gives the model these rows of one layer; its predictions stand still.

        Raises:
            ValueError: Where several layers were looked at: the values of a layer depend on those below it
                to the last digit.
        """
        from attnwidgets.intervene.edit_attention import edit_attention

        if len(self.layers) > 1:
            raise ValueError(f"an intervention is of one layer; there are {len(self.layers)}: ask for one.")
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
    """How much of attention rows can move to other tokens without changing what heads return at all.

    With V the values of a head [key, dim], row a and any a' with a' V = a V return the same. Where there are
    more keys than dimensions there are such a', and attention says less than it seems to. Looked for is one
    that is no worse than attention: not negative, sums to one, reads only what may be read. Of these the one
    is taken that has least in common with a: the linear program min a . a' (its vertices lie on no more keys
    than [V, 1] has rank). How much of a moves is a lower bound of what can.

    Rows of one head are independent: one may move alone, or all. n rows of n keys cost n programs, some
    milliseconds each; name what is wanted of long texts.

    Args:
        trace: What `aw.trace` returned.
        layer: A layer number, several or a slice; None: all.
        head: The same for heads.
        query: The same for tokens.
        stack: Which attention, where there are several.

    Returns:
        A FreeAttention: `.movable` [layer, head, query], `.row(...)`, `.to_map()`, `.intervention()`.

    Raises:
        ValueError: For an unknown stack; where the trace has no model.
        IndexError: Where there is no such layer, head or token.

    Source: Brunner et al. 2020, section 3 (the null space of V); the program is ours.
    """
    from attnwidgets.tracing.attention_modules import sites

    require_trace(trace, "free_attention")
    sites(trace)
    name = resolve_stack(trace, stack)
    layers = pick(slice(None) if layer is None else layer, range(trace.n_layers(name)), "layer")
    heads = pick(slice(None) if head is None else head, range(trace.n_heads(name)), "head")
    queries = pick(slice(None) if query is None else query, range(len(trace.axes(name)[0])), "token")
    movable = np.zeros((len(layers), len(heads), len(queries)))
    ranks = np.zeros(movable.shape[:2], dtype=np.int64)
    rows: dict[tuple[int, int, int], Float] = {}
    pairs = [(at, number) for at in range(len(layers)) for number in range(len(heads))]
    for at, number in progress(pairs, "moving attention"):
        own = layers[at], heads[number]
        values, readable = _values(trace, name, *own)
        weights = trace.attention_layer(own[0], name)[own[1]].double().numpy()
        ranks[at, number] = _basis(values).shape[1]
        for place, token in enumerate(queries):
            other = moved(weights[token], values, readable[token])
            rows[own[0], own[1], token] = other
            movable[at, number, place] = np.abs(other - weights[token]).sum() / 2
    return FreeAttention(trace, name, layers, heads, queries, movable, rows, ranks)


def effective_attention(trace: Any, layer: int, head: int, *, stack: str | None = None) -> Float:
    """Return attention without its part in the null space of V [query, key]: what a head can be told by.

    Every row is projected on the space that V's columns span; entries may be negative and rows need not sum
    to one.

    Raises:
        IndexError: Where there is no such layer or head.

    Source: Brunner et al. 2020, equation 4.
    """
    name = resolve_stack(trace, stack)
    (number,) = pick(layer, range(trace.n_layers(name)), "layer")
    (own,) = pick(head, range(trace.n_heads(name)), "head")
    values, _ = _values(trace, name, number, own)
    basis = _basis(values, ones=False)
    weights = trace.attention_layer(number, name)[own].double().numpy()
    return weights @ basis @ basis.T


def moved(weights: Float, values: Float, readable: Bools) -> Float:
    """Return the row with least in common with `weights` that mixes `values` to the same; itself if none.

    Args:
        weights: [key], not negative.
        values: [key, dim].
        readable: Which keys may have weight [key].
    """
    from scipy.optimize import linprog

    keys = np.flatnonzero(readable | (weights > 0))
    own = weights[keys]
    # Orthonormal columns, so that the program is well conditioned.
    basis = _basis(values[keys])
    if len(keys) <= basis.shape[1] or not own.max(initial=0) > 0:
        return weights
    wanted = basis.T @ own
    solved = linprog(own / own.max(), A_eq=basis.T, b_eq=wanted, bounds=(0, None), method="highs")
    if solved.status != 0:
        return weights
    found = np.maximum(solved.x, 0)
    # The solver stops at 1e-7; the vertex itself is where its keys' columns solve the equations.
    held = found > _ZERO
    exact = np.zeros_like(found)
    exact[held] = (
        found[held] + np.linalg.lstsq(basis[held].T, wanted - basis[held].T @ found[held], rcond=None)[0]
    )
    if (exact >= 0).all():
        found = exact
    if np.abs(basis.T @ found - wanted).max() > _ZERO:
        return weights
    result = np.zeros_like(weights)
    result[keys] = found
    return result


def _basis(values: Float, *, ones: bool = True) -> Float:
    """Return orthonormal columns that span those of [V, 1] [key, rank]."""
    matrix = np.concatenate([values, np.ones((len(values), 1))], axis=1) if ones else values
    left, sizes, _ = np.linalg.svd(matrix, full_matrices=False)
    return left[:, sizes > _RANK * sizes.max(initial=0)]


def _values(trace: Trace, stack: str, layer: int, head: int) -> tuple[Float, Bools]:
    """Return a head's values [key, dim] and which keys every query may read [query, key]."""
    from attnwidgets.tracing.block_replay import captured

    block = captured(trace, stack, "free_attention").layers[layer]
    values = block.values[block.call][0]
    repeats = trace.n_heads(stack, layer) // len(values)
    own: Float = values[head // repeats].detach().double().cpu().numpy()
    weights = trace.attention_layer(layer, stack)[head]
    mask = block.attention.settings.get("mask")
    if mask is None:
        return own, np.ones(tuple(weights.shape), dtype=bool)
    allowed = mask > np.finfo(np.float32).min / 2 if mask.is_floating_point() else mask
    allowed = allowed[0, 0 if allowed.shape[1] == 1 else head]
    return own, np.broadcast_to(allowed.cpu().numpy(), tuple(weights.shape))
