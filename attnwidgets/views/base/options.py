"""Options that views share: their types, defaults and documentation, and how they reach a signature.

A view declares the options it takes as `_OPTIONS`, one of the classes here, and forwards them as
`**options: Unpack[...]`. Shift-Tab, `help()` and completion then show each of them: see `write_out`.
"""

from __future__ import annotations

import re
from inspect import Parameter, Signature, cleandoc, signature
from typing import TYPE_CHECKING, Any, TypedDict

from attnwidgets.views.base.filters import APART

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Mapping, Sequence


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
    """Options of views that colour numbers, and have another place for special tokens.

    Args:
        scale: Colour scale: "linear", "sqrt" or "log"; None: "linear".
        color_range: "map": each map has its own range; "all": one range for all layers and heads.
        palette: "paper" (to ink), "viridis", "cividis" or "greys" for weights; "orange-violet" (for and
            against), "red-blue" or "orange-purple" for signed values; the first of its kind where this one
            does not fit.
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
    """Options of views that can leave values out. What is left out is never drawn as a zero.

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
        TypeError: It is one name.
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
    own = [
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
    entries = [texts[parameter.name] for parameter in (*own, *shared) if parameter.name in texts]
    rest = [section for section in sections if not section.startswith("Args:")]
    args = "\n    ".join(["Args:", *entries])
    returns = Signature.empty if is_class else declared.return_annotation
    target.__signature__ = Signature([*own, *shared], return_annotation=returns)
    target.__doc__ = "\n\n".join([head, args, *rest])


def _sections(item: Any) -> list[str]:
    """Return the summary and the sections of a docstring, each beginning with its heading."""
    return re.split(r"\n+(?=(?:Args|Returns|Raises|Example|Source):)", cleandoc(item.__doc__ or ""))


def _entries(item: Any) -> dict[str, str]:
    """Return the entries under `Args:` by the parameter's name."""
    arguments = next((section for section in _sections(item) if section.startswith("Args:")), "")
    entries = re.split(r"\n    (?=[\w*])", arguments)[1:]
    return {entry.partition(":")[0].lstrip("*"): entry for entry in entries}
