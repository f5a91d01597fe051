"""A scorecard as an HTML table, legible in light and dark notebooks, with and without styles."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from attnwidgets.figures.html_tables import LINE, cell, table, text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from attnwidgets.evaluate.scorecards.scorecard import Scorecard


def html_of(card: Scorecard) -> str:
    """Return one table per metric: a row per method, a column per layer, baselines below a line."""
    head = [
        f"{text(str(label))}{f'<br><small>{text(note)}</small>' if note else ''}"
        for label, note in zip(card.x, card.x_notes, strict=True)
    ]
    known = not np.isnan(card.interval[0]).all()
    ends = f"; a cell's tooltip has its {card.level:.0%} interval" if known else ""
    notes = [card.title.replace("_", " "), str(card.provenance.get("model") or ""), f"{card.examples}{ends}"]
    last = len(card.metrics) - 1
    return "".join(
        table(
            [f"<b>{text(name.replace('_', ' '))}</b> by {text(card.x_name)}", *head],
            _rows(card, [(metric, x) for x in range(len(card.x))]),
            [" · ".join(filter(None, (*notes, card.warning)))] if metric == last else [],
        )
        for metric, name in enumerate(card.metrics)
    )


def summary_html(card: Scorecard) -> str:
    """Return one table of a scorecard with single numbers: a row per method, a column per metric."""
    head = ["", *(text(name.replace("_", " ")) for name in card.metrics)]
    rows = _rows(card, [(metric, 0) for metric in range(len(card.metrics))])
    notes = [str(card.provenance.get("model") or ""), f"{card.n_scored:,} texts", card.warning]
    return table(head, rows, [" · ".join(filter(None, notes))])


def _rows(card: Scorecard, columns: Sequence[tuple[int, int]]) -> Iterator[list[str]]:
    """Yield the cells of each method.

    Args:
        card: The scores.
        columns: The metric and the place on the last axis of every column.
    """
    tops = [scale_of(card, metric) for metric in range(len(card.metrics))]
    rows = order_of(card)
    for place, row in enumerate(rows):
        first = row_is_baseline(card, row) and place and not row_is_baseline(card, rows[place - 1])
        style = LINE if first else ""
        scores = [_score(card, (metric, row, x), tops[metric], style) for metric, x in columns]
        yield [cell(card.row_name(row), left=True, style=f"{style};white-space:nowrap", limit=60), *scores]


def _score(card: Scorecard, at: tuple[int, int, int], top: float, style: str) -> str:
    mean, low, high = (float(part[at]) for part in (card.mean, *card.interval))
    if np.isnan(mean):
        return cell("–", style=style, title="undefined")
    known = "" if np.isnan(low) else f" ({low:.4f} to {high:.4f}), {int(card.count[at]):,} examples"
    return cell(f"{mean:.2f}", tint=max(mean / top, 0.0), title=f"{mean:.4f}{known}", style=style)


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
