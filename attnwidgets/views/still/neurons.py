"""The figure of a NeuronView: query and key and their products, or a chain, and the row."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from attnwidgets.explanations.mixing.kernel_row import KernelRow
from attnwidgets.explanations.results.verbalise import SINK_NAME
from attnwidgets.figures.parts.matrix import Map, Scale
from attnwidgets.figures.parts.numbers import Bar, Bars, Table
from attnwidgets.figures.sheet import Sheet, Words
from attnwidgets.figures.theme import LIGHT
from attnwidgets.views.heads.chain_words import number, shown_chain
from attnwidgets.views.still.colours import map_colours

if TYPE_CHECKING:
    from collections.abc import Sequence

    from attnwidgets.explanations.mixing.attention import AttentionRow, Float
    from attnwidgets.figures.theme import Theme

_MOST = 40  # keys in the table


def neuron_sheet(view: Any, theme: Theme) -> Sheet:
    """Return how the pinned weight is computed, and the same steps for the keys of its row."""
    stack, layer, head, query = next(view._nearest_first())  # noqa: SLF001 - the row that it shows
    trace, base, pinned = view.content.trace, view.options["indexBase"], view.selection.pinned
    row = view.row(stack, layer, head, query)
    queries, keys = (axis.units["token"].labels for axis in trace.axes(stack))
    is_kernel = isinstance(row, KernelRow)
    last = query if is_kernel else len(keys) - 1
    is_pinned = pinned is not None and pinned.unit == "token" and 0 <= pinned.key <= last
    key = pinned.key if is_pinned else view.opening_key(row, stack, layer, head, query)
    where = f"layer {layer + base}, head {head + base}"
    if is_kernel:
        channel = f"layer {layer + base}, channel {row.group + base}"
        where = f"{channel if row.channels else where} ({row.kind})"
    title = str(view.options["title"]) or f"“{queries[query]}” reads “{keys[key]}” in {where}"
    return (
        _chain_sheet(title, row, key, keys) if is_kernel else _attention_sheet(title, row, key, keys, theme)
    )


def _chain_sheet(title: str, row: KernelRow, key: int, keys: Sequence[str]) -> Sheet:
    """Return the steps of a weight of a kernel, and the weights of its row."""
    shown = shown_chain(row, key, keys)
    chain = shown.chain
    columns = ["token", "keeps", *(["erases"] if shown.erases else []), "reads"]
    lines: list[tuple[Any, ...]] = [(f"{keys[key]} writes", chain.formula, 0.0, chain.start)]
    for step in shown.steps:
        count = step.last - step.first + 1
        name = keys[step.first] if count == 1 else f"{count} tokens, {keys[step.first]} to {keys[step.last]}"
        lines.append((name, f"× {number(step.factor)}", step.erased, step.value))
    if chain.skip:
        lines.append(("skip connection", f"+ {number(chain.skip)}", 0.0, chain.value + chain.skip))
    if chain.total != 1:
        lines.append(("total of the row", f"/ {number(chain.total)}", 0.0, chain.weight))
    rows = [line if shown.erases else (*line[:2], line[3]) for line in lines]
    order = sorted(np.argsort(-np.abs(row.weights), kind="stable")[:_MOST].tolist())
    bars = Bars(
        [Bar(keys[at], float(row.weights[at]), bold=at == key) for at in order],
        form="{:.3g}",
        title="all weights",
    )
    left_out = f"{len(order)} of {len(row.weights)} keys" if len(order) < len(row.weights) else ""
    note = " ".join(filter(None, (shown.note, left_out)))
    return Sheet(title, [Words(shown.words, quiet=False), Table(columns, rows), bars], note)


def _attention_sheet(title: str, row: AttentionRow, key: int, keys: Sequence[str], theme: Theme) -> Sheet:
    """Return query, key and their products, and the steps of attention for the keys of the row."""
    from attnwidgets.views.heads.neuron_view import series_of

    product, score = product_of(row, key)
    vectors = np.stack([row.query, row.keys[key], product])
    colours, norm = map_colours({"scale": "linear"}, theme, vectors, signed=True)
    series = series_of(row)
    order = sorted(np.argsort(-row.recorded, kind="stable")[:_MOST].tolist())
    if key not in order:
        order[-1] = key
    table = Table(
        ("key", *series),
        [(keys[i], *(float(step[i]) for step in series.values())) for i in order],
        order.index(key),
    )
    words = f"{score} = {row.dot[key]:.3g}, times {row.scaling:.3g} = {row.scaled[key]:.3g}; "
    if row.masked[key]:
        words += "masked: the query is not compared with this key"
    else:
        words += f"after the softmax {row.weights[key]:.4g}, recorded {row.recorded[key]:.4g}"
    if row.sink is not None:
        words += f"; {SINK_NAME} {1 - row.weights.sum():.4g}, whose score is {row.sink:.3g}"
    return Sheet(
        title,
        [
            Words(words, quiet=False),
            Map(vectors, ("query", "key", "product"), [""] * vectors.shape[1], colours, norm, square=False),
            Scale(colours, norm, f"the {vectors.shape[1]} components of query, key and product"),
            table,
        ],
        f"{len(order)} of {len(keys)} keys" if len(order) < len(keys) else "",
    )


def neuron_words(view: Any) -> str:
    """Return in a sentence how the weight of the shown pair is computed."""
    sheet = neuron_sheet(view, LIGHT)
    steps = sheet.parts[0]
    return f"{sheet.title}: {steps.text.rstrip('.')}." if isinstance(steps, Words) else sheet.title


def product_of(row: AttentionRow, key: int) -> tuple[Float, str]:
    """Return the numbers whose sum is the score of a key [dim], and the formula of the sum."""
    if row.additive is None:
        return row.query * row.keys[key], "q · k"
    return row.additive * np.tanh(row.query + row.keys[key]), "v · tanh(q + k)"
