"""Handlers of a grid of heads: statistics and patterns of its map, and heads like one."""

from __future__ import annotations

from functools import partial
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

import numpy as np

from attnwidgets._errors import require_choice
from attnwidgets.views.heads.sorting import Sorting
from attnwidgets.views.wire.eager import opening_first
from attnwidgets.views.wire.handlers import Handler

if TYPE_CHECKING:
    from collections.abc import Iterator

    from attnwidgets.views.base.view import View
    from attnwidgets.views.wire.handlers import Answer
    from attnwidgets.views.wire.sources import Source

PAGE_CELLS = 20_000_000
"""Attention weights of a map above which a page leaves out its statistics: they would take long."""
OPENING_CELLS = 100_000_000
"""The same for the map, in the unit, that a view opens with."""
TRAVELLING_CELLS = 4_000_000
"""Attention weights up to which the patterns travel with the view: they are then read as it is shown."""
SIMILAR = 20
_NEEDLE = ("The secret word is banana.", "What is the secret word?")


def head_handlers(view: View, sorting: Sorting) -> dict[str, Handler]:
    """Return the handlers of a view that shows a grid of heads. All requests name a source.

    - "statistics", answered at once: every statistic with name, title, definition, high (what a high value
      means) and refusal (why the source does not have it, or ""); first those of a table that was given.
    - "head_statistics", a job with progress, since every layer is read: names, and the number of heads;
      buffer values [statistic, layer, head] (float32). It runs a model only for maps whose layers do.
    - "patterns", a job like it: every named pattern of `aw.statistics.head_patterns` with name, title,
      words, definition, refusal, and run (whether it runs the model on texts of its own, when chosen); own,
      the name of the strongest one of every head [layer][head]; buffer values [pattern, layer, head]
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
            statistics = head_statistics(requested.kept, unit=requested.unit)
            of_map = np.asarray(statistics.values, dtype="<f4").reshape(-1, *values.shape[1:])
            names, values = [*names, *statistics.names], np.concatenate([values, of_map])
        return {"names": names, "heads": values.shape[2]}, [values.tobytes()]

    def patterns(source: str) -> Answer:
        from attnwidgets.statistics.patterns import PATTERNS, head_patterns

        requested = source_of(view, source)
        if not has_shares(requested) or set(requested.ready) != set(requested.layers):
            return {"patterns": [], "own": [], "heads": 0}, []
        found = head_patterns(requested.kept, unit=requested.unit)
        entries = [_described(one, found.left_out.get(one.name, ""), run=False) for one in PATTERNS]
        entries += [_described(one, _run_refusal(view, one.name), run=True) for one in _run_patterns()]
        values = np.asarray(found.values, dtype="<f4")
        return {"patterns": entries, "own": found.own, "heads": values.shape[2]}, [values.tobytes()]

    def scored(source: str, name: str) -> Answer:
        values = np.asarray(_score(view, source_of(view, source), name), dtype="<f4")
        return {"heads": values.shape[1]}, [values.tobytes()]

    def similar(source: str, layer: int, head: int) -> Answer:
        from attnwidgets.statistics.similarity import similar_heads

        requested = source_of(view, source)
        found = similar_heads(requested.kept, layer, head, k=SIMILAR, unit=requested.unit)
        return {"found": [list(one) for one in found]}, []

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


def _described(pattern: Any, refusal: str, *, run: bool) -> dict[str, Any]:
    names = ("name", "title", "definition")
    words = getattr(pattern, "words", pattern.high if run else "")
    return {name: getattr(pattern, name) for name in names} | {"words": words, "refusal": refusal, "run": run}


def _run_patterns() -> tuple[Any, ...]:
    from attnwidgets.statistics.induction import INDUCTION
    from attnwidgets.statistics.retrieval import RETRIEVAL

    return INDUCTION, RETRIEVAL


def _run_refusal(view: View, name: str) -> str:
    """Return why a pattern that runs the model on texts of its own is not available, or ""."""
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
    require_choice("name", name, [one.name for one in _run_patterns()])
    why = _run_refusal(view, name)
    if why:
        raise ValueError(f"{name}: {why}.")
    trace: Any = view.content.trace  # checked by _run_refusal
    if name == "induction":
        from attnwidgets.statistics.induction import fitting, induction_score

        length, repeats = fitting(trace.model, trace.tokenizer)
        found = induction_score(trace.model, trace.tokenizer, length=length, repeats=repeats)
    else:
        from attnwidgets.statistics.retrieval import retrieval_score

        found = retrieval_score(trace.model, trace.tokenizer, *_NEEDLE, words=60, depths=(0.2, 0.5, 0.8))
    rows = [found.layers.index(layer) for layer in source.layers]
    columns = [(found.heads or ()).index(head) for head in source.heads or ()]
    return found[name][np.ix_(rows, columns)]


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
