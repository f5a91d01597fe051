"""How one row of attention comes about: q, every k, their products, scaling, mask, softmax, step by step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from attnwidgets.explanations.results.trace_protocol import require_trace, resolve_stack

if TYPE_CHECKING:
    from torch import Tensor

    from attnwidgets.tracing.trace import Trace

Float = NDArray[np.float64]

MASKED = -1e4
"""What a mask adds to make a share exactly 0; what it adds above that is a bias (ALiBi)."""


@dataclass(frozen=True)
class AttentionRow:
    """One query of one head, in float64: each array follows from those before it.

    Attributes:
        query: q [dim], after any rotary embedding.
        keys: Every k of the head [key, dim], after any rotary embedding.
        kv_head: The key/value head that this head reads: fewer than heads where queries share keys.
        dot: q . k [key].
        scaling: The model's factor on the scores.
        scaled: dot * scaling [key].
        softcap: The bound c of scores c * tanh(score / c), or None.
        capped: `scaled` within that bound [key]; the same where there is none.
        bias: What the model adds to the scores by position [key] (T5's bias, ALiBi), or None.
        masked: Keys that the query may not read [key].
        scores: What the softmax is given [key]; -inf where masked.
        weights: softmax(scores) [key].
        recorded: The weights as the trace has them [key].
        dtype: What the model computes in: "float32", "bfloat16", ... In half precision its weights are
            rounded at every step, and differ from these.
    """

    query: Float
    keys: Float
    kv_head: int
    dot: Float
    scaling: float
    scaled: Float
    softcap: float | None
    capped: Float
    bias: Float | None
    masked: NDArray[np.bool_]
    scores: Float
    weights: Float
    recorded: Float
    dtype: str


def attention_row(
    trace: Trace, layer: int, head: int, query: int, *, stack: str | None = None
) -> AttentionRow:
    """Return how one row of attention comes about, from recorded queries and keys.

    Args:
        trace: What `aw.trace` or `aw.from_qkv` returned.
        layer: Number of the layer.
        head: Number of the head.
        query: Index of the query's token.
        stack: "encoder", "decoder" or "cross" of an encoder-decoder; the trace's default otherwise.

    Raises:
        UnsupportedModelError: Where only attention weights are known.
        IndexError: Where there is no such layer, head or query.
        ValueError: Where there is no such stack.
    """
    require_trace(trace, "attention_row")
    stack = resolve_stack(trace, stack)
    every_query, every_key = trace.query_key(layer, stack)
    settings = trace.attention_settings(layer, stack)
    heads, queries, depth = every_query.shape
    for name, index, count in (("head", head, heads), ("query", query, queries)):
        if not 0 <= index < count:
            raise IndexError(f"{name} {index} is out of range: layer {layer} has {name} 0 to {count - 1}")
    kv_head = head // (heads // every_key.shape[0])
    q, keys = _floats(every_query[head, query]), _floats(every_key[kv_head])
    dot = keys @ q
    scaling = depth**-0.5 if settings.get("scaling") is None else float(settings["scaling"])
    scaled = dot * scaling
    softcap = settings.get("softcap")
    capped = scaled if softcap is None else softcap * np.tanh(scaled / softcap)
    added = [_row(settings.get(name), head, query, len(keys)) for name in ("position_bias", "mask")]
    masked = added[1] <= MASKED
    # A query that may read nothing reads everything alike: the model's mask is a number like any other there.
    masked = masked & ~masked.all()
    bias = added[0] + np.where(masked, 0.0, added[1])
    scores = np.where(masked, -np.inf, capped + bias)
    shares = np.exp(scores - scores.max())
    return AttentionRow(
        query=q,
        keys=keys,
        kv_head=kv_head,
        dot=dot,
        scaling=scaling,
        scaled=scaled,
        softcap=None if softcap is None else float(softcap),
        capped=capped,
        bias=bias if bias.any() else None,
        masked=masked,
        scores=scores,
        weights=shares / shares.sum(),
        recorded=_floats(trace.attention_rows(layer, [head], [query], stack)[0, 0]),
        dtype=str(every_query.dtype).removeprefix("torch."),
    )


def key_vectors(trace: Trace, layer: int, kv_head: int, *, stack: str | None = None) -> Float:
    """Return every key of a key/value head [key, dim], after any rotary embedding.

    Raises:
        UnsupportedModelError: Where only attention weights are known.
        IndexError: Where there is no such layer or head.
    """
    keys = trace.query_key(layer, stack)[1]
    if not 0 <= kv_head < len(keys):
        raise IndexError(f"key/value head {kv_head} is out of range: layer {layer} has 0 to {len(keys) - 1}")
    return _floats(keys[kv_head])


def _floats(states: Tensor) -> Float:
    return states.detach().double().cpu().numpy()


def _row(added: Any, head: int, query: int, keys: int) -> Float:
    """Return what a mask or bias [1, head or 1, query or 1, key] adds to one row [key]."""
    if added is None:
        return np.zeros(keys)
    one = added[0]
    row = one[head if len(one) > 1 else 0]
    return np.broadcast_to(_floats(row[query if len(row) > 1 else 0]), (keys,))
