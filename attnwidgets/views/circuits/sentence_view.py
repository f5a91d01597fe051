"""The view of sentences: a text with arcs at its side, from each sentence to those that it depends on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from attnwidgets.explanations.results.mixing_map import MixingMap
from attnwidgets.explanations.results.trace_protocol import is_trace
from attnwidgets.views.base.needs import Needs
from attnwidgets.views.base.view import View

if TYPE_CHECKING:
    from collections.abc import Mapping

    from typing_extensions import Unpack

    from attnwidgets.figures.sheet import Sheet
    from attnwidgets.figures.theme import Theme
    from attnwidgets.views.base.link import Link
    from attnwidgets.views.base.options import ViewOptions

MOST = 400
"""Sentences that are shown at once."""
_UNIT = "sentence"


class SentenceView(View):
    """A text as a column of sentences, with arcs from each to those that it depends on.

    The chosen sentence is at first the last: its arcs stand out. Earlier sentences are coloured by how much
    it depends on them, later sentences by the effect of suppressing it, and both are listed with their
    values. A click or the up and down keys choose another sentence; left and right lead along the
    strongest arc. A click on a value pins the pair, here and in linked views. Arcs have the width and the
    ink of their value; only the strongest are drawn, at most three a sentence and 300. Neighbours matter
    most to each other: the menu of distances leaves them out.

    Args:
        shown: Result of `aw.circuits.sentence_attribution`, another MixingMap of a text that reads
            itself, or a trace (then: its attention between sentences).
        least: Share of the largest value from which arcs are drawn, 0 to 1.
        distance: Sentences nearer to each other than this are left out; 1: none.

    Raises:
        TypeError: `shown` is neither a map nor a trace.
        ValueError: The map lies between two texts, has more than 400 sentences, or holds logarithms (as
            published by the authors of Thought Anchors), which have no zero to draw arcs from; `least` or
            `distance` is out of its range.
    """

    _VIEW = "SentenceView"
    _HEIGHT = 500
    NEEDS = Needs(("sentences",), typed_texts=False)

    def __init__(
        self, shown: Any, *, least: float = 0.1, distance: int = 1, **options: Unpack[ViewOptions]
    ) -> None:
        if not isinstance(shown, MixingMap) and not is_trace(shown):
            raise TypeError(
                "SentenceView() shows the result of aw.circuits.sentence_attribution, another map, or a "
                f"trace, not {type(shown).__name__}."
            )
        if not 0 <= least <= 1:
            raise ValueError(f"least={least!r} is a share of the largest value: give 0 to 1.")
        if isinstance(distance, bool) or not isinstance(distance, int) or distance < 1:
            raise ValueError(f"distance={distance!r} is a number of sentences: give 1 or more.")
        if isinstance(shown, MixingMap):
            _check(shown)
        self._least, self._distance = float(least), distance
        super().__init__(shown, **options)

    def _join(self, start: Mapping[str, Any]) -> Link:
        """Join the views of the text, with the unit of this view, which others do not change."""
        link = super()._join(start)
        default = self.content.main.unit if self.content.trace is None else _UNIT
        units = [source.unit for source in link.store.sources()]
        unit = self._start["unit"] or default
        self._options["unit"] = unit if unit in units else None
        return link

    def _own_options(self) -> dict[str, Any]:
        counts = [len(axis) for axis in _axes(self.content.main, of_trace=self.content.trace is not None)]
        if max(counts) > MOST:
            raise ValueError(
                f"SentenceView() shows up to {MOST} sentences, and this text has {max(counts):,}; show a "
                'Heatmap, or paragraphs: unit="paragraph" of aw.circuits.sentence_attribution.'
            )
        return {"least": self._least, "distance": self._distance}

    def describe(self) -> str:
        """Return the strongest dependences of the chosen sentence, and the strongest of all, in words."""
        from attnwidgets.views.still.texts import sentence_words

        return sentence_words(self.presentation)

    def _still(self, theme: Theme) -> Sheet:
        from attnwidgets.views.still.texts import sentence_sheet

        return sentence_sheet(self.presentation, theme)


def _axes(shown: Any, *, of_trace: bool) -> list[Any]:
    """Return the elements that are shown, as queries and as keys."""
    unit = _UNIT if of_trace and _UNIT in shown.query.units else shown.unit
    return [axis.units[unit] for axis in (shown.query, shown.key)]


def has_arcs(shown: MixingMap) -> bool:
    """Return whether a map is of sentences that depend on each other, which this view shows best."""
    counts = [len(axis) for axis in _axes(shown, of_trace=False)]
    return shown.method == "circuits.sentence_attribution" and max(counts) <= MOST and not _is_log(shown)


def _is_log(shown: MixingMap) -> bool:
    options = dict(shown.provenance.get("options") or {})
    return bool(options.get("as_published")) and options.get("method") == "suppress"


def _check(shown: MixingMap) -> None:
    """Refuse maps without arcs."""
    queries, keys = _axes(shown, of_trace=False)
    if queries.labels != keys.labels:
        raise ValueError(
            "SentenceView() shows a text that reads itself, and this map lies between two; show a Heatmap."
        )
    if _is_log(shown):
        raise ValueError(
            "SentenceView() draws sizes, and as_published=True returns logarithms, which have no zero; leave "
            "it out, or show a Heatmap."
        )
