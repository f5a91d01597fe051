"""Tools of all figures: fonts, labels without markup, colour scales, and the figure itself."""

from __future__ import annotations

import io
import textwrap
import unicodedata
import warnings
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib import colormaps, font_manager
from matplotlib.backends.backend_agg import FigureCanvasAgg, RendererAgg
from matplotlib.colors import Colormap, FuncNorm, ListedColormap, Normalize
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from PIL import Image

from attnwidgets._files import write_bytes
from attnwidgets.figures.palettes import SCALE, Ramp, Span, heat_map, span_of
from attnwidgets.figures.theme import cells, printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes
    from matplotlib.text import Text
    from numpy.typing import NDArray

_LEFT_TO_RIGHT = "\u200e"
MAX_LABELS = 80  # longer axes get numbers instead of labels
FONTS = (
    "DejaVu Sans",
    "Noto Sans",
    "Noto Sans CJK JP",
    "Noto Sans CJK SC",
    "Noto Sans Arabic",
    "Noto Sans Hebrew",
)
MONO = ("DejaVu Sans Mono", "Noto Sans Mono CJK JP", *FONTS[1:])


class PlainFigure(Figure):
    """A figure that displays itself in notebooks, with any backend or none."""

    def _repr_png_(self) -> bytes:
        return rendered(self, dpi=110)

    def savefig(self, fname: str | Path | Any, **options: Any) -> None:
        """Save as matplotlib does, but in an atomic step and without warnings about missing glyphs."""
        if isinstance(fname, (str, Path)):
            target, drawn = Path(fname), io.BytesIO()
            if not options.get("format"):
                options["format"] = target.suffix[1:] or self.canvas.get_default_filetype()
                target = target.with_suffix(f".{options['format']}")
            self.savefig(drawn, **options)
            write_bytes(target, drawn.getvalue())
            return
        with Quiet():
            super().savefig(fname, **options)


def rendered(figure: Figure, dpi: int) -> bytes:
    """Return a figure as PNG on white."""
    target = io.BytesIO()
    with Quiet():
        figure.savefig(target, format="png", dpi=dpi, facecolor="white")
    return target.getvalue()


def pixels(figure: Figure, dpi: int) -> Image.Image:
    """Return a figure of `figure_of` as an image on white; `savefig` would lay it out and draw it twice."""
    had, colour = figure.dpi, figure.get_facecolor()
    figure.set_dpi(dpi)
    figure.set_facecolor("white")
    try:
        with Quiet():
            figure.canvas.draw()
        return Image.fromarray(np.asarray(figure.canvas.buffer_rgba())).convert("RGB")  # type: ignore[attr-defined]
    finally:
        figure.set_dpi(had)
        figure.set_facecolor(colour)


class Quiet(warnings.catch_warnings):
    """Suppresses matplotlib's warnings about characters that no installed font has; they become boxes."""

    def __enter__(self) -> None:
        super().__enter__()
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        warnings.filterwarnings("ignore", message="Matplotlib currently does not support")


def figure_of(ax: Axes | None, width: float, height: float) -> Figure:
    """Return a new figure of a size in inches, or the figure of `ax`."""
    if ax is not None:
        # The canvas has the root figure: axes may be in a subfigure (`root=True` came with matplotlib 3.10).
        return ax.figure.canvas.figure
    figure = PlainFigure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def side_of(n: int) -> float:
    """Return the length of a side of n cells in inches."""
    return float(np.clip(0.21 * n, 1.8, 8.0))


def font_size(n: int) -> float:
    """Return the font size in points at which n labels fit next to n cells."""
    return float(np.clip(8.0 * 38 / max(n, 38), 4.0, 8.0))


def colour_scale(
    values: NDArray[np.floating],
    *,
    signed: bool,
    cmap: str | Colormap | Ramp | None,
    vmin: float | None,
    vmax: float | None,
    scale: str = SCALE,
) -> tuple[Colormap, Normalize]:
    """Return colours and their range: from zero for shares, centred on zero for signed values.

    `scale` is "linear", "sqrt" or "log" (four decades below the largest), the same on both sides of zero.
    """
    span = span_of(values, signed=signed, vmin=vmin, vmax=vmax, scale=scale)
    if cmap is None:
        cmap = heat_map("", signed=signed)
    return colours_and_norm(colormaps[cmap] if isinstance(cmap, str) else cmap, span)


def colours_and_norm(colours: Any, span: Any) -> tuple[Colormap, Normalize]:
    """Return a ramp and its span as matplotlib's colours and norm, which stay as they are."""
    if isinstance(colours, Ramp):
        colours = ListedColormap(colours.table, name=colours.name)
    if not isinstance(span, Span):
        return colours, span
    if span.scale == "linear":
        return colours, Normalize(span.vmin, span.vmax)
    return colours, FuncNorm((span.forward, span.back), span.vmin, span.vmax)


def label_axis(set_ticks: Any, labels: Sequence[str], **options: Any) -> None:
    """Put labels on an axis; if there are many, round numbers instead."""
    if len(labels) <= MAX_LABELS:
        texts = [printable(label) for label in labels]
        set_ticks(range(len(labels)), texts, parse_math=False, family=families(FONTS), **options)
    else:
        positions = range(0, len(labels), max(1, round(len(labels) / 160) * 10))
        set_ticks(positions, [str(position) for position in positions])


def put(write: Any, *arguments: Any, **options: Any) -> Text:
    """Write text without markup: a dollar sign does not start a formula.

    A line that has left-to-right letters runs from left to right, also where it begins with a word of another
    direction.
    """
    written: Text = write(*arguments, **options)
    written.set_parse_math(False)
    words = written.get_text()
    directions = set(map(unicodedata.bidirectional, words))
    if "L" in directions and directions & {"R", "AL"}:
        written.set_text(_LEFT_TO_RIGHT + words)
    return written


def heading(axes: Axes, title: str, *, over_figure: bool = True) -> None:
    """Write the heading over the whole figure or over the axes."""
    options: dict[str, Any] = {"fontsize": 9, "family": families(FONTS)}
    figure = axes.get_figure()
    if over_figure and isinstance(figure, Figure):
        line = max(20, round(figure.get_figwidth() * 72 / (9 * 0.52)))
        text = textwrap.fill(printable(title, 3 * line), line)
        put(figure.suptitle, text, x=0.01, ha="left", **options)
    else:
        put(axes.set_title, printable(title, 110), loc="left", **options)


def length_of(labels: Sequence[str], size: float) -> float:
    """Return the approximate length of the longest label in inches."""
    longest = max((cells(printable(label)) for label in labels), default=0)
    return (longest if len(labels) <= MAX_LABELS else 4) * size * 0.6 / 72


def families(wanted: Sequence[str]) -> list[str]:
    """Return the installed fonts of `wanted`; matplotlib logs a line for every missing font."""
    installed = {font.name for font in font_manager.fontManager.ttflist}
    return [name for name in wanted if name in installed] or ["sans-serif"]


def measured(text: str, size: float, dpi: int, *, bold: bool) -> float:
    """Return the width of a text in inches, in the first of our fonts that has its letters."""
    properties = FontProperties(family=families(FONTS), size=size, weight="bold" if bold else "normal")
    with Quiet():
        return float(_ruler(dpi).get_text_width_height_descent(text, properties, ismath=False)[0]) / dpi


@lru_cache(maxsize=1)
def _ruler(dpi: int) -> Any:
    made: Any = RendererAgg
    return made(1, 1, dpi)
