"""A picture with a map over it, and small ones of several maps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.colors import LinearSegmentedColormap, ListedColormap
from matplotlib.patches import Rectangle

from attnwidgets.figures.palettes import heat_map
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
BEAM = ((12, 84, 190), (70, 165, 250), (228, 245, 255))
"""The ramp of amounts over a picture, at 0, a half and 1: it gives way to the picture instead of the page."""
SKIPPED = 0.34
"""Share of other ramps that is left out: a dark colour would grey the picture where it shines through."""
_TALLEST = 3.4  # inches of a picture
_GAP = 0.06


def dimmed(pixels: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return a picture as it lies beneath a map, [row, column, channel]: nearly grey, and darker."""
    colours = pixels.astype(np.float32)
    light = colours @ np.array([0.2126, 0.7152, 0.0722], dtype=np.float32)
    mixed = colours + GREY * (light[..., None] - colours)
    return np.asarray(np.round(DIM * mixed), dtype=np.uint8)


def over(share: NDArray[np.floating]) -> NDArray[np.floating]:
    """Return how opaque a map is at shares of its range, 0 to 1; NaN covers nothing."""
    return np.clip((np.nan_to_num(np.abs(share)) - LEAST) * RISE, 0.0, MOST)


def over_map(palette: str, *, signed: bool) -> Colormap:
    """Return the ramp of a palette over a picture, by shares of the range, 0 to 1 or -1 to 1.

    Args:
        palette: Its name; "" for the default.
        signed: Whether values have a sign.
    """
    plain = heat_map(palette, signed=signed, dark=True)
    if not signed and plain is heat_map("", signed=False, dark=True):
        return LinearSegmentedColormap.from_list("aw-beam", [[c / 255 for c in stop] for stop in BEAM])
    shares = np.linspace(-1.0 if signed else 0.0, 1.0, 257)
    size = SKIPPED + (1 - SKIPPED) * np.abs(shares)
    return ListedColormap(plain(0.5 + np.sign(shares) * size / 2 if signed else size))


def shades(
    values: NDArray[np.floating], colours: Colormap, norm: Normalize, *, signed: bool
) -> NDArray[np.float64]:
    """Return the colours of a map over a picture, [row, column, red green blue opacity], 0 to 1.

    Args:
        values: [row, column].
        colours: Of `over_map`.
        norm: The range of the values.
        signed: Whether they have a sign; zero is then transparent in the middle.
    """
    place = np.asarray(np.ma.filled(norm(np.nan_to_num(values)), 0.0))
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
        _, tall, _, lines = self._sizes(width)
        return lines * (tall + self._foot + _GAP) - _GAP

    def draw(self, pen: Pen, box: Box) -> None:
        """Draw it."""
        wide, tall, each, _ = self._sizes(box.width)
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
                    axes.add_patch(Rectangle((column, row), 1, 1, fill=False, edgecolor=edge, linewidth=size))
            if self.names:
                words = type(box)(left, top + tall, wide, LINE)
                bold = number == self.chosen
                pen.text(pen.axes(words), 0, LINE / 2, self.names[number], bold=bold)

    @property
    def _foot(self) -> float:
        return LINE if self.names else 0.0

    def _sizes(self, width: float) -> tuple[float, float, int, int]:
        """Return width and height of a picture, how many stand in a line, and how many lines there are."""
        rows, columns = self.maps[0].shape
        # Patches are as wide as they are high, unless the picture says otherwise.
        ratio = self.pixels.shape[0] / self.pixels.shape[1] if self.pixels.size else rows / columns
        count = len(self.maps)
        for across in range(1, count + 1):
            lines = -(-count // across)
            tall = (width - (across - 1) * _GAP) / across * ratio
            if lines * (tall + self._foot + _GAP) <= _TALLEST + self._foot or count == 1:
                break
        tall = min(tall, _TALLEST)
        return tall / ratio, tall, across, lines
