"""A picture with a map over it, and small ones of several maps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.patches import Rectangle

from attnwidgets.figures.sheet import LINE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.colors import Colormap, Normalize
    from numpy.typing import NDArray

    from attnwidgets.figures.sheet import Box, Pen

GREY, DIM = 0.9, 0.74
"""How much of its colours a picture loses beneath a map, and how bright it stays."""
LEAST, MOST, RISE = 0.04, 0.94, 1.6
"""Share of the range from which a map covers the picture, how much at most, and how fast."""
_TALLEST = 3.4  # inches of a picture
_GAP = 0.06
_ACROSS = 6  # small pictures beside each other


def dimmed(pixels: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return a picture as it lies beneath a map, [row, column, channel]: nearly grey, and darker."""
    colours = pixels.astype(np.float32)
    light = colours @ np.array([0.2126, 0.7152, 0.0722], dtype=np.float32)
    mixed = colours + GREY * (light[..., None] - colours)
    return np.asarray(np.round(DIM * mixed), dtype=np.uint8)


def over(share: NDArray[np.floating]) -> NDArray[np.floating]:
    """Return how opaque a map is at shares of its range, 0 to 1; NaN covers nothing."""
    return np.clip((np.nan_to_num(np.abs(share)) - LEAST) * RISE, 0.0, MOST)


def shades(
    values: NDArray[np.floating], colours: Colormap, norm: Normalize, *, signed: bool
) -> NDArray[np.float64]:
    """Return the colours of a map over a picture, [row, column, red green blue opacity], 0 to 1."""
    place = np.ma.filled(norm(np.nan_to_num(values)), 0.0)
    painted = np.asarray(colours(place), dtype=np.float64)
    painted[..., 3] = over(np.asarray(2 * place - 1 if signed else place) * np.isfinite(values))
    return painted


@dataclass(frozen=True)
class Pictured:
    """Maps over a picture: one large, or several small ones with their names beneath.

    Attributes:
        pixels: The picture [row, column, channel], 0 to 255.
        maps: Values of patches, each [row, column].
        names: What stands beneath each; none of a large one.
        colours: Colours of the values.
        norms: Range of each map.
        signed: Whether values have a sign.
        marks: Outlined patches (row, column) of each map.
        chosen: The map whose name is bold; -1: none.
    """

    pixels: NDArray[np.uint8]
    maps: Sequence[NDArray[np.floating]]
    names: Sequence[str]
    colours: Colormap
    norms: Sequence[Normalize]
    signed: bool = False
    marks: Sequence[Sequence[tuple[int, int]]] = ()
    chosen: int = -1

    def height(self, width: float) -> float:
        """Return its height at a width, both in inches."""
        _, tall, lines = self._sizes(width)
        return lines * (tall + self._foot + _GAP) - _GAP

    def draw(self, pen: Pen, box: Box) -> None:
        """Draw it."""
        wide, tall, _ = self._sizes(box.width)
        each = self._across
        for number, values in enumerate(self.maps):
            line, place = divmod(number, each)
            left = box.left + place * (wide + _GAP)
            top = box.top + line * (tall + self._foot + _GAP)
            rows, columns = values.shape
            axes = pen.axes(type(box)(left, top, wide, tall), (0, columns), (rows, 0))
            extent = (0, columns, rows, 0)
            axes.imshow(dimmed(self.pixels), extent=extent, aspect="auto")
            painted = shades(values, self.colours, self.norms[number], signed=self.signed)
            axes.imshow(painted, extent=extent, aspect="auto", interpolation="nearest")
            for row, column in self.marks[number] if self.marks else ():
                for edge, size in (("#ffffff", 2.4), (pen.theme.accent, 1.2)):
                    axes.add_patch(
                        Rectangle((column, row), 1, 1, fill=False, edgecolor=edge, linewidth=size)
                    )
            if self.names:
                words = type(box)(left, top + tall, wide, LINE)
                bold = number == self.chosen
                pen.text(pen.axes(words), 0, LINE / 2, self.names[number], bold=bold)

    @property
    def _foot(self) -> float:
        return LINE if self.names else 0.0

    @property
    def _across(self) -> int:
        return 1 if not self.names else min(_ACROSS, len(self.maps))

    def _sizes(self, width: float) -> tuple[float, float, int]:
        """Return width and height of a picture, and how many lines of them there are."""
        rows, columns = self.maps[0].shape
        wide = (width - (self._across - 1) * _GAP) / self._across
        # Patches are as wide as they are high, unless the picture says otherwise.
        ratio = self.pixels.shape[0] / self.pixels.shape[1] if self.pixels.size else rows / columns
        tall = min(wide * ratio, _TALLEST)
        return tall / ratio, tall, -(-len(self.maps) // self._across)
