"""Head statistics as an HTML table: definition, range of values, and leading heads of each."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING

import numpy as np

from attnwidgets.figures.labels import printable

if TYPE_CHECKING:
    from attnwidgets.statistics.table import HeadStatistics, RankedHead

_LEAD = 3
_LEFT = "text-align:left;padding:2px 8px;vertical-align:top"
_RIGHT = "text-align:right;padding:2px 8px;font-variant-numeric:tabular-nums;vertical-align:top"


def html_of(stats: HeadStatistics) -> str:
    """Return a table with a row per statistic: title and definition, lowest, mean, highest, leading heads."""
    names = ("statistic", "lowest", "mean", "highest", "highest heads (layer.head)", "high means")
    head = "".join(f"<th scope='col' style='{_LEFT}'>{name}</th>" for name in names)
    rows = "".join(_row(stats, place) for place in range(len(stats.names)))
    notes = [stats.title.replace("_", " "), str(stats.provenance.get("model") or ""), f"by {stats.unit}"]
    notes += [stats.warning]
    notes += [f"no {name.replace('_', ' ')}: {reason}" for name, reason in stats.left_out.items()]
    note = " · ".join(_text(item, 400) for item in notes if item)
    return (
        "<div style='overflow-x:auto'><table style='border-collapse:collapse;margin:0 0 8px'>"
        f"<thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"
        f"<div style='font-size:85%;opacity:.75'>{note}</div></div>"
    )


def _row(stats: HeadStatistics, place: int) -> str:
    about, name = stats.statistics[place], stats.names[place]
    values = stats[name]
    known = values[~np.isnan(values)]
    numbers = (known.min(), known.mean(), known.max()) if known.size else (np.nan,) * 3
    cells = "".join(f"<td style='{_RIGHT}'>{'–' if np.isnan(n) else f'{n:.3f}'}</td>" for n in numbers)
    heads = ", ".join(spoken(head) for head in stats.top(name, _LEAD))
    tooltip = f"{about.definition} Range: {about.scale}. {about.paper}"
    return (
        f"<tr><th scope='row' style='{_LEFT};font-weight:normal' title='{_text(tooltip, 600)}'>"
        f"{_text(about.title, 60)}</th>{cells}<td style='{_LEFT};white-space:nowrap'>{_text(heads, 120)}</td>"
        f"<td style='{_LEFT}'>{_text(about.high, 200)}</td></tr>"
    )


def spoken(head: RankedHead) -> str:
    """Return "3.7 (0.91)": layer 3, head 7, and its value."""
    number = str(head.layer) if head.head is None else f"{head.layer}.{head.head}"
    return f"{number} ({head.value:.2f})"


def _text(text: str, limit: int) -> str:
    return html.escape(printable(text, limit), quote=True)
