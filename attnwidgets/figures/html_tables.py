"""HTML tables of results: legible in light and dark notebooks, with and without styles."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING, Any

from attnwidgets.figures.theme import printable

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

LINE = ";border-top:1px solid currentColor"
"""Style of the cells of a row with a line above it."""
_STRONGEST = 0.5
# Cells are tinted so lightly towards blue or orange that black or white text stays legible.
_POSITIVE, _NEGATIVE = "37,99,235", "217,119,6"
_LEFT = "text-align:left;padding:2px 8px;font-weight:normal"
_RIGHT = "text-align:right;padding:2px 8px;white-space:nowrap;font-variant-numeric:tabular-nums"
_NOTE = "font-size:85%;opacity:.75;max-width:46em"


def table(
    head: Sequence[str],
    rows: Iterable[Iterable[str]],
    notes: Iterable[str] = (),
    *,
    left: Collection[int] = (0,),
) -> str:
    """Return a table that scrolls sideways, with its notes below.

    Args:
        head: Names of the columns, as HTML.
        rows: The cells of each row, see `cell`.
        notes: Notes, as text; empty ones are left out.
        left: Numbers of the columns that hold words, counted from 0.
    """
    names = "".join(
        f"<th scope='col' style='{_LEFT if number in left else _RIGHT}'>{name}</th>"
        for number, name in enumerate(head)
    )
    body = "".join(f"<tr>{''.join(row)}</tr>" for row in rows)
    below = "".join(f"<div style='{_NOTE}'>{text(note, 900)}</div>" for note in notes if note)
    return (
        "<div style='overflow-x:auto'><table style='border-collapse:collapse;color:inherit;margin:0 0 8px'>"
        f"<thead><tr>{names}</tr></thead><tbody>{body}</tbody></table>{below}</div>"
    )


def cell(
    content: str,
    *,
    left: bool = False,
    header: bool = False,
    tint: float = 0.0,
    title: str = "",
    style: str = "",
    limit: int = 40,
) -> str:
    """Return a cell of a row.

    Args:
        content: Its text.
        left: Whether it is aligned to the left, as words are.
        header: Whether it names the row; it is then aligned to the left as well.
        tint: Strength of its colour, -1 (orange) to 1 (blue).
        title: Its tooltip.
        style: More CSS, from a semicolon on.
        limit: Number of characters at which the text is cut.
    """
    share = min(abs(tint), 1.0) * _STRONGEST
    colour = f";background:rgba({_POSITIVE if tint > 0 else _NEGATIVE},{share:.2f})" if tint else ""
    about = f" title='{text(title, 600)}'" if title else ""
    look = f"style='{_LEFT if left or header else _RIGHT}{colour}{style}'{about}"
    shown = text(content, limit)
    return f"<th scope='row' {look}>{shown}</th>" if header else f"<td {look}>{shown}</td>"


def text(content: str, limit: int = 40) -> str:
    """Return text as HTML, every character visible."""
    return html.escape(printable(content, limit), quote=True)


def first_rows(rows: Sequence[Mapping[str, Any]], most: int) -> str:
    """Return the first `most` rows as a table, with the number of others below."""
    names = list(rows[0]) if rows else []
    is_words = [any(isinstance(row[name], str) for row in rows[:most]) for name in names]
    cells = (
        [cell(_printed(row[name]), left=left, limit=200) for name, left in zip(names, is_words, strict=True)]
        for row in rows[:most]
    )
    more = len(rows) - most
    notes = [f"and {more:,} more row{'s' * (more > 1)}: .to_rows()"] if more > 0 else []
    left = [number for number, words in enumerate(is_words) if words]
    return table([text(name) for name in names], cells, notes, left=left)


def _printed(value: Any) -> str:
    return "" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)
