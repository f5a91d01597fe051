"""Handlers of heads: statistics, patterns and the order of a grid; heads like a head; pairs of tokens."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

import numpy as np

from attnwidgets._errors import quoted, require_choice
from attnwidgets._selecting import spoken
from attnwidgets.explanations.explanation import Explanation
from attnwidgets.views.wire.handlers import Handler
from attnwidgets.views.wire.header import opening_first

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray
    from typing_extensions import Self

    from attnwidgets.views.base.view import View
    from attnwidgets.views.wire.handlers import Answer
    from attnwidgets.views.wire.sources import Source

PAGE_CELLS = 20_000_000
"""Attention weights of a map above which a page leaves out its statistics: they would take long."""

OPENING_CELLS = 300_000_000
"""The same for the map, in the unit, that a view opens with."""

TRAVELLING_CELLS = 4_000_000
"""Attention weights up to which the patterns travel with the view: they are then read as it is shown."""

SIMILAR = 20
_NEEDLE = ("The secret word is banana.", "What is the secret word?")

_PREFIX = "table "  # before the names of a table's statistics, which the map may have as well
_LONGEST = 40
START = {"order": "all", "lowest": False, "only": None, "heads": ""}
"""Options of a grid that is sorted: over all heads, highest first, without filters."""


def head_handlers(view: View, sorting: Sorting) -> dict[str, Handler]:
    """Return the handlers of a view that shows a grid of heads. All requests name a source.

    - "statistics", answered at once: every statistic with name, title, definition, high (the meaning of a
      high value) and refusal (why the source does not have it, or ""); first those of a table that was given.
    - "head_statistics", a job with progress, since every layer is read: names, and the number of heads;
      buffer values [statistic, layer, head] (float32). It runs a model only for maps whose layers do.
    - "patterns", a job like it: every named pattern of `aw.statistics.head_patterns` with name, title,
      words, definition, refusal, and run (whether it runs the model on other texts, when chosen); own, the
      name of the strongest pattern of every head [layer][head]; buffer values [pattern, layer, head]
      (float32) of those without a refusal that do not run. None while a layer is yet to be computed.
    - "pattern_scores" (name), a job that runs the model: "induction" or "retrieval"; buffer values
      [layer, head] (float32).
    - "similar_heads" (layer, head), a job: found, a list of [layer, head, value]; see
      `aw.statistics.similar_heads`.
    """

    def described(source: str) -> Answer:
        requested = source_of(view, source)
        return [*sorting.described(requested), *statistics_of(requested)], []

    def measured(source: str) -> Answer:
        from attnwidgets.statistics.head_statistics import head_statistics

        requested = source_of(view, source)
        names = [entry["name"] for entry in sorting.described(requested)]
        values = sorting.values(requested)
        if has_shares(requested):
            statistics = head_statistics(requested.cheapest, unit=requested.unit)
            of_map = np.asarray(statistics.values, dtype="<f4").reshape(-1, *values.shape[1:])
            names, values = [*names, *statistics.names], np.concatenate([values, of_map])
        return {"names": names, "heads": values.shape[2]}, [values.tobytes()]

    def patterns(source: str) -> Answer:
        from attnwidgets.statistics.patterns import PATTERNS, head_patterns

        requested = source_of(view, source)
        if not has_shares(requested) or set(requested.ready) != set(requested.layers):
            return {"patterns": [], "own": [], "heads": 0}, []
        result = head_patterns(requested.cheapest, unit=requested.unit)
        entries = [described_pattern(item, result.left_out.get(item.name, "")) for item in PATTERNS]
        entries += [
            described_pattern(run_pattern, _run_refusal(view, run_pattern.name), run=True)
            for run_pattern in _run_patterns()
        ]
        values = np.asarray(result.values, dtype="<f4")
        return {"patterns": entries, "own": result.own, "heads": values.shape[2]}, [values.tobytes()]

    def scored(source: str, name: str) -> Answer:
        values = np.asarray(_score(view, source_of(view, source), name), dtype="<f4")
        return {"heads": values.shape[1]}, [values.tobytes()]

    def similar(source: str, layer: int, head: int) -> Answer:
        from attnwidgets.statistics.head_statistics import similar_heads

        requested = source_of(view, source)
        outcome = similar_heads(requested.cheapest, layer, head, k=SIMILAR, unit=requested.unit)
        return {"found": [list(item) for item in outcome]}, []

    for_page = partial(_for_page, view, sorting)
    return {
        "statistics": Handler(described, for_page=for_page),
        "head_statistics": Handler(measured, runs_model=True, for_page=for_page),
        "patterns": Handler(
            patterns,
            runs_model=True,
            for_page=lambda: chain(_without_shares(view), _for_page(view, Sorting(""))),
            prefetched=lambda: islice(_for_page(view, Sorting(""), TRAVELLING_CELLS), 1),
        ),
        "pattern_scores": Handler(scored, runs_model=True),
        "similar_heads": Handler(similar, runs_model=True),
    }


def has_shares(source: Source) -> bool:
    """Return whether the rows of a source are shares, as statistics need."""
    return not (source.attributions or source.signed)


def described_pattern(pattern: Any, refusal: str = "", *, run: bool = False) -> dict[str, Any]:
    """Return a pattern as menus show it: `PatternEntry` of js/src/live/patterns.ts."""
    names = ("name", "title", "definition")
    words = getattr(pattern, "words", pattern.high if run else "")
    return {name: getattr(pattern, name) for name in names} | {"words": words, "refusal": refusal, "run": run}


def _run_patterns() -> tuple[Any, ...]:
    from attnwidgets.statistics.induction import INDUCTION
    from attnwidgets.statistics.retrieval import RETRIEVAL

    return INDUCTION, RETRIEVAL


def _run_refusal(view: View, name: str) -> str:
    """Return why a pattern that runs the model on other texts is not available, or ""."""
    trace = view.content.trace
    if trace is None or getattr(trace, "model", None) is None:
        return "it runs the model, which this view does not have"
    if getattr(trace, "tokenizer", None) is None:
        return "it needs the tokenizer"
    if len(trace.stacks) > 1:
        return "encoder-decoders are not supported"
    if name == "retrieval" and not getattr(trace.model, "can_generate", lambda: False)():
        return "it needs a model that generates text"
    return ""


def _score(view: View, source: Source, name: str) -> Any:
    """Return the score of every head [layer, head] of a pattern that runs the model.

    Raises:
        ValueError: The pattern is unknown, or the model cannot be run for it; the message says why.
    """
    require_choice("name", name, [run_pattern.name for run_pattern in _run_patterns()])
    why = _run_refusal(view, name)
    if why:
        raise ValueError(f"{name}: {why}.")
    trace: Any = view.content.trace  # checked by _run_refusal
    if name == "induction":
        from attnwidgets.statistics.induction import fitting, induction_score

        length, repeats = fitting(trace.model, trace.tokenizer)
        result = induction_score(trace.model, trace.tokenizer, length=length, repeats=repeats)
    else:
        from attnwidgets.statistics.retrieval import retrieval_score

        result = retrieval_score(trace.model, trace.tokenizer, *_NEEDLE, words=60, depths=(0.2, 0.5, 0.8))
    rows = [result.layers.index(layer) for layer in source.layers]
    columns = [(result.heads or ()).index(head) for head in source.heads or ()]
    return result[name][np.ix_(rows, columns)]


def statistics_of(source: Source) -> list[dict[str, Any]]:
    """Return every statistic with its definition, and why the heads of a source do not have it."""
    if not has_shares(source):
        return []  # statistics are defined for rows of shares
    from attnwidgets.statistics.row_shares import Roles
    from attnwidgets.statistics.statistic import named

    roles = Roles(source.explanation.to(source.unit))
    return [
        {
            "name": statistic.name,
            "title": statistic.title,
            "definition": statistic.definition,
            "high": statistic.high,
            "refusal": statistic.refusal(roles),
        }
        for statistic in named(None)
    ]


def source_of(view: View, name: str) -> Source:
    """Return a source of a view by its id.

    Raises:
        LookupError: The view lacks the source.
    """
    source = next((source for source in view.sources() if source.id == name), None)
    if source is None:
        raise LookupError(f"this view shows no {name!r}; run the cell again.")
    return source


def _without_shares(view: View) -> Iterator[dict[str, Any]]:
    """Yield the sources that have no patterns with a kernel either: a page says so, and misses none."""
    for source in view.sources():
        if source.heads is not None and not has_shares(source):
            yield {"source": source.id}


def _for_page(view: View, sorting: Sorting, most: int | None = None) -> Iterator[dict[str, Any]]:
    """Yield the sources whose statistics a page holds: fully computed, and not too large."""
    for at, source in enumerate(opening_first(view.sources(), view.selection.unit)):
        limit = most or (PAGE_CELLS if at else OPENING_CELLS)
        is_small = source.cells <= limit and set(source.ready) == set(source.layers)
        if is_small and (statistics_of(source) or sorting.described(source)):
            yield {"source": source.id}


def pair_handlers(view: View, trace: Any = None) -> dict[str, Handler]:
    """Return the handlers of a pair.

    - "pair" (source, query, key): buffer values [layer, head] (float32). Layers that are yet to be computed,
      heads that a layer does not have and keys that were not compared are NaN; nothing is computed.
    - "computed" (stack, layer, head, query, key), if a trace is given: the steps from q . k to the weight of
      a token pair, in order: each a name and the number after it.
    """
    handlers = {"pair": Handler(partial(_pair, view), for_page=tuple)}
    return handlers | (
        {} if trace is None else {"computed": Handler(partial(_computed, trace), for_page=tuple)}
    )


def _pair(view: View, source: str, query: int, key: int) -> Answer:
    shown = source_of(view, source)
    rows, columns = shown.shape
    if not (0 <= int(query) < rows and 0 <= int(key) < columns):
        raise IndexError(
            f"pair ({query}, {key}) is out of range: there are {rows} queries and {columns} keys."
        )
    values = np.full((len(shown.layers), len(shown.heads or (0,))), np.nan, dtype="<f4")
    for index, layer in enumerate(shown.layers):
        if layer in shown.ready:
            weights = shown.read_across(layer, "query", int(query))[:, int(key)]
            values[index, : len(weights)] = weights
    return {}, [values.tobytes()]


def _computed(trace: Any, stack: str, layer: int, head: int, query: int, key: int) -> Answer:
    from attnwidgets.explanations.mixing.attention import attention_row

    row = attention_row(trace, int(layer), int(head), int(query), stack=str(stack))
    key = int(key)
    if not 0 <= key < len(row.dot):
        raise IndexError(f"key {key} is out of range: there are {len(row.dot)}, 0 to {len(row.dot) - 1}.")
    if row.masked[key]:
        is_later = trace.is_causal(str(stack)) and key > int(query)
        why = "comes later than the query: it is masked" if is_later else "was not compared with the query"
        return {"steps": [], "note": f"This key {why}."}, []
    dim = len(row.query)
    score = "q · k" if row.additive is None else "v · tanh(q + k)"
    steps = [(f"{score}, over {dim} dimensions", row.dot[key])]
    is_root = np.isclose(row.scaling, dim**-0.5)
    if row.additive is None or row.scaling != 1:
        steps.append((f"× 1 / √{dim}" if is_root else f"× {row.scaling:.4g}", row.scaled[key]))
    if row.softcap is not None:
        steps.append((f"capped at ± {row.softcap:.4g}", row.capped[key]))
    if row.bias is not None:
        steps.append(("+ bias of the position", row.scores[key]))
    readable = int((~row.masked).sum())
    over = f"softmax over {readable} keys"
    if row.sink is not None:
        over += f" and the sink, whose score is {row.sink:.4g}"
    steps.append((over, row.weights[key]))
    note = "" if row.dtype == "float32" else f"The model computes in {row.dtype}, and so rounds every step."
    return {"steps": [[name, float(value)] for name, value in steps], "note": note}, []


@dataclass(frozen=True)
class Sorting:
    """The order of the heads of a view.

    Attributes:
        name: Name of the statistic; "": none.
        table: The HeadStatistics that was given; None: statistics of the map alone.
    """

    name: str
    table: Any = None

    @classmethod
    def of(cls, view: str, sort: Any, explanations: Sequence[Any]) -> Self:
        """Return the statistic or table of `sort=`, checked against the maps of the view.

        Raises:
            TypeError: It is neither a name nor a table of heads.
            ValueError: The statistic is unknown or not defined here, or the table is of other layers, heads,
                another stack or another model.
        """
        if isinstance(sort, str):
            if sort:
                _require_statistic(view, sort, explanations[0])
            return cls(sort)
        if not isinstance(sort, Explanation) or sort.kind != "HeadStatistics":
            raise TypeError(
                f"{view}(sort=...) takes the name of a statistic or a table of heads, such as "
                f"aw.statistics.head_importance(traces), not {type(sort).__name__}."
            )
        table: Any = sort
        _require_alike(view, table, explanations)
        return cls(f"{_PREFIX}{table.names[0]}", table)

    def described(self, source: Source) -> list[dict[str, Any]]:
        """Return the table's statistics as the browser lists them; none if it is not about this source."""
        if not self._fits(source):
            return []
        text, shown = (str(each.provenance.get("text", "")) for each in (self.table, source.explanation))
        of = self.table.note or ("" if text == shown else quoted(text, _LONGEST)[1:-1])
        of = of and f" ({of})"
        return [
            {
                "name": f"{_PREFIX}{statistic.name}",
                "title": f"{statistic.title}{of}",
                "definition": statistic.definition,
                "high": statistic.high,
                "refusal": "",
            }
            for statistic in self.table.statistics
        ]

    def values(self, source: Source) -> NDArray[np.float32]:
        """Return the table's numbers in the order of a source's layers and heads [statistic, layer, head]."""
        layers, heads = source.layers, source.heads or ()
        if not self._fits(source):
            return np.empty((0, len(layers), len(heads) or 1), dtype="<f4")
        rows = [self.table.layers.index(layer) for layer in layers]
        columns = [self.table.heads.index(head) for head in heads]
        return np.asarray(self.table.values, dtype="<f4")[:, rows][:, :, columns]

    def _fits(self, source: Source) -> bool:
        return (
            self.table is not None
            and source.stack == self.table.stack
            and {*source.layers} <= {*self.table.layers}
            and {*(source.heads or ())} <= {*(self.table.heads or ())}
            and source.heads is not None
        )


def _require_statistic(view: str, name: str, main: Any) -> None:
    from attnwidgets.statistics.row_shares import Roles
    from attnwidgets.statistics.statistic import named

    [statistic] = named(name)
    has_rows = hasattr(main, "query") and not main.known("signed")
    refusal = statistic.refusal(Roles(main)) if has_rows else "statistics need rows of shares"
    if refusal:
        raise ValueError(f"{view}(sort={statistic.name!r}): {refusal}.")


def _require_alike(view: str, table: Any, explanations: Sequence[Any]) -> None:
    """Raise ValueError unless a table is about heads that the view shows."""
    alike = [each for each in explanations if (each.stack or "self") == table.stack]
    if not alike:
        raise ValueError(f"{view}(sort=...): the table is of stack {table.stack!r}, which is not shown.")
    main = alike[0]
    model, other = main.provenance.get("model"), table.provenance.get("model")
    if model and other and model != other:
        raise ValueError(f"{view}(sort=...): the table is of {other}, and the view of {model}.")
    for axis in ("layer", "head"):
        shown, there = getattr(main, f"{axis}s", None), getattr(table, f"{axis}s")
        if not shown or not there or not {*shown} <= {*there}:
            of_table, of_view = (
                f"there {spoken(each, axis)}" if each else f"are no {axis}s" for each in (there, shown)
            )
            raise ValueError(f"{view}(sort=...): in the table {of_table}, in the view {of_view}.")
