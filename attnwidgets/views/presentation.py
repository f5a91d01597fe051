"""The presentation of a view: its layer, head, row, numbers and words, decided without a widget.

`Presentation.of` resolves a selection against the sources of a view, as the browser does. Figures, small
pictures, alternative texts and pages read the result, so that none of them decides for itself.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from attnwidgets.explanations.results.block_mixers import head_words, measure_of
from attnwidgets.explanations.results.verbalise import (
    SINK_NAME,
    SPANS,
    findings_of,
    matrix_words,
    place_words,
    row_words,
)
from attnwidgets.views.base.opening import last_content
from attnwidgets.views.base.options import APART, filter_words, filtered, stands_apart
from attnwidgets.views.text.forgetting import forgetting_words

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from attnwidgets.views.base.opening import Opening
    from attnwidgets.views.base.selection import Selection
    from attnwidgets.views.wire.sources import Source

    Float = NDArray[np.float64]

_MOST_CELLS = 2**22
"""Cells of a matrix up to which it is described in words."""


@dataclass(frozen=True)
class Presentation:
    """The source, layer, head and pinned cell that a view shows, and the options that apply to them.

    Attributes:
        sources: All sources that the view offers.
        source: The source that is shown.
        layer: Its layer.
        head: Its head: a number, "mean", "max", or "-" without a head axis.
        pinned: The pinned (query, key) in the elements of the source; -1 for a side without a pin.
        options: The options of the view, as the browser has them.
        opening: Where the views of the trace opened, while no cell is pinned; else None.
        explains: Key of the method that colours the text until a method, a cell or an intervention is
            chosen; else "".
        forgets: Returns the shares that a layer and head of a source forget at each element, by name.
    """

    sources: Sequence[Source]
    source: Source
    layer: int
    head: int | str
    pinned: tuple[int, int] | None
    options: Mapping[str, Any]
    opening: Opening | None = None
    explains: str = ""
    forgets: Callable[[Source, int, int | str], Mapping[str, Float]] = lambda *_: {}

    @classmethod
    def of(
        cls,
        sources: Sequence[Source],
        selection: Selection,
        options: Mapping[str, Any],
        explains: str = "",
        forgets: Callable[[Source, int, int | str], Mapping[str, Float]] = lambda *_: {},
    ) -> Presentation:
        """Return the map of a view that a selection shows.

        A method, stack, unit, layer or head that the view lacks is replaced by the nearest that it has.

        Args:
            sources: The sources of the view, at least one.
            selection: Only its values are read.
            options: The options of the view: "method", "stack" and "unit" override the selection.
            explains: Key of the method that explains predictions; "" without such a method.
            forgets: Returns the shares that a layer and head of a source forget at each element, by name.
        """
        remaining = list(sources)
        for name in ("method", "stack", "unit"):
            value = options[name] or getattr(selection, name)
            if all(getattr(source, name) != value for source in remaining):
                value = getattr(remaining[0], name)
            remaining = [source for source in remaining if getattr(source, name) == value]
        source = remaining[0]
        layer = min(source.layers, key=lambda number: abs(number - selection.layer))
        head: int | str = selection.head
        if source.heads is None:
            head = "-"
        elif head == "-":
            head = "mean"
        elif not isinstance(head, str):
            head = min(source.heads_of(layer), key=lambda number: abs(number - int(selection.head)))
        is_chosen = options["method"] or selection.pinned or selection.interventions
        return cls(
            tuple(sources),
            source,
            layer,
            head,
            _pinned(selection, source),
            options,
            None if selection.pinned else selection.opening,
            "" if is_chosen else explains,
            forgets,
        )

    @cached_property
    def explanation_at_rest(self) -> Source | None:
        """The explanation of the prediction that colours the text while nothing else is chosen; or None.

        Its twin is `explanationAtRest` in js/src/views/base/explained.ts.
        """
        source = self.source
        if source.of_targets or not self.explains:
            return None
        identity = (self.explains, source.unit, source.stack)
        return next(
            (
                other
                for other in self.sources
                if (other.method, other.unit, other.stack) == identity and other.axes()[1] == source.axes()[1]
            ),
            None,
        )

    @property
    def sentence(self) -> str:
        """The colours of the text in a sentence; "" for a row of a map."""
        if self.explanation_at_rest is not None:
            return findings_of(self.explanation_at_rest.explanation)[0]
        return findings_of(self.source.explanation)[max(self.row, 0)] if self.source.attributions else ""

    @property
    def value_words(self) -> str:
        """The meaning of a value, in models of several mixers; "" where it is an attention weight."""
        mixers = self.source.mixers.get(self.layer)
        return "" if mixers is None else mixers.meaning(self.head, measure_of(self.source.explanation))

    @cached_property
    def forgotten(self) -> Mapping[str, Float]:
        """Shares forgotten at each element, by name [element], as the strip beneath the text shows them."""
        return self.forgets(self.source, self.layer, self.head)

    @property
    def filters(self) -> dict[str, Any]:
        """The filters that differ from the view's defaults: `Filters` of wire.ts."""
        return dict(self.options.get("filters") or {})

    @property
    def labels(self) -> tuple[list[str], list[str]]:
        """Names of the queries and of the keys."""
        query, key = self.source.axes()
        return query["labels"], key["labels"]

    @property
    def row(self) -> int:
        """The pinned row, or without a pin that which a map opens on; -1 without either."""
        opening = self.opening
        row = self.pinned[0] if self.pinned else -1
        if opening is not None and opening.query >= 0 and not self.source.attributions:
            axis = self.source.axes()[0]
            is_same = opening.unit == self.source.unit and opening.query < len(axis["labels"])
            row = opening.query if is_same else last_content(axis["labels"], axis["special"])
        return row if 0 <= row < len(self.labels[0]) else -1

    def title(self, head: int | str | None = None, about: str = "") -> str:
        """The view's title, or else the name of the map; then `about` and the filters in words."""
        base = self.options["indexBase"]
        words, kind = [str(self.options["title"]) or self.source.title], ""
        if not self.options["title"]:
            if self.source.stack != "self":
                words.append(self.source.stack)
            mixers = self.source.mixers.get(self.layer)
            if not self.source.attributions:
                words.append(f"layer {self.layer + base}")
                kind = mixers.kind("-" if head is None else head) if mixers else ""
            if head is not None:
                words.append(mixers.words(head, base) if mixers else head_words(head, base))
        left_out = filter_words(self.filters, shares=self.source.rescales)
        return " · ".join(filter(None, (", ".join(filter(None, words)) + about, kind, left_out)))

    def shown_row(self) -> Float:
        """Return `row` [key] with NaN for every value that is not shown."""
        row = slice(self.row, self.row + 1)
        values = self.source.row(self.layer, self.head, self.row)[None]
        shown: Float = self.source.where_compared(
            self.filtered(values, rows=row, masked=False), self.layer, row
        )[0]
        return shown

    def filtered(
        self,
        matrix: NDArray[np.floating],
        *,
        rows: slice = slice(None),
        masked: bool = True,
        **other: Any,
    ) -> Float:
        """Return a matrix [query, key] with NaN in every cell that is not shown.

        Args:
            matrix: [query, key].
            rows: Which queries its rows are.
            masked: Hide cells that no row may read: those above the diagonal of a causal map, and keys that a
                layer did not choose; otherwise they are zeros.
            other: Filters that replace those of the view.
        """
        query, key = self.source.axes()
        shown = filtered(
            matrix,
            self.filters | other,
            special=np.asarray(key["special"], dtype=bool),
            drops=None if self.source.of_targets else np.asarray(query["special"], dtype=bool)[rows],
            shares=self.source.rescales,
        )
        if masked and self.source.causal and len(shown) == shown.shape[1]:
            shown[np.triu_indices(len(shown), 1)] = np.nan
        return self.source.where_compared(shown, self.layer) if masked else shown

    def to_sink(self) -> float | None:
        """Return the mean share of no token in the rows of the shown matrix; None without a sink."""
        shares = self.source.to_sink(self.layer, self.head)
        return None if shares is None else float(shares[~self.apart()[0]].mean())

    def most_keys(self) -> str:
        """Return how many keys rows of the shown layer read, in words; "" for all, or all earlier keys."""
        reads = self.source.keys_read(self.layer)
        return "" if reads is None else f"a row reads at most {reads.max()} of {self.source.shape[1]} keys"

    def row_facts(self, row: int) -> str:
        """Return a row's share of no token and its number of keys, in words; "" without a sink or limit.

        Its twin is `rowWords` in js/src/views/base/rowFacts.ts.
        """
        sink, reads = self.source.to_sink(self.layer, self.head), self.source.keys_read(self.layer)
        facts = [] if sink is None else [f"{SINK_NAME} = {sink[row]:.2g}"]
        facts += [] if reads is None else [f"reads {reads[row]} of {self.source.shape[1]} keys"]
        return " · ".join(facts)

    def apart(self) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Return which queries and which keys stand apart from the map."""
        sides = [np.asarray(axis["special"], dtype=bool) for axis in self.source.axes()]
        is_apart = self.filters.get("special", APART) == APART
        query, key = (stands_apart(side) if is_apart else np.zeros_like(side) for side in sides)
        return query, key

    def received(self) -> Float:
        """Return the mean weight of every key over queries [key], as a strip shows it.

        Special tokens do not count towards the mean; small values are then left out as in any row.
        """
        _, key = self.source.axes()
        whole = self.filtered(self.source.matrix(self.layer, self.head), masked=False, mass=1.0, least=0.0)
        counts = np.isfinite(whole).sum(axis=0)
        mean: Float = np.where(counts > 0, np.nansum(whole, axis=0) / np.maximum(counts, 1), np.nan)
        special = np.asarray(key["special"], dtype=bool)
        left = filtered(mean[None], self.filters | {"special": "show"}, special=special, shares=False)
        return np.asarray(left[0])


def words_of(state: Presentation) -> str:
    """Return the shown map in one to three sentences, from the numbers that pass the filters.

    Args:
        state: The map, layer and head of a view. A layer that is not computed yet is not computed for this.
    """
    source = state.source
    rows, columns = source.shape
    if source.explanation.method == "comparison" or source.coarse or rows * columns > _MOST_CELLS:
        return f"{state.title()}: {rows} by {columns} {source.unit}s"
    if source.on_demand and state.layer not in source.ready:
        return f"{state.title()}: not computed yet"
    queries, keys = state.labels
    name = title_of(source.title)
    matrix = state.filtered(source.matrix(state.layer, state.head), masked=False)
    matrix[state.apart()[0]] = np.nan
    if source.of_targets:
        sentences = []
        for label, values in list(zip(queries, matrix, strict=True))[:SPANS]:
            target, _, foil = label.partition(" − ")
            words = row_words(name, values, keys, target=target.strip(), foil=foil, unit=source.unit)
            sentences.append(words)
        more = len(queries) - len(sentences)
        return " ".join([*sentences, *([f"And {more} more target{'s' * (more > 1)}."] if more else [])])
    where = place_words(source.explanation, state.layer, state.head, state.options["indexBase"])
    about = matrix_words(
        f"{name} in {where}",
        np.asarray(matrix),
        queries,
        keys,
        shares=source.stochastic,
        sink=state.to_sink(),
        words=source.words,
    )
    most = state.most_keys()
    most = f"{most[:1].upper()}{most[1:]}." if most else ""
    meaning = f"Each value is the {state.value_words}." if state.value_words else ""
    forgotten = forgetting_words(state.forgotten, keys)
    return " ".join(filter(None, (state.sentence, about, most, meaning, forgotten)))


def title_of(title: str) -> str:
    """Return a source's title as the beginning of a sentence that names its target elsewhere."""
    short = re.split(" for ['\"]", title, maxsplit=1)[0]
    return short[:1].upper() + short[1:]


def _pinned(selection: Selection, source: Source) -> tuple[int, int] | None:
    """Return the pinned cell in the elements of a source; -1 for a side without a pin, None for no cell."""
    cell = selection.pinned
    if cell is None or source.unit == cell.unit:
        return None if cell is None else (cell.query, cell.key)
    explanation = source.explanation
    axes = (None, explanation.axis) if source.attributions else (explanation.query, explanation.key)

    def moved(index: int, axis: Any) -> int:
        if index < 0 or axis is None or not {cell.unit, source.unit} <= set(axis.units):
            return -1
        first = min(axis.units[cell.unit].spans[index], default=-1)
        spans = axis.units[source.unit].spans
        return next((i for i, span in enumerate(spans) if first in span), -1)

    query, key = (moved(index, axis) for index, axis in zip(cell, axes, strict=True))
    return None if query < 0 and key < 0 else (query, key)
