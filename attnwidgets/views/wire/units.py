"""Units that an explanation can be read in."""

from __future__ import annotations

from typing import Any


def units_of(explanation: Any) -> list[str]:
    """Return the units an explanation can be read in, its own first."""
    available = getattr(explanation, "available_units", None)
    names = list(available()) if available is not None else []
    return list(dict.fromkeys([explanation.unit, *names]))


def divides(explanation: Any, unit: str) -> bool:
    """Return whether a unit divides the text: paragraphs of a text with a single one do not."""
    if unit != "paragraph":
        return True
    axes = [getattr(explanation, name, None) for name in ("query", "key", "axis")]
    units = [axis.units[unit] for axis in axes if axis is not None and unit in axis.units]
    return any(sum(not special for special in paragraphs.special) > 1 for paragraphs in units)


def in_unit(explanation: Any, unit: str) -> Any:
    """Return an explanation in another unit; None if it lacks the unit or is in it already."""
    if unit == explanation.unit or unit not in units_of(explanation):
        return None
    return explanation.to(unit)
