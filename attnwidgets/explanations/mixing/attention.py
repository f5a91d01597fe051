"""Raw attention: the weights that the model itself used."""

from __future__ import annotations

from collections.abc import Iterable

from attnwidgets._selecting import pick
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
    paper=PAPER,
    needs="recorded attention",
    returns="MixingMap [layer, head, query, key]",
    cost="nothing: it was recorded",
)
def attention(
    trace: TraceLike, stack: str | None = None, layers: int | Iterable[int] | slice | None = None
) -> MixingMap:
    """The attention weights of every layer and head, as the model used them.

    Args:
        trace: What `aw.trace` or `aw.from_attentions` returned.
        stack: "encoder", "decoder" or "cross" of an encoder-decoder; the trace's default otherwise.
        layers: Some layers by number; all by default.

    Returns:
        A lazy map [layer, head, query, key]: a layer is fetched from the trace when asked for, and rows and
        heads alone where that is not kept (`.rows`, `.blocks`, `.matrix`). Rows sum to one (where
        `aw.from_attentions` was given other numbers, `.stochastic` says so).

    Raises:
        ValueError: Where the trace has no such stack.
        IndexError: Where the model has no such layer.
    """
    require_trace(trace, "attention")
    stack = resolve_stack(trace, stack)
    query, key = trace.axes(stack)
    numbers = tuple(range(trace.n_layers(stack)))
    counts = trace.n_heads(stack)
    n_heads = max(counts) if isinstance(counts, Iterable) else int(counts)
    return MixingMap.lazy(
        lambda layer: trace.attention_layer(layer, stack),
        query=query,
        key=key,
        layers=numbers if layers is None else pick(layers, numbers, "layer"),
        heads=range(n_heads),
        unit=next(name for name in query.units if name in key.units),
        row_fn=lambda layer, heads, queries: trace.attention_rows(layer, heads, queries, stack),
        causal=trace.is_causal(stack),
        stochastic=trace.rows_sum_to_one(stack),
        signed=trace.is_signed(stack),
        keep=False,  # the trace keeps layers under its own byte budget
        **provenance_of(trace, stack, "attention", paper=PAPER),
    )
