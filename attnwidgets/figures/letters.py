"""Type: its sizes, how wide words are, and the fonts that they are drawn in without matplotlib.

The fonts are DejaVu Sans of matplotlib's data, read where they lie: importing matplotlib would take longer
than the whole picture of a display.
"""

from __future__ import annotations

import unicodedata
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from PIL import ImageFont

if TYPE_CHECKING:
    from PIL.ImageFont import FreeTypeFont

SMALL, READING = 7.0, 8.0
"""Sizes of type in points: labels, notes and values; titles and the text that is explained."""

_POINTS = 72  # in an inch
_UNITS = 2048  # of the font in its em: at this size nothing is rounded
_DPI = 720  # of measurements by matplotlib: at a low one, letters are as wide as whole pixels
_TESTED = 24  # pixels at which a letter is compared with the sign of a missing one
_MISSING = "\uffff"  # never a character
_FILES = {"": "DejaVuSans.ttf", "bold": "DejaVuSans-Bold.ttf", "italic": "DejaVuSans-Oblique.ttf"}


@lru_cache(maxsize=64)
def font(style: str, pixels: float) -> FreeTypeFont | None:
    """Return a font for drawing on pixels; None where matplotlib was installed without its fonts.

    Args:
        style: "", "bold" or "italic".
        pixels: Its size.
    """
    path = _path(style)
    # Letters in their order, with or without a library for complex scripts.
    return path and ImageFont.truetype(path, pixels, layout_engine=ImageFont.Layout.BASIC)


@lru_cache(maxsize=64)
def heights(style: str, pixels: float) -> tuple[float, float]:
    """Return how far a line of type reaches above and below its base, in pixels down the page."""
    letters: Any = font(style, pixels)
    _, above, _, below = letters.getbbox("lp", anchor="ls")
    return above, below


@lru_cache(maxsize=8)
def _path(style: str) -> Any:
    package = find_spec("matplotlib")  # looks, and imports nothing
    folders = (package and package.submodule_search_locations) or ()
    paths = (Path(folder) / "mpl-data" / "fonts" / "ttf" / _FILES[style] for folder in folders)
    return next((str(path) for path in paths if path.is_file()), None)


@lru_cache(maxsize=4096)
def is_plain(text: str, style: str = "") -> bool:
    """Return whether a text is drawn letter by letter, from left to right, in letters of the font."""
    return all(_is_plain(character, style) for character in text)


@lru_cache(maxsize=4096)
def _is_plain(character: str, style: str) -> bool:
    letters = font(style, _TESTED)
    if letters is None or unicodedata.bidirectional(character) in {"R", "AL"}:
        return False
    return bytes(letters.getmask(character)) != bytes(letters.getmask(_MISSING))


@lru_cache(maxsize=4096)
def width_of(text: str, size: float, *, bold: bool = False) -> float:
    """Return the width of a text in inches."""
    style = "bold" if bold else ""
    letters = font(style, _UNITS)
    if letters is not None and is_plain(text, style):
        return letters.getlength(text) * size / (_UNITS * _POINTS)
    from attnwidgets.figures.drawing import measured

    return measured(text, size, _DPI, bold=bold)
