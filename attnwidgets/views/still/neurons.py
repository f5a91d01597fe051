"""What the figure of a NeuronView consists of: query and key, their products, and every step of the row."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from attnwidgets.figures.parts.matrix import Map, Scale
from attnwidgets.figures.parts.numbers import Table
from attnwidgets.figures.sheet import Sheet, Words
from attnwidgets.figures.theme import LIGHT
from attnwidgets.views.still.colours import map_colours

if TYPE_CHECKING:
    from attnwidgets.explanations.mixing.attention import AttentionRow, Float
    from attnwidgets.figures.theme import Theme

_MOST = 40  # keys in the table


def neuron_sheet(view: Any, theme: Theme) -> Sheet:
    """Return how the pinned weight is computed, and the same steps for the keys of its row."""
    from attnwidgets.explanations.mixing.attention import attention_row
    from attnwidgets.views.heads.neuron_view import series_of

    stack, layer, head, query = next(view._nearest_first())  # noqa: SLF001 - the row that it shows
    trace, base, pinned = view.content.trace, view.options["indexBase"], view.selection.pinned
    row = attention_row(trace, layer, head, query, stack=stack)
    queries, keys = (axis.units["token"].labels for axis in trace.axes(stack))
    is_pinned = pinned is not None and pinned.unit == "token" and 0 <= pinned.key < len(keys)
    key = pinned.key if is_pinned else view.opening_key(row, stack, layer, head, query)
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
    words = (
        f"{score} = {row.dot[key]:.3g}, times {row.scaling:.3g} = {row.scaled[key]:.3g}; "
        f"after the softmax {row.weights[key]:.4g}, recorded {row.recorded[key]:.4g}"
    )
    title = (
        str(view.options["title"])
        or f"“{queries[query]}” reads “{keys[key]}” in layer {layer + base}, head {head + base}"
    )
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
    return f"{sheet.title}: {steps.text}." if isinstance(steps, Words) else sheet.title


def product_of(row: AttentionRow, key: int) -> tuple[Float, str]:
    """Return the numbers whose sum is the score of a key [dim], and what that sum is called."""
    if row.additive is None:
        return row.query * row.keys[key], "q · k"
    return row.additive * np.tanh(row.query + row.keys[key]), "v · tanh(q + k)"
