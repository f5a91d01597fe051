"""Figures of comparisons: strips, lines over layers, flow, scores, and two texts.

Each takes a view and returns a `Sheet`. Comparisons have no single source, so they read the rows that the
view compares (`compared.py`, `text_pair.py`) under its selection and filters, as its script does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from attnwidgets.explanations.results.attributions import Attributions
from attnwidgets.figures.palettes import Ramp, Span, heat_map
from attnwidgets.figures.parts.lines import Levels, Line, Lines
from attnwidgets.figures.parts.matrix import Map, Scale
from attnwidgets.figures.parts.numbers import Bar, Bars
from attnwidgets.figures.parts.text import Text
from attnwidgets.figures.sheet import Beside, Sheet, Stack, Words
from attnwidgets.figures.theme import LIGHT
from attnwidgets.views.base.options import APART, filter_words, filtered, stands_apart
from attnwidgets.views.compare.compared import nearest
from attnwidgets.views.presentation import words_of
from attnwidgets.views.still.colours import strip_colours

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from attnwidgets.explanations.results.aligned import Aligned
    from attnwidgets.figures.sheet import Part
    from attnwidgets.figures.theme import Theme
    from attnwidgets.views.presentation import Presentation

_LEAST, _BUDGET = 0.04, 1000  # the opening threshold of a FlowView, and its largest number of edges
_FEWEST = 2
_NAMED = 5  # tokens of the input
_MOST_CELLS = 2**22  # of all layers, up to which a flow is described
_CELL = 0.34  # inches of a cell with a number
_DARKEST = 0.7  # how far along the greys a full agreement is, as in agreementTable.ts

_MOST_BARS = 12
_MOST_OUTCOMES = 7


def compare_sheet(view: Any, theme: Theme) -> Sheet:
    """Return the rows of a CompareView as cells over a shared axis, and how they agree."""
    compared, filters = view._compared, dict(view.options["filters"])  # noqa: SLF001 - a part of the view
    layer = nearest(compared.layers or (0,), view.selection.layer)
    query, unit = compared.pinned(view.selection.pinned), compared.unit
    elements = compared.axis.units[unit]
    labels, special = elements.labels, np.asarray(elements.special, dtype=bool)
    remarks = compared.remarks(layer)
    apart = stands_apart(special) if filters.get("special", APART) == APART else np.zeros_like(special)
    meta, (data,) = view._strips(layer, query, unit)  # noqa: SLF001 - as its browser side asks
    vectors = np.frombuffer(data, "<f4").reshape(len(compared.names), len(labels))
    rows, outside, signed = [], [], meta["signed"]
    for values, shares in zip(vectors, meta["shares"], strict=True):
        shown = filtered(values[None], filters, special=special, shares=shares)[0]
        sizes = np.nan_to_num(np.abs(shown))
        outside.append(float(sizes[apart].sum() / (sizes.sum() or 1.0)))
        rows.append(np.where(apart, np.nan, shown))
    extent = filters.get("extent")
    if extent == "all" or (meta["alike"] and extent != "map"):
        looks = [strip_colours(filters, theme, np.stack(rows), signed=any(signed))] * len(rows)
        scales: list[Part] = [Scale(*looks[0])]
    else:
        looks = [
            strip_colours(filters, theme, row, signed=item) for row, item in zip(rows, signed, strict=True)
        ]
        scales = [Scale(*look, f"{i + 1} {compared.names[i]}") for i, look in enumerate(looks)]
    names = [
        f"{i + 1} " + " · ".join(filter(None, parts))
        for i, parts in enumerate(zip(compared.names, remarks, strict=True))
    ]
    cells: dict[str, Any] = {"looks": looks, "cell": _CELL, "numbers": True, "square": False}
    if apart.any():
        cells |= {"apart": outside, "apart_name": "special"}
    drawn = Map(np.stack(rows), names, labels, *looks[0], **cells)
    read = compared.query_in(query, unit)
    about = f"the row of “{labels[read]}”" if read is not None else ""
    left_out = filter_words(filters, shares=True)
    title = " · ".join(filter(None, (str(view.options["title"]) or "comparison", about, left_out)))
    return Sheet(title, [drawn, *scales, *_agreement(view, theme, layer, query, special)])


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
    # Greys, as in the view: agreement is not a value of a text. Of an explanation with itself it is trivial.
    np.fill_diagonal(values, np.nan)
    greys = heat_map("greys", signed=False)
    greys = greys.reversed() if theme.name == "dark" else greys
    colours = Ramp(greys(np.linspace(0.0, _DARKEST, 257))[:, :3], "agreement")
    norm = Span(0.0, 1.0)
    numbers = [str(index + 1) for index in range(len(values))]
    names = [f"{number} {name}" for number, name in zip(numbers, compared.names, strict=True)]
    return [
        Words(f"agreement: {measure['title']}", quiet=False, bold=True),
        Map(values, names, numbers, colours, norm, cell=_CELL, numbers=True),
        Scale(colours, norm),
        Words(" ".join(filter(None, (meta["caveat"], meta["warning"])))),
    ]


def words_of_comparison(view: Any) -> str:
    """Return in a sentence which element each explanation of a CompareView is largest at."""
    compared = view._compared  # noqa: SLF001 - a part of the view
    layer = nearest(compared.layers or (0,), view.selection.layer)
    query, unit = compared.pinned(view.selection.pinned), compared.unit
    labels, special = compared.axis.units[unit].labels, compared.axis.units[unit].special
    content = [index for index, flag in enumerate(special) if not flag] or range(len(labels))
    parts = []
    for name, vector in zip(compared.names, compared.vectors(layer, query, unit), strict=True):
        sizes = {index: abs(float(vector[index])) for index in content if np.isfinite(vector[index])}
        if sizes:
            largest = max(sizes, key=lambda index: sizes[index])
            parts.append(f"{name} at “{labels[largest]}” ({vector[largest]:.3g})")
    row = compared.query_in(query, unit)
    where = "Largest" if row is None else f"Largest in the row of “{labels[row]}”"
    return f"{len(compared.names)} explanations of one text. {where}: {', '.join(parts)}."


def words_of_profile(view: Any) -> str:
    """Return in a sentence in which layer each line of a LayerProfile is largest."""
    title, lines, _ = _profile_lines(view)
    layers = [layer + view.options["indexBase"] for layer in view._compared.layers]  # noqa: SLF001
    parts = []
    for line in lines:
        values = np.asarray(line.values, dtype=np.float64)
        if np.isfinite(values).any():
            largest = int(np.nanargmax(np.abs(values)))
            parts.append(f"{line.name} {values[largest]:.3g} in layer {layers[largest]}")
    return f"{title}, largest: {', '.join(parts)}."


def profile_sheet(view: Any, theme: Theme) -> Sheet:
    """Return the lines of a LayerProfile: its pair of tokens, or its target and its cues, over layers."""
    del theme
    title, lines, y_name = _profile_lines(view)
    compared, base = view._compared, view.options["indexBase"]  # noqa: SLF001
    layers = [layer + base for layer in compared.layers]
    marked = nearest(compared.layers, view.selection.layer) + base if compared.layers else None
    return Sheet(title, [Lines(lines, layers, "layer", y_name, marked=marked)])


def _profile_lines(view: Any) -> tuple[str, list[Line], str]:
    """Return the title of a LayerProfile, its lines over layers, and the name of their values."""
    compared = view._compared  # noqa: SLF001 - a part of the view
    unit, pinned = compared.unit, view.selection.pinned
    meta, (data,) = view._profile(compared.pinned(pinned), unit)  # noqa: SLF001 - as its browser side asks
    labels = compared.axis.units[unit].labels
    values = np.frombuffer(data, "<f4").reshape(len(compared.items), len(compared.layers), len(labels))
    sources = [mark for mark in view.options["marks"] if isinstance(mark, int)]
    if pinned is not None and pinned.unit == unit and 0 <= pinned.key < len(labels):
        sources = [pinned.key]
    sources = sources or [meta["strongest"]]
    special = np.asarray(compared.axis.units[unit].special, dtype=bool)
    lines = []
    for name, rows, shares in zip(
        compared.names, values, np.reshape(meta["shares"], values.shape[:2]), strict=True
    ):
        shown = filtered(rows, view.options["filters"], special=special, shares=bool(shares.all()))
        lines.append(Line(name, shown[:, sources].sum(axis=1)))
    lines += [Line(name, line, dashed=True) for name, line in view._probes]  # noqa: SLF001
    query = meta["query"]
    target = "" if query is None else f"“{labels[query]}” reads "
    title = str(view.options["title"]) or target + ", ".join(f"“{labels[i]}”" for i in sources)
    return title, lines, "share of the row" if meta["alike"] else "value"


def flow_sheet(state: Presentation, theme: Theme) -> Sheet:
    """Return the tokens by layers of a FlowView, with the strongest edges, or those to the followed token."""
    del theme
    source, base = state.source, state.options["indexBase"]
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
        (str(state.options["title"]) or source.title) + about,
        [part],
        f"{len(edges):,} edges of at least {_LEAST:g}, {carried:.0%} of the mass",
    )


def words_of_flow(state: Presentation) -> str:
    """Return a sentence on where the followed token of a FlowView comes from, by the share of its edges."""
    source = state.source
    if source.coarse or len(source.layers) * source.shape[0] * source.shape[1] > _MOST_CELLS:
        return words_of(state)
    sheet = flow_sheet(state, LIGHT)
    (levels,) = sheet.parts
    origin = ""
    if isinstance(levels, Levels) and levels.dots is not None:
        largest = np.argsort(-levels.dots[0], kind="stable")[:_NAMED]
        shares = (f"“{levels.labels[key]}” {levels.dots[0][key]:.1%}" for key in largest)
        origin = f": {', '.join(shares)} of the input"
    return f"{sheet.title[:1].upper()}{sheet.title[1:]}{origin}. {sheet.note}."


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


def two_texts_sheet(view: Any, theme: Theme) -> Sheet:
    """Return both texts under the selected method, the difference by columns, and both predictions."""
    pair, selection, filters = view._pair, view.selection, dict(view.options["filters"])  # noqa: SLF001
    state = view.presentation
    key, unit = state.source.method.removesuffix(":layers"), state.source.unit
    pinned = view._pinned_query()  # noqa: SLF001
    result, values, query = pair.rows(key, state.source.stack, unit, state.layer, state.head, pinned)
    keys = result.keys
    special = np.array([keys.special(number) for number in range(len(keys))], dtype=bool)
    is_apart = filters.get("special", APART) == APART
    content = ~stands_apart(special) if is_apart else np.ones_like(special)
    rows = filtered(values[:2], filters, special=special, shares=False)
    signed = bool((values[:2] < 0).any())
    scaled = np.where(content, rows, np.nan)
    colours, norm = strip_colours(filters, theme, scaled, signed=signed, top=None)
    names = view.options["names"]
    parts: list[Part] = []
    for side, name in enumerate(names):
        some = [number for number, column in enumerate(keys.columns) if column.of(side)]
        labels = [keys.label(number, side) for number in some]
        framed = [index for index, number in enumerate(some) if not keys.columns[number].same]
        parts.append(
            Text(scaled[side : side + 1, some], labels, colours, norm, names=[name], outlined=framed)
        )
    parts.append(Scale(colours, norm))
    difference = np.where(content, rows[0] - rows[1], np.nan)
    order = [
        number for number in np.argsort(-np.nan_to_num(np.abs(difference)), kind="stable") if content[number]
    ]
    bars = [
        Bar(_named(keys, number), float(difference[number]), bold=not keys.columns[number].same)
        for number in sorted(order[:_MOST_BARS])
    ]
    more = len(order) - len(bars)
    title = f"{names[0]} − {names[1]}" + (f", the {len(bars)} largest" if more > 0 else "")
    left: Part = Stack([Bars(bars, title=title), Words(_totals(result, values, unit))])
    outcomes = pair.predictions(
        selection.target and selection.target.id, selection.foil and selection.foil.id
    )
    if outcomes["rows"]:
        shown = [Bar(label, item, before=two) for _, label, item, two in outcomes["rows"][:_MOST_OUTCOMES]]
        heading = f"{outcomes['titles'][0]}: {names[1]} → {names[0]}"
        left = Beside(left, Bars(shown, top=None if pair.traces[0].answer.is_numbers else 1.0, title=heading))
    parts.append(left)
    about = _title(state, result.sides[0], query, result)
    left_out = filter_words(filters, shares=True)
    return Sheet(" · ".join(filter(None, (str(view.options["title"]) or about, left_out))), parts)


def _named(keys: Any, number: int) -> str:
    first, other = (keys.label(number, side) or "nothing" for side in (0, 1))
    return first if keys.columns[number].same else f"{first} − {other}"


def _totals(pair: Any, values: Any, unit: str) -> str:
    """Return the parts of the difference that elements have and that no element has, in words."""
    total = float(values[2].sum())
    first, other = (getattr(side, "residual", None) for side in pair.sides)
    if first is None or other is None:
        return f"{unit}s {total:+.3g}".replace("-", "−")
    rest = float(first - other)
    return f"{unit}s {total:+.3g}, no {unit} {rest:+.3g}, total {total + rest:+.3g}".replace("-", "−")


def _title(state: Presentation, first: Any, query: int | None, pair: Aligned) -> str:
    name = str(first.provenance.get("title") or first.method).replace("_", " ")
    if isinstance(first, Attributions):
        contrast = f" rather than “{first.foil}”" if first.foil else ""
        return f"{name} for “{first.targets[0]}”{contrast}"
    base = state.options["indexBase"]
    where = f"layer {state.layer + base}"
    if state.head != "-":
        where += (
            f", head {state.head + base}" if isinstance(state.head, int) else f", {state.head} over heads"
        )
    read = "" if query is None else f" · the row of “{pair.queries.label(query, 0)}”"
    return f"{name}, {where}{read}"
