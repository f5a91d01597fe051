"""A scorecard as an HTML table, legible in light and dark notebooks, with and without styles."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING

import numpy as np

from attnwidgets.figures.labels import printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from attnwidgets.evaluate.scorecards.scorecard import Scorecard

# Cells are tinted towards this blue, so lightly that black or white text stays legible.
_TINT = "37,99,235"
_STRONGEST = 0.5
_LEFT = "text-align:left;padding:2px 8px;white-space:nowrap;font-weight:normal"
_CELL = "text-align:right;padding:2px 6px;font-variant-numeric:tabular-nums"


def html_of(card: Scorecard) -> str:
    """Return one table per metric: a row per method, a column per layer, baselines below a line."""
    head = [
        f"{_text(str(label))}{f'<br><small>{_text(note)}</small>' if note else ''}"
        for label, note in zip(card.x, card.x_notes, strict=True)
    ]
    tables = [
        _table(
            card,
            f"<b>{_text(name.replace('_', ' '))}</b> by {_text(card.x_name)}",
            head,
            [(metric, x) for x in range(len(card.x))],
        )
        for metric, name in enumerate(card.metrics)
    ]
    known = not np.isnan(card.interval[0]).all()
    ends = f"; a cell's tooltip has its {card.level:.0%} interval" if known else ""
    notes = [card.title.replace("_", " "), str(card.provenance.get("model") or ""), f"{card.examples}{ends}"]
    return _framed("".join(tables), [*notes, card.warning])


def summary_html(card: Scorecard) -> str:
    """Return one table of a scorecard with single numbers: a row per method, a column per metric."""
    head = [_text(name.replace("_", " ")) for name in card.metrics]
    table = _table(card, "", head, [(metric, 0) for metric in range(len(card.metrics))])
    return _framed(table, [str(card.provenance.get("model") or ""), f"{card.n_scored:,} texts", card.warning])


def _framed(tables: str, notes: Iterable[str]) -> str:
    note = " · ".join(_text(item, 400) for item in notes if item)
    return f"<div style='overflow-x:auto'>{tables}<div style='font-size:85%;opacity:.75'>{note}</div></div>"


def _table(card: Scorecard, corner: str, head: Iterable[str], columns: Sequence[tuple[int, int]]) -> str:
    """Return a table of scores.

    Args:
        card: The scores.
        corner: HTML of the first cell.
        head: HTML of the other cells of the first row.
        columns: The metric and the place on the last axis of every column.
    """
    mean, (low, high), count = card.mean, card.interval, card.count
    tops = [scale_of(card, metric) for metric in range(len(card.metrics))]
    body = []
    rows = order_of(card)
    for place, row in enumerate(rows):
        first = row_is_baseline(card, row) and place and not row_is_baseline(card, rows[place - 1])
        line = ";border-top:1px solid currentColor" if first else ""
        cells = [
            _cell([float(part[metric, row, x]) for part in (mean, low, high, count)], tops[metric], line)
            for metric, x in columns
        ]
        title = _text(card.row_name(row), 60)
        body.append(f"<tr><th scope='row' style='{_LEFT}{line}'>{title}</th>{''.join(cells)}</tr>")
    return (
        f"<table style='border-collapse:collapse;color:inherit;margin:0 0 8px'>"
        f"<thead><tr><th style='{_LEFT}'>{corner}</th>"
        f"{''.join(f'''<th style='{_CELL}'>{label}</th>''' for label in head)}</tr></thead>"
        f"<tbody>{''.join(body)}</tbody></table>"
    )


def _cell(numbers: Sequence[float], top: float, line: str) -> str:
    mean, low, high, count = numbers
    if np.isnan(mean):
        return f"<td style='{_CELL}{line}' title='undefined'>–</td>"
    share = min(max(mean / top, 0.0), 1.0) * _STRONGEST
    tooltip = f"{mean:.4f}" + (
        "" if np.isnan(low) else f" ({low:.4f} to {high:.4f}), {int(count):,} examples"
    )
    return f"<td style='{_CELL};background:rgba({_TINT},{share:.2f}){line}' title='{tooltip}'>{mean:.2f}</td>"


def _text(text: str, limit: int = 24) -> str:
    return html.escape(printable(text, limit))


def row_is_baseline(card: Scorecard, row: int) -> bool:
    """Return whether a row is a baseline."""
    return card.methods[row] in card.baselines


def order_of(card: Scorecard) -> list[int]:
    """Return the rows in display order: a method's groups together, baselines last."""
    names = list(dict.fromkeys(card.methods))
    return sorted(
        range(len(card.methods)), key=lambda row: (row_is_baseline(card, row), names.index(card.methods[row]))
    )


def scale_of(card: Scorecard, metric: int) -> float:
    """Return the value of the strongest colour: the largest that any method reaches, without baselines."""
    rows = [row for row in range(len(card.methods)) if not row_is_baseline(card, row)]
    shown = card.mean[metric][rows or list(range(len(card.methods)))]
    largest = float(np.nanmax(shown, initial=0.0)) if not np.isnan(shown).all() else 0.0
    return largest or 1.0
