"""The view of scorecards: curves and a table of the scores of several methods."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from attnwidgets._errors import suggest
from attnwidgets._tables import csv_of
from attnwidgets.views.base.expressions import listed
from attnwidgets.views.base.needs import Needs
from attnwidgets.views.base.standalone_view import StandaloneView

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray
    from typing_extensions import Unpack

    from attnwidgets.evaluate.scorecards.scorecard import Scorecard
    from attnwidgets.figures.sheet import Sheet
    from attnwidgets.figures.theme import Theme
    from attnwidgets.views.base.expressions import Kinds, Path
    from attnwidgets.views.base.options import TitleOptions


class ScorecardView(StandaloneView):
    """Scores of several methods: curves and a table of means, with chance and oracle.

    A menu chooses a metric and says which direction is better. A chip shows or hides a method, a double
    click shows it alone; chance and oracle always stay. A click on a row of the table chooses the method
    whose confidence band is drawn and whose values are read, under the pointer or with the arrow keys; a
    click on the curves pins a point. Click a column to sort the table. Undefined scores are marked as such.
    Metrics without a curve are drawn as points with their intervals.

    Args:
        shown: A `Scorecard`, the result of `aw.evaluate.compare`, or a mapping from names to scorecards.
        metric: Metric that the view opens with; None: the first.

    Raises:
        TypeError: `shown` contains no scores.
        ValueError: The metric is unknown.
    """

    _VIEW = "ScorecardView"
    NEEDS = Needs(("scorecard",))
    _HEIGHT = 520

    def __init__(self, shown: Any, *, metric: str | None = None, **options: Unpack[TitleOptions]) -> None:
        given = shown if isinstance(shown, Mapping) else {"": shown}
        if not given or not all(_is_scorecard(card) for card in given.values()):
            raise TypeError(
                f"ScorecardView() shows a Scorecard or the result of aw.evaluate.compare, not "
                f"{type(shown).__name__}."
            )
        self._cards: dict[str, Scorecard] = {str(name): card for name, card in given.items()}
        metrics = [name for card in self._cards.values() for name in card.metrics]
        if metric is not None and metric not in metrics:
            raise ValueError(
                f"metric={metric!r} is not one of {', '.join(metrics)}.{suggest(metric, metrics)}"
            )
        self._metric = metrics[0] if metric is None else metric
        if len(self._cards) == 1:
            options.setdefault("title", next(iter(self._cards.values())).title.replace("_", " "))
        super().__init__(**options)

    def _own_options(self) -> dict[str, Any]:
        cards = [described(name, card) for name, card in self._cards.items()]
        return {"cards": cards, "metric": self._metric, "hidden": []}

    def score(self, metric: str, row: str, place: int | None = None) -> float:
        """Return a score that the view shows: a mean over examples.

        Args:
            metric: Its name.
            row: The method, with its group where there are several: "lrp, layer 3".
            place: Index along the horizontal axis; None: the mean over all of it, as in the table.

        Raises:
            ValueError: The metric or row is unknown.
            IndexError: The index is out of range.
        """
        card, at, number = self._at(metric, row)
        if place is None:
            return float(_overall(card)[0][at, number, 0])
        return float(card.mean[at, number, place])

    def _at(self, metric: str, row: str) -> tuple[Scorecard, int, int]:
        """Return the scorecard with a metric, and the numbers of the metric and of a row by its name."""
        card = next((card for card in self._cards.values() if metric in card.metrics), None)
        if card is None:
            metrics = [name for item in self._cards.values() for name in item.metrics]
            raise ValueError(
                f"metric={metric!r} is not one of {', '.join(metrics)}.{suggest(metric, metrics)}"
            )
        names = [card.row_name(number) for number in range(len(card.methods))]
        if row not in names:
            raise ValueError(f"row={row!r} is not one of {', '.join(names)}.{suggest(row, names)}")
        return card, card.metrics.index(metric), names.index(row)

    def _numbers(self) -> Kinds:
        return {"score": self._score_paths}

    def _score_paths(self, metric: str, row: str, place: int) -> Iterator[Path]:
        """Yield the paths to the score of a row; place -1: its mean over the horizontal axis."""
        import attnwidgets

        card, at, number = self._at(str(metric), str(row))
        if place >= 0:
            yield card, f".mean[{at}, {number}, {int(place)}].item()"
        elif card.ends is None:
            yield attnwidgets, ".evaluate.aopc(", card, f").mean[{at}, {number}, 0].item()"
        else:
            yield card, f".mean[{at}, {number}].mean().item()"
        yield self, f".score({listed(str(metric), str(row), place=int(place) if place >= 0 else None)})"

    def _expressions(self) -> Iterator[dict[str, Any]]:
        """Yield the arguments for the numbers of the tables, whose expressions a page contains."""
        for card in self._cards.values():
            place = -1 if len(card.x) > 1 else 0
            for metric in card.metrics:
                for row in range(len(card.methods)):
                    yield {"of": "score", "metric": metric, "row": card.row_name(row), "place": place}

    def _shown(self) -> Scorecard:
        """Return the scores that are shown: the chosen metric, and the methods that are not hidden."""
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

    def describe(self) -> str:
        """Return the scores of the shown metric in a sentence, the methods in the order of the table."""
        from attnwidgets.evaluate.scorecards.table import order_of

        card = self._shown()
        overall = _overall(card)[0][0, :, 0]
        rows = [f"{card.row_name(row).replace('_', ' ')} {overall[row]:.3g}" for row in order_of(card)]
        return f"{card.metrics[0].replace('_', ' ')}, mean over {card.examples}: {', '.join(rows)}."

    def _still(self, theme: Theme) -> Sheet:
        from attnwidgets.views.still.comparisons import scores_sheet

        return scores_sheet(self, theme)

    def _table(self) -> str:
        names = ("family", "metric", "method", "group", "x", "mean", "low", "high", "count", "baseline")
        rows: list[tuple[Any, ...]] = [names]
        for family, card in self._cards.items():
            (low, high), mean, count = card.interval, card.mean, card.count
            for metric, row, x in np.ndindex(card.shape):
                at = metric, row, x
                labels = (family, card.metrics[metric], card.methods[row], card.groups[row], card.x[x])
                numbers = map(_number, (mean[at], low[at], high[at]))
                is_baseline = card.methods[row] in card.baselines
                rows.append((*map(str, labels), *numbers, count[at], is_baseline))
        return csv_of(rows)

    def __repr__(self) -> str:
        return f"{self._VIEW}({'; '.join(map(repr, self._cards.values()))})"


def described(name: str, card: Scorecard) -> dict[str, Any]:
    """Return a scorecard for the browser (`Card` of scorecard/scores.ts)."""
    from attnwidgets.evaluate.scorecards.table import direction_of, order_of, row_is_baseline
    from attnwidgets.views.wire.header import model_name

    rows = order_of(card)
    low, high = card.interval
    overall = _overall(card)
    return {
        "name": name.replace("_", " "),
        "title": card.title.replace("_", " "),
        "model": model_name(str(card.provenance.get("model") or "")),
        "examples": card.n_scored,
        "level": card.level,
        "warning": card.warning,
        "axis": card.x_name,
        "places": [label if isinstance(label, (int, float)) else str(label) for label in card.x],
        "remarks": list(card.x_notes),
        "metrics": [[metric, direction_of(metric, card.method)] for metric in card.metrics],
        "rows": [[card.row_name(row), row_is_baseline(card, row)] for row in rows],
        "mean": _json(card.mean[:, rows]),
        "low": _json(low[:, rows]),
        "high": _json(high[:, rows]),
        "count": card.count[:, rows].tolist(),
        "whole": [_json(part[:, rows, 0]) for part in overall],
    }


def _overall(card: Scorecard) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Return the mean over the horizontal axis and the ends of its interval, each [metric, row, 1]."""
    from attnwidgets.evaluate.scorecards.curves import aopc

    if len(card.x) == 1:
        return card.mean, *card.interval
    if card.ends is None:
        mean = aopc(card)
        return mean.mean, *mean.interval
    # A score that is not a mean over examples has no interval of its mean over the horizontal axis.
    blank = np.full((*card.shape[:2], 1), np.nan)
    return card.mean.mean(axis=-1, keepdims=True), blank, blank


def _is_scorecard(card: Any) -> bool:
    return hasattr(card, "samples") and hasattr(card, "metrics")


def _json(values: NDArray[np.float64]) -> Any:
    """Return numbers as nested lists, to seven digits; None for NaN."""
    plain = [None if np.isnan(value) else float(f"{value:.7g}") for value in values.flat]
    return np.array(plain, dtype=object).reshape(values.shape).tolist()


def _number(value: float) -> str:
    return "" if np.isnan(value) else repr(float(value))
