"""Filters: which values a view hides and how it colours the others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from attnwidgets._errors import suggest

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    Float = NDArray[np.float64]

APART = "apart"
"""Special tokens stand next to a map, outside its colour scale: the default of views."""
_SPECIAL = {APART: APART, False: "show", True: "hide", "renormalise": "renormalise"}
SCALES = ("linear", "sqrt", "log")
RANGES = ("map", "all")
PALETTES = ("paper", "viridis", "cividis", "greys", "orange-violet", "red-blue", "orange-purple")
"""Palettes of weights, then of signed values, defaults first; colour-blind readers can tell colours apart."""


def checked_filters(
    view: str,
    *,
    hide_special: bool | str,
    keep_mass: float,
    threshold: float,
    scale: str | None,
    color_range: str | None,
    palette: str | None,
) -> dict[str, Any]:
    """Return the Filters of wire.ts that differ from a view's defaults.

    Raises:
        TypeError: An option has the wrong type.
        ValueError: An option is out of its range; the message names the range.
    """
    if not isinstance(hide_special, bool) and hide_special not in _SPECIAL:
        raise ValueError(
            f"{view}(hide_special={hide_special!r}): give 'apart' (next to it, as a share of every row), "
            "False (shown in it), True (left out) or 'renormalise' (left out, and the rest of every row "
            "divided by its sum)."
        )
    filters: dict[str, Any] = {}
    if hide_special != APART:
        filters["special"] = _SPECIAL[hide_special]
    if _number(view, "keep_mass", keep_mass) != 1:
        if not 0 < keep_mass <= 1:
            raise ValueError(
                f"{view}(keep_mass={keep_mass!r}) must be a share of every row: above 0, at most 1."
            )
        filters["mass"] = float(keep_mass)
    if _number(view, "threshold", threshold):
        if threshold < 0:
            raise ValueError(
                f"{view}(threshold={threshold!r}) must be the smallest magnitude shown: 0 or more."
            )
        filters["least"] = float(threshold)
    choices = (("scale", scale, SCALES), ("color_range", color_range, RANGES), ("palette", palette, PALETTES))
    for name, value, known in choices:
        if value is None:
            continue
        if value not in known:
            listed, near = ", ".join(map(repr, known)), suggest(str(value), known)
            raise ValueError(f"{view}({name}={value!r}): give one of {listed}.{near}")
        filters["extent" if name == "color_range" else name] = value
    return filters


def _number(view: str, name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{view}({name}={value!r}) is not a number.")
    return float(value)


def filtered(
    matrix: NDArray[np.floating],
    filters: Mapping[str, Any],
    *,
    special: NDArray[np.bool_],
    shares: bool,
    drops: NDArray[np.bool_] | None = None,
) -> Float:
    """Return rows with NaN for every value that the filters hide: the twin of `js/src/views/base/filters.ts`.

    Args:
        matrix: [row, element].
        filters: The Filters of wire.ts.
        special: Which elements are special tokens. Where they stand apart, their values are kept, and the
            other filters do not count them.
        shares: Whether rows are shares, which can be divided by the sum of what is left.
        drops: Which rows belong to special tokens; None: none.
    """
    shown = np.array(matrix, dtype=np.float64)
    how, mass = filters.get("special", APART), filters.get("mass", 1.0)
    if how in ("hide", "renormalise"):
        shown[:, special] = np.nan
        if drops is not None:
            shown[drops] = np.nan
    apart = stands_apart(special) if how == APART else np.zeros_like(special)
    sizes = np.where(apart, 0.0, np.nan_to_num(np.abs(shown)))
    sums = sizes.sum(axis=1, keepdims=True)
    by = np.where(sums > 0, sums, np.nan) if how == "renormalise" and shares else np.ones_like(sums)
    cut = np.full_like(sums, filters.get("least", 0.0))
    if mass < 1:
        ranked = -np.sort(-sizes, axis=1)
        needed = (np.cumsum(ranked, axis=1) - ranked < mass * sums * (1 - 1e-6)).sum(axis=1, keepdims=True)
        smallest = np.take_along_axis(ranked, np.maximum(needed - 1, 0), axis=1)  # keeps ties together
        cut = np.maximum(cut, np.where(needed > 0, smallest, 0.0) / by)
    shown /= by
    shown[(np.abs(shown) < cut) & ~apart] = np.nan
    return shown


def stands_apart(special: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return which elements stand apart: the special tokens, unless there is nothing else."""
    special = np.asarray(special, dtype=bool)
    return np.zeros_like(special) if special.all() else special


def filter_words(filters: Mapping[str, Any], *, shares: bool) -> str:
    """Return what filters do to the numbers, in words; "" for nothing."""
    how, mass, least = filters.get("special"), filters.get("mass", 1.0), filters.get("least", 0.0)
    words = []
    if how == "renormalise":
        rest = "the rest of a row divided by its sum" if shares else "nothing rescaled"
        words.append(f"special tokens left out, {rest}")
    elif how == "hide":
        words.append("special tokens left out" + ", the rest as it was" * shares)
    if mass < 1:
        words.append(f"the largest values, {100 * mass:.3g} % of each row")
    if least > 0:
        words.append(f"nothing below {least:.2g}")
    return " · ".join(words)
