"""Comparison: the result of `compare`, as scorecards by family of metrics and a table over all of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal

import numpy as np

from attnwidgets._errors import renamed, suggest
from attnwidgets._selecting import listed
from attnwidgets._tables import Table
from attnwidgets.evaluate.scorecards.build import ORACLE, RANDOM, merged, warning_of
from attnwidgets.evaluate.scorecards.curves import aopc
from attnwidgets.evaluate.scorecards.scorecard import Scorecard
from attnwidgets.explanations.viewable import Viewable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from matplotlib.colors import Colormap
    from matplotlib.figure import Figure

    from attnwidgets._tables import Columns


class Comparison(Mapping[str, Scorecard], Table, Viewable):
    """Scorecards of the same methods and texts by family: "removal", "single_removals", "plausibility", ...

    It holds the families of which a metric was scored. `.table` has a number for every metric.

    Args:
        cards: Scorecards by family.
        texts: The texts; () if the data set was a stream, or not a list.
        reused: Number of explanations that came from the cache.
    """

    kind = "Comparison"
    viewed_by = "evaluate.scorecard_view:ScorecardView"

    def __init__(self, cards: Mapping[str, Scorecard], texts: tuple[str, ...], reused: int = 0) -> None:
        self._cards = dict(cards)
        self.texts = texts
        self.reused = reused

    @classmethod
    def merge(cls, parts: Sequence[Comparison]) -> Comparison:
        """Merge comparisons of different texts, by the same methods and metrics.

        Args:
            parts: In the order of the texts.

        Raises:
            ValueError: If `parts` is empty, or they differ in methods, metrics, options or model.
        """
        if not parts:
            raise ValueError("parts is empty: give at least one comparison.")
        families = list(parts[0])
        for number, part in enumerate(parts):
            if list(part) != families:
                raise ValueError(
                    f"parts[{number}] has scores of {listed(part)}, the first of {listed(families)}."
                )
        cards = {family: merged([part[family] for part in parts]) for family in families}
        complete = all(len(part.texts) == part[families[0]].n_examples for part in parts)
        texts = tuple(text for part in parts for text in part.texts) if complete else ()
        return cls(cards, texts, sum(part.reused for part in parts))

    def __getitem__(self, family: str) -> Scorecard:
        if family not in self._cards:
            near = suggest(family, self._cards)
            raise KeyError(f"{family!r} has no scores; the scored families are {listed(self._cards)}.{near}")
        return self._cards[family]

    def __iter__(self) -> Iterator[str]:
        return iter(self._cards)

    def __len__(self) -> int:
        return len(self._cards)

    @property
    def table(self) -> Scorecard:
        """A number for every metric and method [metric, method, 1]; curves are their mean (AOPC).

        The baselines are chance and the oracle; NaN for metrics without them.
        """
        cards = [aopc(card) if len(card.x) > 1 else card for card in self._cards.values()]
        first = cards[0]
        methods = [name for name in first.methods if name not in first.baselines]
        baselines = [name for name in (RANDOM, ORACLE) if any(name in card.baselines for card in cards)]
        columns = []
        for card in cards:
            missing = np.full((card.n_examples, len(card.metrics), 1), np.nan)
            rows = [card.of(name) if name in card.methods else missing for name in (*methods, *baselines)]
            columns.append(np.stack(rows, axis=2))
        return first.with_samples(
            np.concatenate(columns, axis=1),
            metrics=[name for card in cards for name in card.metrics],
            methods=[*methods, *baselines],
            groups=[""] * (len(methods) + len(baselines)),
            baselines=baselines,
            x=["mean"],
            x_name="score",
            x_notes=[""],
            warning=warning_of(cards),
        )

    def _columns(self) -> Iterator[Columns]:
        """Yield the columns of `table`, see `Scorecard`."""
        yield from self.table._columns()  # noqa: SLF001 - both are tables

    def figure(
        self,
        family: str | None = None,
        kind: Literal["lines", "table"] = "lines",
        *,
        title: str | None = None,
        cmap: str | Colormap | None = None,
        vmax: float | None = None,
        numbers: bool | None = None,
    ) -> Figure:
        """Return a matplotlib figure of a family's scores.

        Args:
            family: The family; by default the first.
            kind: "lines", a panel per metric, or "table", a row for every method.
            title: Heading; by default the title of the scores and the number of examples.
            cmap: For "table": colour map; by default paper to ink.
            vmax: For "table": value of the last colour; by default the largest that a method reaches.
            numbers: For "table": whether cells show their value; by default if there is room.
        """
        card = self[next(iter(self._cards)) if family is None else family]
        return card.figure(kind, title=title, cmap=cmap, vmax=vmax, numbers=numbers)

    plot = renamed("Comparison.plot", figure)

    def _repr_html_(self) -> str:
        from attnwidgets.evaluate.scorecards.table import summary_html

        return summary_html(self.table)

    def __repr__(self) -> str:
        count = next(iter(self._cards.values())).n_examples
        return f"<Comparison of {count:,} texts: {'; '.join(map(repr, self._cards.values()))}>"
