"""A scorecard as an HTML table, legible in light and dark notebooks, with and without styles."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING

import numpy as np

from attnwidgets.figures.labels import printable

if TYPE_CHECKING:
    from attnwidgets.evaluate.scorecards.scorecard import Scorecard

# Cells are tinted towards this blue, never so far that the notebook's own ink could not be read on them,
# whether that is black on white or white on black.
_TINT = "37,99,235"
_STRONGEST = 0.5
_LEFT = "text-align:left;padding:2px 8px;white-space:nowrap;font-weight:normal"
_CELL = "text-align:right;padding:2px 6px;font-variant-numeric:tabular-nums"


def html_of(card: Scorecard) -> str:
    """Return one table a metric: a row for every method, a column for every layer, baselines below a line."""
    parts = [_metric(card, metric) for metric in range(len(card.metrics))]
    known = not np.isnan(card.interval[0]).all()
    ends = f"; a cell's tooltip has its {card.level:.0%} interval" if known else ""
    notes = [card.title.replace("_", " "), str(card.provenance.get("model") or ""), f"{card.examples}{ends}"]
    if card.warning:
        notes.append(card.warning)
    note = " · ".join(_text(item, 400) for item in notes if item)
    return (
        "<div style='overflow-x:auto'>"
        f"{''.join(parts)}<div style='font-size:85%;opacity:.75'>{note}</div></div>"
    )


def _metric(card: Scorecard, metric: int) -> str:
    mean = card.mean[metric]
    low, high = (end[metric] for end in card.interval)
    count = card.count[metric]
    top = scale_of(card, metric)
    head = "".join(
        f"<th style='{_CELL}'>{_text(str(label))}{f'<br><small>{_text(note)}</small>' if note else ''}</th>"
        for label, note in zip(card.x, card.x_notes, strict=True)
    )
    name = _text(card.metrics[metric].replace("_", " "))
    body = []
    ordered = order_of(card)
    for place, row in enumerate(ordered):
        first = row_is_baseline(card, row) and (place == 0 or not row_is_baseline(card, ordered[place - 1]))
        line = ";border-top:1px solid currentColor" if first and place else ""
        cells = "".join(
            _cell(mean[row, x], low[row, x], high[row, x], int(count[row, x]), top, line)
            for x in range(len(card.x))
        )
        title = _text(card.row_name(row), 60)
        body.append(f"<tr><th scope='row' style='{_LEFT}{line}'>{title}</th>{cells}</tr>")
    return (
        f"<table style='border-collapse:collapse;color:inherit;margin:0 0 8px'>"
        f"<thead><tr><th style='{_LEFT}'><b>{name}</b> by {_text(card.x_name)}</th>{head}</tr></thead>"
        f"<tbody>{''.join(body)}</tbody></table>"
    )


def _cell(mean: float, low: float, high: float, count: int, top: float, line: str) -> str:
    if np.isnan(mean):
        return f"<td style='{_CELL}{line}' title='undefined'>–</td>"
    share = min(max(mean / top, 0.0), 1.0) * _STRONGEST
    said = f"{mean:.4f}" + ("" if np.isnan(low) else f" ({low:.4f} to {high:.4f}), {count:,} examples")
    return f"<td style='{_CELL};background:rgba({_TINT},{share:.2f}){line}' title='{said}'>{mean:.2f}</td>"


def _text(text: str, limit: int = 24) -> str:
    return html.escape(printable(text, limit))


def row_is_baseline(card: Scorecard, row: int) -> bool:
    """Return whether a row is a baseline."""
    return card.methods[row] in card.baselines


def order_of(card: Scorecard) -> list[int]:
    """Return the rows as they are shown: a method's groups together, baselines last."""
    names = list(dict.fromkeys(card.methods))
    return sorted(
        range(len(card.methods)), key=lambda row: (row_is_baseline(card, row), names.index(card.methods[row]))
    )


def scale_of(card: Scorecard, metric: int) -> float:
    """Return the value of the strongest colour: the largest that any method reaches, baselines apart."""
    rows = [row for row in range(len(card.methods)) if not row_is_baseline(card, row)]
    shown = card.mean[metric][rows or list(range(len(card.methods)))]
    largest = float(np.nanmax(shown, initial=0.0)) if not np.isnan(shown).all() else 0.0
    return largest or 1.0


def summary_html(card: Scorecard) -> str:
    """Return one table of a scorecard whose last axis is one number: a row a method, a column a metric."""
    mean, (low, high), count = card.mean[:, :, 0], card.interval, card.count[:, :, 0]
    head = "".join(f"<th style='{_CELL}'>{_text(name.replace('_', ' '))}</th>" for name in card.metrics)
    body = []
    ordered = order_of(card)
    for place, row in enumerate(ordered):
        first = row_is_baseline(card, row) and (place == 0 or not row_is_baseline(card, ordered[place - 1]))
        line = ";border-top:1px solid currentColor" if first and place else ""
        cells = "".join(
            _cell(
                mean[metric, row],
                low[metric, row, 0],
                high[metric, row, 0],
                int(count[metric, row]),
                scale_of(card, metric),
                line,
            )
            for metric in range(len(card.metrics))
        )
        title = _text(card.row_name(row), 60)
        body.append(f"<tr><th scope='row' style='{_LEFT}{line}'>{title}</th>{cells}</tr>")
    notes = [str(card.provenance.get("model") or ""), f"{card.n_examples:,} texts", card.warning]
    note = " · ".join(_text(item, 400) for item in notes if item)
    return (
        "<div style='overflow-x:auto'><table style='border-collapse:collapse;color:inherit;margin:0 0 8px'>"
        f"<thead><tr><th style='{_LEFT}'></th>{head}</tr></thead><tbody>{''.join(body)}</tbody></table>"
        f"<div style='font-size:85%;opacity:.75'>{note}</div></div>"
    )
