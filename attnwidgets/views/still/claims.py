"""What the figure of a ClaimView consists of."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from attnwidgets.circuits.claims.report import spoken
from attnwidgets.figures.parts.bars import Bar, Bars
from attnwidgets.figures.parts.table import Table
from attnwidgets.figures.sheet import Sheet, Words

if TYPE_CHECKING:
    from attnwidgets.figures.sheet import Part
    from attnwidgets.figures.theme import Theme

_LISTED = 5


def claim_sheet(view: Any, theme: Theme) -> Sheet:
    """Return what a ClaimView shows: the verdict, the head next to its controls, and the texts against it."""
    del theme
    result, report = view.result(), view._report  # noqa: SLF001 - a part of the view
    first = Words(
        f"{result.verdict}: {result.unit} {result.mean:.2f} {spoken(result.interval)}, "
        f"margin {report.margin:g}; "
        f"{result.below(report.margin)} of {len(result.texts)} texts are below it",
        quiet=False,
        bold=True,
    )
    bars = [Bar(result.claim.split(" ")[0] + " " + result.claim.split(" ")[1], result.mean, bold=True)]
    for name, heads in result.heads.items():
        means = [mean for _, _, mean in heads]
        if means:
            bars.append(Bar(f"{len(means)} {name}, mean", float(np.mean(means)), quiet=True))
            best = max(heads, key=lambda head: head[2])
            bars.append(Bar(f"highest: {best[0]}.{best[1]}", best[2], quiet=True))
    bars += [Bar(name, value, quiet=True) for name, value in result.baselines.items() if not np.isnan(value)]
    rows = [
        (f"{text.text} / {text.corrupt}" if text.corrupt else text.text, text.value, text.control)
        for text in result.worst(_LISTED)
    ]
    parts: list[Part] = [
        first,
        Bars(bars, title=result.unit),
        Words("texts that speak most against it"),
        Table(("text", "head", "control"), rows),
    ]
    note = f"{len(result.texts)} of {result.given} texts"
    note += "".join(f"; {count} left out: {why}" for why, count in result.left_out)
    return Sheet(str(view.options["title"]) or result.claim, parts, note)
