"""`view.save(path)`: what a view shows now as PNG, SVG or PDF, drawn by matplotlib without a browser."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib import rc_context
from matplotlib.patches import Rectangle

from attnwidgets._errors import suggest
from attnwidgets.export.drawing import Quiet
from attnwidgets.export.figures import head_grid, heatmap, strip
from attnwidgets.export.head_figure import head_figure
from attnwidgets.views.same import in_unit

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

    from attnwidgets.views.base import View
    from attnwidgets.views.sources import Source

FORMATS = (".svg", ".pdf", ".png")
_PALETTES = {"greys": "Greys", "red-blue": "RdBu_r", "orange-purple": "PuOr_r"}
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
    target = Path(path)
    if target.suffix.lower() not in FORMATS:
        near = suggest(target.suffix.lower(), FORMATS)
        raise ValueError(f"save({str(path)!r}): the name must end in {', '.join(FORMATS)}.{near}")
    draw = _FIGURES.get(view.name)
    if draw is None:
        raise TypeError(
            f"{view.name}.save(): there are figures of {', '.join(_FIGURES)}. Make one of these of what is "
            "shown, or take the picture from the view's own corner (⋯)."
        )
    with rc_context(_SETTINGS), Quiet():
        draw(_Shown.of(view)).savefig(
            target, format=target.suffix[1:].lower(), dpi=dpi, facecolor="white", metadata=_undated(target)
        )
    return target


def _undated(target: Path) -> dict[str, Any]:
    """Return what keeps two files of the same picture the same."""
    return {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}.get(target.suffix.lower(), {})


@dataclass(frozen=True)
class _Shown:
    """What a view looks at, resolved as the browser does: what there is not is replaced by the nearest."""

    view: View
    source: Source
    layer: int
    head: int | str
    pinned: tuple[int, int] | None

    @classmethod
    def of(cls, view: View) -> _Shown:
        options, selection = view.options, view.selection
        sources = list(view.sources())
        for name in ("method", "stream", "unit"):
            wanted = options[name] or getattr(selection, name)
            sources = [one for one in sources if getattr(one, name) == wanted] or [
                one for one in sources if getattr(one, name) == getattr(sources[0], name)
            ]
        source = sources[0]
        layer = min(source.layers, key=lambda number: abs(number - selection.layer))
        head: int | str = selection.head
        if source.heads is None:
            head = "-"
        elif head == "-":
            head = "mean"
        elif not isinstance(head, str):
            head = min(source.heads, key=lambda number: abs(number - int(selection.head)))
        return cls(view, source, layer, head, _pinned(view, source))

    @property
    def filters(self) -> dict[str, Any]:
        return dict(self.view.options.get("filters") or {})

    @property
    def labels(self) -> tuple[list[str], list[str]]:
        query, key = self.source.axes()
        return query["labels"], key["labels"]

    @property
    def cmap(self) -> str | None:
        name = self.filters.get("palette")
        signed = name in {"red-blue", "orange-purple"}
        return _PALETTES.get(name, name) if name and signed == self.source.signed else None

    def title(self, head: int | str | None = None) -> str:
        if self.view.options["title"]:
            return str(self.view.options["title"])
        base = self.view.options["indexBase"]
        words = [self.source.title]
        if self.source.stream != "self":
            words.append(self.source.stream)
        if not self.source.attributions:
            words.append(f"layer {self.layer + base}")
        if isinstance(head, str) and head != "-":
            words.append(f"{head} over heads")
        elif head is not None and head != "-":
            words.append(f"head {int(head) + base}")
        return ", ".join(words)

    def seen(self, matrix: NDArray[np.floating]) -> NDArray[np.floating]:
        """Return a matrix [query, key], NaN where nothing is shown: masked, or left out by the filters."""
        query, key = self.source.axes()
        shown = np.array(matrix, dtype=float)
        how, mass = self.filters.get("special", "show"), self.filters.get("mass", 1.0)
        if how != "show":
            shown[:, np.asarray(key["special"], dtype=bool)] = np.nan
            if not self.source.attributions:
                shown[np.asarray(query["special"], dtype=bool)] = np.nan
        sums = np.nansum(np.abs(shown), axis=1, keepdims=True)
        if mass < 1:
            order = np.argsort(-np.nan_to_num(np.abs(shown)), axis=1)
            ranked = np.take_along_axis(np.nan_to_num(np.abs(shown)), order, axis=1)
            before = np.cumsum(ranked, axis=1) - ranked
            small = np.empty_like(shown, dtype=bool)
            np.put_along_axis(small, order, before >= mass * sums * (1 - 1e-6), axis=1)
            shown[small] = np.nan
        if how == "renormalise" and self.source.stochastic:
            shown /= np.where(sums > 0, sums, 1.0)
        shown[np.abs(shown) < self.filters.get("least", 0.0)] = np.nan
        if self.source.causal and len(shown) == shown.shape[1]:
            shown[np.triu_indices(len(shown), 1)] = np.nan
        return shown


def _pinned(view: View, source: Source) -> tuple[int, int] | None:
    """Return the pinned cell in the elements of what is shown; -1 for a side that has none."""
    cell = view.selection.pinned
    if cell is None or source.unit == cell.unit:
        return None if cell is None else (cell.query, cell.key)
    axes = (
        (None, source.explanation.axis)
        if source.attributions
        else (source.explanation.query, source.explanation.key)
    )

    def moved(index: int, axis: Any) -> int:
        if index < 0 or axis is None or not {cell.unit, source.unit} <= set(axis.units):
            return -1
        first = min(axis.units[cell.unit].spans[index], default=-1)
        spans = axis.units[source.unit].spans
        return next((i for i, span in enumerate(spans) if first in span), -1)

    query, key = (moved(index, axis) for index, axis in zip(cell, axes, strict=True))
    return None if query < 0 and key < 0 else (query, key)


def _heatmap(shown: _Shown) -> Figure:
    source = shown.source
    matrix = shown.seen(source.matrix(shown.layer, shown.head))
    common = source.stochastic and shown.filters.get("extent") == "all"
    figure = heatmap(
        matrix,
        *shown.labels,
        title=shown.title(shown.head),
        signed=source.signed,
        value_name="share of the row" if source.stochastic else source.title,
        cmap=shown.cmap,
        vmax=1.0 if common else None,
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


def _head_grid(shown: _Shown) -> Figure:
    source = shown.source
    explanation = in_unit(source.explanation, source.unit) or source.explanation
    if source.on_demand:
        explanation = explanation.select(layer=list(source.ready))
    title = shown.view.options["title"] or source.title
    return head_grid(explanation, title=title, cmap=shown.cmap)


def _strip(shown: _Shown) -> Figure:
    source = shown.source
    queries, keys = shown.labels
    matrix = shown.seen(source.matrix(shown.layer, shown.head))
    row = shown.pinned[0] if shown.pinned else -1
    title = shown.title(shown.head)
    names = queries
    if not source.attributions and row < 0:
        counts = np.isfinite(matrix).sum(axis=0)
        matrix = (np.nansum(matrix, axis=0) / np.maximum(counts, 1))[None]
        names, title = [""], f"{title}: what each {source.unit} receives, mean over queries"
    elif not source.attributions:
        matrix, names = matrix[[row]], [queries[row]]
    return strip(matrix, keys, names=names, title=title, signed=source.signed, cmap=shown.cmap)


def _heads(shown: _Shown) -> Figure:
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
    finite = np.abs(drawn[np.isfinite(drawn)])
    title = shown.title()
    if look is not None:
        label = shown.labels[look[0] == "key"][look[1]]
        title += f": what {label!r} reads" if look[0] == "query" else f": who reads {label!r}"
    return head_figure(
        drawn,
        *shown.labels,
        heads=heads,
        look=look,
        title=title,
        signed=source.signed,
        top=1.0 if source.stochastic else float(finite.max(initial=0.0)) or 1.0,
    )


_FIGURES = {"Heatmap": _heatmap, "HeadGrid": _head_grid, "TokenStrip": _strip, "HeadView": _heads}
