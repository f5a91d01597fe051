"""Colours of figures: the palette and the scale that a view shows, on the page of a theme."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from attnwidgets.figures.palettes import SCALE, heat_map, span_of

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from numpy.typing import NDArray

    from attnwidgets.figures.palettes import Ramp, Span
    from attnwidgets.figures.theme import Theme

    Float = NDArray[np.floating]


def map_colours(
    filters: Mapping[str, Any], theme: Theme, values: Float, *, signed: bool, top: float | None = None
) -> tuple[Ramp, Span]:
    """Return the colours of a map's cells and their range, as on the page.

    Args:
        filters: The Filters of wire.ts.
        theme: Colours of the page.
        values: The numbers.
        signed: Whether they have a sign.
        top: The end of the range; None: the largest value.
    """
    colours = heat_map(filters.get("palette", ""), signed=signed, dark=theme.name == "dark")
    return colours, span_of(values, signed=signed, vmax=top, scale=filters.get("scale") or SCALE)


def strip_colours(
    filters: Mapping[str, Any], theme: Theme, values: Float, *, signed: bool, top: float | None = None
) -> tuple[Ramp, Span]:
    """Return the colours behind text and their range; see `map_colours`."""
    return map_colours(filters, theme, values, signed=signed, top=top or peak(values) or 1.0)


def peak(values: Float) -> float:
    """Return the largest size among finite values; 0 without any."""
    return float(np.max(np.abs(values), initial=0.0, where=np.isfinite(values)))
