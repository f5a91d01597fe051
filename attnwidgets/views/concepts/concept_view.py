"""The view of concepts: scores over layers, with random texts, and texts by how much they show a concept."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from attnwidgets._errors import suggest
from attnwidgets._selecting import position
from attnwidgets._tables import csv_of
from attnwidgets.concepts.concept_scores import ACCURATE, ConceptScores
from attnwidgets.views.base.expressions import listed
from attnwidgets.views.base.needs import Needs
from attnwidgets.views.base.standalone_view import TextsView, cut, numbers, said
from attnwidgets.views.wire.handlers import Handler

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from typing_extensions import Unpack

    from attnwidgets.figures.sheet import Sheet
    from attnwidgets.figures.theme import Theme
    from attnwidgets.views.base.expressions import Kinds, Path
    from attnwidgets.views.base.options import TitleOptions
    from attnwidgets.views.wire.handlers import Answer

MOST = 200
"""Examples that are listed: of more, the first and the last by the chosen concept."""


class ConceptView(TextsView):
    """Concepts over layers: does the prediction depend on a concept, and less on random texts?

    A line for each concept shows the share of examples that it raises, over the layers; the grey band is
    where nine of ten directions of random texts lie. A point is hollow where the score is not significant
    (corrected p above the level, or a direction that does not hold for held-out texts). A click on a layer
    selects it, here and in linked views; a click on a concept chooses it. The examples are sorted by how much
    their state at this layer shows the concept, the most first, and each opens with a click.

    Args:
        shown: Result of `aw.concepts.tcav`.
        concept: Name of the concept that is chosen at first; None: the first concept.
        layer: Layer that is selected at first; None: the linked view's, or the significant layer whose score
            is furthest from the band.
        linked: A view of a trace of the same model, such as `aw.Explorer(trace)`. Its layer is this view's,
            and a text that is clicked is shown in it, and in the views that are linked with it. None: a click
            copies the line of Python that opens the text.

    Raises:
        TypeError: `shown` holds no scores of concepts, or `linked` is not a view of a trace.
        ValueError: The concept is unknown.
        IndexError: The layer is out of range.
    """

    _VIEW = "ConceptView"
    NEEDS = Needs(("concepts",))

    def __init__(
        self,
        shown: Any,
        *,
        concept: str | None = None,
        layer: int | None = None,
        linked: Any = None,
        **options: Unpack[TitleOptions],
    ) -> None:
        if not isinstance(shown, ConceptScores):
            raise TypeError(
                f"ConceptView() shows the result of aw.concepts.tcav, not {type(shown).__name__}."
            )
        if concept is not None and concept not in shown.concepts:
            names = ", ".join(map(repr, shown.concepts))
            raise ValueError(f"concept={concept!r} is not one of {names}.{suggest(concept, shown.concepts)}")
        self._scores = shown
        self._concept = 0 if concept is None else shown.concepts.index(concept)
        self._layer = None if layer is None else shown.layers[position(layer, shown.layers, "layer")]
        super().__init__(linked, **options)
        self._take_layer()

    def _take_layer(self) -> None:
        """Select the requested layer, or the layer with most to see."""
        layer = self._layer
        if layer is None and self._linked is None:
            scores, (low, high) = self._scores.scores[self._concept], self._scores.band
            outside = np.nan_to_num(np.maximum(scores - high, low - scores), nan=-1.0)
            best = np.lexsort((-outside, ~self._scores.significant[self._concept]))[0]
            layer = self._scores.layers[int(best)]
        if layer is None:
            return
        if self._linked is None or layer in self._linked_layers():
            self.selection.layer = layer
        else:
            self.add_options(layer=layer)

    def _own_options(self) -> dict[str, Any]:
        return {**super()._own_options(), "concept": self._concept, "layer": None}

    @property
    def layer(self) -> int:
        """The layer whose texts are listed: the selected layer, or the nearest with a score."""
        selected = self.selection.layer if self.options["layer"] is None else self.options["layer"]
        return min(self._scores.layers, key=lambda number: abs(number - selected))

    def score(self, concept: int | str, layer: int) -> float:
        """Return a score that the view shows: the share of examples that the concept raises, 0 to 1.

        Args:
            concept: Name of the concept, or its index.
            layer: Number of the layer.

        Raises:
            ValueError: The concept is unknown.
            IndexError: The layer or index is out of range.
        """
        row, column = self._at(concept, layer)
        return float(self._scores.scores[row, column])

    def _at(self, concept: int | str, layer: int) -> tuple[int, int]:
        names = self._scores.concepts
        if isinstance(concept, str) and concept not in names:
            raise ValueError(f"concept={concept!r} is not one of {names}.{suggest(concept, names)}")
        row = (
            names.index(concept)
            if isinstance(concept, str)
            else position(concept, range(len(names)), "concept")
        )
        return row, position(int(layer), self._scores.layers, "layer")

    def _handlers(self) -> Mapping[str, Handler]:
        return {
            **super()._handlers(),
            "concepts": Handler(self._data),
            "texts": Handler(self._sorted, for_page=self._places, prefetched=self._opening),
        }

    def _data(self) -> Answer:
        """Answer with the scores of every concept and layer (`Concepts` of concepts/concepts.ts)."""
        shown = self._scores
        low, high = shown.band
        rows = range(len(shown.concepts))
        meta = {
            "concepts": [cut(name) for name in shown.concepts],
            "layers": list(shown.layers),
            "target": cut(shown.target),
            "about": f"{shown.cav.replace('_', ' ')}, {shown.by_run.shape[2]} run"
            f"{'s' * (shown.by_run.shape[2] != 1)}, at {shown.at}",
            "examples": len(shown.examples),
            "level": shown.level,
            "accurate": ACCURATE,
            "scores": [numbers(shown.scores[row]) for row in rows],
            "accuracy": [numbers(shown.accuracy[row]) for row in rows],
            "p": [numbers(shown.p_holm[row]) for row in rows],
            "significant": shown.significant.tolist(),
            "low": numbers(low),
            "high": numbers(high),
            "notes": said(shown.notes),
        }
        return meta, []

    def _places(self) -> Iterator[dict[str, Any]]:
        """Yield the concepts and layers whose texts a page holds, the shown pair first."""
        first = {"concept": self.options["concept"], "layer": self.layer}
        yield first
        for concept in range(len(self._scores.concepts)):
            for layer in self._scores.layers:
                if (concept, layer) != (first["concept"], first["layer"]):
                    yield {"concept": concept, "layer": layer}

    def _opening(self) -> Iterator[dict[str, Any]]:
        yield from self._places() if len(self._scores.concepts) * len(self._scores.layers) <= MOST else ()

    def _sorted(self, concept: int, layer: int) -> Answer:
        """Answer with the examples by their cosine with a concept (`SortedTexts` of concepts/concepts.ts)."""
        row, column = self._at(int(concept), int(layer))
        ranked = self._scores.sort(self._scores.concepts[row], self._scores.layers[column])
        listed_texts = ranked if len(ranked) <= MOST else [*ranked[: MOST // 2], *ranked[-(MOST // 2) :]]
        sensitivity = self._scores.sensitivity
        return {
            "left": len(ranked) - len(listed_texts),
            "numbers": [item.number for item in listed_texts],
            "texts": [cut(item.text) for item in listed_texts],
            "cosines": numbers(item.cosine for item in listed_texts),
            "sensitivities": numbers(sensitivity[item.number, row, column] for item in listed_texts),
        }, []

    def _text(self, at: int) -> str:
        texts = self._scores.examples.texts
        return texts[position(at, range(len(texts)), "text")]

    def _numbers(self) -> Kinds:
        return {"score": self._score_paths}

    def _score_paths(self, concept: int, layer: int) -> Iterator[Path]:
        """Yield the paths to a score, by the index of its concept and the number of its layer."""
        row, column = self._at(int(concept), int(layer))
        yield self._scores, f".scores[{row}, {column}].item()"
        yield self, f".score({listed(self._scores.concepts[row], int(layer))})"

    def _expressions(self) -> Iterator[dict[str, Any]]:
        for concept in range(len(self._scores.concepts)):
            for layer in self._scores.layers:
                yield {"of": "score", "concept": concept, "layer": layer}

    def describe(self) -> str:
        """Return the scores in words, with their significance and notes."""
        return repr(self._scores)

    def _still(self, theme: Theme) -> Sheet:
        from attnwidgets.concepts.figures import concept_sheet

        del theme
        sheet = concept_sheet(self._scores)
        return replace(sheet, title=str(self.options["title"]) or sheet.title)

    def _table(self) -> str:
        return table_of(self._scores.to_rows())

    def __repr__(self) -> str:
        return f"{self._VIEW}({self._scores!r})"


def table_of(rows: list[dict[str, Any]]) -> str:
    """Return rows as CSV, in which no label is a formula."""
    return csv_of([*rows[:1], *(row.values() for row in rows)])
