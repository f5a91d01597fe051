"""Colours of figures, the same as in the browser's light theme: see `colour.ts`."""

from __future__ import annotations

import math
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
from matplotlib import colormaps
from matplotlib.colors import ListedColormap, to_hex

from attnwidgets.figures.ramps import ramp

if TYPE_CHECKING:
    from matplotlib.colors import Colormap
    from numpy.typing import NDArray

    Float = NDArray[np.float64]

SCALE = "linear"
"""The scale of every view and figure where none was chosen."""
DECADES = 4
"""Decades that a logarithmic scale shows below its top."""

# By name: our ramps or matplotlib's map, first the default, of amounts and of signed values.
_AMOUNTS = {"paper": "paper", "viridis": "viridis", "cividis": "cividis", "greys": "binary"}
_SIGNED = {"orange-violet": "sides", "red-blue": "RdBu_r", "orange-purple": "PuOr_r"}
_BAR = 0.7  # how far along a ramp the colours of lines are
LEFT_OUT = (0.9, 0.9, 0.9, 1.0)
"""Background of NaN."""


def heat_map(palette: str, *, signed: bool, dark: bool = False) -> Colormap:
    """Return the colours of a palette; of the default one if the palette does not suit the sign.

    Args:
        palette: Its name.
        signed: Whether values have a sign.
        dark: Whether the page is dark; our own ramps then begin at its colour.
    """
    known = _SIGNED if signed else _AMOUNTS
    name = known.get(palette, next(iter(known.values())))
    return _colours(f"{name}Night" if dark and name not in colormaps else name)


@cache
def _colours(name: str) -> Colormap:
    return colormaps[name] if name in colormaps else ListedColormap(ramp(name, 257), name=f"aw-{name}")


def place(value: Float, scale: str) -> Float:
    """Return positions, 0 to 1, of sizes from 0 to 1 on a scale."""
    shares = np.clip(value, 0.0, 1.0)
    if scale == "sqrt":
        return np.asarray(np.sqrt(shares))
    if scale == "log":
        least = 10.0**-DECADES
        return np.asarray(1 + np.log10(np.maximum(shares, least)) / DECADES)
    return np.asarray(shares)


def amount_colour(palette: str, *, dark: bool = False) -> str:
    """Return the colour of lines and bars of one head: the twin of `barColours` in js/src/colour.ts."""
    return to_hex(heat_map(palette, signed=False, dark=dark)(_BAR))


def sign_colours(palette: str) -> tuple[str, str]:
    """Return the colours of negative and positive lines."""
    colours = heat_map(palette, signed=True)
    return to_hex(colours((1 - _BAR) / 2)), to_hex(colours((1 + _BAR) / 2))


def round_up(value: float) -> float:
    """Return the smallest of 1, 1.5, 2, 3, 5, 7 times a power of ten that is not below a value."""
    if not value > 0 or not math.isfinite(value):
        return 0.0
    power = 10.0 ** math.floor(math.log10(value))
    steps = (1, 1.5, 2, 3, 5, 7, 10)
    return float(f"{next(step for step in steps if step * power >= value * (1 - 1e-9)) * power:.2g}")
