"""Options that views share: types, defaults, documentation and signature; filters of values, and marks.

A view declares the options it takes as `_OPTIONS`, one of the classes here, and forwards them as
`**options: Unpack[...]`. Shift-Tab, `help()` and completion then show each of them: see `write_out`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from inspect import Parameter, Signature, cleandoc, signature
from typing import TYPE_CHECKING, Any, TypedDict

import numpy as np

from attnwidgets._errors import suggest

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Mapping

    from numpy.typing import NDArray

    Float = NDArray[np.float64]

APART = "apart"
"""Special tokens stand next to a map, outside its colour scale: the default of views."""

_SPECIAL = {APART: APART, False: "show", True: "hide", "renormalise": "renormalise"}
SCALES = ("linear", "sqrt", "log")
RANGES = ("map", "all")
PALETTES = ("paper", "viridis", "cividis", "greys", "orange-violet", "red-blue", "orange-purple")
"""Palettes of weights, then of signed values, defaults first; colour-blind readers can tell colours apart."""

_FORMS = {
    "cells": "pairs (query, key)",
    "elements": "indices of elements",
    "both": "all pairs (query, key) or all indices",
    "": "none: this view outlines nothing",
}


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
    for name, value, valid in choices:
        if value is None:
            continue
        if value not in valid:
            listed, near = ", ".join(map(repr, valid)), suggest(str(value), valid)
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
        special: Which elements are special tokens. Where they stand apart, their values stay, and the other
            filters do not count them.
        shares: Whether rows are shares, which can be divided by the sum of the remaining values.
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
    """Return the filters in words, as a line below a picture; "" without filters."""
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


class TitleOptions(TypedDict, total=False):
    """Options of every view.

    Args:
        title: Heading above the view.
        height: Height of the view in CSS pixels, 200 to 4,000; None: the view's own.
        layout: ipywidgets Layout of the output.
    """

    title: str
    height: int | None
    layout: Any


class ViewOptions(TitleOptions, total=False):
    """Options of every view of a trace or an explanation.

    Args:
        units: Units the reader can choose from ("token", "word", ...); empty: all.
        layer: Layer that the shared selection moves to; None leaves it where it is.
        head: Head that the shared selection moves to, a number, "mean" or "max"; None leaves it.
        unit: Unit that the shared selection switches to; None leaves it.
        index_base: Whether layers and heads are displayed counted from 0 or from 1. Python always counts
            from 0.
    """

    units: Sequence[str]
    layer: int | None
    head: int | str | None
    unit: str | None
    index_base: int


class PaletteOptions(ViewOptions, total=False):
    """Options of views that colour numbers, and show special tokens outside the map.

    Args:
        scale: Colour scale: "linear", "sqrt" or "log"; None: "linear".
        color_range: "map": each map has its own range; "all": one range for all layers and heads.
        palette: "paper" (to ink), "viridis", "cividis" or "greys" for weights; "orange-violet" (for and
            against), "red-blue" or "orange-purple" for signed values; the first of its kind where this
            palette does not fit.
    """

    scale: str | None
    color_range: str | None
    palette: str | None


class ColorOptions(PaletteOptions, total=False):
    """Options of views that colour numbers.

    Args:
        hide_special: "apart": special tokens stand next to the map, as a bar at the end of each row, and
            outside the colour scale. False: they are shown in the map. True: they are left out;
            "renormalise" also divides the rest of each row by its sum, where rows are shares.
    """

    hide_special: bool | str


class FilterOptions(ColorOptions, total=False):
    """Options of views that can leave values out. Values left out are never drawn as zeros.

    Args:
        keep_mass: Show only the largest values of each row, up to this share of its mass (above 0, at
            most 1).
        threshold: Hide values smaller than this in magnitude.
    """

    keep_mass: float
    threshold: float


DEFAULTS: dict[str, Any] = {
    "title": "",
    "height": None,
    "layout": None,
    "units": (),
    "layer": None,
    "head": None,
    "unit": None,
    "index_base": 0,
    "scale": None,
    "color_range": None,
    "palette": None,
    "hide_special": APART,
    "keep_mass": 1.0,
    "threshold": 0.0,
}
PLAIN_OPTIONS: dict[str, Any] = {
    "method": None,
    "unit": None,
    "stack": None,
    "indexBase": 0,
    "title": "",
    "marks": [],
    "methods": [],
    "units": [],
    "filters": {},
    "height": None,
    "makesClaims": False,
    "below": "",
}
"""The options that every view sends to the browser, with their defaults."""

FILTERS = tuple(name for name in FilterOptions.__annotations__ if name not in ViewOptions.__annotations__)
_LOWEST, _TALLEST = 200, 4000  # CSS pixels
_DOCUMENTED = (TitleOptions, ViewOptions, PaletteOptions, ColorOptions, FilterOptions)


def checked_height(view: str, height: Any) -> int | None:
    """Return the height of a view in CSS pixels; None: the view's own.

    Raises:
        TypeError: It is not a whole number.
        ValueError: It is out of range.
    """
    if height is None:
        return None
    if isinstance(height, bool) or not isinstance(height, int):
        raise TypeError(f"{view}(height={height!r}) is not a whole number of CSS pixels.")
    if not _LOWEST <= height <= _TALLEST:
        raise ValueError(f"{view}(height={height}): give {_LOWEST} to {_TALLEST} CSS pixels, or None.")
    return height


def checked_names(argument: str, given: Sequence[str]) -> tuple[str, ...]:
    """Return a list of names as it was given.

    Raises:
        TypeError: It is a single name.
    """
    if isinstance(given, str):
        raise TypeError(f"{argument}={given!r} is one name; give a list: {argument}=[{given!r}].")
    return tuple(given)


def write_out(
    target: Any,
    options: type,
    documented: Iterable[Any],
    hidden: Container[str] = (),
    defaults: Mapping[str, Any] = DEFAULTS,
) -> None:
    """Give a view class or a function a signature and a docstring in which each option is written out.

    Args:
        target: The class or function; its `**options` is replaced.
        options: The TypedDict of the options that it takes.
        documented: Other objects whose `Args:` describe its parameters, the nearest first.
        hidden: Names of parameters that are left out.
        defaults: The default of each option.
    """
    is_class = isinstance(target, type)
    declared = signature(target.__init__ if is_class else target)
    parameters = [
        parameter
        for name, parameter in declared.parameters.items()
        if parameter.kind is not Parameter.VAR_KEYWORD and name != "self" and name not in hidden
    ]
    shared = [
        Parameter(name, Parameter.KEYWORD_ONLY, default=defaults[name], annotation=kind.__forward_arg__)
        for name, kind in options.__annotations__.items()
    ]
    texts: dict[str, str] = {}
    for item in (target, *documented, *_DOCUMENTED):
        texts = _entries(item) | texts
    head, *sections = _sections(target)
    entries = [texts[parameter.name] for parameter in (*parameters, *shared) if parameter.name in texts]
    rest = [section for section in sections if not section.startswith("Args:")]
    args = "\n    ".join(["Args:", *entries])
    returns = Signature.empty if is_class else declared.return_annotation
    target.__signature__ = Signature([*parameters, *shared], return_annotation=returns)
    target.__doc__ = "\n\n".join([head, args, *rest])


def _sections(item: Any) -> list[str]:
    """Return the summary and the sections of a docstring, each beginning with its heading."""
    return re.split(r"\n+(?=(?:Args|Returns|Raises|Example|Source):)", cleandoc(item.__doc__ or ""))


def _entries(item: Any) -> dict[str, str]:
    """Return the entries under `Args:` by the parameter's name."""
    arguments = next((section for section in _sections(item) if section.startswith("Args:")), "")
    entries = re.split(r"\n    (?=[\w*])", arguments)[1:]
    return {entry.partition(":")[0].lstrip("*"): entry for entry in entries}


def checked_marks(view: str, kind: str, marks: Sequence[Any], shape: tuple[int, int]) -> list[Any]:
    """Return marks in the form of wire.ts.

    Args:
        view: The view's name, for errors.
        kind: "cells", "elements", "both", or "" for a view that marks nothing.
        marks: `(query, key)` pairs or indices.
        shape: Numbers of queries and keys that are shown.

    Raises:
        IndexError: A mark lies outside the map.
        ValueError: A mark has the wrong form.
    """
    checked: list[Any] = []
    for mark in marks:
        is_pair = isinstance(mark, Sequence) and not isinstance(mark, str) and len(mark) == len(shape)
        if kind not in {"both", "cells" if is_pair else "elements"}:
            raise ValueError(f"{view}(marks=...): {mark!r} is not supported; marks are {_FORMS[kind]}.")
        if is_pair:
            checked.append([_index(view, index, size) for index, size in zip(mark, shape, strict=True)])
        else:
            checked.append(_index(view, mark, max(shape)))
    if len({isinstance(mark, list) for mark in checked}) > 1:
        raise ValueError(f"{view}(marks=...) mixes pairs and indices; marks are all pairs or all indices.")
    return checked


def _index(view: str, value: Any, size: int) -> int:
    if isinstance(value, bool) or not hasattr(value, "__index__") or int(value) < 0:
        raise ValueError(f"{view}(marks=...): {value!r} is not an index (0, 1, ...).")
    if int(value) >= size:
        raise IndexError(f"{view}(marks=...): {value!r} is out of range: there are 0 to {size - 1}.")
    return int(value)
