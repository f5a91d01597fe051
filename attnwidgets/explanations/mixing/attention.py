"""Raw attention: the weights that the model used, and how a row of them comes about, step by step."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from attnwidgets._tensors import as_array
from attnwidgets.explanations.mixing.block_maps import chosen_layers
from attnwidgets.explanations.registry.registry import method
from attnwidgets.explanations.results.mixing_map import MixingMap
from attnwidgets.explanations.results.trace_protocol import (
    TraceLike,
    provenance_of,
    require_trace,
    resolve_stack,
)

if TYPE_CHECKING:
    from attnwidgets.tracing.trace import Trace

PAPER = "Vaswani et al. 2017, Attention Is All You Need"

Float = NDArray[np.float64]
MASKED = -1e4
"""A mask hides a key by adding at most this; a greater term is a bias (ALiBi)."""


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
        1; to less in a model with sinks (`trace.sink_share` has the rest), and to anything if
        `aw.from_attentions` was given other numbers (see `.stochastic`).

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
        lambda layer: trace.layer_array(layer, stack),
        query=query,
        key=key,
        layers=chosen_layers(trace, stack, layers),
        heads=range(n_heads),
        unit=next(name for name in query.units if name in key.units),
        row_fn=lambda layer, heads, queries: trace.rows_array(layer, heads, queries, stack),
        causal=trace.is_causal(stack),
        stochastic=trace.rows_sum_to_one(stack),
        sink=trace.has_sinks(stack),
        readable=lambda layer: trace.readable_array(layer, stack),
        query_key=lambda layer: trace.query_key_arrays(layer, stack),
        signed=trace.is_signed(stack),
        keep=False,  # the trace caches layers, within its byte budget
        **provenance_of(trace, stack, "attention", paper=PAPER),
    )


@dataclass(frozen=True)
class AttentionRow:
    """A query of a head, in float64; each array follows from those before it.

    Attributes:
        query: q [dim], after any rotary embedding.
        keys: The keys k of the head [key, dim], after any rotary embedding.
        kv_head: Number of the key/value head that this head reads; heads share them with grouped queries.
        additive: The weights v [dim] of additive scores, v . tanh(q + k); None for scores q . k.
        dot: q . k, or v . tanh(q + k) [key].
        scaling: The model's factor on the scores.
        scaled: dot * scaling [key].
        softcap: The bound c in c * tanh(score / c), or None.
        capped: `scaled` after the soft cap [key]; equal to `scaled` without a cap.
        bias: Positional term added to the scores [key] (T5's bias, ALiBi), or None.
        masked: Whether a key is hidden from the query [key].
        scores: Input of the softmax [key]; -inf where masked.
        sink: An additional score of the softmax, which belongs to no key; None without a sink.
        weights: softmax(scores) [key]; with a sink they sum to 1 less its share.
        recorded: The weights in the trace [key].
        dtype: The model's precision: "float32", "bfloat16", ... In half precision the model rounds at every
            step, so its weights differ from these.
    """

    query: Float
    keys: Float
    kv_head: int
    additive: Float | None
    dot: Float
    scaling: float
    scaled: Float
    softcap: float | None
    capped: Float
    bias: Float | None
    masked: NDArray[np.bool_]
    scores: Float
    sink: float | None
    weights: Float
    recorded: Float
    dtype: str


def attention_row(
    trace: Trace, layer: int, head: int, query: int, *, stack: str | None = None
) -> AttentionRow:
    """Return a row of attention step by step, from recorded queries and keys.

    Args:
        trace: A trace made by `aw.trace` or `aw.from_qkv`.
        layer: Number of the layer.
        head: Number of the head.
        query: Index of the query's token.
        stack: Stack of a model that has several; the trace's default if omitted.

    Raises:
        UnsupportedModelError: If the trace only has attention weights.
        IndexError: If the layer, head or query is out of range.
        ValueError: If the stack is unknown.
    """
    require_trace(trace, "attention_row")
    stack = resolve_stack(trace, stack)
    every_query, every_key = trace.query_key(layer, stack)
    heads, queries, head_dim = every_query.shape
    for name, index, count in (("head", head, heads), ("query", query, queries)):
        if not 0 <= index < count:
            raise IndexError(f"{name} {index} is out of range: layer {layer} has {name} 0 to {count - 1}")
    settings = trace.attention_settings(layer, stack, query)
    kv_head = head // (heads // every_key.shape[0])
    q, keys = _floats(every_query[head, query]), _floats(every_key[kv_head])
    additive = None if settings.get("additive") is None else _floats(settings["additive"][head])
    dot = keys @ q if additive is None else np.tanh(q + keys) @ additive
    scaling = head_dim**-0.5 if settings.get("scaling") is None else float(settings["scaling"])
    scaled = dot * scaling
    softcap = settings.get("softcap")
    capped = scaled if softcap is None else softcap * np.tanh(scaled / softcap)
    bias, mask = (_row(settings.get(name), head, query, len(keys)) for name in ("position_bias", "mask"))
    masked = mask <= MASKED
    # With all keys hidden, the query reads all of them: the mask is then an ordinary term of the scores.
    masked = masked & ~masked.all()
    bias = bias + np.where(masked, 0.0, mask)
    scores = np.where(masked, -np.inf, capped + bias)
    sink = None if settings.get("sink") is None else float(_row(settings["sink"], head, query, 1)[0])
    top = scores.max() if sink is None else max(scores.max(), sink)
    exponentials = np.exp(scores - top)
    total = exponentials.sum() + (0.0 if sink is None else np.exp(sink - top))
    return AttentionRow(
        query=q,
        keys=keys,
        kv_head=kv_head,
        additive=additive,
        dot=dot,
        scaling=scaling,
        scaled=scaled,
        softcap=None if softcap is None else float(softcap),
        capped=capped,
        bias=bias if bias.any() else None,
        masked=masked,
        scores=scores,
        sink=sink,
        weights=exponentials / total,
        recorded=_floats(trace.attention_rows(layer, [head], [query], stack)[0, 0]),
        dtype=str(every_query.dtype).removeprefix("torch."),
    )


def key_vectors(trace: Trace, layer: int, kv_head: int, *, stack: str | None = None) -> Float:
    """Return the keys of a key/value head [key, dim], after any rotary embedding.

    Raises:
        UnsupportedModelError: If the trace only has attention weights.
        IndexError: If the layer or head is out of range.
    """
    keys = trace.query_key(layer, stack)[1]
    if not 0 <= kv_head < len(keys):
        raise IndexError(f"key/value head {kv_head} is out of range: layer {layer} has 0 to {len(keys) - 1}")
    return _floats(keys[kv_head])


def _floats(states: Any) -> Float:
    return as_array(states).astype(np.float64)


def _row(added: Any, head: int, query: int, keys: int) -> Float:
    """Return the row [key] of a mask or bias [1, head or 1, query or 1, key]."""
    if added is None:
        return np.zeros(keys)
    by_query = added[0, head if added.shape[1] > 1 else 0]
    return np.broadcast_to(_floats(by_query[query if len(by_query) > 1 else 0]), (keys,))
