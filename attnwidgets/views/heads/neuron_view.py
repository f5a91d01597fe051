"""The view of one attention weight, from query and key to softmax."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from attnwidgets.explanations.results.attributions import Attributions
from attnwidgets.explanations.results.mixing_map import MixingMap
from attnwidgets.explanations.results.trace_protocol import is_trace
from attnwidgets.views.base.needs import Needs
from attnwidgets.views.base.opening import divided_row, last_content
from attnwidgets.views.base.view import View
from attnwidgets.views.wire.handlers import Handler

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from typing_extensions import Unpack

    from attnwidgets.explanations.mixing.attention import AttentionRow, Float
    from attnwidgets.figures.sheet import Sheet
    from attnwidgets.figures.theme import Theme
    from attnwidgets.views.base.link import Link
    from attnwidgets.views.base.opening import Opening
    from attnwidgets.views.base.options import ViewOptions
    from attnwidgets.views.base.selection import Selection
    from attnwidgets.views.wire.handlers import Answer

PAGE_BUDGET = 400_000
"""Bytes of queries and keys in a page without a kernel, before compression."""
_VALUE = 4  # bytes of a float32
_SERIES = 7  # numbers of a row for every key, at most


class NeuronView(View):
    """How one attention weight is computed: q, k, their products, the dot product, scaling, mask, softmax.

    Additive scores (`aw.from_qkv(score="additive")`) are v . tanh(q + k) instead, and the products those of v
    and tanh(q + k).

    One picture for a query and a key, in steps (arrow keys left and right), next to the same step for every
    key of the query's row, without which a softmax cannot be understood. It follows the pinned cell, the
    layer and the head. It opens on a row with two to four weights, if there is such a row, otherwise on the
    strongest pair outside special tokens; click a key, or press arrow up or down, to pin another. Queries and
    keys are those that the model used, after any rotary embedding, with its own scaling, softcap, position
    bias and mask; the last number is the recorded attention.

    The trace must come from `aw.trace` or `aw.from_qkv`: given attention weights come without queries and
    keys.

    Args:
        trace: A trace recorded by `aw.trace` or computed by `aw.from_qkv`.

    Raises:
        UnsupportedModelError: The trace holds attention weights only.
        TypeError: `trace` is not a trace.
    """

    _VIEW = "NeuronView"
    _HEIGHT = 540
    NEEDS = Needs(("neuron",))

    def __init__(self, trace: Any, **options: Unpack[ViewOptions]) -> None:
        super().__init__(_with_queries(trace), **options)

    def _join(self, start: Mapping[str, Any]) -> Link:
        link = super()._join(start)
        # Only attention by token has queries and keys.
        self._options["method"], self._options["unit"] = self.content.main.method, "token"
        self._options["opens"] = self._row_at_rest(link.selection)
        return link

    def _preferred(self, opening: Opening) -> Opening:
        if opening.unit != "token" or divided_row(self.content.main, opening, all_heads=False):
            return opening
        return divided_row(self.content.main, opening, all_heads=True) or opening

    def _row_at_rest(self, selection: Selection) -> dict[str, Any] | None:
        """Return the OpensAt of wire.ts; None if no pair of the shown head was searched for."""
        opening, shown = selection.opening, self.content.main
        if opening is None or opening.unit != "token" or not isinstance(selection.head, int):
            return None
        here = opening._replace(layer=selection.layer, head=selection.head)
        row = divided_row(shown, here, all_heads=False) or opening
        is_here = (row.layer, row.head) == (selection.layer, selection.head)
        if row.pair is None or not is_here:
            return None
        return {"stack": shown.stack or "self", "layer": row.layer, "head": row.head, "pair": list(row.pair)}

    def _handlers(self) -> Mapping[str, Handler]:
        rows, keys = (partial(self._for_page, name) for name in ("attention_row", "attention_keys"))
        return {
            "attention_row": Handler(self._row, for_page=rows),
            "attention_keys": Handler(self._keys_of, for_page=keys),
        }

    def _row(self, stack: str, layer: int, head: int, query: int) -> Answer:
        """Answer with the query's vector [dim], each of the series [key], and v [dim] of additive scores."""
        from attnwidgets.explanations.mixing.attention import attention_row

        row = attention_row(self.content.trace, int(layer), int(head), int(query), stack=str(stack))
        series = series_of(row)
        meta = {
            "dim": len(row.query),
            "kvHead": row.kv_head,
            "scaling": row.scaling,
            "softcap": row.softcap,
            "series": list(series),
            "dtype": row.dtype,
            "additive": row.additive is not None,
        }
        more = () if row.additive is None else (row.additive,)
        return meta, [_packed(row.query), *(_packed(values) for values in (*series.values(), *more))]

    def _keys_of(self, stack: str, layer: int, head: int) -> Answer:
        """Answer with every key of a key/value head [key, dim], float32."""
        from attnwidgets.explanations.mixing.attention import key_vectors

        keys = key_vectors(self.content.trace, int(layer), int(head), stack=str(stack))
        return {"keys": keys.shape[0], "dim": keys.shape[1]}, [_packed(keys)]

    def _for_page(self, name: str) -> Iterator[dict[str, Any]]:
        """Yield the requests that a page answers: the pinned row, rows of the same head, then other heads."""
        room = PAGE_BUDGET
        sent: set[tuple[str, int, int]] = set()
        for stack, layer, head, query in self._nearest_first():
            (heads, _, depth), (kv_heads, keys, _) = (
                tuple(states.shape) for states in self.content.trace.query_key(layer, stack)
            )
            kv_head = head // (heads // kv_heads)
            is_new = (stack, layer, kv_head) not in sent
            room -= _VALUE * (depth + _SERIES * keys + is_new * keys * depth)
            if room < 0 and sent:
                return
            sent.add((stack, layer, kv_head))
            if name == "attention_row":
                yield {"stack": stack, "layer": layer, "head": head, "query": query}
            elif is_new:
                yield {"stack": stack, "layer": layer, "head": kv_head}

    def _nearest_first(self) -> Iterator[tuple[str, int, int, int]]:
        """Yield every (stack, layer, head, query), those first that a reader of a page asks for first."""
        selection, trace = self.selection, self.content.trace
        stack = selection.stack if selection.stack in trace.stacks else trace.default_stack
        numbers, n_queries = trace.layers(stack), len(trace.axes(stack)[0])
        layer = min(numbers, key=lambda number: abs(number - selection.layer))
        head = selection.head if isinstance(selection.head, int) else 0
        pinned = selection.pinned
        is_pinned = pinned is not None and pinned.unit == "token" and 0 <= pinned.query < n_queries
        query = pinned.query if is_pinned else self.opening_query(stack, layer, head)
        layers = sorted(numbers, key=lambda number: abs(number - layer))
        queries = sorted(range(n_queries), key=lambda row: (row != query, abs(row - query)))
        heads = [
            (number, place)
            for number in layers
            for place in sorted(range(trace.n_heads(stack, number)), key=lambda place: place != head)
        ]
        yield from ((stack, *heads[0], row) for row in queries)
        yield from ((stack, *position, query) for position in heads)
        yield from ((stack, *place, row) for place in heads for row in queries)

    def opening_query(self, stack: str, layer: int, head: int) -> int:
        """Return the query shown without a pin: that of the opening, else the last of no special token."""
        pair = self._opening_pair(stack, layer, head)
        tokens = self.content.trace.axes(stack)[0].units["token"]
        return last_content(tokens.labels, tokens.special) if pair is None else pair[0]

    def opening_key(self, row: AttentionRow, stack: str, layer: int, head: int, query: int) -> int:
        """Return the key shown without a pin: that of the opening, else the strongest of no special token."""
        pair = self._opening_pair(stack, layer, head)
        if pair is not None and pair[0] == query:
            return pair[1]
        return max(
            _content(self.content.trace.axes(stack)[1].units["token"].special),
            key=lambda key: float(row.recorded[key]),
        )

    def _opening_pair(self, stack: str, layer: int, head: int) -> tuple[int, int] | None:
        opens = self._options["opens"]
        is_here = opens and (opens["stack"], opens["layer"], opens["head"]) == (stack, layer, head)
        return tuple(opens["pair"]) if is_here else None

    def describe(self) -> str:
        """Return in a sentence how the weight of the shown pair is computed."""
        from attnwidgets.views.still.neurons import neuron_words

        return neuron_words(self)

    def _still(self, theme: Theme) -> Sheet:
        from attnwidgets.views.still.neurons import neuron_sheet

        return neuron_sheet(self, theme)


def _with_queries(trace: Any) -> Any:
    """Return a trace if its queries and keys are known.

    Raises:
        UnsupportedModelError: It holds attention weights only.
        TypeError: It is not a trace.
    """
    if not is_trace(trace):
        kind = type(trace).__name__
        hint = "; give the trace that it explains" if isinstance(trace, (MixingMap, Attributions)) else ""
        raise TypeError(f"NeuronView() shows a trace, not {kind}{hint}: aw.trace(model, tokenizer, text).")
    from attnwidgets.tracing.unsupported import UnsupportedModelError

    try:
        trace.query_key(-1)
    except UnsupportedModelError as error:
        raise UnsupportedModelError(
            f"NeuronView() needs queries and keys: {error}. aw.trace(model, tokenizer, text) records them, "
            "aw.from_qkv(E, W_q, W_k) computes them from given embeddings and weights."
        ) from error
    return trace


def _content(special: Sequence[int]) -> list[int]:
    """Return the places of no special tokens; all, if there is nothing else."""
    return [index for index, flag in enumerate(special) if not flag] or list(range(len(special)))


def series_of(row: AttentionRow) -> dict[str, Float]:
    """Return the numbers of every key after each step that changes them [key], in the order of the steps."""
    series = {"dot": row.dot, "scaled": row.scaled}
    if row.softcap is not None:
        series["capped"] = row.capped
    if row.bias is not None:
        series["biased"] = row.capped + row.bias
    return series | {"masked": row.scores, "softmax": row.weights, "recorded": row.recorded}


def _packed(values: Float) -> bytes:
    return np.asarray(values, dtype="<f4").tobytes()
