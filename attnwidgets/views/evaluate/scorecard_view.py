"""The view of scorecards: curves and a table of the scores of several methods."""

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
    from numpy.typing import NDArray
    from typing_extensions import Unpack

    from attnwidgets.evaluate.scorecards.scorecard import Scorecard
    from attnwidgets.figures.sheet import Sheet
    from attnwidgets.figures.theme import Theme
    from attnwidgets.views.base.options import TitleOptions


class ScorecardView(StandaloneView):
    """Scores of several methods: curves with confidence bands, and a table of means, with chance and oracle.

    A menu chooses one metric and says which direction is better. A chip shows or hides a method, a double
    click shows it alone; chance and oracle always stay. Values and intervals are read under the pointer or
    with the arrow keys; click a column to sort the table. Undefined scores are marked as such. Metrics
    without a curve are drawn as points with their intervals.

    Args:
        shown: A `Scorecard`, the result of `aw.evaluate.compare`, or a mapping from names to scorecards.
        metric: Metric that the view opens with; None: the first.

    Raises:
        TypeError: `shown` contains no scores.
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
        """Return the scores that are shown: one metric, and the methods that are not hidden."""
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

    def _still(self, theme: Theme) -> Sheet:
        from attnwidgets.views.still.comparisons import scores_sheet

        return scores_sheet(self, theme)

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
                numbers = map(_number, (mean[at], low[at], high[at]))
                is_baseline = card.methods[row] in card.baselines
                writer.writerow([*map(spreadsheet_label, map(str, labels)), *numbers, count[at], is_baseline])
        return out.getvalue()

    def __repr__(self) -> str:
        return f"{self._VIEW}({'; '.join(map(repr, self._cards.values()))})"


def described(name: str, card: Scorecard) -> dict[str, Any]:
    """Return a scorecard for the browser (`Card` of scorecard/card.ts)."""
    from attnwidgets.evaluate.scorecards.curves import aopc
    from attnwidgets.evaluate.scorecards.directions import direction_of
    from attnwidgets.evaluate.scorecards.table import order_of, row_is_baseline
    from attnwidgets.views.wire.header import model_name

    rows = order_of(card)
    low, high = card.interval
    overall = card.mean, low, high
    if len(card.x) > 1 and card.ends is None:
        mean = aopc(card)
        overall = mean.mean, *mean.interval
    elif len(card.x) > 1:
        # A score that is not a mean over examples has no interval of its mean over the horizontal axis.
        blank = np.full((*card.shape[:2], 1), np.nan)
        overall = card.mean.mean(axis=-1, keepdims=True), blank, blank
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
        "mean": _json(card.mean[:, rows]),
        "low": _json(low[:, rows]),
        "high": _json(high[:, rows]),
        "count": card.count[:, rows].tolist(),
        "whole": [_json(part[:, rows, 0]) for part in overall],
    }


def _is_scorecard(card: Any) -> bool:
    return hasattr(card, "samples") and hasattr(card, "metrics")


def _json(values: NDArray[np.float64]) -> Any:
    """Return numbers as nested lists, to seven digits; None for NaN."""
    plain = [None if np.isnan(value) else float(f"{value:.7g}") for value in values.flat]
    return np.array(plain, dtype=object).reshape(values.shape).tolist()


def _number(value: float) -> str:
    return "" if np.isnan(value) else repr(float(value))
