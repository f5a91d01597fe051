"""Maps of a sound on the axis of its time: rows are words, tokens or time, columns equal parts of seconds.

`HeardMaps` puts the alignment and the explanations of a trace on the frames of the sound, without padding.
Rows of a unit are the mean over its tokens or frames. A word that a decoder wrote has the rows of the
positions before its tokens, which predict them. Long sounds are pooled to `MOST_COLUMNS`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from attnwidgets._errors import require_choice
from attnwidgets.explanations.results.attributions import Attributions
from attnwidgets.speech.word_times import frame_step, frame_unit
from attnwidgets.views.presentation import title_of
from attnwidgets.views.wire.axes import target_labels

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from attnwidgets.explanations.results.mixing_map import MixingMap
    from attnwidgets.speech.word_times import WordTimes
    from attnwidgets.tracing.text.units import TokenAxis, Unit
    from attnwidgets.tracing.trace import Trace

    Float = NDArray[np.float64]
    Head = int | str

ALIGNMENT = "alignment"
"""The name of the map from which word times were read."""
MOST_COLUMNS = 600
"""Longer sounds are shown in wider parts: a column is then the mean over several frames."""
MOST_ROWS = 128
"""Rows of a map of time by time."""
_STANDARDISED = "relative to other words, in sd"
_POSTERIOR = "probability of the token"
_SHARE = "share of the row, for each frame"


@dataclass(frozen=True)
class Heard:
    """A map on the axis of time.

    Attributes:
        values: [row, column].
        labels: Names of the rows.
        spans: Seconds of every row (start, end); None where it is not in the sound.
        step: Seconds of a column; the first begins at 0.
        outside: Share of every row that lies on padding, which is not drawn [row]; None if not shares.
        measure: Meaning of the numbers, for the legend.
        path: Rows and seconds of the alignment's path, [step, 2]; empty where there is none.
    """

    values: Float
    labels: tuple[str, ...]
    spans: tuple[tuple[float, float] | None, ...]
    step: float
    measure: str
    outside: Float | None = None
    path: Float | None = None


class HeardMaps:
    """The maps of a sound: its alignment to words, and explanations whose columns are its frames.

    Args:
        trace: The trace, with words on its frames if `times` has them.
        times: Its words; None if there are none.
        explanations: MixingMaps or Attributions of the trace, by stack.
        writes: If True, use the row that predicts each token (position - 1), not the row at the token.
    """

    def __init__(
        self,
        trace: Trace,
        times: WordTimes | None,
        explanations: Sequence[Any],
        *,
        writes: bool = True,
    ) -> None:
        self.trace, self.times, self._back = trace, times, int(writes)
        self.frames = frame_unit(trace)
        self.step = frame_step(trace)
        self.maps = {
            (explanation.stack or "self"): explanation
            for explanation in explanations
            if keys_of(explanation).units.get("frame") == self.frames
        }

    @property
    def written(self) -> list[int]:
        """The element of the decoder's words that each word of the sound is; -1: it did not write it."""
        if "decoder" not in self.trace.stacks or self.times is None:
            return []
        return elements_of_words(self.trace.axes("decoder")[0].units.get("word"), self.times.words)

    @property
    def spoken(self) -> Unit:
        """The words of the sound, on the frames of its trace."""
        axes = (axis for stack in self.trace.stacks for axis in self.trace.axes(stack))
        return next(a.units["word"] for a in axes if a.units.get("frame") == self.frames)

    @property
    def heard(self) -> list[int]:
        """Frames that are not padding."""
        return [number for number, special in enumerate(self.frames.special) if not special]

    @property
    def names(self) -> dict[str, tuple[str, str]]:
        """Label and unit-free description of every map, by name; a view opens with the first."""
        result = {}
        if self.times is not None and len(self.times.matrix):
            if self.times.how == "ctc":
                result[ALIGNMENT] = ("CTC", "how probable it is that a frame says a token")
            else:
                count = len(self.times.heads)
                result[ALIGNMENT] = (
                    f"{count} alignment head{'s' * (count > 1)}",
                    "cross-attention above that of the other tokens, from which word times are read",
                )
        # The written text comes first, if its words can be matched with those of the sound.
        first = "cross" if self.times is None or "words" in self.rows_of("cross") else "encoder"
        for stack in sorted(self.maps, key=lambda name: name != first):
            title = title_of(self.maps[stack].title.replace("_", " "))
            where = {"cross": "cross-attention", "encoder": "encoder", "self": "self-attention"}.get(
                stack, stack
            )
            is_attention = self.maps[stack].method == "attention"
            label = where if is_attention else f"{title}, {stack}"
            about = "" if isinstance(self.maps[stack], Attributions) else ", of one head in one layer"
            result[stack] = (label, f"{title.lower()}{about}")
        if ALIGNMENT in result and any(item.method != "attention" for item in self.maps.values()):
            result[ALIGNMENT] = result.pop(ALIGNMENT)  # requested maps come first
        return result

    def rows_of(self, name: str) -> tuple[str, ...]:
        """Return the kinds of rows in which a map can be read; a view opens with the first."""
        worded = ("words",) if self.times is not None else ()
        if name == ALIGNMENT:
            return (*worded, "tokens")
        if isinstance(self.maps.get(name), Attributions):
            return ("targets",)
        if name == "cross":
            # Words that were given may be others than those that the decoder wrote.
            return (*(worded if min(self.written, default=-1) >= 0 else ()), "tokens")
        return (*worded, "time")

    def layers_of(self, name: str) -> Sequence[int]:
        """Return the layers of a map; (0,) of a map without layers."""
        return getattr(self.maps.get(name), "layers", (0,))

    def heads_of(self, name: str) -> Sequence[int] | None:
        """Return the heads of a map; None if it has none."""
        heads: Sequence[int] | None = getattr(self.maps.get(name), "heads", None)
        return heads

    def is_at_hand(self, name: str) -> bool:
        """Return whether a map's layers are there, and need not be computed."""
        result = self.maps.get(name)
        return not (getattr(result, "runs_model", False) or getattr(result, "on_demand", False))

    def of(self, name: str, rows: str, layer: int, head: Head) -> Heard:
        """Return a map.

        Args:
            name: Name of the map, of `names`.
            rows: "words", "tokens" or "time"; of attributions "targets".
            layer: Number of the layer; of no account for the alignment.
            head: Number of the head, "mean" or "max", or "-" without heads.

        Raises:
            ValueError: The map or its rows are unknown.
            IndexError: The layer or head is out of range.
        """
        require_choice("map", name, tuple(self.names))
        require_choice("rows", rows, self.rows_of(name))
        if name == ALIGNMENT:
            return self._alignment(rows)
        explanation = self.maps[name]
        if isinstance(explanation, Attributions):
            return self.of_targets(explanation, explanation.unit, np.atleast_2d(explanation.values))
        if name == "cross":
            labels, spans, groups = self._written(explanation, rows)
        else:
            labels, spans, groups = self._spoken(explanation, rows)
        queries = sorted({query for group in groups for query in group})
        at = {query: number for number, query in enumerate(queries)}
        values = _matrix(explanation, layer, head, queries)
        read = np.stack([values[[at[query] for query in group]].mean(axis=0) for group in groups])
        columns, outside = self._in_time(read, explanation)
        has_shares = explanation.known("stochastic")
        measure = _SHARE if has_shares else explanation.title
        pooled, step = self._pooled(columns)
        return Heard(pooled, labels, spans, step, measure, outside if has_shares else None)

    def of_targets(self, explanation: Any, unit: str, values: Float) -> Heard:
        """Return attributions over time: a row for every target.

        Args:
            explanation: Attributions over frames of the sound, or the map of their layers.
            unit: The unit of `values`, whose numbers stand over all their frames.
            values: [target, element].
        """
        spans = keys_of(explanation).units[unit].spans
        owner = {frame: element for element, span in enumerate(spans) for frame in span}
        pooled, step = self._pooled(values[:, [owner[frame] for frame in self.heard]])
        is_whole = isinstance(explanation, Attributions)
        labels = tuple(target_labels(explanation) if is_whole else explanation.query_labels)
        return Heard(pooled, labels, (None,) * len(labels), step, explanation.title)

    def _alignment(self, rows: str) -> Heard:
        times = self.times
        assert times is not None  # noqa: S101 - the names say so
        ends = token_ends(times)
        count = len(ends)
        groups = [range(*pair) for pair in times.tokens] if rows == "words" else [[i] for i in range(count)]
        values = np.stack([times.matrix[list(group)].mean(axis=0) for group in groups])
        labels = times.words if rows == "words" else times.token_labels[:count]
        spans = _pairs(times.start, times.end) if rows == "words" else tuple(ends)
        owner = {element: number for number, group in enumerate(groups) for element in group}
        steps = [
            (owner[int(token)], int(frame) * times.step)
            for token, frame in zip(*times.path, strict=True)
            if int(token) in owner
        ]
        pooled, step = self._pooled(values)
        outside = times.padding if rows == "words" else None
        measure = _POSTERIOR if times.how == "ctc" else _STANDARDISED
        return Heard(
            pooled, labels, spans, step, measure, outside, np.array(steps, dtype=float).reshape(-1, 2)
        )

    def _written(self, explanation: MixingMap, rows: str) -> tuple[Any, Any, list[list[int]]]:
        """Return names, seconds and queries of a decoder's words; the query before a token writes it."""
        axis = explanation.query
        spans = _pairs(self.times.start, self.times.end) if self.times else ()
        if rows == "words" and self.times is not None:
            if explanation.unit == "word":
                return self.times.words, spans, [[element] for element in self.written]
            groups = [axis.units["word"].spans[element] for element in self.written]
            return (
                self.times.words,
                spans,
                [[self._row(token) for token in group] for group in groups],
            )
        if explanation.unit == "word":
            unit = axis.units["word"]
            return unit.labels, (None,) * len(unit), [[index] for index in range(len(unit))]
        special = axis.units["token"].special
        tokens = [index for index in range(len(special)) if not special[index]]
        ends = tuple(token_ends(self.times)) if self.times else ()
        row_ends = ends if len(ends) == len(tokens) else (None,) * max(1, len(tokens))
        if not tokens:  # the start alone
            return axis.tokens[:1], row_ends, [[0]]
        return (
            tuple(axis.tokens[token] for token in tokens),
            row_ends,
            [[self._row(token)] for token in tokens],
        )

    def _row(self, position: int) -> int:
        return max(0, position - self._back)

    def _spoken(self, explanation: MixingMap, rows: str) -> tuple[Any, Any, list[list[int]]]:
        """Return names, seconds and queries of an encoder's frames, by words or by time."""
        if explanation.unit == "word" or rows == "words":
            # A map that was made before the alignment has no words.
            unit = explanation.query.units.get("word") or self.spoken
            shown = [index for index, special in enumerate(unit.special) if not special]
            groups = [
                [element] if explanation.unit == "word" else list(unit.spans[element]) for element in shown
            ]
            times = unit.times or (None,) * len(unit)
            return tuple(unit.labels[i] for i in shown), tuple(times[i] for i in shown), groups
        heard = self.heard
        size = -(-len(heard) // MOST_ROWS)
        groups = [heard[first : first + size] for first in range(0, len(heard), size)]
        spans = tuple((group[0] * self.step, (group[-1] + 1) * self.step) for group in groups)
        return tuple(f"{start:.2f} s" for start, _ in spans), spans, groups

    def _in_time(self, values: Float, explanation: MixingMap) -> tuple[Float, Float]:
        """Return rows by frame without padding [row, frame], and their sums over padding [row]."""
        if explanation.unit == "word":
            unit = explanation.key.units["word"]
            owner = {frame: element for element, span in enumerate(unit.spans) for frame in span}
            columns = values[:, [owner[frame] for frame in self.heard]]
        else:
            unit, columns = self.frames, values[:, self.heard]
        return columns, values[:, np.asarray(unit.special, dtype=bool)].sum(axis=1)

    def _pooled(self, values: Float) -> tuple[Float, float]:
        """Return at most `MOST_COLUMNS` columns, the means of neighbours, and their seconds."""
        size = -(-values.shape[1] // MOST_COLUMNS)
        starts = np.arange(0, values.shape[1], size)
        counts = np.diff(starts, append=values.shape[1])
        return np.add.reduceat(values, starts, axis=1) / counts, self.step * size


def keys_of(explanation: Any) -> TokenAxis:
    """Return the elements that a map's rows read, or to which attributions are."""
    axis: TokenAxis = explanation.axis if isinstance(explanation, Attributions) else explanation.key
    return axis


def token_ends(times: WordTimes) -> list[tuple[float, float]]:
    """Return the seconds of every token of an alignment: its row of the path, up to where the next begins."""
    tokens, frames = times.path
    first = {int(token): int(frame) for token, frame in zip(tokens[::-1], frames[::-1], strict=True)}
    last = {int(token): int(frame) + 1 for token, frame in zip(tokens, frames, strict=True)}
    count = max((pair[1] for pair in times.tokens), default=0)
    ends = last if times.how == "ctc" else {token - 1: frame for token, frame in first.items()}
    return [(first[token] * times.step, ends[token] * times.step) for token in range(count) if token in ends]


def _matrix(explanation: MixingMap, layer: int, head: Head, queries: Sequence[int]) -> Float:
    """Return some rows of a head, or of heads together [query, key]."""
    if explanation.heads is None:
        return np.asarray(explanation.rows(layer, None, queries), dtype=np.float64)
    if head in ("mean", "max"):
        every = np.asarray(explanation.rows(layer, None, queries), dtype=np.float64)
        return np.asarray(every.mean(axis=0) if head == "mean" else every.max(axis=0))
    number = explanation.heads[0] if isinstance(head, str) else head
    return np.asarray(explanation.rows(layer, [number], queries)[0], dtype=np.float64)


def _pairs(start: Float, end: Float) -> tuple[tuple[float, float], ...]:
    return tuple((float(first), float(last)) for first, last in zip(start, end, strict=True))


def elements_of_words(unit: Unit | None, names: Sequence[str]) -> list[int]:
    """Return for each word, in order, the element of the unit that stands for it; -1 where none does."""
    if unit is None:
        return [-1] * len(names)
    elements, at = [], 0
    content = [index for index, special in enumerate(unit.special) if not special]
    for name in names:
        result = next((i for i in range(at, len(content)) if unit.labels[content[i]] == name), None)
        elements.append(-1 if result is None else content[result])
        at = at if result is None else result + 1
    return elements
