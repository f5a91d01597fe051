"""`view.save(path)`: what a view shows now as PNG, SVG or PDF, drawn by matplotlib without a browser."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.sax.saxutils import escape, quoteattr

import numpy as np
from matplotlib import rc_context
from matplotlib.patches import Rectangle

from attnwidgets._errors import suggest
from attnwidgets._files import write_bytes
from attnwidgets.explanations.results.pictures import head_grid
from attnwidgets.figures.drawing import Quiet
from attnwidgets.figures.maps import heatmap, small_png, strip
from attnwidgets.figures.palettes import heat_map, round_up, sign_colours, text_colours
from attnwidgets.tracing.text.display import well_formed
from attnwidgets.views.still.head_figure import head_figure
from attnwidgets.views.still.view_state import Shown
from attnwidgets.views.wire.equality import in_unit
from attnwidgets.views.wire.pooling import even, pool

if TYPE_CHECKING:
    from collections.abc import Callable

    from matplotlib.figure import Figure
    from numpy.typing import NDArray

    from attnwidgets.views.base.view import View

FORMATS = (".svg", ".pdf", ".png")
_OVERVIEW_SIDE = 384  # cells along a side of the picture that stands in for a view of a long text
_STACKED = 3  # so many targets have a strip each; of more, one is chosen
# Labels are text and no formulas, whatever the reader's own settings. A PDF keeps its fonts, to be edited.
_SETTINGS: dict[Any, Any] = {"text.usetex": False, "pdf.fonttype": 42, "svg.hashsalt": "attnwidgets"}


def save_view(view: View, path: str | Path, *, dpi: int = 200) -> Path:
    """Write what a view shows now: its selection's layer, head and pinned cell, and its filters.

    Args:
        view: A Heatmap, HeadGrid, TokenStrip or HeadView.
        path: The file; its ending says what is written: ".svg", ".pdf" or ".png".
        dpi: Dots per inch of a PNG.

    Raises:
        TypeError: There is no figure of such a view.
        ValueError: Another ending.
    """
    checked = _checked(path)
    draw = _FIGURES.get(view.name)
    if draw is None:
        raise TypeError(
            f"{view.name}.save(): there are figures of {', '.join(_FIGURES)}. Make one of these of what is "
            "shown, or take the picture from the view's own corner (⋯)."
        )
    return save_figure(lambda: draw(Shown.of(view)), checked, dpi=dpi, words=view.describe())


def save_figure(draw: Callable[[], Figure], path: str | Path, *, dpi: int = 200, words: str = "") -> Path:
    """Write a figure.

    Args:
        draw: Makes it.
        path: The file; its ending says what is written: ".svg", ".pdf" or ".png".
        dpi: Dots per inch of a PNG.
        words: What it shows, for readers who do not see it: an SVG says it, others hold it as metadata.

    Raises:
        ValueError: Another ending.
    """
    target = _checked(path)
    ending, drawn, words = target.suffix.lower(), io.BytesIO(), well_formed(words)
    with rc_context(_SETTINGS), Quiet():
        draw().savefig(drawn, format=ending[1:], dpi=dpi, facecolor="white", metadata=_told(ending, words))
    picture = drawn.getvalue()
    if ending == ".svg" and words:
        begin, rest = picture.decode().split("<svg", 1)
        element, inside = rest.split(">", 1)
        said = f' role="img" aria-label={quoteattr(words)}>\n <title>{escape(words)}</title>'
        picture = f"{begin}<svg{element}{said}{inside}".encode()
    write_bytes(target, picture)
    return target


def _checked(path: str | Path) -> Path:
    """Return a file's path whose ending says a format that can be written."""
    target = Path(path)
    if target.suffix.lower() not in FORMATS:
        near = suggest(target.suffix.lower(), FORMATS)
        raise ValueError(f"save({str(path)!r}): the name must end in {', '.join(FORMATS)}.{near}")
    return target


def _told(ending: str, words: str) -> dict[str, Any]:
    """Return what a file says of itself: no date, which keeps two files of the same picture the same."""
    known: dict[str, dict[str, Any]] = {
        ".svg": {"Date": None},
        ".pdf": {"CreationDate": None, "Subject": words},
        ".png": {"Description": words},
    }
    return known[ending]


def _heatmap(shown: Shown) -> Figure:
    source = shown.source
    matrix = shown.seen(source.matrix(shown.layer, shown.head))
    top = _top(shown, matrix)
    figure = heatmap(
        matrix,
        *shown.labels,
        title=shown.title(shown.head),
        signed=source.signed,
        value_name="share of the row" if source.stochastic else source.title,
        cmap=_heat_map(shown),
        vmax=top,
        scale=shown.filters.get("scale") or "sqrt",
    )
    axes = figure.axes[0]
    axes.set_facecolor("0.93")  # what is masked or left out is no zero
    cells = [cell for cell in shown.view.options["marks"] if isinstance(cell, (list, tuple))]
    if shown.pinned and min(shown.pinned) >= 0:
        cells.append(list(shown.pinned))
    for query, key in cells:
        axes.add_patch(
            Rectangle((key - 0.5, query - 0.5), 1, 1, fill=False, edgecolor="#d81b60", linewidth=1.2)
        )
    return figure


def overview_png(shown: Shown) -> bytes:
    """Return a small picture of a matrix that may be too large to draw cell by cell."""
    matrix, _ = shown.source.overview(shown.layer, shown.head)
    sides = [min(_OVERVIEW_SIDE, size) for size in matrix.shape]
    labels = [
        [names[at] for at in even(len(names), side)] for names, side in zip(shown.labels, sides, strict=True)
    ]
    drawn = pool(matrix, *sides)
    if shown.source.causal and sides[0] == sides[1]:
        drawn = np.where(np.tri(sides[0], dtype=bool), drawn, np.nan)
    figure = heatmap(
        drawn,
        *labels,
        title=shown.title(shown.head),
        signed=shown.source.signed,
        value_name="share of the row" if shown.source.stochastic else shown.source.title,
        scale="sqrt",
    )
    return small_png(figure)


def _heat_map(shown: Shown) -> str:
    return heat_map(shown.filters.get("palette", ""), signed=shown.source.signed)


def _top(shown: Shown, matrix: NDArray[np.floating]) -> float:
    """Return the end of a heatmap's range, as the browser has it: a round number, or one for all maps."""
    source = shown.source
    if shown.filters.get("extent") == "all" and not source.on_demand:
        if source.stochastic:
            return 1.0
        return round_up(max(_peak(source.layer(layer)) for layer in source.layers)) or 1.0
    return min(round_up(_peak(matrix)), 1.0 if source.stochastic else np.inf) or 1.0


def _peak(values: NDArray[np.floating]) -> float:
    return float(np.max(np.abs(values), initial=0.0, where=np.isfinite(values)))


def _head_grid(shown: Shown) -> Figure:
    source = shown.source
    explanation = in_unit(source.explanation, source.unit) or source.explanation
    if source.on_demand:
        explanation = explanation.select(layer=list(source.ready))
    return head_grid(
        explanation,
        title=shown.view.options["title"] or source.title,
        cmap=_heat_map(shown),
        scale=shown.filters.get("scale") or "sqrt",
        common=shown.filters.get("extent") == "all",
    )


def _strip(shown: Shown) -> Figure:
    source = shown.source
    queries, keys = shown.labels
    row = shown.pinned[0] if shown.pinned else -1
    row = row if row < len(queries) else -1
    names, about = [""], ""
    if source.of_targets:
        chosen = list(range(len(queries)) if len(queries) <= _STACKED else [max(row, 0)])
        values, names = (
            shown.seen(source.matrix(shown.layer, shown.head))[chosen],
            [queries[i] for i in chosen],
        )
    elif row < 0:
        values = shown.received()[None]
        about = f": what each {source.unit} receives, mean over queries"
    else:
        values = shown.seen(source.row(shown.layer, shown.head, row)[None], masked=False)
        names = [queries[row]]
    filters = shown.filters
    top = 1.0 if filters.get("extent") == "all" and source.stochastic else _peak(values) or 1.0
    colours = text_colours(filters.get("palette", ""), filters.get("scale") or "linear", signed=source.signed)
    bottom = -top if source.signed else 0.0
    ranks = shown.view.options.get("ranks") or {}
    hatched = []
    if ranks and ranks["unit"] == source.unit:
        hatched = [i for i, unsettled in enumerate(ranks["unsettled"]) if unsettled]
        about += f", hatched where the ranking does not survive {ranks['versions']} defensible choices"
    return strip(
        values,
        keys,
        names=names,
        title=shown.title(shown.head, about),
        hatched=hatched,
        signed=source.signed,
        cmap=colours,
        vmin=bottom,
        vmax=top,
    )


def _heads(shown: Shown) -> Figure:
    source = shown.source
    values = source.layer(shown.layer)
    base = shown.view.options["indexBase"]
    chosen = shown.view.options.get("heads")
    heads: list[tuple[int, str]] = []
    if source.heads is not None:
        numbers = source.heads[: len(values)]
        places = [i for i, number in enumerate(numbers) if chosen is None or number in chosen]
        values = values[places]
        heads = [(place, str(numbers[place] + base)) for place in places]
    drawn = np.stack([shown.seen(matrix) for matrix in values]) if len(values) else values.astype(float)
    between = shown.view.options.get("between") or "all"
    if between != "all":
        for side, (axis, text) in enumerate(zip(source.axes(), between.split("-"), strict=True)):
            others = (np.asarray(axis["segment"]) > 0) != (text == "B")
            drawn[(slice(None), others) if side == 0 else (slice(None), slice(None), others)] = np.nan
    look = None
    if shown.pinned:
        look = ("query", shown.pinned[0]) if shown.pinned[0] >= 0 else ("key", shown.pinned[1])
    about = ""
    if look is not None:
        label = shown.labels[look[0] == "key"][look[1]]
        about = f": what {label!r} reads" if look[0] == "query" else f": who reads {label!r}"
    return head_figure(
        drawn,
        *shown.labels,
        heads=heads,
        look=look,
        title=shown.title(about=about),
        signs=sign_colours(shown.filters.get("palette", "")) if source.signed else None,
        scale=shown.filters.get("scale") or "sqrt",
        # As strong as they would be with nothing left out.
        top=1.0 if source.stochastic else _peak(values) or 1.0,
    )


_FIGURES = {"Heatmap": _heatmap, "HeadGrid": _head_grid, "TokenStrip": _strip, "HeadView": _heads}
