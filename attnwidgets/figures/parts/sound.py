"""A sound on the axis of its seconds: wave, spectrogram, words, and a map below them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator

from attnwidgets.figures.labels import printable
from attnwidgets.figures.parts.placing import PAD, labelled
from attnwidgets.figures.sheet import LINE, SMALL, fitting, width_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.colors import Colormap, Normalize
    from numpy.typing import NDArray

    from attnwidgets.figures.sheet import Box, Pen

    Float = NDArray[np.floating]

_WAVE, _MEL, _WORDS, _ROW, _TALLEST = 0.42, 0.6, 0.2, 0.16, 2.4  # inches
_GAP = 0.06
_BINS = 600  # across a figure, of the wave


@dataclass(frozen=True)
class SoundMap:
    """A sound and a map of it, on one axis.

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
    colours: Colormap
    norm: Normalize
    loudness: Colormap
    marked: tuple[float, float] | None = None

    def height(self, width: float) -> float:
        """Return its height at a width, both in inches."""
        del width
        mel = _MEL + _GAP if self.spectrogram is not None else 0.0
        words = _WORDS + _GAP if self.words else 0.0
        return _WAVE + _GAP + mel + words + self._tall + 2 * LINE

    @property
    def _tall(self) -> float:
        return min(_ROW * len(self.rows), _TALLEST)

    def draw(self, pen: Pen, box: Box) -> None:
        """Draw it."""
        longest = max((width_of(printable(name), SMALL) for name in (*self.rows, "words")), default=0.0)
        left = min(longest, 0.2 * box.width) + 2 * PAD
        top = box.top
        across = (0.0, self.seconds)

        def strip(height: float, name: str) -> Box:
            nonlocal top
            place = type(box)(box.left + left, top, box.width - left - 0.05, height)
            if name:
                label = type(box)(box.left, top, left - PAD, height)
                pen.text(pen.axes(label, (0, 1), (0, 1)), 1, 0.5, name, color=pen.theme.quiet, ha="right")
            top += height + _GAP
            return place

        whole = type(box)(
            box.left + left, box.top, box.width - left - 0.05, self.height(box.width) - 2 * LINE
        )
        if self.marked is not None:
            behind = pen.axes(whole, across, (0, 1))
            behind.axvspan(*self.marked, color=pen.theme.accent, alpha=0.12, linewidth=0)
        self._draw_wave(pen, strip(_WAVE, "wave"), across)
        if self.spectrogram is not None:
            axes = pen.axes(strip(_MEL, "mel"), across, (0, 1))
            bins = self.spectrogram[::-1].astype(float)
            # Spectrograms are mostly middling: the loud parts are to be seen.
            shown = ((bins - bins.min()) / (np.ptp(bins) or 1.0)) ** 1.6
            axes.imshow(shown, cmap=self.loudness, vmin=0, vmax=1, aspect="auto", extent=(*across, 0, 1))
        if self.words:
            self._draw_words(pen, strip(_WORDS, "words"), across)
        self._draw_map(pen, strip(self._tall, ""), across, left)

    def _draw_wave(self, pen: Pen, place: Box, across: tuple[float, float]) -> None:
        axes = pen.axes(place, across, (-1, 1))
        count = min(_BINS, len(self.wave))
        parts = np.array_split(self.wave, count) if count else []
        peak = float(np.abs(self.wave).max(initial=0.0)) or 1.0
        low, high = ([float(reduce(part)) / peak for part in parts] for reduce in (np.min, np.max))
        places = (np.arange(count) + 0.5) * self.seconds / max(1, count)
        axes.vlines(places, low, high, color=pen.theme.apart, linewidth=0.6)

    def _draw_words(self, pen: Pen, place: Box, across: tuple[float, float]) -> None:
        axes = pen.axes(place, across, (0, 1))
        inches = place.width / self.seconds
        for word, start, end in self.words:
            axes.add_patch(
                Rectangle((start, 0), end - start, 1, fill=False, edgecolor=pen.theme.line, linewidth=0.7)
            )
            name = fitting(printable(word), (end - start) * inches - 0.02, SMALL)
            if name.strip("…"):
                pen.text(axes, (start + end) / 2, 0.5, name, ha="center")

    def _draw_map(self, pen: Pen, place: Box, across: tuple[float, float], left: float) -> None:
        count = len(self.rows)
        axes = pen.axes(place, across, (count, 0))
        axes.set_axis_on()
        axes.spines[["top", "left", "right"]].set_visible(False)
        axes.spines["bottom"].set(color=pen.theme.quiet, linewidth=0.6)
        if self.values.size:
            end = self.values.shape[1] * self.step
            axes.imshow(
                self.values, cmap=self.colours, norm=self.norm, aspect="auto", extent=(0, end, count, 0),
                interpolation="nearest",
            )  # fmt: skip
        axes.set_xlim(across)
        axes.set_ylim(count, 0)
        for at, name in labelled(self.rows, None, place.height / max(1, count)):
            words = fitting(printable(name), left - 2 * PAD, SMALL)
            pen.text(axes, -PAD * self.seconds / place.width, at + 0.5, words, ha="right")
        ticks: Any = MaxNLocator(8).tick_values(*across)
        axes.tick_params(left=False, labelleft=False, bottom=False, labelbottom=False)
        for tick in ticks[(ticks >= 0) & (ticks <= self.seconds)]:
            below = count + 0.1 * count / max(self._tall, 0.1)
            pen.text(
                axes, tick, below, f"{tick:g}{' s' if tick == 0 else ''}", color=pen.theme.quiet, ha="center"
            )
