"""The pen of figures that are saved: every area is an axes of matplotlib, and text stays text."""

from __future__ import annotations

from functools import cached_property
from itertools import count
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.collections import LineCollection, PathCollection
from matplotlib.patches import FancyBboxPatch, Patch, Rectangle
from matplotlib.path import Path

from attnwidgets.figures.drawing import FONTS, colours_and_norm, families, put
from attnwidgets.figures.pens.pen import Area, Box, Pen

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from attnwidgets.figures.pens.pen import Colour, Colours, Float, Range
    from attnwidgets.figures.theme import Theme

_CURVE = [Path.MOVETO, Path.CURVE4, Path.CURVE4, Path.CURVE4]
_HATCHES = {"/": "/////", "\\": "\\\\\\\\"}


class AxesArea(Area):
    """An area on axes without lines; see `Area`."""

    def __init__(
        self, figure: Figure, box: Box, across: tuple[float, float], up: tuple[float, float], theme: Theme
    ) -> None:
        super().__init__(box, across, up, theme)
        self._figure = figure
        self._order = count(1)

    @cached_property
    def _axes(self) -> Axes:
        box, (width, height) = self.box, self._figure.get_size_inches()
        bottom = height - box.top - box.height
        axes = self._figure.add_axes(
            (box.left / width, bottom / height, box.width / width, box.height / height), facecolor="none"
        )
        axes.set_xlim(*self.across)
        axes.set_ylim(*self.up)
        axes.set_axis_off()
        return axes

    def _write(
        self, x: Any, y: Any, words: Any, size: Any, color: Any, style: Any, sides: Any, turn: Any
    ) -> None:
        options: dict[str, Any] = {"fontweight": "bold"} if style == "bold" else {}
        options |= {"style": "italic"} if style == "italic" else {}
        options |= {"rotation": turn} if turn else {}
        options |= {"rotation_mode": "anchor"} if turn == 45 else {}  # noqa: PLR2004 - degrees
        options |= {"zorder": next(self._order), "ha": sides[0], "va": sides[1]}
        self._put(x, y, words, fontsize=size, color=color, family=families(FONTS), **options)

    def _put(self, x: float, y: float, words: str, **options: Any) -> None:
        put(self._axes.text, x, y, words, **options)

    def cells(
        self, values: Float, colours: Colours, norm: Range, extent: Sequence[float] | None = None
    ) -> None:
        """Colour cells of equal size; see `Area`."""
        left, right, bottom, top = extent or (*self.across, *self.up)
        ramp, scale = colours_and_norm(colours, norm)
        self._axes.imshow(
            values, cmap=ramp, norm=scale, extent=(left, right, bottom, top), aspect="auto",
            interpolation="nearest", zorder=next(self._order),
        )  # fmt: skip
        self._axes.set(xlim=self.across, ylim=self.up)

    def picture(self, pixels: Any, *, smooth: bool) -> None:
        """Lay pixels over the whole area; see `Area`."""
        options: dict[str, Any] = {} if smooth else {"interpolation": "nearest"}
        extent = (*self.across, *self.up)
        self._axes.imshow(pixels, extent=extent, aspect="auto", zorder=next(self._order), **options)

    def rectangle(
        self,
        x: float,
        y: float,
        width: float,
        height: float,
        *,
        fill: Colour | None = None,
        edge: Colour | None = None,
        line: float = 0.0,
        hatch: Any = "",
        rounded: float = 0.0,
    ) -> None:
        """Draw a rectangle; see `Area`."""
        options: dict[str, Any] = {
            "facecolor": "none" if fill is None else fill,
            "edgecolor": "none" if edge is None else edge,
            "linewidth": line,
            "hatch": _HATCHES.get(hatch),
            "clip_on": False,
            "zorder": next(self._order),
        }
        shape: Patch = (
            FancyBboxPatch((x, y), width, height, boxstyle=f"round,pad=0,rounding_size={rounded}", **options)
            if rounded
            else Rectangle((x, y), width, height, **options)
        )
        self._axes.add_patch(shape)

    def rule(self, x: float, y: float, to_x: float, to_y: float, color: Colour, line: float = 0.6) -> None:
        """Draw a straight line along an axis; see `Area`."""
        self._axes.plot(
            [x, to_x], [y, to_y], color=color, linewidth=line, clip_on=False, zorder=next(self._order)
        )
        self._axes.set(xlim=self.across, ylim=self.up)

    def plot(
        self,
        x: Float,
        y: Float,
        color: Colour,
        line: float,
        *,
        dashes: Sequence[float] = (),
        dots: float = 0.0,
    ) -> None:
        """Draw a line through points; see `Area`."""
        look: dict[str, Any] = {"dashes": dashes} if len(dashes) else {}
        look |= {"marker": "o", "markersize": dots} if dots else {}
        self._axes.plot(x, y, color=color, linewidth=line, zorder=next(self._order), **look)
        self._axes.set(xlim=self.across, ylim=self.up)

    def band(self, x: Float, low: Float, high: Float, color: Colour, opacity: float) -> None:
        """Fill the area between two lines; see `Area`."""
        self._axes.fill_between(
            x, low, high, color=color, alpha=opacity, linewidth=0, zorder=next(self._order)
        )
        self._axes.set(xlim=self.across, ylim=self.up)

    def curves(self, paths: Float, colours: Sequence[Colour], lines: Sequence[float]) -> None:
        """Draw curves; see `Area`."""
        look: dict[str, Any] = {"linewidths": lines, "zorder": next(self._order)}
        if np.shape(paths)[1:2] == (2,):
            self._axes.add_collection(LineCollection(list(paths), colors=colours, **look), autolim=False)
            return
        inks: Any = list(colours)
        bent = [Path(path, _CURVE) for path in paths]
        shapes = PathCollection(bent, facecolors="none", edgecolors=inks, **look)
        self._axes.add_collection(shapes, autolim=False)

    def discs(
        self,
        centres: Float,
        sizes: Float,
        *,
        fill: Colour | None = None,
        edge: Colour | None = None,
        line: float = 0.0,
    ) -> None:
        """Draw discs; see `Area`."""
        x, y = np.reshape(centres, (-1, 2)).T
        inks: dict[str, Any] = {"facecolors": "none" if fill is None else fill}
        inks |= {"edgecolors": "none" if edge is None else edge}
        self._axes.scatter(x, y, s=sizes, linewidths=line, zorder=next(self._order), **inks)
        self._axes.set(xlim=self.across, ylim=self.up)


class _Page(AxesArea):
    """A whole figure, whose text needs no axes."""

    def _put(self, x: float, y: float, words: str, **options: Any) -> None:
        put(self._figure.text, x / self.box.width, 1 - y / self.box.height, words, **options)


class AxesPen(Pen):
    """Draws on a figure of matplotlib; see `Pen`.

    Attributes:
        figure: The figure.
        theme: Its colours.
        page: The whole of it.
    """

    def __init__(self, figure: Figure, theme: Theme) -> None:
        self.figure, self.theme = figure, theme
        width, height = map(float, figure.get_size_inches())
        self.page = _Page(figure, Box(0.0, 0.0, width, height), (0.0, width), (height, 0.0), theme)

    def area(
        self, box: Box, across: tuple[float, float] | None = None, up: tuple[float, float] | None = None
    ) -> AxesArea:
        """Return a rectangle as an area, by default in inches from its top left corner; see `Pen`."""
        return AxesArea(self.figure, box, across or (0.0, box.width), up or (box.height, 0.0), self.theme)
