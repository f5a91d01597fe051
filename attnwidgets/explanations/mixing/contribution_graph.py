"""Contribution graph: the parts that make up each state, head by head, for information flow routes.

Ferrando and Voita 2024, Information Flow Routes: Automatically Interpreting Language Models at Scale,
section 2.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, cast

from attnwidgets.explanations.mixing.block_maps import block_map, described_stack, distance_options
from attnwidgets.explanations.registry.registry import method
from attnwidgets.explanations.registry.requirements import measured_by_head
from attnwidgets.explanations.results.contribution_graph import ContributionGraph

if TYPE_CHECKING:
    from collections.abc import Iterable

    from attnwidgets.explanations.results.trace_protocol import TraceLike
    from attnwidgets.tracing.algebra.logit_parts import BlockShares

PAPER = (
    "Ferrando and Voita 2024, Information Flow Routes: Automatically Interpreting Language Models at Scale"
)

_FLOOR = 1e-5


@method(
    "contribution_graph",
    question="What goes into a token",
    gist="what each head and layer passes on",
    paper=PAPER,
    needs="own blocks",
    returns="MixingMap [layer, head, query, key], a ContributionGraph with the other parts and .routes",
    cost="one more pass, then a layer when it is opened: heads n² dim operations in chunks",
    speed="seconds",
    takes=measured_by_head,
)
def contribution_graph(
    trace: TraceLike,
    distance: Literal["l1", "l2"] = "l1",
    *,
    compat: Literal["authors"] | None = None,
    chunk_size: int | None = None,
    stack: str | None = None,
    layers: int | Iterable[int] | slice | None = None,
) -> ContributionGraph:
    """The shares of each head and token, the residual connection and the feed-forward layer in every state.

    The state y_i of token i after attention is the sum of the vectors A^h_ij v^h_j W_O^h of all keys j and
    heads h, the residual connection x_i, and the output bias. The contribution of each part but the bias is
    max(1e-5, |y_i| - |part - y_i|), divided by the sum of all. The same is computed for the block's output,
    whose two parts are the feed-forward layer and the state it is added to. Unlike in ALTI, heads are not
    summed, and the residual is a separate part.

    Beyond the models of the paper: in post-norm blocks (BERT) parts are measured after the norm, with the
    real state's deviation fixed, and likewise after a norm on the attention output (Gemma); in parallel
    blocks (GPT-NeoX) the feed-forward layer reads the block's input.

    Args:
        trace: A trace made by `aw.trace`.
        distance: The norm |.| above: "l1" as published, or "l2".
        compat: "authors" also gives the minimum contribution, 1e-5, to tokens that a query does not read, and
            adds 1e-6 to every component inside the distance, as the authors' code does. Otherwise a causal
            map has zeros there.
        chunk_size: Number of source tokens compared at a time; by default the number that fits 8 MB (256 MB
            on an accelerator).
        stack: Stack of a model that has several, with self-attention only; the trace's default if omitted.
        layers: Numbers of the layers to include; all by default.

    Returns:
        A lazy map [layer, head, query, key], 0 to 1, with `.residual`, `.mlp` and `.mlp_residual` [layer,
        query]. A row summed over heads and keys plus its residual is 1, and so is `.mlp` plus
        `.mlp_residual`. `.routes(target, threshold)` gives the edges along which information reaches a token.

    Raises:
        ValueError: For an unknown option; as `UnsupportedModelError`, if no description fits the model's
            blocks or they differ from it (the message names the methods that work).
        IndexError: If a layer is out of range.

    Example:
        >>> trace = aw.trace(*aw.demo_model("encoder"), "The cat sat on the mat.")
        >>> graph = aw.contribution_graph(trace)
        >>> float(np.round(graph.layer(0)[:, 2].sum() + graph.residual[0, 2], 3))
        1.0
    """
    power, shift = distance_options(distance, compat, chunk_size)
    stack = described_stack(trace, stack, "contribution_graph", alone="contribution_graph")

    from attnwidgets.tracing.algebra.block_runs import block_of
    from attnwidgets.tracing.algebra.logit_parts import shares_of

    def measure(layer: int) -> BlockShares:
        return shares_of(
            block_of(trace, layer, stack, "contribution_graph"),
            power,
            floor=_FLOOR,
            shift=shift,
            unread=compat == "authors",
            chunk_size=chunk_size,
        )

    graph = block_map(
        trace,
        measure,
        kind=ContributionGraph,
        method="contribution_graph",
        title="contributions" if distance == "l1" else "contributions (L2)",
        paper=PAPER,
        options={"distance": distance, "compat": compat},
        stack=stack,
        layers=layers,
        stochastic=False,
        per_head=True,
    )
    return cast("ContributionGraph", graph)
