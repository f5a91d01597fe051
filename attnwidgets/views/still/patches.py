"""A view of a picture without a browser: in words, as a small picture, and as a figure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from attnwidgets.views.media.handlers import element_of, shown_sources, sides_of, values_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from attnwidgets.figures.palettes import Ramp, Span
    from attnwidgets.figures.sheet import Sheet
    from attnwidgets.views.media.handlers import PatchAxis
    from attnwidgets.views.presentation import Presentation
    from attnwidgets.views.wire.sources import Source

    Floats = NDArray[np.float32]

_NAMED = 4  # class and register tokens whose share is reported
_PLAIN = 128  # grey beneath a map without a picture


@dataclass(frozen=True)
class Shown:
    """The values that a view of a picture shows.

    Attributes:
        state: Its source, layer and head.
        side: "query": the values are those that `index` reads; "key": those with which it is read.
        index: The chosen element.
        axis: The elements whose values these are.
        values: Of the layer, [head or target, element].
        head: Index of the shown head or target in `values`; None: their mean or largest.
        title: Name of the map.
    """

    state: Presentation
    side: str
    index: int
    axis: PatchAxis
    values: Floats
    head: int | None
    title: str

    @property
    def row(self) -> Floats:
        """The values that are shown, [element]."""
        if self.head is not None:
            return np.asarray(self.values[self.head])
        reduce = np.nanmax if self.state.head == "max" else np.nanmean
        return np.asarray(reduce(self.values, axis=0))

    def map(self, row: Floats) -> Floats:
        """Return the values of patches [row, column]."""
        return np.asarray(row[list(self.axis.patches)].reshape(self.axis.grid))

    @property
    def verb(self) -> str:
        """The verb between the chosen element and the others."""
        return "reads" if self.side == "query" else "is read by"


def shown_of(view: Any) -> Shown:
    """Return the shown values; of a method that is computed layer by layer, the nearest computed layer."""
    state = view.presentation
    source = state.source if sides_of(state.source)[1].patches else shown_sources(view)[0]
    side, index = element_of(view, source)
    query, key = sides_of(source)
    axis = key if side == "query" else query
    if not axis.patches:  # words that read a patch: the picture shows the row of the first word
        side, index, axis = "query", 0, key
    ready = list(source.ready)
    layer = min(ready, key=lambda number: abs(number - state.layer)) if ready else None
    values = np.zeros((1, len(axis.labels)), np.float32)
    if layer is not None:
        values = values_of(source, side, index)[ready.index(layer)]
    head = _head(source, state, len(values))
    name = query.name(index) if side == "query" else key.name(index)
    base = view.options["indexBase"]
    words = [str(view.options["title"]) or source.title]
    if not view.options["title"] and not source.attributions:
        words += [f"layer {state.layer + base}"] * (layer is not None)
        words += [f"head {int(state.head) + base}"] if isinstance(state.head, int) and source.heads else []
    who = "" if source.of_targets else f": {name} {'reads' if side == 'query' else 'is read by'}"
    return Shown(state, side, index, axis, values, head, ", ".join(words) + who)


def _head(source: Source, state: Presentation, count: int) -> int | None:
    if source.of_targets:
        pinned = state.pinned
        return pinned[0] if pinned and 0 <= pinned[0] < count else 0
    if source.heads is None:
        return 0
    return source.heads.index(int(state.head)) if isinstance(state.head, int) else None


def words_of_picture(view: Any) -> str:
    """Return a sentence on the map over the picture: its shares, and its strongest patch."""
    shown = shown_of(view)
    axis, row = shown.axis, shown.row
    source = shown.state.source
    patches = row[list(axis.patches)]
    if not len(patches):
        return f"{shown.title}."
    best = int(np.nanargmax(np.abs(patches)))
    count = f"{axis.grid[0]} × {axis.grid[1]} patches"
    strongest = f"the strongest is {axis.name(axis.patches[best])}, {patches[best]:.3g}"
    if source.signed or not source.stochastic or shown.side == "key":
        return f"{shown.title}: {count}; {strongest}."
    names = {element: axis.labels[element] for element in axis.others[:_NAMED]} | {shown.index: "itself"}
    others = [f"{float(row[element]):.1%} to {names[element]}" for element in axis.others[:_NAMED]]
    shares = ", ".join([*others, f"{float(np.nansum(patches)):.1%} to {count}"])
    return f"{shown.title.removesuffix('reads')}gives {shares}; {strongest}."


def pixels_of(view: Any) -> NDArray[np.uint8]:
    """Return the picture as the model saw it, [row, column, channel]; grey without a picture."""
    trace: Any = view.pictured
    picture = None if trace is None else trace.picture
    if picture is not None and picture.seen is not None:
        return np.asarray(picture.seen)
    if picture is not None and picture.given is not None:
        return np.asarray(picture.given)
    rows, columns = shown_of(view).axis.grid
    return np.full((16 * rows, 16 * columns, 3), _PLAIN, np.uint8)


def picture_sheet(view: Any) -> Sheet:
    """Return the picture with its map, and small ones of all heads of the layer, or of all targets."""
    from attnwidgets.figures.parts.matrix import Scale
    from attnwidgets.figures.parts.media import Pictured
    from attnwidgets.figures.sheet import Beside, Sheet, Stack, Words

    shown = shown_of(view)
    source, pixels = shown.state.source, pixels_of(view)
    main = shown.map(shown.row)
    colours, norm = _colours(view, main, signed=source.signed)
    marks = [_marks(shown)]
    large = Pictured(pixels, [main], [], colours, [norm], source.signed, marks)
    name = "" if source.of_targets else "share" if source.stochastic else "weight"
    left = Stack([large, Scale(colours, norm, name)])
    words = _shares(shown)
    if len(shown.values) < 2:  # noqa: PLR2004 - a single map has no neighbour
        return Sheet(shown.title, [left], words)
    maps = [shown.map(row) for row in shown.values]
    norms = [_colours(view, item, signed=source.signed)[1] for item in maps]
    chosen = -1 if shown.head is None else shown.head
    small = Pictured(pixels, maps, _names(view, source), colours, norms, source.signed, (), chosen)
    note = "" if source.of_targets else "own ranges"
    right = Stack(
        [Words(f"{'targets' if source.of_targets else 'heads of the layer'}, {note}".rstrip(", ")), small]
    )
    return Sheet(shown.title, [Beside(left, right, share=0.5)], words)


def _names(view: Any, source: Source) -> list[str]:
    if source.of_targets:
        return list(source.axes()[0]["labels"])
    base = view.options["indexBase"]
    return [f"head {head + base}" for head in source.heads or ()]


def _marks(shown: Shown) -> list[tuple[int, int]]:
    """Return the cells of the chosen element and of the pinned key, if they are patches."""
    elements = [] if shown.state.source.of_targets else [shown.index]
    pinned = shown.state.pinned
    elements += [pinned[1]] if pinned is not None and min(pinned) >= 0 else []
    cells = {element: cell for cell, element in enumerate(shown.axis.patches)}
    return [divmod(cells[element], shown.axis.grid[1]) for element in elements if element in cells]


def _shares(shown: Shown) -> str:
    """Return the words next to the picture."""
    row, axis, source = shown.row, shown.axis, shown.state.source
    if source.of_targets:
        total = float(np.nansum(row[list(axis.patches)]))
        return f"sum over {len(axis.patches)} patches {total:.3g}"
    others = [f"{axis.labels[element]} {float(row[element]):.3f}" for element in axis.others[:_NAMED]]
    patches = f"{len(axis.patches)} patches {float(np.nansum(row[list(axis.patches)])):.3f}"
    return " · ".join([*others, patches])


def _colours(view: Any, values: Floats, *, signed: bool) -> tuple[Ramp, Span]:
    """Return the colours over a picture, the same in every theme, and their range."""
    from attnwidgets.figures.palettes import SCALE, span_of
    from attnwidgets.figures.parts.media import over_map
    from attnwidgets.views.still.colours import peak

    filters = view.options["filters"]
    colours = over_map(filters.get("palette", ""), signed=signed)
    top = peak(values) or 1.0
    return colours, span_of(values, signed=signed, vmax=top, scale=filters.get("scale") or SCALE)
