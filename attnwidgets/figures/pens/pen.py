"""A pen: areas of a page, measured in inches from its top left corner, and shapes and words on them.

A later shape covers an earlier one. Colours are names or "#rrggbb", or channels from 0 to 1 with
their opacity.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

from attnwidgets.figures.letters import SMALL
from attnwidgets.figures.theme import Theme, printable

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Float = NDArray[np.floating]

Colour = str | Sequence[float]
Colours = Callable[[Any], Any]
"""From positions on a ramp, 0 to 1, to colours: `Ramp`, or a colour map of matplotlib."""

Side = Literal["left", "center", "right"]
Level = Literal["top", "center", "bottom"]
Turn = Literal[0, 45, 90]


class Range(Protocol):
    """From values to positions on a ramp: `Span`, or a norm of matplotlib."""

    @property
    def vmin(self) -> float | None:
        """The value at position 0."""

    @property
    def vmax(self) -> float | None:
        """The value at position 1."""

    def __call__(self, value: Any) -> Any:
        """Return positions, 0 to 1, of values."""
        ...


@dataclass(frozen=True)
class Box:
    """A rectangle on a page, in inches from its top left corner."""

    left: float
    top: float
    width: float
    height: float


class Area(ABC):
    """A part of a page, with coordinates.

    Attributes:
        box: Where it is.
        across: Coordinates of its left and right edge.
        up: Coordinates of its lower and upper edge.
        theme: Colours of the page.
    """

    def __init__(self, box: Box, across: tuple[float, float], up: tuple[float, float], theme: Theme) -> None:
        self.box, self.across, self.up, self.theme = box, across, up, theme

    def write(
        self,
        x: float,
        y: float,
        words: str,
        *,
        size: float = SMALL,
        color: Colour = "",
        style: str = "",
        ha: Side = "left",
        va: Level = "center",
        turn: Turn = 0,
        limit: int = 24,
    ) -> None:
        """Write text that anybody may have made: every character is visible, and none is a formula.

        Args:
            x: Place across.
            y: Place up or down.
            words: The text.
            size: Size in points.
            color: Colour; by default the theme's ink.
            style: "", "bold" or "italic".
            ha: Which side of the text is at `x`, as it stands on the page.
            va: Which edge is at `y`, as it stands on the page.
            turn: By how many degrees it is turned against the clock. By 45, it begins at the point.
            limit: Number of characters after which it is cut.
        """
        self._write(x, y, printable(words, limit), size, color or self.theme.ink, style, (ha, va), turn)

    @abstractmethod
    def _write(
        self,
        x: float,
        y: float,
        words: str,
        size: float,
        color: Colour,
        style: str,
        sides: tuple[Side, Level],
        turn: Turn,
    ) -> None: ...

    @abstractmethod
    def cells(
        self, values: Float, colours: Colours, norm: Range, extent: Sequence[float] | None = None
    ) -> None:
        """Colour cells of equal size, as far as they are in the area.

        Args:
            values: [row, column], the first row at the top; NaN has no colour.
            colours: Colours of positions from 0 to 1.
            norm: The positions of values.
            extent: Coordinates of their left, right, lower and upper edge; None: the whole area.
        """

    @abstractmethod
    def picture(self, pixels: NDArray[Any], *, smooth: bool) -> None:
        """Lay pixels over the whole area.

        Args:
            pixels: [row, column, red green blue and perhaps opacity], 0 to 255 or 0.0 to 1.0.
            smooth: Whether they are a photograph; else each is a cell.
        """

    @abstractmethod
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
        hatch: Literal["", "/", "\\"] = "",
        rounded: float = 0.0,
    ) -> None:
        """Draw a rectangle; with a hatch, its edge is the colour of the hatch's lines.

        Args:
            x: A corner across.
            y: The same corner up or down.
            width: Width, from there.
            height: Height, from there.
            fill: Colour of its inside; None: none.
            edge: Colour of its outline; None: none.
            line: Width of the outline in points.
            hatch: Direction of the hatch; "": none.
            rounded: Radius of its corners in coordinates across.
        """

    @abstractmethod
    def rule(self, x: float, y: float, to_x: float, to_y: float, color: Colour, line: float = 0.6) -> None:
        """Draw a straight line along an axis, `line` points wide."""

    @abstractmethod
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
        """Draw a line through points; NaN is a gap.

        Args:
            x: Places across [point].
            y: Places up or down [point].
            color: Colour.
            line: Width in points.
            dashes: Lengths of dashes and gaps, in widths of the line.
            dots: Diameter of a dot on each point, in points.
        """

    @abstractmethod
    def band(self, x: Float, low: Float, high: Float, color: Colour, opacity: float) -> None:
        """Fill the area between two lines; NaN is a gap."""

    @abstractmethod
    def curves(self, paths: Float, colours: Sequence[Colour], lines: Sequence[float]) -> None:
        """Draw curves.

        Args:
            paths: [curve, 4 or 2, (x, y)]: Bézier's points, or both ends of straight ones.
            colours: Of each.
            lines: Width of each in points.
        """

    @abstractmethod
    def discs(
        self,
        centres: Float,
        sizes: Float,
        *,
        fill: Colour | None = None,
        edge: Colour | None = None,
        line: float = 0.0,
    ) -> None:
        """Draw discs.

        Args:
            centres: [disc, (x, y)].
            sizes: Area of a square around each, in square points.
            fill: Colour of their inside; None: none.
            edge: Colour of their outline; None: none.
            line: Width of the outline in points.
        """


class Pen(ABC):
    """Draws on a page in the colours of a theme.

    Attributes:
        theme: Its colours.
        page: The whole page, in inches from the top left corner.
    """

    theme: Theme
    page: Area

    @abstractmethod
    def area(
        self,
        box: Box,
        across: tuple[float, float] | None = None,
        up: tuple[float, float] | None = None,
    ) -> Area:
        """Return a rectangle as an area, by default in inches from its top left corner."""
