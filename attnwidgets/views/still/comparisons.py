"""What figures of comparisons consist of: strips, lines over layers, flow, and scores."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from attnwidgets.figures.parts.levels import Levels
from attnwidgets.figures.parts.lines import Line, Lines
from attnwidgets.figures.parts.matrix import Map, Scale
from attnwidgets.figures.parts.text import Text
from attnwidgets.figures.sheet import Sheet, Words
from attnwidgets.views.base.filters import APART, filter_words, filtered
from attnwidgets.views.compare.compared import nearest
from attnwidgets.views.still.colours import map_colours, strip_colours
from attnwidgets.views.still.view_state import ViewState

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from attnwidgets.figures.sheet import Part
    from attnwidgets.figures.theme import Theme
    from attnwidgets.views.base.view import View

_LEAST, _BUDGET = 0.04, 1000  # the opening threshold of a FlowView, and its largest number of edges
_FEWEST = 2


def compare_sheet(view: Any, theme: Theme) -> Sheet:
    """Return the strips of a CompareView, and how they agree."""
    compared, filters = view._compared, dict(view.options["filters"])  # noqa: SLF001 - a part of the view
    layer = nearest(compared.layers or (0,), view.selection.layer)
    query, unit = compared.pinned(view.selection.pinned), compared.unit
    elements = compared.axis.units[unit]
    labels, special = elements.labels, np.asarray(elements.special, dtype=bool)
    remarks = compared.remarks(layer)
    parts: list[Part] = []
    for index, values in enumerate(compared.vectors(layer, query, unit)):
        shares = compared.are_shares(index, values)
        shown = filtered(values[None], filters, special=special, shares=shares)
        signed = bool((values < 0).any())
        top = 1.0 if filters.get("extent") == "all" and shares else None
        colours, norm = strip_colours(filters, theme, shown, signed=signed, top=top)
        name = " · ".join(filter(None, (compared.names[index], remarks[index])))
        parts += [Text(shown, labels, colours, norm, names=[name]), Scale(colours, norm)]
    read = compared.query_in(query, unit)
    about = f"the row of “{labels[read]}”" if read is not None else ""
    left_out = filter_words(filters, shares=True)
    title = " · ".join(filter(None, (str(view.options["title"]) or "comparison", about, left_out)))
    return Sheet(title, [*parts, *_agreement(view, theme, layer, query, special)])


def _agreement(
    view: Any, theme: Theme, layer: int, query: int | None, special: NDArray[np.bool_]
) -> list[Part]:
    compared = view._compared  # noqa: SLF001
    hides = view.options["filters"].get("special", APART) != "show"
    counted = len(special) - int(special.sum()) if hides else len(special)
    if counted < _FEWEST:
        return []
    meta, _ = view._agreement(  # noqa: SLF001 - as its browser side asks
        layer, query, compared.unit, special=not hides, by="value"
    )
    measure = next(iter(meta["measures"].values()))
    values = np.array(measure["values"], dtype=np.float64)
    low = bool((values < 0).any())
    colours, norm = map_colours({"scale": "linear"}, theme, values, signed=low, top=1.0)
    return [
        Words(f"agreement: {measure['title']}", quiet=False, bold=True),
        Map(values, compared.names, compared.names, colours, norm, cell=0.34, numbers=True),
        Scale(colours, norm),
        Words(" ".join(filter(None, (meta["caveat"], meta["warning"])))),
    ]


def profile_sheet(view: Any, theme: Theme) -> Sheet:
    """Return the lines of a LayerProfile: its pair of tokens, or its target and its cues, over layers."""
    del theme
    compared, base = view._compared, view.options["indexBase"]  # noqa: SLF001 - a part of the view
    unit, pinned = compared.unit, view.selection.pinned
    meta, (data,) = view._profile(compared.pinned(pinned), unit)  # noqa: SLF001 - as its browser side asks
    labels = compared.axis.units[unit].labels
    values = np.frombuffer(data, "<f4").reshape(len(compared.items), len(compared.layers), len(labels))
    sources = [mark for mark in view.options["marks"] if isinstance(mark, int)]
    if pinned is not None and pinned.unit == unit and 0 <= pinned.key < len(labels):
        sources = [pinned.key]
    if not sources and values.size:
        sources = [int(np.argmax(np.abs(np.nan_to_num(values)).sum(axis=(0, 1))))]
    special = np.asarray(compared.axis.units[unit].special, dtype=bool)
    lines = []
    for name, rows, shares in zip(
        compared.names, values, np.reshape(meta["shares"], values.shape[:2]), strict=True
    ):
        shown = filtered(rows, view.options["filters"], special=special, shares=bool(shares.all()))
        lines.append(Line(name, shown[:, sources].sum(axis=1)))
    places = [layer + base for layer in compared.layers]
    query = meta["query"]
    target = "" if query is None else f"“{labels[query]}” reads "
    title = str(view.options["title"]) or target + ", ".join(f"“{labels[i]}”" for i in sources)
    marked = nearest(compared.layers, view.selection.layer) + base if compared.layers else None
    y_name = "share of the row" if meta["alike"] else "value"
    return Sheet(title, [Lines(lines, places, "layer", y_name, marked=marked)])


def flow_sheet(view: View, theme: Theme) -> Sheet:
    """Return the tokens by layers of a FlowView, with the edges that carry most; or where one comes from."""
    del theme
    state = ViewState.of(view)
    source, base = state.source, view.options["indexBase"]
    steps = [np.asarray(source.matrix(layer, state.head), dtype=np.float64) for layer in source.layers]
    labels = state.labels[1]
    top, row = len(steps), state.row
    masses = [np.ones(len(labels))]
    if row >= 0:
        masses = [np.eye(len(labels))[row]]
        for step in reversed(steps):
            masses.insert(0, masses[0] @ step)
    flows = [step * (masses[level + 1][:, None] if row >= 0 else 1.0) for level, step in enumerate(steps)]
    edges = [
        (level + 1, int(upper), int(lower), float(flow[upper, lower]))
        for level, flow in enumerate(flows)
        for upper, lower in zip(*np.nonzero(flow >= _LEAST), strict=True)
    ]
    edges = sorted(edges, key=lambda edge: edge[-1])[-_BUDGET:]
    whole = sum(float(flow.sum()) for flow in flows) or 1.0
    carried = sum(edge[-1] for edge in edges) / whole
    names = ["input", *(f"layer {layer + base}" for layer in source.layers)]
    dots = np.stack(masses) if row >= 0 else None
    about = f": where “{labels[row]}” comes from" if row >= 0 else ""
    part = Levels(names, labels, edges, dots, (top, row) if row >= 0 else None)
    return Sheet(
        (str(view.options["title"]) or source.title) + about,
        [part],
        f"{len(edges):,} edges of at least {_LEAST:g}, {carried:.0%} of the mass",
    )


def scores_sheet(view: Any, theme: Theme) -> Sheet:
    """Return the curves of the metric that a ScorecardView shows."""
    from attnwidgets.evaluate.scorecards.table import order_of, row_is_baseline

    del theme
    card = view._shown()  # noqa: SLF001 - a part of the view
    (low, high), mean = card.interval, card.mean
    lines = []
    for row in order_of(card):
        is_baseline = row_is_baseline(card, row)
        ends = {} if is_baseline else {"low": low[0, row], "high": high[0, row]}
        lines.append(Line(card.row_name(row).replace("_", " "), mean[0, row], dashed=is_baseline, **ends))
    metric = card.metrics[0].replace("_", " ")
    title = str(view.options["title"]) or metric
    model, examples = str(card.provenance.get("model") or ""), card.examples
    note = " · ".join(filter(None, (model, examples, card.warning)))
    return Sheet(title, [Lines(lines, card.x, card.x_name, metric)], note)
