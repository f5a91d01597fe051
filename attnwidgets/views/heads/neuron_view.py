"""NeuronView: see the class."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from attnwidgets.views.base.accepts import is_explanation, is_trace
from attnwidgets.views.base.view import View
from attnwidgets.views.wire.handlers import Handler

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from typing_extensions import Unpack

    from attnwidgets.explanations.mixing.attention_row import AttentionRow, Float
    from attnwidgets.views.base.options import ViewOptions
    from attnwidgets.views.wire.handlers import Answer

PAGE_BUDGET = 400_000
"""Bytes of queries and keys that a page without a kernel holds, before they are compressed."""
_VALUE = 4  # bytes of a float32
_SERIES = 7  # at most that many numbers of a row for every key


class NeuronView(View):
    """How one attention weight comes about: q, k, their products, the dot product, scaling, mask, softmax.

    One picture for a query and a key, in steps (arrow keys left and right); beside it the same step for every
    key of the query's row, without which a softmax cannot be understood. It follows the pinned cell, the
    layer and the head; a click on a key, or arrow up and down, pins another. Queries and keys are those that
    the model used, after any rotary embedding, with its own scaling, softcap, position bias and mask; the
    last number is the recorded attention.

    Needs a trace that `aw.trace` recorded or `aw.from_qkv` computed; of given attention weights nobody knows
    the queries.

    Args:
        trace: A trace recorded by `aw.trace` or computed by `aw.from_qkv`.

    Raises:
        UnsupportedModelError: The trace holds attention weights only.
        TypeError: What is given is no trace.
    """

    _VIEW = "NeuronView"
    PARTS = ("neuron",)

    def __init__(self, trace: Any, **options: Unpack[ViewOptions]) -> None:
        self._trace = _with_queries(trace)
        super().__init__(trace, **options)

    def _connect(self, *, fixed: bool) -> dict[str, Any]:
        del fixed
        traits = super()._connect(fixed=False)
        # Tokens have queries and keys: words have none, nor has another method.
        self._options["method"], self._options["unit"] = self._explanations[0].method, "token"
        return traits

    def _handlers(self) -> Mapping[str, Handler]:
        rows, keys = (partial(self._for_page, topic) for topic in ("attention_row", "attention_keys"))
        return {
            "attention_row": Handler(self._row, for_page=rows),
            "attention_keys": Handler(self._keys_of, for_page=keys),
        }

    def _row(self, stack: str, layer: int, head: int, query: int) -> Answer:
        from attnwidgets.explanations.mixing.attention_row import attention_row

        row = attention_row(self._trace, int(layer), int(head), int(query), stack=str(stack))
        series = series_of(row)
        meta = {
            "dim": len(row.query),
            "kvHead": row.kv_head,
            "scaling": row.scaling,
            "softcap": row.softcap,
            "series": list(series),
            "dtype": row.dtype,
        }
        return meta, [_packed(row.query), *(_packed(values) for values in series.values())]

    def _keys_of(self, stack: str, layer: int, head: int) -> Answer:
        from attnwidgets.explanations.mixing.attention_row import key_vectors

        keys = key_vectors(self._trace, int(layer), int(head), stack=str(stack))
        return {"keys": keys.shape[0], "dim": keys.shape[1]}, [_packed(keys)]

    def _for_page(self, topic: str) -> Iterator[dict[str, Any]]:
        """Yield the questions that a page answers: the pinned row, its head's others, other heads' own."""
        room = PAGE_BUDGET
        sent: set[tuple[str, int, int]] = set()
        for stack, layer, head, query in self._nearest_first():
            (heads, _, depth), (kv_heads, keys, _) = (
                tuple(states.shape) for states in self._trace.query_key(layer, stack)
            )
            kv_head = head // (heads // kv_heads)
            cost = _VALUE * (depth + _SERIES * keys)
            is_new = (stack, layer, kv_head) not in sent
            room -= cost + is_new * _VALUE * keys * depth
            if room < 0 and sent:
                return
            if is_new:
                sent.add((stack, layer, kv_head))
                if topic == "attention_keys":
                    yield {"stack": stack, "layer": layer, "head": kv_head}
            if topic == "attention_row":
                yield {"stack": stack, "layer": layer, "head": head, "query": query}

    def _nearest_first(self) -> Iterator[tuple[str, int, int, int]]:
        """Yield every (stack, layer, head, query), those first that a reader of a page asks for first."""
        selection, trace = self.selection, self._trace
        stack = selection.stack if selection.stack in trace.stacks else trace.default_stack
        layers, queries = trace.n_layers(stack), len(trace.axes(stack)[0])
        layer = min(selection.layer, layers - 1)
        head = selection.head if isinstance(selection.head, int) else 0
        pinned = selection.pinned
        # Without a pin the last query is shown.
        is_pinned = pinned is not None and pinned.unit == "token" and 0 <= pinned.query < queries
        query = pinned.query if is_pinned else queries - 1

        def heads_of(number: int) -> list[int]:
            return sorted(range(trace.n_heads(stack, number)), key=lambda at: at != head)

        def rows() -> list[int]:
            return sorted(range(queries), key=lambda at: (at != query, abs(at - query)))

        numbers = sorted(range(layers), key=lambda at: abs(at - layer))
        first = heads_of(layer)[0]
        yield from ((stack, layer, first, row) for row in rows())
        yield from ((stack, number, at, query) for number in numbers for at in heads_of(number))
        yield from ((stack, n, at, row) for n in numbers for at in heads_of(n) for row in rows())


def _with_queries(trace: Any) -> Any:
    """Return a trace whose queries and keys are known.

    Raises:
        UnsupportedModelError: It holds attention weights only.
        TypeError: It is no trace.
    """
    if not is_trace(trace):
        what = type(trace).__name__
        hint = f"; give the trace that the {what} is of" if is_explanation(trace) else ""
        raise TypeError(f"NeuronView() shows a trace, not {what}{hint}: aw.trace(model, tokenizer, text).")
    from attnwidgets.tracing.recording.attention_function import UnsupportedModelError

    try:
        trace.query_key(0)
    except UnsupportedModelError as error:
        raise UnsupportedModelError(
            f"NeuronView() draws queries and keys: {error}. aw.trace(model, tokenizer, text) records them, "
            "aw.from_qkv(E, W_q, W_k) computes them from given embeddings and weights."
        ) from error
    return trace


def series_of(row: AttentionRow) -> dict[str, Float]:
    """Return what every key has at each step [key], in the order of the steps; only those that change."""
    found = {"dot": row.dot, "scaled": row.scaled}
    if row.softcap is not None:
        found["capped"] = row.capped
    if row.bias is not None:
        found["biased"] = row.capped + row.bias
    return found | {"masked": row.scores, "softmax": row.weights, "recorded": row.recorded}


def _packed(values: Float) -> bytes:
    return np.ascontiguousarray(values, dtype="<f4").tobytes()
