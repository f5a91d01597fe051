"""Head statistics as an HTML table: definition, range of values, and leading heads of each."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from attnwidgets.figures.html_tables import cell, table

if TYPE_CHECKING:
    from attnwidgets.statistics.table import HeadStatistics, RankedHead


_LEAD = 3


def html_of(stats: HeadStatistics) -> str:
    """Return a table with a row per statistic: title and definition, lowest, mean, highest, leading heads."""
    head = ("statistic", "lowest", "mean", "highest", "highest heads (layer.head)", "high means")
    notes = [stats.title.replace("_", " "), str(stats.provenance.get("model") or ""), f"by {stats.unit}"]
    notes += [stats.warning]
    notes += [f"no {name.replace('_', ' ')}: {reason}" for name, reason in stats.left_out.items()]
    rows = (_row(stats, place) for place in range(len(stats.names)))
    return table(head, rows, [" · ".join(filter(None, notes))], left=(0, 4, 5))


def _row(stats: HeadStatistics, place: int) -> list[str]:
    about, name = stats.statistics[place], stats.names[place]
    values = stats[name]
    known = values[~np.isnan(values)]
    numbers = (known.min(), known.mean(), known.max()) if known.size else (np.nan,) * 3
    heads = ", ".join(spoken(head) for head in stats.top(name, _LEAD))
    tooltip = f"{about.definition} Range: {about.scale}. {about.paper}"
    return [
        cell(about.title, left=True, title=tooltip, limit=60),
        *(cell("–" if np.isnan(number) else f"{number:.3f}") for number in numbers),
        cell(heads, left=True, style=";white-space:nowrap", limit=120),
        cell(about.high, left=True, limit=200),
    ]


def spoken(head: RankedHead) -> str:
    """Return "3.7 (0.91)": layer 3, head 7, and its value."""
    number = str(head.layer) if head.head is None else f"{head.layer}.{head.head}"
    return f"{number} ({head.value:.2f})"
