"""Raw attention: the weights that the model used."""

from __future__ import annotations

from collections.abc import Iterable

from attnwidgets.explanations.mixing.block_maps import chosen_layers
from attnwidgets.explanations.registry.registry import method
from attnwidgets.explanations.results.mixing_map import MixingMap
from attnwidgets.explanations.results.trace_protocol import (
    TraceLike,
    provenance_of,
    require_trace,
    resolve_stack,
)

PAPER = "Vaswani et al. 2017, Attention Is All You Need"


@method(
    "attention",
    question="Attention",
    gist="which words each head reads",
    paper=PAPER,
    needs="recorded attention",
    returns="MixingMap [layer, head, query, key]",
    cost="none: it was recorded",
    speed="instant",
)
def attention(
    trace: TraceLike, stack: str | None = None, layers: int | Iterable[int] | slice | None = None
) -> MixingMap:
    """The attention weights of all layers and heads, as the model used them.

    Args:
        trace: A trace made by `aw.trace` or `aw.from_attentions`.
        stack: Stack of a model that has several: "encoder", "decoder" or "cross"; the trace's default if
            omitted.
        layers: Numbers of the layers to include; all by default.

    Returns:
        A lazy map [layer, head, query, key]. A layer is fetched from the trace when it is used; `.rows`,
        `.blocks` and `.matrix` fetch single rows and heads if the trace does not keep the layer. Rows sum to
        one, unless `aw.from_attentions` was given other numbers (see `.stochastic`).

    Raises:
        ValueError: If the trace lacks the stack.
        IndexError: If a layer is out of range.

    Example:
        >>> trace = aw.trace(*aw.demo_model("encoder"), "The cat sat on the mat.")
        >>> aw.attention(trace).shape
        (6, 12, 9, 9)
    """
    require_trace(trace, "attention")
    stack = resolve_stack(trace, stack)
    query, key = trace.axes(stack)
    counts = trace.n_heads(stack)
    n_heads = max(counts) if isinstance(counts, Iterable) else int(counts)
    return MixingMap.lazy(
        lambda layer: trace.attention_layer(layer, stack),
        query=query,
        key=key,
        layers=chosen_layers(trace, stack, layers),
        heads=range(n_heads),
        unit=next(name for name in query.units if name in key.units),
        row_fn=lambda layer, heads, queries: trace.attention_rows(layer, heads, queries, stack),
        causal=trace.is_causal(stack),
        stochastic=trace.rows_sum_to_one(stack),
        signed=trace.is_signed(stack),
        keep=False,  # the trace keeps layers under its own byte budget
        **provenance_of(trace, stack, "attention", paper=PAPER),
    )
