"""The pen of pictures in displays: pixels, without axes, layout or matplotlib."""

from __future__ import annotations

import struct
import zlib
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image, ImageColor, ImageDraw

from attnwidgets.figures.letters import font, heights, is_plain
from attnwidgets.figures.pens.pen import Area, Box, Pen

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    from attnwidgets.figures.pens.pen import Colour, Colours, Float, Range
    from attnwidgets.figures.theme import Theme

    Pixels = tuple[int, int, int, int]
    Edges = tuple[float, float, float, float]

_SIGNATURE, _BY_NUMBER = b"\x89PNG\r\n\x1a\n", 3  # of a PNG; pixels are numbers of colours
_POINTS = 72  # in an inch
_FINE = 3  # how much larger smooth lines are drawn than they appear
_STEPS = 24  # straight pieces of a curve
_ROUND = 2.0  # pixels of a radius at which a corner is seen to be round
_LEAST = 0.3  # pixels of a side of the smallest side that is drawn
_HATCH = 5  # pixels between two lines of a hatch
_COLOURS, _EXACT = 256, 128  # of a picture; of them, those that are chosen by their number of pixels
_ALIKE = 4  # bits of a channel by which alike colours may differ
_PHOTOGRAPH = 4096  # colours


class LettersMissing(Exception):  # noqa: N818 - the picture is then drawn by matplotlib
    """A text is not drawn letter by letter in the pen's font."""


class PixelArea(Area):
    """An area on pixels; see `Area`."""

    def __init__(
        self, canvas: Canvas, box: Box, across: tuple[float, float], up: tuple[float, float], theme: Theme
    ) -> None:
        super().__init__(box, across, up, theme)
        self._canvas = canvas

    def at(self, x: Any, y: Any) -> tuple[Any, Any]:
        """Return coordinates in pixels from the top left corner of the page."""
        (left, right), (bottom, top), box, dpi = self.across, self.up, self.box, self._canvas.dpi
        across = box.left + (x - left) / ((right - left) or 1.0) * box.width
        down = box.top + (y - top) / ((bottom - top) or 1.0) * box.height
        return across * dpi, down * dpi

    @property
    def _edges(self) -> Edges:
        return (*self.at(self.across[0], self.up[1]), *self.at(self.across[1], self.up[0]))

    def _write(
        self, x: Any, y: Any, words: Any, size: Any, color: Any, style: Any, sides: Any, turn: Any
    ) -> None:
        if not is_plain(words, style):
            raise LettersMissing(words)
        of_type = style, size * self._canvas.dpi / _POINTS
        write = self._canvas.write_turned if turn else self._canvas.write
        write(self.at(x, y), words, of_type, _rgba(color), sides, turn)

    def cells(
        self, values: Float, colours: Colours, norm: Range, extent: Sequence[float] | None = None
    ) -> None:
        """Colour cells of equal size; see `Area`."""
        values = np.asarray(values)
        if not values.size:
            return
        left, right, bottom, top = extent or (*self.across, *self.up)
        edges = (*self.at(left, top), *self.at(right, bottom))
        corner, at = _cells(edges, values.shape, self._edges)
        pixels = np.ix_(*at)
        is_fine = values.size > len(at[0]) * len(at[1])  # more cells than pixels
        shown = values[pixels] if is_fine else values
        painted = np.asarray(colours(np.ma.filled(norm(shown), np.nan)), dtype=np.float64)
        levels = _levels(np.where(np.isfinite(shown)[..., None], painted, 0.0))
        self._canvas.lay(corner, levels if is_fine else levels[pixels])

    def picture(self, pixels: Any, *, smooth: bool) -> None:
        """Lay pixels over the whole area; see `Area`."""
        corner, (rows, columns) = _cells(self._edges, pixels.shape[:2], self._edges)
        if smooth:
            whole = Image.fromarray(np.asarray(pixels, dtype=np.uint8))
            small = whole.resize((len(columns), len(rows)), Image.Resampling.BICUBIC)
            self._canvas.image.paste(small, corner)
            return
        self._canvas.lay(corner, _levels(pixels[np.ix_(rows, columns)]))

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
        (first, above), (second, below) = self.at(x, y), self.at(x + width, y + height)
        left, right = sorted((first, second))
        top, bottom = sorted((above, below))
        box = (round(left), round(top), round(right) - 1, round(bottom) - 1)
        box = (*box[:2], max(box[0], box[2]), max(box[1], box[3]))
        radius = self.at(rounded, 0)[0] - self.at(0, 0)[0]
        if radius < _ROUND:
            radius = 0
        draw = self._canvas.over
        if fill is not None and min(right - left, bottom - top) >= _LEAST:
            draw.rounded_rectangle(box, radius, fill=_rgba(fill))
        if hatch and edge is not None:
            self._canvas.hatch(box, _rgba(edge), 1 if hatch == "/" else -1)
        if line and edge is not None:
            wide = self._canvas.thick(line)
            out = (wide - 1) // 2
            frame = (box[0] - out, box[1] - out, box[2] + out, box[3] + out)
            draw.rounded_rectangle(frame, radius, outline=_rgba(edge), width=wide)

    def rule(self, x: float, y: float, to_x: float, to_y: float, color: Colour, line: float = 0.6) -> None:
        """Draw a straight line along an axis; see `Area`."""
        ends = [int(part) for part in (*self.at(x, y), *self.at(to_x, to_y))]
        self._canvas.over.line(ends, fill=_rgba(color), width=self._canvas.thick(line))

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
        pixels = np.stack(self.at(np.asarray(x, dtype=float), np.asarray(y, dtype=float)), axis=-1)
        ink, wide = _rgba(color), line * self._canvas.dpi / _POINTS

        def draw(fine: ImageDraw.ImageDraw, scaled: Callable[[Any], Any]) -> None:
            for piece in _pieces(pixels):
                for dash in _dashed(piece, np.asarray(dashes, dtype=float) * wide):
                    points = [tuple(point) for point in scaled(dash)]
                    fine.line(points, fill=ink, width=max(1, round(wide * _FINE)), joint="curve")

        self._canvas.smooth(pixels, wide, draw)
        if dots:
            at = np.stack([x, y], axis=-1)[np.isfinite(pixels).all(axis=-1)]
            self.discs(at, np.full(len(at), dots**2), fill=color)

    def band(self, x: Float, low: Float, high: Float, color: Colour, opacity: float) -> None:
        """Fill the area between two lines; see `Area`."""
        edges = [
            np.stack(self.at(np.asarray(x, dtype=float), np.asarray(end, float)), -1) for end in (low, high)
        ]
        ink = (*_rgba(color)[:3], round(255 * opacity))
        both = np.concatenate(edges, axis=-1)

        def draw(fine: ImageDraw.ImageDraw, scaled: Callable[[Any], Any]) -> None:
            for piece in _pieces(both):
                outline = np.concatenate([piece[:, :2], piece[::-1, 2:]])
                fine.polygon([tuple(point) for point in scaled(outline)], fill=ink)

        self._canvas.smooth(both.reshape(-1, 2), 1.0, draw)

    def curves(self, paths: Float, colours: Sequence[Colour], lines: Sequence[float]) -> None:
        """Draw curves; see `Area`."""
        points = np.asarray(paths, dtype=float).reshape(len(paths), -1, 2)
        pixels = np.stack(self.at(points[..., 0], points[..., 1]), axis=-1)
        if points.shape[1] > 2:  # noqa: PLR2004 - more than two ends
            t = np.linspace(0.0, 1.0, _STEPS + 1)
            basis = np.stack([(1 - t) ** 3, 3 * t * (1 - t) ** 2, 3 * t**2 * (1 - t), t**3], axis=-1)
            pixels = np.einsum("tk,ckd->ctd", basis, pixels)
        widths = np.asarray(lines, dtype=float) * self._canvas.dpi / _POINTS

        def draw(fine: ImageDraw.ImageDraw, scaled: Callable[[Any], Any]) -> None:
            # One polygon for each: where pieces met, a line that lets others through would be darker.
            for path, colour, wide in zip(scaled(pixels), colours, widths, strict=True):
                fine.polygon(_outline(path, max(0.0, wide * _FINE - 1) / 2), fill=_rgba(colour))

        self._canvas.smooth(pixels.reshape(-1, 2), float(widths.max(initial=0.0)), draw)

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
        points = np.asarray(centres, dtype=float).reshape(-1, 2)
        middles = np.stack(self.at(points[:, 0], points[:, 1]), axis=-1)
        radii = np.sqrt(np.broadcast_to(sizes, len(points))) / 2 * self._canvas.dpi / _POINTS
        inks: dict[str, Any] = {"fill": None if fill is None else _rgba(fill)}
        wide = line * self._canvas.dpi / _POINTS
        if edge is not None:
            inks |= {"outline": _rgba(edge), "width": max(1, round(wide * _FINE))}

        def draw(fine: ImageDraw.ImageDraw, scaled: Callable[[Any], Any]) -> None:
            for (x, y), radius in zip(scaled(middles), (radii + wide / 2) * _FINE, strict=True):
                fine.ellipse((x - radius, y - radius, x + radius, y + radius), **inks)

        self._canvas.smooth(middles, float(2 * radii.max(initial=0.0)) + wide, draw)


class Canvas:
    """The pixels of a page.

    Attributes:
        image: The page.
        dpi: Its pixels in an inch.
        over: Draws on it; colours that are not opaque let the page through.
    """

    def __init__(self, size: tuple[int, int], page: str, dpi: int) -> None:
        self.image = Image.new("RGB", size, page)
        self.dpi = dpi
        self.over = ImageDraw.Draw(self.image, "RGBA")
        self._ink = ImageDraw.Draw(self.image)

    def thick(self, points: float) -> int:
        """Return how many pixels wide a line is that is not smoothed."""
        return max(1, int(points * self.dpi / _POINTS + 0.75))

    def write(
        self, at: tuple[float, float], words: str, of_type: tuple[str, float], ink: Pixels, sides: Any, _: int
    ) -> None:
        """Write a line of text, in lines of type that are as high in every text."""
        above, below = heights(*of_type)
        down = {"top": -above, "center": -(above + below) / 2, "bottom": -below}[sides[1]]
        anchor = {"left": "ls", "center": "ms", "right": "rs"}[sides[0]]
        corner = (at[0], float(round(at[1] + down)))
        self._ink.text(corner, words, fill=ink[:3], font=font(*of_type), anchor=anchor)

    def write_turned(
        self,
        at: tuple[float, float],
        words: str,
        of_type: tuple[str, float],
        ink: Pixels,
        sides: Any,
        turn: int,
    ) -> None:
        """Write a line of text that is turned against the clock, by 90 or 45 degrees."""
        above, below = heights(*of_type)
        letters: Any = font(*of_type)
        wide, tall = int(letters.getlength(words)) + 2, int(below - above) + 1
        line = Image.new("L", (wide, tall))
        ImageDraw.Draw(line).text((0, -above), words, fill=255, font=letters, anchor="ls")
        if turn == 90:  # noqa: PLR2004 - degrees
            line = line.transpose(Image.Transpose.ROTATE_90)
            shift = (
                {"left": 0.0, "center": 0.5, "right": 1.0}[sides[0]],
                {"top": 0.0, "center": 0.5, "bottom": 1.0}[sides[1]],
            )
            corner = at[0] - shift[0] * line.width, at[1] - shift[1] * line.height
        else:
            # Turned about the middle of its left edge.
            side = 2 * (wide + tall)
            square = Image.new("L", (side, side))
            square.paste(line, (side // 2, side // 2 - tall // 2))
            line = square.rotate(turn, Image.Resampling.BICUBIC)
            corner = at[0] - side / 2, at[1] - side / 2
        self.image.paste(ink[:3], (round(corner[0]), round(corner[1])), line)

    def lay(self, corner: tuple[int, int], painted: NDArray[np.uint8]) -> None:
        """Lay levels [row, column, red green blue opacity] over the page."""
        whole = Image.fromarray(painted)
        opaque = bool((painted[..., 3] == 255).all())  # noqa: PLR2004 - a level
        self.image.paste(whole.convert("RGB"), corner, None if opaque else whole.getchannel("A"))

    def hatch(self, box: Pixels, ink: Pixels, way: int) -> None:
        """Draw slanted lines over a box."""
        x, y = np.arange(box[0], box[2] + 1), np.arange(box[1], box[3] + 1)
        mask = (x + way * y[:, None]) % _HATCH == 0
        self.image.paste(ink[:3], box[:2], Image.fromarray(np.uint8(255) * mask.astype(np.uint8)))

    def smooth(
        self,
        pixels: Float,
        wide: float,
        draw: Callable[[ImageDraw.ImageDraw, Callable[[Any], Any]], None],
    ) -> None:
        """Draw on a part of the page at a larger size, and bring it back: lines have no steps.

        Args:
            pixels: Points of the drawing [point, (x, y)], in pixels.
            wide: How far the drawing reaches beyond them.
            draw: Draws, given the larger page and a function from pixels to its pixels.
        """
        finite = pixels[np.isfinite(pixels).all(axis=-1)]
        if not len(finite):
            return
        left, top = np.floor(finite.min(axis=0) - wide - 1).astype(int)
        right, bottom = np.ceil(finite.max(axis=0) + wide + 1).astype(int)
        box = (max(0, left), max(0, top), min(self.image.width, right), min(self.image.height, bottom))
        if box[0] >= box[2] or box[1] >= box[3]:
            return
        part = self.image.crop(box)
        fine = part.resize((part.width * _FINE, part.height * _FINE), Image.Resampling.NEAREST)
        draw(ImageDraw.Draw(fine, "RGBA"), lambda points: (points - np.array(box[:2])) * _FINE)
        self.image.paste(fine.reduce(_FINE), box[:2])

    def png(self) -> bytes:
        """Return the page as a PNG of few colours."""
        numbers, palette = _few_colours(self.image)
        high, wide = numbers.shape
        rows = np.zeros((high, wide + 1), dtype=np.uint8)  # each after the number of its filter: none
        rows[:, 1:] = numbers
        parts = {
            b"IHDR": struct.pack(">IIBBBBB", wide, high, 8, _BY_NUMBER, 0, 0, 0),
            b"PLTE": palette.tobytes(),
            b"IDAT": zlib.compress(rows.tobytes(), 6),
            b"IEND": b"",
        }
        return _SIGNATURE + b"".join(
            struct.pack(">I", len(part)) + name + part + struct.pack(">I", zlib.crc32(name + part))
            for name, part in parts.items()
        )


class PixelPen(Pen):
    """Draws on pixels; see `Pen`.

    Attributes:
        canvas: The pixels.
        theme: Their colours.
        page: The whole of them.
    """

    def __init__(self, width: float, height: float, theme: Theme, *, dpi: int = 80) -> None:
        self.theme = theme
        self.canvas = Canvas((max(1, int(width * dpi)), max(1, int(height * dpi))), theme.page, dpi)
        self.page = self.area(Box(0.0, 0.0, width, height))

    def area(
        self, box: Box, across: tuple[float, float] | None = None, up: tuple[float, float] | None = None
    ) -> PixelArea:
        """Return a rectangle as an area, by default in inches from its top left corner; see `Pen`."""
        return PixelArea(self.canvas, box, across or (0.0, box.width), up or (box.height, 0.0), self.theme)


def _rgba(colour: Colour) -> Pixels:
    """Return a colour as levels of 255."""
    if isinstance(colour, str):
        return ImageColor.getcolor(colour, "RGBA")  # type: ignore[return-value]
    channels = [round(255 * float(channel)) for channel in colour]
    return (channels[0], channels[1], channels[2], channels[3] if len(channels) > 3 else 255)  # noqa: PLR2004


def _levels(painted: Any) -> NDArray[np.uint8]:
    """Return channels from 0 to 1 as levels of 255."""
    return np.asarray(255 * np.asarray(painted) + 0.5).astype(np.uint8)


def _cells(
    edges: Edges, shape: tuple[int, ...], area: Edges
) -> tuple[tuple[int, int], tuple[NDArray[np.intp], NDArray[np.intp]]]:
    """Return the first pixel of a grid, and the row and the column at each of its pixels in an area."""
    corner, indices = [], []
    for axis, count in ((0, shape[1]), (1, shape[0])):
        (start, end), (low, high) = edges[axis::2], map(round, area[axis::2])
        first, last = max(low, round(start)), min(high, max(round(start) + 1, round(end)))
        positions = (np.arange(first, last) + 0.5 - start) / ((end - start) or 1.0) * count
        corner.append(first)
        indices.append(np.clip(positions.astype(np.intp), 0, count - 1))
    return (corner[0], corner[1]), (indices[1], indices[0])


def _pieces(points: Float) -> Iterator[Float]:
    """Yield the runs of points [point, coordinate] between gaps."""
    fits = np.asarray(np.isfinite(points).all(axis=-1))
    for run in np.split(np.arange(len(points)), np.flatnonzero(np.diff(fits)) + 1):
        if len(run) and fits[run[0]]:
            yield points[run]


def _dashed(points: Float, lengths: Float) -> Iterator[Float]:
    """Yield the dashes of a line through points [point, (x, y)]; without lengths, the line."""
    if not len(lengths) or len(points) < 2:  # noqa: PLR2004 - a line has two ends
        yield points
        return
    along = np.concatenate([[0.0], np.cumsum(np.hypot(*np.diff(points, axis=0).T))])
    start, number = 0.0, 0
    while start < along[-1]:
        end = start + lengths[number % len(lengths)]
        if number % 2 == 0:
            at = np.concatenate([[start], along[(along > start) & (along < end)], [min(end, along[-1])]])
            yield np.stack([np.interp(at, along, points[:, axis]) for axis in (0, 1)], axis=-1)
        start, number = end, number + 1


def _outline(path: Float, half: float) -> list[tuple[float, float]]:
    """Return the polygon around a path [point, (x, y)] at a distance from it."""
    along = np.gradient(path, axis=0)
    normal = along[:, ::-1] * (-1.0, 1.0) / np.maximum(np.hypot(*along.T), 1e-9)[:, None]
    return [tuple(point) for point in np.concatenate([path + half * normal, (path - half * normal)[::-1]])]


def _few_colours(image: Image.Image) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Return the number of each pixel's colour, and the colours.

    Of too many colours, those of most pixels stay, and one for each group of alike colours; the others
    become the nearest of these.
    """
    present = image.getcolors(_PHOTOGRAPH)
    if present is None:
        few = image.quantize(_COLOURS, dither=Image.Dither.NONE)
        return np.asarray(few), np.array(few.getpalette(), dtype=np.uint8)
    counts = np.array([count for count, _ in present])
    colours = np.array([colour for _, colour in present], dtype=np.uint8)
    colours = colours[np.lexsort((_packed(colours), -counts))]
    palette, numbers = colours, np.arange(len(colours))
    if len(colours) > _COLOURS:
        _, kinds = np.unique(_packed(colours >> _ALIKE), return_index=True)
        palette = colours[np.unique(np.concatenate([numbers[:_EXACT], kinds]))[:_COLOURS]]
        given, chosen = colours.astype(np.float32), palette.astype(np.float32)
        numbers = ((chosen**2).sum(axis=1) - 2 * given @ chosen.T).argmin(axis=1)
    # A table of all colours there are: of its pages, only those that are used take memory.
    table = np.zeros(1 << 24, dtype=np.uint8)
    table[_packed(colours)] = numbers
    pixels = np.frombuffer(image.tobytes("raw", "RGBX"), "<u4") & 0xFFFFFF
    return table[pixels].reshape(image.height, image.width), palette


def _packed(colours: NDArray[np.integer]) -> NDArray[np.intp]:
    """Return colours [colour, channel] as numbers [colour]."""
    return np.asarray(colours.astype(np.intp) @ (1, 1 << 8, 1 << 16))
