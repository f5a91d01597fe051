"""Contribution graph: of what every state is made, head by head, for information flow routes.

Ferrando and Voita 2024, Information Flow Routes: Automatically Interpreting Language Models at Scale,
section 2.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, cast

from attnwidgets._errors import require_choice
from attnwidgets.explanations.mixing.block_maps import block_map, own_stack
from attnwidgets.explanations.registry.memory_estimates import measured_by_head
from attnwidgets.explanations.registry.registry import method
from attnwidgets.explanations.results.contribution_graph import ContributionGraph

if TYPE_CHECKING:
    from collections.abc import Iterable

    from attnwidgets.explanations.results.trace_protocol import TraceLike
    from attnwidgets.tracing.algebra.head_contributions import BlockShares

PAPER = (
    "Ferrando and Voita 2024, Information Flow Routes: Automatically Interpreting Language Models at Scale"
)

_POWERS = {"l1": 1, "l2": 2}
_FLOOR = 1e-5
# What torch.nn.functional.pairwise_distance adds to every component unless told otherwise; the authors' code
# leaves it in.
_AUTHORS_SHIFT = 1e-6


@method(
    "contribution_graph",
    paper=PAPER,
    needs="own blocks",
    returns="MixingMap [layer, head, query, key], a ContributionGraph with the other parts and .routes",
    cost="one more pass, then a layer when it is opened: heads n² dim operations in chunks",
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
    """Of what every state is made: every head's reading of every token, the residual, the feed-forward layer.

    The state y_i of token i after attention is the sum of the vectors A^h_ij v^h_j W_O^h of every key j and
    head h, of the residual connection x_i, and of the output bias. The contribution of each but the bias is
    max(1e-5, |y_i| - |part - y_i|), divided by their sum. The same is said of the block's output, whose two
    parts are the feed-forward layer and the state it is added to. Unlike in ALTI heads are not summed, and
    the residual is a part of its own.

    Beyond the models of the paper: parts of blocks that norm what they mixed (BERT) are taken after that
    norm, with the real state's deviation held fixed; of blocks with a norm behind attention (Gemma), after
    that norm as well; in parallel blocks (GPT-NeoX) the feed-forward layer reads the block's input.

    Args:
        trace: What `aw.trace` returned.
        distance: The norm of the above: "l1" as published, or "l2".
        compat: "authors" also gives the least contribution, 1e-5, to tokens that a query does not read, and
            adds 1e-6 to every component inside the distance, as the authors' code does. Without it a causal
            map has zeros there.
        chunk_size: Source tokens that are compared at a time; None for as many as fit 8 MB (256 MB on an
            accelerator).
        stack: Which stack of a model with several; one that attends to itself.
        layers: Some layers by number; all by default.

    Returns:
        A lazy map [layer, head, query, key], 0 to 1, with `.residual`, `.mlp` and `.mlp_residual` [layer,
        query]; a row summed over heads and keys and its residual are one, and so are the other two.
        `.routes(target, threshold)` gives the edges over which something reaches a token.

    Raises:
        ValueError: For an unknown option, or where the model's blocks are not described or do not compute
            what their description says (`UnsupportedModelError`; the message names what still works).
        IndexError: Where the model has no such layer.
    """
    require_choice("distance", distance, tuple(_POWERS))
    require_choice("compat", compat, ("authors", None))
    if chunk_size is not None and chunk_size < 1:
        raise ValueError(f"chunk_size must be at least 1, not {chunk_size}.")
    stack = own_stack(trace, stack, "contribution_graph")
    authors = compat == "authors"

    from attnwidgets.tracing.algebra.block_runs import block_of
    from attnwidgets.tracing.algebra.head_contributions import shares_of

    def measure(layer: int) -> BlockShares:
        return shares_of(
            block_of(trace, layer, stack, "contribution_graph"),
            _POWERS[distance],
            floor=_FLOOR,
            shift=_AUTHORS_SHIFT if authors else 0.0,
            unread=authors,
            chunk_size=chunk_size,
        )

    found = block_map(
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
    return cast("ContributionGraph", found)
