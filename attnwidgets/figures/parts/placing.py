"""Where parts put names and numbers, in inches."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

PAD = 0.05
"""Space between a name and what it is of."""
ROW = 0.165
"""Height of a row of a table or of bars."""
LONGEST = 0.9
"""Longest turned name."""
LEGIBLE = 0.105
"""Least side of a cell whose label is legible."""
_STEPS = (2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000)


def labelled(names: Sequence[str], places: Sequence[float] | None, side: float) -> list[tuple[float, str]]:
    """Return the names that fit, with their places; of names that do not fit, round numbers."""
    if places is not None:
        return list(zip(places, names, strict=True))
    if side >= LEGIBLE:
        return list(enumerate(names))
    step = next((step for step in _STEPS if step * side >= 3 * LEGIBLE), _STEPS[-1])
    return [(place, str(place)) for place in range(0, len(names), step)]


def flowed(wide: Sequence[float], width: float, *, gap: float = 0.0) -> tuple[list[tuple[int, float]], int]:
    """Return line and place of things of these widths, side by side in lines; and the number of lines."""
    places: list[tuple[int, float]] = []
    line, x = 0, 0.0
    for across in wide:
        if x and x + across > width:
            line, x = line + 1, 0.0
        places.append((line, x))
        x += across + gap
    return places, line + 1 if places else 0
