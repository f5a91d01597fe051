"""Figures of matrices and texts: the layer, head, pinned cell and filters that a view shows now.

A function `..._sheet` takes the `Presentation` of a view, which names its source, layer, head and pinned
cell, and returns the `Sheet` that `figures/` draws. Views share the functions of parts: an Explorer consists
of predictions, a text, a map and the largest values of a row.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from attnwidgets._selecting import spoken_range
from attnwidgets.explanations.results.atlas import atlas_of
from attnwidgets.explanations.results.description import READING, AxisWords
from attnwidgets.explanations.results.verbalise import SINK_NAME
from attnwidgets.figures.palettes import amount_colour, round_up, sign_colours
from attnwidgets.figures.parts.matrix import Map, Scale
from attnwidgets.figures.parts.numbers import Bar, Bars
from attnwidgets.figures.parts.text import Text
from attnwidgets.figures.sheet import Beside, Sheet, Stack, Words
from attnwidgets.views.base.opening import last_content
from attnwidgets.views.still.colours import map_colours, peak, strip_colours
from attnwidgets.views.still.head_lines import HeadLines
from attnwidgets.views.still.predictions import chips_of
from attnwidgets.views.text.forgetting import LEAST_FORGOTTEN, forgetting_words
from attnwidgets.views.wire.axes import by_layer, in_unit

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from attnwidgets.figures.sheet import Part
    from attnwidgets.figures.theme import Theme
    from attnwidgets.views.presentation import Presentation
    from attnwidgets.views.wire.sources import Source

    Float = NDArray[np.floating]

_STACKED = 3  # up to so many targets each have a strip; of more, the chosen target has
_LABELLED = 40  # cells of the strip of forgetting, up to which each has its name
_TICKS = 10  # numbers along a side of a map too large for names
_NAMED = 3  # special tokens named next to a map
_LARGEST = 8  # values of a row that are listed
_PREVIEWED = 128  # elements of a text up to which the small picture of a display draws it
_NAMES = ("rows read", "columns are read")


def _axis_names(words: AxisWords) -> tuple[str, str]:
    """Return the words next to a matrix."""
    return _NAMES if words == READING else words.labels


def matrix_map(state: Presentation, theme: Theme, outlines: Sequence[tuple[int, int]] = ()) -> list[Part]:
    """Return the selected matrix with its legend; the pinned cell is outlined, special tokens stand apart."""
    source = state.source
    if source.coarse:
        return _pooled_map(state, theme)
    whole = source.matrix(state.layer, state.head)
    rows, columns = (np.flatnonzero(~side) for side in state.apart())
    matrix = state.filtered(whole)[np.ix_(rows, columns)]
    colours, norm = map_colours(state.filters, theme, matrix, signed=source.signed, top=_top(state, matrix))
    cells = [*outlines, *([state.pinned] if state.pinned and min(state.pinned) >= 0 else [])]
    shares, names = _shares_apart(state, whole[rows], columns)
    sink = source.to_sink(state.layer, state.head)
    queries, keys = state.labels
    return [
        Map(
            matrix,
            [queries[i] for i in rows],
            [keys[i] for i in columns],
            colours,
            norm,
            outlines=[
                (int(np.searchsorted(rows, query)), int(np.searchsorted(columns, key)))
                for query, key in cells
                if query in rows and key in columns
            ],
            axis_names=("targets", "") if source.of_targets else _axis_names(source.words),
            apart=shares,
            apart_name=names,
            sink=() if sink is None else sink[rows].tolist(),
            sink_name=SINK_NAME,
            sink_norm=None
            if sink is None
            else map_colours(state.filters, theme, sink, signed=False, top=1.0)[1],
        ),
        Scale(colours, norm, _value_name(state)),
        *_hatched(state),
        *_meaning(state),
    ]


def _hatched(state: Presentation) -> list[Part]:
    """Return the legend of a hatched column and of cells without a colour, where a map has them."""
    words = []
    if state.source.to_sink(state.layer, state.head) is not None:
        words.append(f"hatched, from 0 to 1: share to {SINK_NAME}")
    most = state.most_keys()
    if most:
        words.append(f"empty: not compared; {most}")
    return [Words("; ".join(words))] if words else []


def _pooled_map(state: Presentation, theme: Theme) -> list[Part]:
    """Return the blocks of a matrix with too many cells to draw each, as on the page, with their legend."""
    source = state.source
    blocks, _ = source.overview(state.layer, state.head)
    steps = [-(-len(names) // side) for names, side in zip(state.labels, blocks.shape, strict=True)]
    ticks = [np.arange(0, side, max(1, side // _TICKS)) for side in blocks.shape]
    rows, columns = ([str(int(tick) * step) for tick in at] for at, step in zip(ticks, steps, strict=True))
    if source.causal and len(blocks) == blocks.shape[1]:
        blocks = np.where(np.tri(len(blocks), dtype=bool), blocks, np.nan)
    colours, norm = map_colours(state.filters, theme, blocks, signed=source.signed, top=_top(state, blocks))
    return [
        Map(
            blocks,
            rows,
            columns,
            colours,
            norm,
            axis_names=_axis_names(source.words),
            row_at=ticks[0].tolist(),
            column_at=ticks[1].tolist(),
        ),
        Scale(colours, norm, _value_name(state)),
        Words(f"each cell is the largest value of {steps[0]} by {steps[1]} {source.unit}s"),
        *_meaning(state),
    ]


def _meaning(state: Presentation) -> list[Part]:
    """Return a paragraph on the values of the map, in a block that mixes tokens without attention."""
    return [Words(state.value_words)] if state.value_words else []


def _shares_apart(state: Presentation, rows: Float, columns: NDArray[np.intp]) -> tuple[list[float], str]:
    """Return the share of each row that stands apart from the map, and its name; else nothing."""
    outside = np.setdiff1d(np.arange(rows.shape[1]), columns)
    if not len(outside):
        return [], ""
    sizes = np.nan_to_num(np.abs(rows))
    sums = sizes.sum(axis=1)
    part = sizes[:, outside].sum(axis=1)
    if state.source.sink and state.head != "max":
        sums = np.ones_like(sums)  # a sink has the rest
    shares = np.divide(part, sums, out=np.zeros_like(sums), where=sums > 0)
    named = _names_apart(state.labels[1], state.apart()[1])
    return shares.tolist(), f"share to {named}" if state.source.stochastic else f"in {named}"


def _names_apart(labels: list[str], apart: NDArray[np.bool_]) -> str:
    """Return the names of the elements that stand apart: "[CLS] [SEP]"."""
    names = list(dict.fromkeys(labels[i] for i in np.flatnonzero(apart)))
    return " ".join(names) if len(names) <= _NAMED else "special tokens"


def matrix_sheet(state: Presentation, theme: Theme) -> Sheet:
    """Return the matrix that a Heatmap shows, with its marks and the pinned cell outlined."""
    marks = [tuple(cell) for cell in state.options["marks"] if isinstance(cell, (list, tuple))]
    return Sheet(state.title(state.head), matrix_map(state, theme, marks))


def grid_sheet(state: Presentation, theme: Theme) -> Sheet:
    """Return the thumbnails that a HeadGrid shows, of the layers computed so far."""
    source, base = state.source, state.options["indexBase"]
    explanation: Any = in_unit(source.explanation, source.unit) or source.explanation
    if source.on_demand:
        explanation = explanation.select(layer=list(source.ready))
    content = None if state.filters.get("special") == "show" else source.content
    atlas = atlas_of(explanation, common=state.filters.get("extent") == "all", kept=content)
    colours, norm = map_colours(state.filters, theme, atlas.values, signed=source.signed, top=1.0)
    heads = explanation.heads
    columns = [] if heads is None else [str(n + base) for n in heads[: len(atlas.columns)]]
    part = Map(
        atlas.values,
        [str(number + base) for number in explanation.layers],
        columns,
        colours,
        norm,
        axis_names=("layer", "" if heads is None else "head"),
        row_at=atlas.rows.tolist(),
        column_at=atlas.columns.tolist() if columns else (),
        cell=0.9 / max(1, atlas.values.shape[1] // max(1, len(atlas.columns))),
    )
    title = str(state.options["title"]) or source.title
    scale = Scale(colours, norm, atlas.note)
    return Sheet(title, [part, scale, *_kinds_of_layers(source, explanation.layers, base)])


def text_parts(state: Presentation, theme: Theme, least: float = 0.0) -> list[Part]:
    """Return the text that is shown, with its legend: targets, the pinned row, or the means of columns.

    Args:
        state: The source, layer, head and pinned cell of the view.
        theme: Colours of the page.
        least: The smallest end of the scale: the largest value of a picture with the same scale.
    """
    source, filters, options = state.source, state.filters, state.options
    queries, keys = state.labels
    row = state.row
    names, note = [""], ""
    explained = state.explanation_at_rest
    if explained is not None:
        explaining = replace(state, source=explained, layer=explained.layers[0], head="-")
        values = explaining.filtered(explained.matrix(explaining.layer, "-"))[:1]
        source, note = explained, state.sentence
    elif source.of_targets:
        rows = list(range(len(queries)) if len(queries) <= _STACKED else [max(row, 0)])
        values = state.filtered(source.matrix(state.layer, state.head))[rows]
        names = [queries[i] for i in rows] if len(queries) > 1 else names
    elif row < 0:
        values = state.received()[None]
        note = f"what each {source.unit} receives, mean over queries"
    else:
        values = state.shown_row()[None]
        note = f"what “{queries[row]}” {source.words.verb}"
    apart = state.apart()[1]
    values = np.where(apart, np.nan, values)
    top = None if explained is not None else _top_of_text(state)
    top = round_up(max(top or peak(values), least)) or None
    ranks = options.get("ranks") or {}
    hatched: list[int] = []
    if ranks and ranks["unit"] == source.unit:
        hatched = [i for i, unsettled in enumerate(ranks["unsettled"]) if unsettled]
    marks = [mark for mark in options["marks"] if isinstance(mark, int)]
    colours, norm = strip_colours(filters, theme, values, signed=source.signed, top=top)
    outlined = marks if explained is not None else [*marks, *_pinned_key(state)]
    parts: list[Part] = [
        Text(
            values,
            keys,
            colours,
            norm,
            names=names,
            hatched=hatched,
            outlined=outlined,
            apart=np.flatnonzero(apart).tolist(),
        ),
        Scale(colours, norm, note or _value_name(state)),
    ]
    if row >= 0 and explained is None and not source.of_targets:
        facts = state.row_facts(row)
        grey = "; grey: not compared" if source.readable(state.layer) is not None else ""
        parts += [Words(f"{facts}{grey}")] if facts else []
    parts += _forgetting_rows(state, theme)
    if hatched:
        words = f"hatched where the ranking does not survive {ranks['versions']} defensible choices"
        parts.append(Words(words))
    return parts


def _forgetting_rows(state: Presentation, theme: Theme) -> list[Part]:
    """Return the strip of the shares that the shown block forgets at each element: the darker, the more."""
    if not state.forgotten:
        return []
    keys = state.labels[1]
    # A decay is the share that stays, so 1 - decay is forgotten.
    rows = np.stack([1 - row if name == "decay" else row for name, row in state.forgotten.items()])
    looks = [map_colours({}, theme, row, signed=False, top=max(peak(row), LEAST_FORGOTTEN)) for row in rows]
    part = Map(
        rows,
        list(state.forgotten),
        keys if len(keys) <= _LABELLED else [],
        *looks[0],
        square=False,
        looks=looks,
        texts=[[f"{value:.2f}" for value in row] for row in state.forgotten.values()],
    )
    words = forgetting_words(state.forgotten, keys)
    return [part, Words(f"{words} In each row, the darker the more is forgotten.")]


def _pinned_key(state: Presentation) -> list[int]:
    """Return the pinned token's index among the keys, if queries and keys are the same tokens."""
    queries, keys = state.labels
    return [state.row] if state.row >= 0 and not state.source.of_targets and queries == keys else []


def strip_sheet(state: Presentation, theme: Theme) -> Sheet:
    """Return the text that a TokenStrip shows."""
    return Sheet(state.title(state.head), [*text_parts(state, theme), *_meaning(state)])


def lines_sheet(state: Presentation, theme: Theme) -> Sheet:
    """Return the lines that a HeadView shows between queries and keys."""
    source, base = state.source, state.options["indexBase"]
    chosen = state.options.get("heads")
    heads: list[tuple[int, str]] = []
    if chosen is None:
        values = source.matrix(state.layer, state.head)[None]
        if source.heads is not None and not isinstance(state.head, str):
            heads = [(source.heads.index(state.head), str(state.head + base))]
    else:
        values = source.layer(state.layer)
        numbers = (source.heads or ())[: len(values)]
        positions = [i for i, number in enumerate(numbers) if number in chosen]
        values = values[positions]
        heads = [(position, str(numbers[position] + base)) for position in positions]
    lines = np.stack([state.filtered(matrix) for matrix in values]) if len(values) else values.astype(float)
    between = state.options.get("between") or "all"
    if between != "all":
        for side, (axis, text) in enumerate(zip(source.axes(), between.split("-"), strict=True)):
            others = (np.asarray(axis["segment"]) > 0) != (text == "B")
            lines[(slice(None), others) if side == 0 else (slice(None), slice(None), others)] = np.nan
    look = ("query", max(state.row, 0))
    about = ""
    if state.pinned:
        look = ("query", state.pinned[0]) if state.pinned[0] >= 0 else ("key", state.pinned[1])
        label = state.labels[look[0] == "key"][look[1]]
        about = f": {label!r} {source.words.verb if look[0] == 'query' else source.words.back}"
    is_apart = state.apart()
    rows, columns = (np.flatnonzero(~flags) for flags in is_apart)
    inside = lines[:, rows]
    given = np.nansum(inside[:, :, is_apart[1]], axis=2).mean(axis=0) if len(lines) else ()
    looked = rows if look[0] == "query" else columns
    queries, keys = state.labels
    part = HeadLines(
        inside[:, :, columns],
        [queries[i] for i in rows],
        [keys[i] for i in columns],
        heads=heads,
        look=(look[0], int(np.searchsorted(looked, look[1]))) if look[1] in looked else None,
        unit=source.unit,
        colour=amount_colour(state.filters.get("palette", ""), dark=theme.name == "dark"),
        apart=given if is_apart[1].any() else (),
        signs=sign_colours(state.filters.get("palette", "")) if source.signed else None,
        scale=state.filters.get("scale") or HeadLines.scale,  # as on the page
        # As strong as they would be with nothing left out.
        top=1.0 if source.stochastic else peak(values) or 1.0,
    )
    facts = state.row_facts(look[1]) if look[0] == "query" and chosen is None else ""
    title = state.title(state.head if chosen is None else None, about=about)
    return Sheet(title, [part, *([Words(facts)] if facts else [])])


def layers_sheet(state: Presentation, theme: Theme) -> Sheet:
    """Return the figure of a RelevanceMap: the text, and a row for every layer."""
    return Sheet(state.title(), _text_and_layers(state, theme))


def _text_and_layers(state: Presentation, theme: Theme) -> list[Part]:
    """Return the text, and a row for every layer that is computed, with the same scale."""
    source = state.source
    if source.attributions:
        layered = (by_layer(source.method), source.unit, source.stack)
        layers_of = [each for each in state.sources if (each.method, each.unit, each.stack) == layered]
        if not layers_of:
            return text_parts(state, theme)
        source = layers_of[0]
    queries, keys = (axis["labels"] for axis in source.axes())
    usual = 0 if source.of_targets else last_content(queries, source.axes()[0]["special"])
    row = state.row if 0 <= state.row < len(queries) else usual
    head: int | str = "-" if source.heads is None else "mean" if state.head == "-" else state.head
    layers = source.ready if source.on_demand else source.layers
    if not layers or not queries:
        return text_parts(state, theme)
    values = np.vstack(
        [
            source.where_compared(
                np.asarray(source.row(layer, head, row), dtype=np.float64)[None], layer, slice(row, row + 1)
            )
            for layer in layers
        ]
    )
    names = [_layer_words(source, layer, state.options["indexBase"]) for layer in layers]
    before = (source.explanation.provenance.get("states") or {}).get("input")
    if before and state.source.attributions and state.source is not source:
        values = np.vstack([state.source.row(state.layer, "-", row), values])
        names.insert(0, before)
    columns = np.flatnonzero(~state.apart()[1])
    inside = values[:, columns]
    text = text_parts(state, theme, peak(inside))
    shown = text[0].values if isinstance(text[0], Text) else inside
    top = round_up(max(peak(inside), peak(shown))) or 1.0
    colours, norm = map_colours(state.filters, theme, inside, signed=source.signed, top=top)
    shares, apart_name = _shares_apart(replace(state, source=source), values, columns)
    about = f"{'for' if source.of_targets else 'in the row of'} “{queries[row]}”"
    return [
        *text,
        Words(f"{source.unit}s in every layer, {about}", quiet=False, bold=True),
        Map(
            inside,
            names,
            [keys[i] for i in columns],
            colours,
            norm,
            square=False,
            apart=shares,
            apart_name=apart_name,
            totals=() if source.stochastic else np.nansum(values, axis=1).tolist(),
        ),
        Scale(colours, norm, "one scale for all layers"),
    ]


def _kinds_of_layers(source: Source, layers: Iterable[int], base: int) -> list[Part]:
    """Return which layers mix tokens how, in a paragraph, for models of several mixers."""
    kinds: dict[str, list[int]] = {}
    for layer in layers:
        if layer in source.mixers:
            kinds.setdefault(source.mixers[layer].kind("-"), []).append(layer + base)
    parts = (f"{kind} in layer{'s' * (len(n) > 1)} {spoken_range(n)}" for kind, n in kinds.items())
    return [Words("; ".join(parts))] if kinds else []


def _layer_words(source: Source, layer: int, base: int) -> str:
    """Return the name of a row; its twin is `layerWords` in js/src/views/base/navigation.ts."""
    states = source.explanation.provenance.get("states")
    if states and states["output"] == layer:
        return f"out of layer {layer - 1 + base}"
    kind = source.mixers[layer].kind("-") if layer in source.mixers else ""
    return " · ".join(filter(None, (f"{'into ' if states else ''}layer {layer + base}", kind)))


def explorer_sheet(view: Any, theme: Theme) -> Sheet:
    """Return the figure of an Explorer: predictions, the text, the map, and the largest values of a row."""
    state = view.presentation
    parts = chips_of(view)
    if state.source.attributions:
        parts += _text_and_layers(state, theme)
    else:
        parts += text_parts(state, theme)
        whole = Stack(matrix_map(state, theme))
        parts.append(Beside(whole, _row_bars(state)) if state.row >= 0 else whole)
    return Sheet(state.title(state.head), parts)


def preview_sheet(state: Presentation, theme: Theme) -> Sheet | None:
    """Return the text and the map of an Explorer; None while its layer is not computed.

    Of a long text the map alone: words take longest to draw.
    """
    if state.layer not in state.source.ready:
        return None
    if state.source.attributions:
        return layers_sheet(state, theme)
    text = text_parts(state, theme) if len(state.labels[1]) <= _PREVIEWED else []
    return Sheet(state.title(state.head), [*text, *matrix_map(state, theme)])


def _row_bars(state: Presentation) -> Bars:
    queries, keys = state.labels
    values, apart = state.shown_row(), state.apart()[1]
    sizes = np.where(apart, -1.0, np.nan_to_num(np.abs(values), nan=-1.0))
    order = [int(i) for i in np.argsort(-sizes, kind="stable")[:_LARGEST] if sizes[i] >= 0]
    bars = [
        Bar(keys[i], float(values[i]), bold=state.pinned is not None and i == state.pinned[1]) for i in order
    ]
    if apart.any():
        bars.append(Bar(_names_apart(keys, apart), float(np.nansum(values[apart])), quiet=True))
    sink = state.source.to_sink(state.layer, state.head)
    if sink is not None:
        bars.append(Bar(SINK_NAME, float(sink[state.row]), quiet=True))
    return Bars(bars, title=f"“{queries[state.row]}” {state.source.words.verb}")


def _value_name(state: Presentation) -> str:
    source = state.source
    return "share of the row" if source.stochastic else "attributions" if source.of_targets else source.title


def _top_of_text(state: Presentation) -> float | None:
    """Return the end of the text's range: that of the map whose row is shown; None: the largest value."""
    source = state.source
    if state.filters.get("extent") == "all" and source.stochastic:
        return 1.0
    if source.of_targets or state.row < 0 or source.long:
        return None
    inside = np.ix_(*(np.flatnonzero(~side) for side in state.apart()))
    return _top(state, state.filtered(source.matrix(state.layer, state.head))[inside])


def _top(state: Presentation, matrix: Float) -> float:
    """Return the end of a heatmap's range as the browser chooses it: round, or the same for all maps."""
    source = state.source
    if state.filters.get("extent") == "all" and not source.on_demand:
        if source.stochastic:
            return 1.0
        rows, columns = (~side for side in state.apart())
        return (
            round_up(max(peak(source.layer(layer)[:, rows][:, :, columns]) for layer in source.layers)) or 1.0
        )
    return min(round_up(peak(matrix)), 1.0 if source.stochastic else np.inf) or 1.0
