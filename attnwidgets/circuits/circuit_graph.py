"""Attribution graphs of circuit-tracer (transcoder features), read from their files and drawn as flows."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from attnwidgets._selecting import at_most
from attnwidgets._tables import Table
from attnwidgets.explanations.results.description import TARGETS
from attnwidgets.explanations.results.mixing_map import MixingMap
from attnwidgets.tracing.text.units import TokenAxis

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from attnwidgets._tables import Columns
    from attnwidgets.circuits.head_loadings import HeadLoadings

PAPER = "Ameisen et al. 2025, Circuit Tracing: Revealing Computational Graphs in Language Models"
_EMBEDDING = "E"
_OF_EMBEDDINGS, _OF_LOGITS = "embedding", "logit"  # kinds of nodes whose vectors the model has


class CircuitGraphError(ValueError):
    """A file that is not an attribution graph of circuit-tracer, or is damaged."""


class GraphNode(NamedTuple):
    """A node of an attribution graph.

    Attributes:
        id: Its name in the file.
        layer: Number of the layer; -1 of embeddings.
        token: Position of the token.
        kind: "embedding", "cross layer transcoder", "mlp reconstruction error", "logit", ...
        label: Description from the file, or "".
    """

    id: str
    layer: int
    token: int
    kind: str
    label: str


class GraphLink(NamedTuple):
    """A direct effect of a node on another.

    Attributes:
        source: Name of the node that has the effect.
        target: Name of the node that it has it on.
        weight: The effect, signed.
    """

    source: str
    target: str
    weight: float


@dataclass(frozen=True, repr=False)
class CircuitGraph(Table):
    """An attribution graph, as circuit-tracer computed it.

    Attributes:
        tokens: Tokens of the prompt.
        nodes: By name.
        links: All direct effects.
        model: Name of the model, or "".
    """

    tokens: tuple[str, ...]
    nodes: Mapping[str, GraphNode]
    links: tuple[GraphLink, ...]
    model: str

    def _columns(self) -> Iterator[Columns]:
        """Yield source, target, weight."""
        yield {name: [getattr(link, name) for link in self.links] for name in GraphLink._fields}

    def top(self, k: int | None = 10) -> list[GraphLink]:
        """Return the largest effects by size, the largest first.

        Args:
            k: Largest number of effects; None: all.

        Raises:
            ValueError: If `k` is below 1.
        """
        return at_most(sorted(self.links, key=lambda link: -abs(link.weight)), k)

    def flow(self) -> MixingMap:
        """Return which tokens the nodes of every layer draw from, for `aw.FlowView` [layer, query, key].

        An effect on a node of layer l at token i by a node at token j counts in row i, column j of layer l,
        by its size: where between both layers it passed from token to token, the graph does not say. Rows sum
        to one; a token without nodes in a layer draws from itself.
        """
        count = len(self.tokens)
        drawn: dict[int, np.ndarray] = defaultdict(lambda: np.zeros((count, count)))
        for link in self.links:
            source, target = self.nodes[link.source], self.nodes[link.target]
            drawn[target.layer][target.token, source.token] += abs(link.weight)
        layers = range(max((layer for layer in drawn if layer >= 0), default=0) + 1)
        values = np.stack([drawn[layer] for layer in layers])
        totals = values.sum(axis=-1, keepdims=True)
        stays = np.broadcast_to(np.eye(count), values.shape).copy()
        values = np.divide(values, totals, out=stays, where=totals > 0)
        return MixingMap(
            values,
            query=TokenAxis.plain(self.tokens),
            causal=True,
            stochastic=True,
            method="circuits.circuit_graph",
            provenance={
                "model": self.model,
                "text": "".join(self.tokens),
                "paper": PAPER,
                "title": "circuit",
                "axes": TARGETS._replace(row="token"),
            },
        )

    def head_loadings(
        self, link: GraphLink, trace: Any, *, writes: Any = None, reads: Any = None
    ) -> HeadLoadings:
        """Return which heads carry a link, in the model of the graph.

        The file holds the weights of links, not the vectors of their ends. Those of embeddings and logits
        are read off the model; of a transcoder's feature, pass its decoder or encoder vector.

        Args:
            link: A link of this graph.
            trace: A trace of the prompt in the same model.
            writes: The vector [width] that the source adds to the output of its layer: the feature's
                activation times its decoder.
            reads: The direction [width] that the target takes of the input of its feed-forward
                layer, after the norm: the feature's encoder.

        Returns:
            HeadLoadings: See `aw.circuits.head_loadings`. The logit is less the mean of all logits, as in
            circuit-tracer. `.warning` says where the edge is not the link's weight, to 1 %: graphs in half
            precision differ by more.

        Raises:
            ValueError: If the trace is of another text, a vector is needed or no layer lies between.
            UnsupportedModelError: If no description fits the blocks or the output head.

        Source: Kamath et al. 2025, Tracing Attention Computation Through Feature Interactions; Ameisen et al.
        2025 (frozen attention and norms).
        """
        from attnwidgets.circuits.head_loadings import centred_logit, direction_at, loadings_of

        source, target = self.nodes[link.source], self.nodes[link.target]
        stack = trace.default_stack
        labels = trace.axes(stack)[0].tokens
        if len(labels) != len(self.tokens):
            raise ValueError(
                f"trace has {len(labels)} tokens, and the graph's prompt {len(self.tokens)}: trace the "
                "prompt of the graph."
            )
        if writes is None and source.kind != _OF_EMBEDDINGS:
            raise ValueError(
                f"writes is needed: {source.id!r} is a {source.kind}, whose vector is not in the file. Pass "
                "its activation times its decoder [width]."
            )
        if reads is None and target.kind != _OF_LOGITS:
            raise ValueError(
                f"reads is needed: {target.id!r} is a {target.kind}, whose direction is not in the file. "
                "Pass its encoder [width]."
            )
        sender = ("state", trace.layers(stack)[0]) if writes is None else (source.layer, writes)
        if reads is None:
            direction = centred_logit(trace, stack, target.token, _id_of(target))
        else:
            direction = direction_at(trace, stack, target.layer, target.token, reads)
        reader = None if reads is None else target.layer
        loadings = loadings_of(trace, stack, sender, source.token, direction, reader, target.id)
        return loadings.compared(link.weight)

    def __repr__(self) -> str:
        return f"<CircuitGraph of {len(self.nodes)} nodes and {len(self.links)} links; {self.model}>"


def load_circuit_graph(path: str | Path) -> CircuitGraph:
    """Open an attribution graph that circuit-tracer, or Neuronpedia, wrote as JSON.

    Args:
        path: The file.

    Returns:
        CircuitGraph: `.nodes`, `.links`, `.top(10)`, and `.flow()` for `aw.FlowView`.

    Raises:
        FileNotFoundError: If the file does not exist.
        CircuitGraphError: If the file is not a graph; the message names the missing part.

    Source: Ameisen et al. 2025; circuit-tracer (its JSON: metadata.prompt_tokens, nodes, links).

    Example:
        >>> nodes = [
        ...     {"node_id": "E_5_0", "layer": "E", "ctx_idx": 0, "feature_type": "embedding"},
        ...     {"node_id": "1_7_1", "layer": "1", "ctx_idx": 1, "feature_type": "logit"},
        ... ]
        >>> links = [{"source": "E_5_0", "target": "1_7_1", "weight": -2.0}]
        >>> import json
        >>> graph = {"metadata": {"prompt_tokens": ["a", "b"]}, "nodes": nodes, "links": links}
        >>> _ = open("graph.json", "w").write(json.dumps(graph))
        >>> aw.circuits.load_circuit_graph("graph.json").flow().values[1].tolist()
        [[1.0, 0.0], [1.0, 0.0]]
    """
    path = Path(path)
    if not path.exists():
        raise FileNotFoundError(f"path {str(path)!r} does not exist.")
    try:
        given = json.loads(path.read_text(encoding="utf-8"))
        metadata = given["metadata"]
        tokens = tuple(str(token) for token in metadata["prompt_tokens"])
        named = [_node(entry) for entry in given["nodes"]]
        nodes = {node.id: node for node in named}
        links = tuple(
            GraphLink(str(link["source"]), str(link["target"]), float(link["weight"]))
            for link in given["links"]
        )
    except KeyError as error:
        raise CircuitGraphError(
            f"{str(path)!r} is not a circuit-tracer graph: {error} is missing."
        ) from error
    except (ValueError, TypeError, RecursionError) as error:
        raise CircuitGraphError(f"{str(path)!r} is not a circuit-tracer graph ({error}).") from error
    twice = next((node for node in named if nodes[node.id] != node), None)
    if twice is not None:
        both = " and ".join(f"{node.kind} of layer {node.layer}" for node in (twice, nodes[twice.id]))
        raise CircuitGraphError(
            f"{str(path)!r} is ambiguous: two nodes are named {twice.id!r} ({both}), so that links to it "
            "have two meanings. Rename one of them where the file is written."
        )
    _check(path, tokens, nodes, links)
    return CircuitGraph(tokens, nodes, links, str(metadata.get("scan") or ""))


def _node(given: Mapping[str, Any]) -> GraphNode:
    layer = str(given["layer"])
    number = -1 if layer == _EMBEDDING else int(layer)
    label = str(given.get("clerp") or "")
    return GraphNode(
        str(given["node_id"]), number, int(given["ctx_idx"]), str(given.get("feature_type") or ""), label
    )


def _id_of(node: GraphNode) -> int:
    """Return the token of a logit, which its name holds between its layer and its position."""
    try:
        return int(node.id.split("_")[1])
    except (IndexError, ValueError) as error:
        raise ValueError(
            f"{node.id!r} does not name a token as circuit-tracer's logits do (layer_token_position)."
        ) from error


def _check(
    path: Path, tokens: tuple[str, ...], nodes: Mapping[str, GraphNode], links: tuple[GraphLink, ...]
) -> None:
    for node in nodes.values():
        if not 0 <= node.token < len(tokens) or node.layer < -1:
            raise CircuitGraphError(
                f"{str(path)!r} is damaged: node {node.id!r} is at token {node.token} of layer {node.layer}, "
                f"and the prompt has {len(tokens)} tokens."
            )
    for link in links:
        for end in (link.source, link.target):
            if end not in nodes:
                raise CircuitGraphError(
                    f"{str(path)!r} is damaged: a link names {end!r}, which is not a node."
                )
        if not np.isfinite(link.weight):
            raise CircuitGraphError(f"{str(path)!r} is damaged: the weight of a link is {link.weight}.")
