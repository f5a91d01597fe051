"""Routes: the edges of a contribution graph over which something reaches one token.

Ferrando and Voita 2024, Information Flow Routes: Automatically Interpreting Language Models at Scale,
section 2.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from attnwidgets.explanations.results.tables import Table, html_table

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pandas as pd
    from numpy.typing import NDArray

    from attnwidgets.explanations.results.tables import Columns

    Float = NDArray[np.float64]
    Mask = NDArray[np.bool_]

_SHOWN = 20
"""Edges that a notebook shows of a table."""

Stage = Literal["input", "attention", "output"]
Kind = Literal["attention", "residual", "mlp", "mlp_residual"]


class Node(NamedTuple):
    """One state of one token.

    Attributes:
        layer: Number of the layer.
        stage: "input": what the first layer reads; "attention": after a layer's attention and residual;
            "output": after its feed-forward layer. A layer's output is what the next one reads.
        token: Place of the token.
    """

    layer: int
    stage: Stage
    token: int


class Edge(NamedTuple):
    """One part of a state.

    Attributes:
        kind: What the part goes through: "attention", the "residual" beside it, the feed-forward layer
            ("mlp"), or the residual beside that ("mlp_residual").
        source: The state it comes from.
        target: The state it is part of.
        weight: Its share of that state.
        head: The head of an attention edge; None where heads are summed, and for other kinds.
    """

    kind: Kind
    source: Node
    target: Node
    weight: float
    head: int | None = None


@dataclass(frozen=True)
class Routes(Table):
    """The edges that reach one token's state, from the top down.

    Attributes:
        target: The state that is reached.
        edges: Every edge on a way to it; those of later layers first.
        labels: Display strings of the tokens.
        threshold: What edges had to be above.
        renormalized: Whether the threshold was taken to single parts and the rest made to sum to one.
    """

    target: Node
    edges: tuple[Edge, ...]
    labels: tuple[str, ...]
    threshold: float
    renormalized: bool

    @property
    def nodes(self) -> tuple[Node, ...]:
        """Every state on a way to the target, the target first."""
        return tuple(dict.fromkeys((self.target, *(edge.source for edge in self.edges))))

    @property
    def sources(self) -> tuple[int, ...]:
        """Places of the tokens whose input embedding reaches the target."""
        return tuple(sorted(node.token for node in self.nodes if node.stage == "input"))

    def __len__(self) -> int:
        return len(self.edges)

    def __repr__(self) -> str:
        node = self.target
        return (
            f"<Routes to {self.labels[node.token]!r} ({node.token}) after layer {node.layer}: "
            f"{len(self.edges)} edges above {self.threshold:g}, from {len(self.sources)} of "
            f"{len(self.labels)} inputs>"
        )

    def _repr_html_(self) -> str:
        return html_table(self.to_rows(), _SHOWN)

    def _columns(self) -> Iterator[Columns]:
        """Yield one edge a row.

        Columns: layer, kind, head (missing where heads are summed), source_layer, source_stage, source_index,
        source, target_stage, target_index, target, weight. `source` and `target` are tokens, and a target's
        layer is `layer`.
        """
        rows = [
            (
                edge.target.layer,
                edge.kind,
                edge.head,
                edge.source.layer,
                edge.source.stage,
                edge.source.token,
                self.labels[edge.source.token],
                edge.target.stage,
                edge.target.token,
                self.labels[edge.target.token],
                edge.weight,
            )
            for edge in self.edges
        ]
        names = ["layer", "kind", "head", "source_layer", "source_stage", "source_index", "source"]
        names += ["target_stage", "target_index", "target", "weight"]
        yield {name: [row[place] for row in rows] for place, name in enumerate(names)}

    def to_dataframe(self) -> pd.DataFrame:
        """Return a pandas DataFrame with one edge a row; `head` is missing where heads are summed."""
        return super().to_dataframe().astype({"head": "Int64"})


@dataclass(frozen=True)
class Sums:
    """One layer's two sums: attention [head, query, key] with residual [query], and mlp with mlp_residual."""

    attention: Float
    residual: Float
    mlp: Float
    mlp_residual: Float

    def above(self, threshold: float) -> Sums:
        """Return the parts above a threshold, divided by their sum; where none is left, all are zero."""
        attention, residual, mlp, rest = (
            np.where(part > threshold, part, 0.0)
            for part in (self.attention, self.residual, self.mlp, self.mlp_residual)
        )
        first, second = attention.sum((0, 2)) + residual, mlp + rest
        return Sums(
            _divided(attention, first[:, None]),
            _divided(residual, first),
            _divided(mlp, second),
            _divided(rest, second),
        )


def _divided(part: Float, total: Float) -> Float:
    total = np.broadcast_to(total, part.shape)
    return np.divide(part, total, out=np.zeros_like(part), where=total > 0)


def find_routes(
    layers: Sequence[tuple[int, Sums]],
    token: int,
    *,
    labels: tuple[str, ...],
    threshold: float,
    renormalize: bool,
    per_head: bool,
    parallel: bool,
) -> Routes:
    """Return the edges above a threshold that reach a token's state after the last of `layers`.

    Args:
        layers: Numbers and sums of consecutive layers, first to last.
        token: Place of the token.
        labels: Display strings of the tokens.
        threshold: see `ContributionGraph.routes`.
        renormalize: the same.
        per_head: the same.
        parallel: Whether feed-forward layers read their block's input.
    """
    first, last = layers[0][0], layers[-1][0]
    reached = np.zeros(len(labels), dtype=bool)
    reached[token] = True
    edges: list[Edge] = []
    for number, sums in reversed(layers):
        kept = sums.above(threshold) if renormalize else sums
        limit = 0.0 if renormalize else threshold
        below: Stage = "input" if number == first else "output"
        step = _Step(kept, limit, number, number if below == "input" else number - 1, below)
        reached = step.follow(reached, edges, per_head=per_head, parallel=parallel)
    return Routes(Node(last, "output", token), tuple(edges), labels, threshold, renormalize)


@dataclass(frozen=True)
class _Step:
    """One layer, followed from its outputs to what it reads."""

    sums: Sums
    limit: float
    layer: int
    layer_below: int
    below: Stage

    def follow(self, reached: Mask, edges: list[Edge], *, per_head: bool, parallel: bool) -> Mask:
        """Append the edges that reach some outputs [token]; return which inputs are reached [token]."""
        read = np.zeros_like(reached)
        middle = np.zeros_like(reached)
        kinds: tuple[tuple[Kind, Float, bool], ...] = (
            ("mlp", self.sums.mlp, parallel),
            ("mlp_residual", self.sums.mlp_residual, False),
        )
        for kind, share, from_input in kinds:
            for place in np.flatnonzero(reached & (share > self.limit)).tolist():
                source = self._input(place) if from_input else Node(self.layer, "attention", place)
                edges.append(Edge(kind, source, Node(self.layer, "output", place), float(share[place])))
                (read if from_input else middle)[place] = True
        for place in np.flatnonzero(middle & (self.sums.residual > self.limit)).tolist():
            target = Node(self.layer, "attention", place)
            edges.append(Edge("residual", self._input(place), target, float(self.sums.residual[place])))
            read[place] = True
        for edge in self._attention(np.flatnonzero(middle), per_head=per_head):
            edges.append(edge)
            read[edge.source.token] = True
        return read

    def _input(self, token: int) -> Node:
        return Node(self.layer_below, self.below, token)

    def _attention(self, queries: NDArray[np.int64], *, per_head: bool) -> Iterator[Edge]:
        weights = self.sums.attention if per_head else self.sums.attention.sum(0, keepdims=True)
        weights = weights[:, queries]
        for head, row, key in np.argwhere(weights > self.limit).tolist():
            target = Node(self.layer, "attention", int(queries[row]))
            weight = float(weights[head, row, key])
            yield Edge("attention", self._input(key), target, weight, head if per_head else None)
