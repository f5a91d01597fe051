"""ScorecardView: see the class."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from attnwidgets._errors import suggest
from attnwidgets.explanations.results.tables import spreadsheet_label
from attnwidgets.views.base.standalone_view import StandaloneView

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from numpy.typing import NDArray
    from typing_extensions import Unpack

    from attnwidgets.evaluate.scorecards.scorecard import Scorecard
    from attnwidgets.views.base.options import TitleOptions


class ScorecardView(StandaloneView):
    """Scores of several methods: curves with confidence bands, a table of means, chance and an oracle beside.

    One metric at a time, chosen from a menu that says which way it is read. A chip shows or hides a method, a
    double click shows it alone; chance and oracle always stay. A value of the horizontal axis is read under
    the pointer or by arrow keys, with intervals; the table sorts by a click. What is undefined says so.
    Scores of one number (no curve) are drawn as points with their intervals.

    Args:
        shown: A `Scorecard`, the result of `aw.evaluate.compare`, or a mapping from names to scorecards.
        metric: Metric that the view opens with; None: the first.

    Raises:
        TypeError: What is given holds no scores.
        ValueError: There is no such metric.
    """

    _VIEW = "ScorecardView"
    PARTS = ("scorecard",)

    def __init__(self, shown: Any, *, metric: str | None = None, **options: Unpack[TitleOptions]) -> None:
        given = shown if isinstance(shown, Mapping) else {"": shown}
        if not given or not all(_is_scorecard(card) for card in given.values()):
            raise TypeError(
                f"ScorecardView() shows a Scorecard or what aw.evaluate.compare returned, not "
                f"{type(shown).__name__}."
            )
        self._cards: dict[str, Scorecard] = {str(name): card for name, card in given.items()}
        known = [name for card in self._cards.values() for name in card.metrics]
        if metric is not None and metric not in known:
            raise ValueError(f"metric={metric!r} is not one of {', '.join(known)}.{suggest(metric, known)}")
        self._metric = known[0] if metric is None else metric
        if len(self._cards) == 1:
            options.setdefault("title", next(iter(self._cards.values())).title.replace("_", " "))
        super().__init__(**options)

    def _own_options(self) -> dict[str, Any]:
        cards = [described(name, card) for name, card in self._cards.items()]
        return {"cards": cards, "metric": self._metric, "hidden": []}

    def _shown(self) -> Scorecard:
        """Return the scores looked at: one metric, and the methods that are not hidden."""
        metric, hidden = self.options["metric"], set(self.options["hidden"])
        card = next(card for card in self._cards.values() if metric in card.metrics)
        rows = [row for row in range(len(card.methods)) if card.row_name(row) not in hidden]
        samples = card.with_samples(
            card.samples[:, :, rows],
            ends=None if card.ends is None else card.ends[:, :, rows],
            methods=[card.methods[row] for row in rows],
            groups=[card.groups[row] for row in rows],
            baselines=[name for name in card.baselines if any(card.methods[row] == name for row in rows)],
        )
        return samples.select(metric=metric)

    def _figure(self) -> Figure:
        return self._shown().plot(title=self.options["title"] or None)

    def _table(self) -> str:
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        names = ("family", "metric", "method", "group", "x", "mean", "low", "high", "count", "baseline")
        writer.writerow(names)
        for family, card in self._cards.items():
            (low, high), mean, count = card.interval, card.mean, card.count
            for metric, row, x in np.ndindex(card.shape):
                at = metric, row, x
                labels = (family, card.metrics[metric], card.methods[row], card.groups[row], card.x[x])
                numbers = (
                    "" if np.isnan(value) else repr(float(value)) for value in (mean[at], low[at], high[at])
                )
                is_baseline = card.methods[row] in card.baselines
                writer.writerow([*map(spreadsheet_label, map(str, labels)), *numbers, count[at], is_baseline])
        return out.getvalue()

    def __repr__(self) -> str:
        return f"{self._VIEW}({'; '.join(map(repr, self._cards.values()))})"


def described(name: str, card: Scorecard) -> dict[str, Any]:
    """Return a scorecard as the browser is told of it (`Card` of scorecard/card.ts)."""
    from attnwidgets.evaluate.scorecards.curves import aopc
    from attnwidgets.evaluate.scorecards.directions import direction_of
    from attnwidgets.evaluate.scorecards.table import order_of, row_is_baseline
    from attnwidgets.views.wire.header import model_name

    rows = order_of(card)
    low, high = card.interval
    # What is no mean over examples has no interval of its own mean over the horizontal axis.
    whole = aopc(card) if len(card.x) > 1 and card.ends is None else card
    one = (whole.mean, *whole.interval)
    if len(card.x) > 1 and card.ends is not None:
        blank = np.full((*card.shape[:2], 1), np.nan)
        one = card.mean.mean(axis=-1, keepdims=True), blank, blank
    return {
        "name": name.replace("_", " "),
        "title": card.title.replace("_", " "),
        "model": model_name(str(card.provenance.get("model") or "")),
        "examples": card.n_examples,
        "level": card.level,
        "warning": card.warning,
        "axis": card.x_name,
        "places": [label if isinstance(label, (int, float)) else str(label) for label in card.x],
        "remarks": list(card.x_notes),
        "metrics": [[metric, direction_of(metric)] for metric in card.metrics],
        "rows": [[card.row_name(row), row_is_baseline(card, row)] for row in rows],
        "mean": _listed(card.mean[:, rows]),
        "low": _listed(low[:, rows]),
        "high": _listed(high[:, rows]),
        "count": card.count[:, rows].tolist(),
        "whole": [_listed(part[:, rows, 0]) for part in one],
    }


def _is_scorecard(card: Any) -> bool:
    return hasattr(card, "samples") and hasattr(card, "metrics")


def _listed(values: NDArray[np.float64]) -> Any:
    """Return numbers as JSON holds them: None where there is none; no more digits than are read."""

    def plain(value: Any) -> Any:
        if isinstance(value, list):
            return [plain(one) for one in value]
        return None if np.isnan(value) else float(f"{value:.7g}")

    return plain(values.tolist())


def _number(value: float) -> str:
    return "" if np.isnan(value) else repr(float(value))
