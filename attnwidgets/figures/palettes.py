"""Colours of figures, the same as in the browser's light theme: see `colour.ts` and `stripColour.ts`."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from matplotlib import colormaps
from matplotlib.colors import ListedColormap, to_hex

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Float = NDArray[np.float64]

DECADES = 4
"""Decades that a logarithmic scale shows below its top."""

# By name: whether it is for signed values, and matplotlib's name.
_MAPS = {
    "viridis": (False, "viridis"),
    "cividis": (False, "cividis"),
    "greys": (False, "binary"),
    "red-blue": (True, "RdBu_r"),
    "orange-purple": (True, "PuOr_r"),
}
_WEIGHT = {"cividis": (104, 152, 232), "greys": (150, 150, 150)}
_ORANGE = (240, 138, 36)
_REACH = 0.3  # distance from its middle up to which the diverging map is used behind text
_LEVELS = 1000
_FAINTEST = 0.004
LEFT_OUT = (0.9, 0.9, 0.9, 1.0)
"""Background of NaN."""


def heat_map(palette: str, *, signed: bool) -> str:
    """Return matplotlib's name of a palette; of the default one if the palette does not suit the sign."""
    fits, name = _MAPS.get(palette, (not signed, ""))
    return name if fits == signed else "RdBu_r" if signed else "viridis"


def place(value: Float, scale: str) -> Float:
    """Return positions, 0 to 1, of sizes from 0 to 1 on a scale."""
    shares = np.clip(value, 0.0, 1.0)
    if scale == "sqrt":
        return np.asarray(np.sqrt(shares))
    if scale == "log":
        least = 10.0**-DECADES
        return np.asarray(1 + np.log10(np.maximum(shares, least)) / DECADES)
    return np.asarray(shares)


def text_colours(palette: str, scale: str, *, signed: bool) -> ListedColormap:
    """Return background colours of text for values from zero, or from minus the top of the scale, to its top.

    One hue intensifies from white. The map includes the scale, so that values need only be divided by its
    top.
    """
    t = np.linspace(-1.0 if signed else 0.0, 1.0, (2 if signed else 1) * _LEVELS + 1)
    alpha = place(np.abs(t), scale) ** 0.8
    alpha = np.where(alpha < _FAINTEST, 0.0, alpha)[:, None]
    if signed:
        table = colormaps[heat_map(palette, signed=True)]
        ends = [table(round(255 * (0.5 + side * _REACH)))[:3] for side in (-1, 1)]
        colour = np.where(t[:, None] < 0, *np.asarray(ends)[:, None])
    else:
        colour = np.asarray(_WEIGHT.get(palette, _ORANGE))[None] / 255
    return ListedColormap(1 - alpha + alpha * colour, name="aw-strip")


def sign_colours(palette: str) -> tuple[str, str]:
    """Return the colours of negative and positive lines."""
    table = colormaps[heat_map(palette, signed=True)]
    return to_hex(table(40)), to_hex(table(215))


def round_up(value: float) -> float:
    """Return the smallest of 1, 1.5, 2, 3, 5, 7 times a power of ten that is not below a value."""
    if not value > 0 or not math.isfinite(value):
        return 0.0
    power = 10.0 ** math.floor(math.log10(value))
    steps = (1, 1.5, 2, 3, 5, 7, 10)
    return float(f"{next(step for step in steps if step * power >= value * (1 - 1e-9)) * power:.2g}")
