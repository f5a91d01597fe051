"""The view of a weight: of attention from query and key to softmax, of a kernel from token to token.

The browser asks for rows: the vector of a query and the numbers of its row for every key (`_row`), and the
keys of a head (`_keys_of`), from which it computes products and scores itself. Chains of kernels are computed
in Python (`_chain`). A page holds rows up to `PAGE_BUDGET` bytes, the nearest to the shown row first.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from attnwidgets.explanations.mixing.kernel_row import KernelRow, mixer_at
from attnwidgets.explanations.results.attributions import Attributions
from attnwidgets.explanations.results.block_mixers import mixers_of
from attnwidgets.explanations.results.mixing_map import MixingMap
from attnwidgets.explanations.results.trace_protocol import is_trace
from attnwidgets.views.base.asks_why import AsksWhy
from attnwidgets.views.base.needs import Needs
from attnwidgets.views.base.opening import divided_row, last_content
from attnwidgets.views.wire.handlers import Handler

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from typing_extensions import Unpack

    from attnwidgets.explanations.mixing.attention import AttentionRow, Float
    from attnwidgets.figures.sheet import Sheet
    from attnwidgets.figures.theme import Theme
    from attnwidgets.views.base.accepts import Content
    from attnwidgets.views.base.link import Link
    from attnwidgets.views.base.opening import Opening
    from attnwidgets.views.base.options import ViewOptions
    from attnwidgets.views.base.selection import Selection
    from attnwidgets.views.wire.handlers import Answer

PAGE_BUDGET = 400_000
"""Bytes of queries and keys in a page without a kernel, before compression."""
_VALUE = 4  # bytes of a float32
_SERIES = 7  # numbers of a row for every key, at most
_CHAIN = 1_500  # bytes of the chain of a weight of a kernel


class NeuronView(AsksWhy):
    """How a weight is computed: q, k, their products, the dot product, scaling, mask, softmax.

    Additive scores (`aw.from_qkv(score="additive")`) are v . tanh(q + k) instead, and the products those of v
    and tanh(q + k).

    A picture of a query and a key, in steps (arrow keys left and right), next to the same step for every key
    of the query's row, without which a softmax cannot be understood. It follows the pinned cell, the
    layer and the head. It opens on a row with two to four weights, if there is such a row, otherwise on the
    strongest pair outside special tokens; click a key, or press arrow up or down, to pin another. Queries and
    keys are those that the model used, after any rotary embedding, with its scaling, softcap, position bias
    and mask; the last number is the recorded attention. **Why?** next to a pinned weight, or w, opens a
    `WhyView` below.

    In blocks that mix tokens without attention, also by `aw.from_qkv(rule=...)`, a weight is a chain of
    steps: the value that the key wrote, and the change of it by every later token, by the factor of a decay
    and the loss to a delta rule. Steps that change little are joined. The weights are those of
    `aw.mixing(trace, "kernel")`; where every channel has its kernel, a single channel is shown, at first
    that with the largest weights. Convolutions have no such chain, and are left out.

    The trace must come from `aw.trace` or `aw.from_qkv`: given attention weights come without queries and
    keys.

    Args:
        trace: A trace recorded by `aw.trace` or computed by `aw.from_qkv`.

    Raises:
        UnsupportedModelError: The trace holds attention weights only, or convolutions alone mix its tokens.
        TypeError: `trace` is not a trace.
    """

    _VIEW = "NeuronView"
    _HEIGHT = 540
    NEEDS = Needs(("neuron",))

    def __init__(self, trace: Any, **options: Unpack[ViewOptions]) -> None:
        self._last: tuple[Any, KernelRow | None] = (None, None)
        super().__init__(_with_queries(trace), **options)

    def _content_of(self, shown: Any, methods: Sequence[str], units: Sequence[str]) -> Content:
        content = super()._content_of(shown, methods, units)
        return replace(content, explanations=tuple(_with_steps(content.explanations, shown)))

    def _join(self, start: Mapping[str, Any]) -> Link:
        link = super()._join(start)
        # Only attention and kernels by token have queries and keys.
        self._options["method"], self._options["unit"] = link.keys[0], "token"
        self._options["opens"] = self._row_at_rest(link.selection)
        return link

    def _preferred(self, opening: Opening) -> Opening:
        shown = self.content.main
        if opening.unit != "token" or shown.known("signed") or divided_row(shown, opening, all_heads=False):
            return opening
        return divided_row(shown, opening, all_heads=True) or opening

    def _row_at_rest(self, selection: Selection) -> dict[str, Any] | None:
        """Return the OpensAt of wire.ts; None if no pair of the shown head was searched for."""
        opening, shown = selection.opening, self.content.main
        if opening is None or opening.unit != "token" or not isinstance(selection.head, int):
            return None
        if shown.known("signed"):  # the pair of a linked view is one of its shares, not of these weights
            return None
        here = opening._replace(layer=selection.layer, head=selection.head)
        row = divided_row(shown, here, all_heads=False) or opening
        is_here = (row.layer, row.head) == (selection.layer, selection.head)
        if row.pair is None or not is_here:
            return None
        return {"stack": shown.stack or "self", "layer": row.layer, "head": row.head, "pair": list(row.pair)}

    def _handlers(self) -> Mapping[str, Handler]:
        rows, keys, chains = (
            partial(self._for_page, name) for name in ("attention_row", "attention_keys", "kernel_chain")
        )
        return {
            "attention_row": Handler(self._row, for_page=rows),
            "attention_keys": Handler(self._keys_of, for_page=keys),
            "kernel_chain": Handler(self._chain, for_page=chains),
        }

    def row(
        self, stack: str, layer: int, head: int, query: int, channel: int | None = None
    ) -> AttentionRow | KernelRow:
        """Return a row of a head of the map that is shown, which attends or has a kernel."""
        from attnwidgets.explanations.mixing.attention import attention_row
        from attnwidgets.explanations.mixing.kernel_row import kernel_row

        trace, request = self.content.trace, (self.content.trace_id, stack, layer, head, query, channel)
        if self._last[0] != request:
            self._last = request, kernel_row(trace, layer, head, query, channel=channel, stack=stack)
        if self._last[1] is not None:
            return self._last[1]
        return attention_row(trace, layer, mixer_at(trace, layer, head, stack)[2], query, stack=stack)

    def _row(self, stack: str, layer: int, head: int, query: int, channel: int | None = None) -> Answer:
        """Answer with the query's vector [dim], each of the series [key], and v [dim] of additive scores.

        Of a kernel the weights [key] alone, and the key that it opens with.
        """
        position = str(stack), int(layer), int(head), int(query)
        row = self.row(*position, channel)
        if isinstance(row, KernelRow):
            channels = {"channels": row.channels, "channel": row.group if row.channels else None}
            return channels | {"opens": self.opening_key(row, *position)}, [_packed(row.weights)]
        series = series_of(row)
        meta = {
            "dim": len(row.query),
            "kvHead": row.kv_head,
            "scaling": row.scaling,
            "softcap": row.softcap,
            "series": list(series),
            "dtype": row.dtype,
            "additive": row.additive is not None,
            "sink": row.sink,
        }
        more = () if row.additive is None else (row.additive,)
        return meta, [_packed(row.query), *(_packed(values) for values in (*series.values(), *more))]

    def _chain(
        self, stack: str, layer: int, head: int, query: int, key: int, channel: int | None = None
    ) -> Answer:
        """Answer with how a weight of a kernel comes about: `ShownChain` of chain.ts."""
        from attnwidgets.views.heads.chain_words import shown_chain

        row = self.row(str(stack), int(layer), int(head), int(query), channel)
        if not isinstance(row, KernelRow):
            raise LookupError(f"head {head} of layer {layer} attends: its weights are no chain of steps.")  # noqa: TRY004
        labels = self.content.trace.axes(stack)[1].units["token"].labels
        return shown_chain(row, int(key), labels).described(), []

    def _keys_of(self, stack: str, layer: int, head: int) -> Answer:
        """Answer with every key of a key/value head [key, dim], float32."""
        from attnwidgets.explanations.mixing.attention import key_vectors

        keys = key_vectors(self.content.trace, int(layer), int(head), stack=str(stack))
        return {"keys": keys.shape[0], "dim": keys.shape[1]}, [_packed(keys)]

    def _for_page(self, name: str) -> Iterator[dict[str, Any]]:
        """Yield the requests that a page answers: the pinned row, rows of the same head, then other heads."""
        room = PAGE_BUDGET
        sent: set[tuple[str, int, int]] = set()
        is_first = True
        for stack, layer, head, query in self._nearest_first():
            if not _has_steps(self.content.trace, layer, head, stack):
                continue
            _, mix, number = mixer_at(self.content.trace, layer, head, stack)
            arguments = {"stack": stack, "layer": layer, "head": head, "query": query}
            if mix is not None:
                room -= (_VALUE + _CHAIN) * (query + 1)
                requests = {"attention_row": [arguments]}
                channel = None
                if name == "kernel_chain" and (room >= 0 or is_first):
                    row = self.row(stack, layer, head, query)
                    channel = row.group if isinstance(row, KernelRow) and row.channels else None
                channels = {} if channel is None else {"channel": channel}
                requests["kernel_chain"] = [arguments | {"key": key} | channels for key in range(query + 1)]
            else:
                (heads, _, depth), (kv_heads, keys, _) = (
                    tuple(states.shape) for states in self.content.trace.query_key(layer, stack)
                )
                kv_head = number // (heads // kv_heads)
                is_new = (stack, layer, kv_head) not in sent
                room -= _VALUE * (depth + _SERIES * keys + is_new * keys * depth)
                sent.add((stack, layer, kv_head))
                new_keys = [{"stack": stack, "layer": layer, "head": kv_head}] if is_new else []
                requests = {"attention_row": [arguments], "attention_keys": new_keys}
            if room < 0 and not is_first:
                return
            is_first = False
            yield from requests.get(name, ())

    def _nearest_first(self) -> Iterator[tuple[str, int, int, int]]:
        """Yield every (stack, layer, head, query), those first that a reader of a page asks for first."""
        selection, trace = self.selection, self.content.trace
        stack = selection.stack if selection.stack in trace.stacks else trace.default_stack
        shown = next(item for item in self.content.explanations if (item.stack or "self") == stack)
        numbers, n_queries = shown.layers, len(trace.axes(stack)[0])
        layer = min(numbers, key=lambda number: abs(number - selection.layer))
        head = selection.head if isinstance(selection.head, int) else 0
        mixers = mixers_of(shown)

        def heads_of(number: int) -> list[int]:
            count = mixers[number].n_heads if number in mixers else trace.n_heads(stack, number)
            return sorted(range(count), key=lambda head_index: head_index != head)

        head = heads_of(layer)[0]
        pinned = selection.pinned
        is_pinned = pinned is not None and pinned.unit == "token" and 0 <= pinned.query < n_queries
        query = pinned.query if is_pinned else self.opening_query(stack, layer, head)
        layers = sorted(numbers, key=lambda number: abs(number - layer))
        queries = sorted(range(n_queries), key=lambda row: (row != query, abs(row - query)))
        heads = [(number, position) for number in layers for position in heads_of(number)]
        yield from ((stack, *heads[0], row) for row in queries)
        yield from ((stack, *position, query) for position in heads)
        yield from ((stack, *position, row) for position in heads for row in queries)

    def opening_query(self, stack: str, layer: int, head: int) -> int:
        """Return the query shown without a pin: that of the opening, else the last of no special token."""
        pair = self._opening_pair(stack, layer, head)
        tokens = self.content.trace.axes(stack)[0].units["token"]
        return last_content(tokens.labels, tokens.special) if pair is None else pair[0]

    def opening_key(
        self, row: AttentionRow | KernelRow, stack: str, layer: int, head: int, query: int
    ) -> int:
        """Return the key shown without a pin: that of the opening, else the strongest of no special token.

        Of a kernel it is a key before the query, if the query reads any.
        """
        pair = self._opening_pair(stack, layer, head)
        if pair is not None and pair[0] == query:
            return pair[1]
        special = self.content.trace.axes(stack)[1].units["token"].special
        if isinstance(row, KernelRow):
            earlier = max(_content(special[: max(query, 1)]), key=lambda key: abs(float(row.weights[key])))
            return earlier if row.weights[earlier] else query
        return max(_content(special), key=lambda key: float(row.recorded[key]))

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
    """Return a trace if its queries and keys are recorded.

    Raises:
        UnsupportedModelError: It holds attention weights only.
        TypeError: It is not a trace.
    """
    if not is_trace(trace):
        kind = type(trace).__name__
        hint = "; give the trace that it explains" if isinstance(trace, (MixingMap, Attributions)) else ""
        raise TypeError(f"NeuronView() shows a trace, not {kind}{hint}: aw.trace(model, tokenizer, text).")
    from attnwidgets.tracing.unsupported import UnsupportedModelError

    table = getattr(trace, "stack_table", {}).get(trace.default_stack)
    if table is not None and table.mixing and (table.layers or _stateful(trace, trace.default_stack)):
        return trace
    if table is not None and table.mixing:
        raise UnsupportedModelError(
            "NeuronView() shows how a weight of attention or of a state comes about, and convolutions alone "
            "mix these tokens: aw.mixing(trace) shows their shares."
        )
    try:
        trace.query_key(-1)
    except UnsupportedModelError as error:
        raise UnsupportedModelError(
            f"NeuronView() needs queries and keys: {error}. aw.trace(model, tokenizer, text) records them, "
            "aw.from_qkv(E, W_q, W_k) computes them from given embeddings and weights."
        ) from error
    return trace


def _stateful(trace: Any, stack: str) -> list[int]:
    """Return the numbers of the blocks of a stack in which tokens write to a state."""
    mixing = trace.stack_table[stack].mixing
    return [number for number, of in mixing.items() if any(mix.kernel.has_state for mix in of.mixes)]


def _has_steps(trace: Any, layer: int, head: int, stack: str) -> bool:
    """Return whether the weights of a head can be computed step by step."""
    from attnwidgets.tracing.unsupported import UnsupportedModelError

    try:
        _, mix, _ = mixer_at(trace, layer, head, stack)
    except UnsupportedModelError:
        return False
    return mix is None or mix.kernel.has_state


def _with_steps(explanations: Sequence[Any], trace: Any) -> Iterator[Any]:
    """Yield maps of a trace's stacks in which steps lead to every weight: kernels instead of shares."""
    from attnwidgets.explanations.mixing.attention import attention
    from attnwidgets.explanations.mixing.mixing import mixing

    for shown in explanations:
        stack = shown.stack or "self"
        stateful = [] if shown.method == "attention" else _stateful(trace, stack)
        if shown.method == "attention":
            yield shown
        elif stateful:
            numbers = sorted({*stateful, *trace.stack_table[stack].numbers})
            yield mixing(trace, "kernel", stack=stack, layers=numbers)
        else:
            yield attention(trace, stack=stack)


def _content(special: Sequence[int]) -> list[int]:
    """Return the indices of tokens that are not special; all, if there are no others."""
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
