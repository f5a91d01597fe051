"""Information flow routes: the edges of a contribution graph that lead to a token.

Ferrando and Voita 2024, Information Flow Routes: Automatically Interpreting Language Models at Scale,
section 2.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from attnwidgets._tables import Table
from attnwidgets.figures.html_tables import first_rows

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pandas as pd
    from numpy.typing import NDArray

    from attnwidgets._tables import Columns

    Float = NDArray[np.float64]
    Mask = NDArray[np.bool_]

_SHOWN = 20
"""Number of edges shown in a notebook."""

Stage = Literal["input", "attention", "output"]
Kind = Literal["attention", "residual", "mlp", "mlp_residual"]


class Node(NamedTuple):
    """A state of a token.

    Attributes:
        layer: Number of the layer.
        stage: "input": the input of the first layer; "attention": after a layer's attention and residual;
            "output": after its feed-forward layer. The next layer reads this output.
        token: Index of the token.
    """

    layer: int
    stage: Stage
    token: int


class Edge(NamedTuple):
    """A part of a state.

    Attributes:
        kind: The path of the part: "attention", the "residual" around it, the feed-forward layer ("mlp"),
            or the residual around that ("mlp_residual").
        source: The state it comes from.
        target: The state it is part of.
        weight: Its share of that state, 0 to 1.
        head: The head of an attention edge; None if heads are summed, and for other kinds.
    """

    kind: Kind
    source: Node
    target: Node
    weight: float
    head: int | None = None


@dataclass(frozen=True)
class Routes(Table):
    """The edges that lead to a token's state, from the top down.

    Attributes:
        target: The state they lead to.
        edges: All edges on a path to it; those of later layers first.
        labels: Display strings of the tokens.
        threshold: Weight that edges exceed.
        renormalized: Whether the threshold applied to single parts, with the rest renormalised to 1.
    """

    target: Node
    edges: tuple[Edge, ...]
    labels: tuple[str, ...]
    threshold: float
    renormalized: bool

    @property
    def nodes(self) -> tuple[Node, ...]:
        """All states on a path to the target, the target first."""
        return tuple(dict.fromkeys((self.target, *(edge.source for edge in self.edges))))

    @property
    def sources(self) -> tuple[int, ...]:
        """Indices of the tokens whose input embedding reaches the target."""
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
        return first_rows(self.to_rows(), _SHOWN)

    def _columns(self) -> Iterator[Columns]:
        """Yield the columns of a table with an edge in every row.

        Columns: layer, kind, head (missing if heads are summed), source_layer, source_stage, source_index,
        source, target_stage, target_index, target, weight. `source` and `target` are tokens; `layer` is the
        layer of the target.
        """
        yield {
            "layer": [edge.target.layer for edge in self.edges],
            "kind": [edge.kind for edge in self.edges],
            "head": [edge.head for edge in self.edges],
            "source_layer": [edge.source.layer for edge in self.edges],
            "source_stage": [edge.source.stage for edge in self.edges],
            "source_index": [edge.source.token for edge in self.edges],
            "source": [self.labels[edge.source.token] for edge in self.edges],
            "target_stage": [edge.target.stage for edge in self.edges],
            "target_index": [edge.target.token for edge in self.edges],
            "target": [self.labels[edge.target.token] for edge in self.edges],
            "weight": [edge.weight for edge in self.edges],
        }

    def to_dataframe(self) -> pd.DataFrame:
        """Return a pandas DataFrame with an edge in every row; `head` is missing if heads are summed."""
        return super().to_dataframe().astype({"head": "Int64"})


@dataclass(frozen=True)
class Sums:
    """Shares in a layer's sums: attention [head, query, key] and residual; mlp and mlp_residual [query]."""

    attention: Float
    residual: Float
    mlp: Float
    mlp_residual: Float

    def above(self, threshold: float) -> Sums:
        """Return the parts above a threshold, divided by their sum; if none is left, all are zero."""
        attention, residual, mlp, rest = (
            np.where(part > threshold, part, 0.0)
            for part in (self.attention, self.residual, self.mlp, self.mlp_residual)
        )
        first, second = attention.sum((0, 2)) + residual, mlp + rest
        return Sums(
            _divide(attention, first[:, None]),
            _divide(residual, first),
            _divide(mlp, second),
            _divide(rest, second),
        )


def _divide(part: Float, total: Float) -> Float:
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
    """Return the edges above a threshold that lead to a token's state after the last of `layers`.

    Args:
        layers: Numbers and sums of consecutive layers, first to last.
        token: Index of the token.
        labels: Display strings of the tokens.
        threshold: See `ContributionGraph.routes`.
        renormalize: See `ContributionGraph.routes`.
        per_head: See `ContributionGraph.routes`.
        parallel: Whether feed-forward layers read their block's input.
    """
    first, last = layers[0][0], layers[-1][0]
    reached = np.zeros(len(labels), dtype=bool)
    reached[token] = True
    edges: list[Edge] = []
    for number, sums in reversed(layers):
        remaining = sums.above(threshold) if renormalize else sums
        limit = 0.0 if renormalize else threshold
        below: Stage = "input" if number == first else "output"
        step = _Step(remaining, limit, number, number if below == "input" else number - 1, below)
        reached = step.follow(reached, edges, per_head=per_head, parallel=parallel)
    return Routes(Node(last, "output", token), tuple(edges), labels, threshold, renormalize)


@dataclass(frozen=True)
class _Step:
    """A layer, traversed from its outputs to its inputs."""

    sums: Sums
    limit: float
    layer: int
    layer_below: int
    below: Stage

    def follow(self, reached: Mask, edges: list[Edge], *, per_head: bool, parallel: bool) -> Mask:
        """Append the edges that lead to some outputs [token]; return which inputs they start from [token]."""
        inputs_reached = np.zeros_like(reached)
        middle_reached = np.zeros_like(reached)
        kinds: tuple[tuple[Kind, Float, bool], ...] = (
            ("mlp", self.sums.mlp, parallel),
            ("mlp_residual", self.sums.mlp_residual, False),
        )
        for kind, share, from_input in kinds:
            for token in np.flatnonzero(reached & (share > self.limit)).tolist():
                source = self._input(token) if from_input else Node(self.layer, "attention", token)
                edges.append(Edge(kind, source, Node(self.layer, "output", token), float(share[token])))
                (inputs_reached if from_input else middle_reached)[token] = True
        for token in np.flatnonzero(middle_reached & (self.sums.residual > self.limit)).tolist():
            target = Node(self.layer, "attention", token)
            edges.append(Edge("residual", self._input(token), target, float(self.sums.residual[token])))
            inputs_reached[token] = True
        for edge in self._attention(np.flatnonzero(middle_reached), per_head=per_head):
            edges.append(edge)
            inputs_reached[edge.source.token] = True
        return inputs_reached

    def _input(self, token: int) -> Node:
        return Node(self.layer_below, self.below, token)

    def _attention(self, queries: NDArray[np.int64], *, per_head: bool) -> Iterator[Edge]:
        weights = self.sums.attention if per_head else self.sums.attention.sum(0, keepdims=True)
        weights = weights[:, queries]
        for head, row, key in np.argwhere(weights > self.limit).tolist():
            target = Node(self.layer, "attention", int(queries[row]))
            weight = float(weights[head, row, key])
            yield Edge("attention", self._input(key), target, weight, head if per_head else None)
