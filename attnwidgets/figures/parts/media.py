"""A picture with a map over it, or boxes, or small copies of it; a sound on the axis of its seconds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from attnwidgets.figures.letters import SMALL, width_of
from attnwidgets.figures.palettes import Ramp, Span, channels_of, heat_map
from attnwidgets.figures.parts.ticks import ticks
from attnwidgets.figures.sheet import LINE, PAD, fitting, labelled
from attnwidgets.figures.theme import printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from attnwidgets.figures.pens.pen import Box, Colours, Pen, Range
    from attnwidgets.figures.theme import Theme

    Float = NDArray[np.floating]

_TINT = 0.12  # opacity of the mark of a word
_WAVE, _MEL, _WORDS, _ROW, _TALLEST_MAP = 0.42, 0.6, 0.2, 0.16, 2.4  # inches
_BINS = 600  # across a figure, of the wave

GREY, DIM = 0.9, 0.74
"""How much of its colours a picture loses beneath a map, and how bright it stays."""

LEAST, MOST, RISE = 0.04, 0.94, 1.6
"""Share of the range from which a map covers the picture, how much at most, and how fast."""

BEAM = ((12, 84, 190), (70, 165, 250), (228, 245, 255))
"""The ramp of amounts over a picture, at 0, a half and 1: it gives way to the picture instead of the page."""

SKIPPED = 0.34
"""Share of other ramps that is left out: a dark colour would grey the picture where it shines through."""

_TALLEST_PICTURE = 3.4  # inches of a picture
_GAP = 0.06


@dataclass(frozen=True)
class SoundMap:
    """A sound and a map of it, on the same axis.

    Attributes:
        seconds: Length of the axis.
        wave: Samples over the whole axis.
        spectrogram: [bin, frame] over the whole axis; None without one.
        words: Words, with their seconds.
        values: [row, column], columns of `step` seconds from 0.
        rows: Names of the rows.
        step: Seconds of a column.
        colours: Colour map.
        norm: Its range.
        loudness: Colour map of the spectrogram.
        marked: Seconds that are marked; None for none.
    """

    seconds: float
    wave: Float
    spectrogram: Float | None
    words: Sequence[tuple[str, float, float]]
    values: Float
    rows: Sequence[str]
    step: float
    colours: Colours
    norm: Range
    loudness: Colours
    marked: tuple[float, float] | None = None

    def height(self, width: float) -> float:
        """Return its height at a width, both in inches."""
        del width
        mel = _MEL + _GAP if self.spectrogram is not None else 0.0
        words = _WORDS + _GAP if self.words else 0.0
        return _WAVE + _GAP + mel + words + self._tall + 2 * LINE

    @property
    def _tall(self) -> float:
        return min(_ROW * len(self.rows), _TALLEST_MAP)

    def draw(self, pen: Pen, box: Box) -> None:
        """Draw it."""
        longest = max((width_of(printable(name), SMALL) for name in (*self.rows, "words")), default=0.0)
        left = min(longest, 0.2 * box.width) + 2 * PAD
        top = box.top
        across = (0.0, self.seconds)

        def strip(height: float, name: str) -> Box:
            nonlocal top
            frame = type(box)(box.left + left, top, box.width - left - 0.05, height)
            if name:
                label = type(box)(box.left, top, left - PAD, height)
                pen.area(label, (0, 1), (0, 1)).write(1, 0.5, name, color=pen.theme.quiet, ha="right")
            top += height + _GAP
            return frame

        whole = type(box)(
            box.left + left, box.top, box.width - left - 0.05, self.height(box.width) - 2 * LINE
        )
        if self.marked is not None:
            begin, end = self.marked
            tint = (*channels_of(pen.theme.accent), _TINT)
            pen.area(whole, across, (0, 1)).rectangle(begin, 0, end - begin, 1, fill=tint)
        self._draw_wave(pen, strip(_WAVE, "wave"), across)
        if self.spectrogram is not None:
            area = pen.area(strip(_MEL, "mel"), across, (0, 1))
            bins = self.spectrogram[::-1].astype(float)
            # Spectrograms are mostly middling: the loud parts are to be seen.
            shown = ((bins - bins.min()) / (np.ptp(bins) or 1.0)) ** 1.6
            area.cells(shown, self.loudness, Span(0.0, 1.0))
        if self.words:
            self._draw_words(pen, strip(_WORDS, "words"), across)
        self._draw_map(pen, strip(self._tall, ""), across, left)

    def _draw_wave(self, pen: Pen, frame: Box, across: tuple[float, float]) -> None:
        area = pen.area(frame, across, (-1, 1))
        count = min(_BINS, len(self.wave))
        parts = np.array_split(self.wave, count) if count else []
        peak = float(np.abs(self.wave).max(initial=0.0)) or 1.0
        low, high = ([float(reduce(part)) / peak for part in parts] for reduce in (np.min, np.max))
        middles = (np.arange(count) + 0.5) * self.seconds / max(1, count)
        if count:
            segments = np.stack([np.stack([middles, low], -1), np.stack([middles, high], -1)], axis=1)
            area.curves(segments, [pen.theme.apart] * count, [0.6] * count)

    def _draw_words(self, pen: Pen, frame: Box, across: tuple[float, float]) -> None:
        area = pen.area(frame, across, (0, 1))
        inches = frame.width / self.seconds
        for word, start, end in self.words:
            area.rectangle(start, 0, end - start, 1, edge=pen.theme.line, line=0.7)
            name = fitting(printable(word), (end - start) * inches - 0.02, SMALL)
            if name.strip("…"):
                area.write((start + end) / 2, 0.5, name, ha="center")

    def _draw_map(self, pen: Pen, frame: Box, across: tuple[float, float], left: float) -> None:
        count = len(self.rows)
        area = pen.area(frame, across, (count, 0))
        if self.values.size:
            end = self.values.shape[1] * self.step
            area.cells(self.values, self.colours, self.norm, (0, end, count, 0))
        area.rule(0.0, count, self.seconds, count, pen.theme.quiet)
        for at, name in labelled(self.rows, None, frame.height / max(1, count)):
            words = fitting(printable(name), left - 2 * PAD, SMALL)
            area.write(-PAD * self.seconds / frame.width, at + 0.5, words, ha="right")
        for tick in ticks(*across, 8):
            below = count + 0.1 * count / max(self._tall, 0.1)
            words = f"{tick:g}{' s' if tick == 0 else ''}"
            area.write(tick, below, words, color=pen.theme.quiet, ha="center")


def dimmed(pixels: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return a picture as it lies beneath a map, [row, column, channel]: nearly grey, and darker."""
    colours = pixels.astype(np.float32)
    light = colours @ np.array([0.2126, 0.7152, 0.0722], dtype=np.float32)
    mixed = colours + GREY * (light[..., None] - colours)
    return np.asarray(np.round(DIM * mixed), dtype=np.uint8)


def over(share: NDArray[np.floating]) -> NDArray[np.floating]:
    """Return how opaque a map is at shares of its range, 0 to 1; NaN covers nothing."""
    return np.clip((np.nan_to_num(np.abs(share)) - LEAST) * RISE, 0.0, MOST)


def over_map(palette: str, *, signed: bool) -> Ramp:
    """Return the ramp of a palette over a picture, by shares of the range, 0 to 1 or -1 to 1.

    Args:
        palette: Its name; "" for the default.
        signed: Whether values have a sign.
    """
    plain = heat_map(palette, signed=signed, dark=True)
    if not signed and plain is heat_map("", signed=False, dark=True):
        stops = np.array(BEAM) / 255
        at = np.linspace(0.0, 1.0, 256)
        columns = [np.interp(at, np.linspace(0.0, 1.0, len(stops)), stops[:, i]) for i in range(3)]
        return Ramp(np.stack(columns, axis=-1), "aw-beam")
    shares = np.linspace(-1.0 if signed else 0.0, 1.0, 257)
    size = SKIPPED + (1 - SKIPPED) * np.abs(shares)
    return Ramp(plain(0.5 + np.sign(shares) * size / 2 if signed else size)[:, :3], f"{plain.name}-over")


def shades(
    values: NDArray[np.floating], colours: Colours, norm: Range, *, signed: bool
) -> NDArray[np.float64]:
    """Return the colours of a map over a picture, [row, column, red green blue opacity], 0 to 1.

    Args:
        values: [row, column].
        colours: Of `over_map`.
        norm: The range of the values.
        signed: Whether they have a sign; zero is then transparent in the middle.
    """
    positions = np.asarray(np.ma.filled(norm(np.nan_to_num(values)), 0.0))
    painted = np.asarray(colours(positions), dtype=np.float64)
    painted[..., 3] = over(np.asarray(2 * positions - 1 if signed else positions) * np.isfinite(values))
    return painted


@dataclass(frozen=True)
class Pictured:
    """Maps over a picture: one large, or several small ones with their names beneath.

    Attributes:
        pixels: The picture [row, column, channel], 0 to 255.
        maps: Values of patches, each [row, column].
        names: The caption of each; none of a large one.
        colours: Colours of the values.
        norms: Range of each map.
        signed: Whether values have a sign.
        marks: Outlined patches (row, column) of each map.
        chosen: The map whose name is bold; -1: none.
    """

    pixels: NDArray[np.uint8]
    maps: Sequence[NDArray[np.floating]]
    names: Sequence[str]
    colours: Colours
    norms: Sequence[Range]
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
            line, column = divmod(number, each)
            left = box.left + column * (wide + _GAP)
            top = box.top + line * (tall + self._foot + _GAP)
            rows, columns = values.shape
            area = pen.area(type(box)(left, top, wide, tall), (0, columns), (rows, 0))
            area.picture(dimmed(self.pixels), smooth=True)
            area.picture(shades(values, self.colours, self.norms[number], signed=self.signed), smooth=False)
            for row, column in self.marks[number] if self.marks else ():
                for edge, size in (("#ffffff", 2.4), (pen.theme.accent, 1.2)):
                    area.rectangle(column, row, 1, 1, edge=edge, line=size)
            if self.names:
                words = pen.area(type(box)(left, top + tall, wide, LINE))
                words.write(0, LINE / 2, self.names[number], style="bold" if number == self.chosen else "")

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
            if lines * (tall + self._foot + _GAP) <= _TALLEST_PICTURE + self._foot or count == 1:
                break
        tall = min(tall, _TALLEST_PICTURE)
        return tall / ratio, tall, across, lines


VEIL, FILL = 0.5, 0.3
"""Opacity of the veil over parts that nothing rests on, and of the fill of the other parts."""

_SIDE, _EDGE, _LEAST_SIDE = 480, 0.08, 16  # pixels of the longer side; share of a box, and least with an edge
_PIXELS = 4  # times from which an enlarged picture shows its pixels
_WIDEST = 1.9  # inches of a copy


def boxed(
    pixels: NDArray[np.uint8], boxes: Sequence[Sequence[float]], shares: NDArray[np.floating], theme: Theme
) -> NDArray[np.uint8]:
    """Return a picture beneath a veil, which lifts from boxes by their share; each has an edge in its colour.

    Args:
        pixels: The picture [row, column, channel], 0 to 255.
        boxes: Boxes that do not overlap, as shares of the sides: (top, left, bottom, right).
        shares: Of the end of the scale, -1 to 1, of each.
        theme: Its colours, and those of the veil.
    """
    from PIL import Image

    factor = _SIDE / max(pixels.shape[:2])
    size = [round(length * factor) for length in pixels.shape[1::-1]]
    way = Image.Resampling.NEAREST if factor >= _PIXELS else Image.Resampling.LANCZOS
    image = np.asarray(Image.fromarray(pixels).resize((size[0], size[1]), way), dtype=np.float64)
    ramp = heat_map("", signed=True, dark=theme.name == "dark")
    ends = [255 * np.asarray(ramp(at))[:3] for at in (0.0, 1.0)]
    veil = 255 * np.array(channels_of(theme.page))

    def blend(area: NDArray[np.float64], colour: NDArray[np.float64], opacity: float) -> None:
        area += opacity * (colour - area)

    for box, share in zip(boxes, shares, strict=True):
        corners = [round(edge * size[1 - at % 2]) for at, edge in enumerate(box)]
        area = image[corners[0] : corners[2], corners[1] : corners[3]]
        blend(area, veil, VEIL * (1 - abs(share)))
        if abs(share) < 0.02 or not area.size:  # noqa: PLR2004 - as good as nothing
            continue
        colour, side = ends[int(share > 0)], min(area.shape[:2])
        has_edge = side >= _LEAST_SIDE
        blend(area, colour, abs(share) * FILL * (1 if has_edge else 2))
        if has_edge:
            line = max(2, round(_EDGE * side))
            for strip in (area[:line], area[-line:], area[line:-line, :line], area[line:-line, -line:]):
                blend(strip, colour, float(abs(share)))
    return np.asarray(np.round(image.clip(0, 255)), dtype=np.uint8)


@dataclass(frozen=True)
class Copies:
    """Copies of a picture, each with words beneath.

    Attributes:
        pictures: Of equal size, [row, column, channel], 0 to 255.
        names: The caption of each: a name, and more words.
        chosen: The copy whose name is bold; -1: none.
    """

    pictures: Sequence[NDArray[np.uint8]]
    names: Sequence[tuple[str, str]]
    chosen: int = -1

    def height(self, width: float) -> float:
        """Return its height at a width, both in inches."""
        _, tall, each = self._sizes(width)
        return -(-len(self.pictures) // each) * (tall + 2 * LINE + _GAP)

    def draw(self, pen: Pen, box: Box) -> None:
        """Draw it."""
        wide, tall, each = self._sizes(box.width)
        for number, (pixels, names) in enumerate(zip(self.pictures, self.names, strict=True)):
            line, column = divmod(number, each)
            left = box.left + column * (wide + 2 * _GAP)
            top = box.top + line * (tall + 2 * LINE + _GAP)
            area = pen.area(type(box)(left, top, wide, tall))
            area.picture(pixels, smooth=True)
            area.rectangle(0, 0, wide, tall, edge=pen.theme.line, line=0.7)
            words = pen.area(type(box)(left, top + tall, wide, 2 * LINE))
            words.write(
                0, LINE / 2, fitting(names[0], wide, SMALL), style="bold" if number == self.chosen else ""
            )
            words.write(0, 1.5 * LINE, fitting(names[1], wide, SMALL), color=pen.theme.quiet, limit=60)

    def _sizes(self, width: float) -> tuple[float, float, int]:
        """Return width and height of a copy, and how many stand in a line."""
        rows, columns = self.pictures[0].shape[:2]
        most = _TALLEST_PICTURE if len(self.pictures) == 1 else _WIDEST
        each = max(1, min(len(self.pictures), int(width / (0.6 * _WIDEST))))
        wide = min(most, most * columns / rows, (width - 2 * _GAP * (each - 1)) / each)
        return wide, wide * rows / columns, each
