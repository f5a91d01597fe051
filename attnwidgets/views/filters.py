"""Filters: what a view leaves out of its maps and how it colours them, as options of every such view."""

from __future__ import annotations

from typing import Any

from attnwidgets._errors import suggest

SCALES = ("linear", "sqrt", "log")
RANGES = ("map", "all")
PALETTES = ("viridis", "cividis", "greys", "red-blue", "orange-purple")
"""Palettes of weights, then of signed values; all can be told apart by colour-blind readers."""


KEYWORDS = ("hide_special", "keep_mass", "threshold", "scale", "color_range", "palette")


def checked_filters(
    view: str,
    *,
    hide_special: bool | str = False,
    keep_mass: float = 1.0,
    threshold: float = 0.0,
    scale: str | None = None,
    color_range: str | None = None,
    palette: str | None = None,
) -> dict[str, Any]:
    """Return the Filters of wire.ts that differ from what a view does by itself.

    Raises:
        TypeError, ValueError: An option of another form, or out of its range; the message says what is taken.
    """
    if not isinstance(hide_special, bool) and hide_special != "renormalise":
        raise ValueError(
            f"{view}(hide_special={hide_special!r}): it is True, False or 'renormalise' "
            "(the rest of every row is then divided by its sum)."
        )
    found: dict[str, Any] = {}
    if hide_special:
        found["special"] = "hide" if hide_special is True else "renormalise"
    if _number(view, "keep_mass", keep_mass) != 1:
        if not 0 < keep_mass <= 1:
            raise ValueError(f"{view}(keep_mass={keep_mass!r}) is a share of every row: above 0, at most 1.")
        found["mass"] = float(keep_mass)
    if _number(view, "threshold", threshold):
        if threshold < 0:
            raise ValueError(f"{view}(threshold={threshold!r}) is the least size of a value: 0 or more.")
        found["least"] = float(threshold)
    named = (("scale", scale, SCALES), ("color_range", color_range, RANGES), ("palette", palette, PALETTES))
    for name, value, known in named:
        if value is None:
            continue
        if value not in known:
            listed = ", ".join(map(repr, known))
            raise ValueError(f"{view}({name}={value!r}): it is one of {listed}.{suggest(str(value), known)}")
        found["extent" if name == "color_range" else name] = value
    return found


def _number(view: str, name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{view}({name}={value!r}) is not a number.")
    return float(value)
