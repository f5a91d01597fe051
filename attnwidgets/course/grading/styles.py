"""Tables of marks in HTML: legible in light and dark notebooks, with and without styles."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING

from attnwidgets.figures.labels import printable

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

# Cells are tinted towards this blue, so lightly that black or white text stays legible.
_TINT = "37,99,235"
_STRONGEST = 0.4
_LEFT = "text-align:left;padding:2px 8px;font-weight:normal"
_RIGHT = "text-align:right;padding:2px 8px;white-space:nowrap;font-variant-numeric:tabular-nums"
NOTE = "font-size:85%;opacity:.75"
LINE = ";border-top:1px solid currentColor"


def framed(inside: str, below: str) -> str:
    """Return a table that scrolls by itself, with what stands below it."""
    table = f"<table style='border-collapse:collapse;color:inherit;margin:0 0 8px'>{inside}</table>"
    return f"<div style='overflow-x:auto'>{table}{below}</div>"


def heading(names: Sequence[str], left: Collection[int] = (0,)) -> str:
    """Return the first row; the columns numbered in `left` hold words."""
    cells = "".join(
        f"<th scope='col' style='{_LEFT if number in left else _RIGHT}'>{text(name)}</th>"
        for number, name in enumerate(names)
    )
    return f"<thead><tr>{cells}</tr></thead>"


def cell(
    content: str, *, left: bool = False, tint: float = 0.0, title: str = "", style: str = "", limit: int = 40
) -> str:
    """Return a cell of a row, tinted by a share from 0 to 1."""
    look = _LEFT if left else _RIGHT
    colour = f";background:rgba({_TINT},{tint * _STRONGEST:.2f})" if tint > 0 else ""
    about = f" title='{text(title, 300)}'" if title else ""
    return f"<td style='{look}{colour}{style}'{about}>{text(content, limit)}</td>"


def text(content: str, limit: int = 40) -> str:
    """Return text that is shown as it is, every character visible."""
    return html.escape(printable(content, limit), quote=True)
