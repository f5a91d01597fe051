"""Colours of figures: the palette and the scale that a view shows, on the page of a theme."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from attnwidgets.figures.drawing import colour_scale
from attnwidgets.figures.palettes import SCALE, heat_map

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from matplotlib.colors import Colormap, Normalize
    from numpy.typing import NDArray

    from attnwidgets.figures.theme import Theme

    Float = NDArray[np.floating]


def map_colours(
    filters: Mapping[str, Any], theme: Theme, values: Float, *, signed: bool, top: float | None = None
) -> tuple[Colormap, Normalize]:
    """Return the colours of a map's cells and their range, as on the page.

    Args:
        filters: The Filters of wire.ts.
        theme: Colours of the page.
        values: The numbers.
        signed: Whether they have a sign.
        top: The end of the range; None: the largest value.
    """
    cmap = heat_map(filters.get("palette", ""), signed=signed, dark=theme.name == "dark")
    scale = filters.get("scale") or SCALE
    return colour_scale(values, signed=signed, cmap=cmap, vmin=None, vmax=top, scale=scale)


def strip_colours(
    filters: Mapping[str, Any], theme: Theme, values: Float, *, signed: bool, top: float | None = None
) -> tuple[Colormap, Normalize]:
    """Return the colours behind text and their range; see `map_colours`."""
    return map_colours(filters, theme, values, signed=signed, top=top or peak(values) or 1.0)


def peak(values: Float) -> float:
    """Return the largest size among finite values; 0 without any."""
    return float(np.max(np.abs(values), initial=0.0, where=np.isfinite(values)))
