"""Handlers of a view of a picture: maps of one element, layers that are yet to be computed, norms."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from attnwidgets._errors import require_choice
from attnwidgets.views.heads.handlers import PAGE_CELLS, source_of
from attnwidgets.views.media.norms import OUTLIER, norms_with_registers, token_norms
from attnwidgets.views.media.patches import opening_element, sides_of
from attnwidgets.views.media.rows import packed_values
from attnwidgets.views.wire.handlers import Handler

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from attnwidgets.views.base.view import View
    from attnwidgets.views.wire.handlers import Answer
    from attnwidgets.views.wire.sources import Source

FEW_BYTES = 300_000
"""A page holds the maps of every patch if they take no more than this; of others those that are named."""
_MOST_SPECIAL = 8
_OF_AN_ANSWER = 250  # bytes of a page that say what an answer is about, at most


def picture_handlers(
    view: View, trace: Any, queries: Sequence[int] = (), neurons: Sequence[Any] = ()
) -> dict[str, Handler]:
    """Return the handlers of a view that shows a picture.

    - "reads" (source, side "query", index, computed), answered at once: `packed_values` of what an element
      reads; `computed` is how many layers are, None if all are there from the start.
    - "readers" (the same with side "key"), a job: who reads an element.
    - "layer": `layer_handler`.
    - "norms" (stack, registers: whether with test-time registers), a job that runs the model: layers, and
      outlier, the multiple of the median from which on a patch is one, and registers, the labels of those
      added; buffers norms [layer, token] and those of the added registers [layer, register] (float32).

    Args:
        view: The view.
        trace: The trace whose picture it is; None if it is not at hand.
        queries: Elements whose maps a page holds, in addition to those of class and register tokens.
        neurons: Register neurons whose activations are moved, for norms with test-time registers.
    """

    def maps(source: str, side: str, index: int, computed: int | None = None) -> Answer:
        del computed  # it tells answers from before and after a computation apart
        require_choice("side", side, ("query", "key"))
        return packed_values(source_of(view, source), side, int(index))

    def norms(stack: str, registers: bool = False) -> Answer:
        if trace is None:
            raise ValueError("norms need the trace, and this view was given a map.")
        if registers and not neurons:
            raise ValueError("norms with registers need the neurons: ImageView(trace, registers=neurons).")
        values, added = (
            norms_with_registers(trace, stack, neurons) if registers else (token_norms(trace, stack), ())
        )
        count = values.shape[1] - len(added)
        meta = {"layers": len(values), "outlier": OUTLIER, "registers": list(added)}
        return meta, [part.astype("<f4").tobytes() for part in (values[:, :count], values[:, count:])]

    def listed(side: str) -> Iterator[dict[str, Any]]:
        for source in shown_sources(view):
            yield from _arguments(view, source, side, queries)

    return {
        "reads": Handler(maps, for_page=lambda: listed("query"), prefetched=lambda: _first(view)),
        "readers": Handler(maps, runs_model=True, for_page=lambda: listed("key")),
        "layer": layer_handler(view),
        "norms": Handler(norms, runs_model=True, for_page=lambda: _norms_of_page(view, trace, neurons)),
    }


def layer_handler(view: View) -> Handler:
    """Return the handler of "layer" (source, layer), a job: computes a layer that is yet to be computed."""

    def compute(source: str, layer: int) -> Answer:
        requested = source_of(view, source)
        requested.layer(layer)
        view.store.announce()
        return {"ready": list(requested.ready)}, []

    return Handler(compute, runs_model=True)


def shown_sources(view: View) -> list[Source]:
    """Return the sources of a view whose keys are patches of a picture."""
    return [source for source in view.sources() if sides_of(source)[1].patches]


def element_of(view: View, source: Source) -> tuple[str, int]:
    """Return the side and the number of the element whose map a view shows: the pinned one, or the first."""
    if source.of_targets:
        return "query", 0
    query, key = sides_of(source)
    pinned = view.selection.pinned
    if pinned is not None and pinned.unit == source.unit:
        if 0 <= pinned.query < len(query.labels):
            return "query", pinned.query
        if 0 <= pinned.key < len(key.labels):
            return "key", pinned.key
    return "query", opening_element(query, source.axes()[0]["special"])


def _asked(source: Source, side: str, index: int) -> dict[str, Any]:
    """Return arguments as the browser writes them."""
    computed = len(source.ready) if source.on_demand else None
    return {"source": source.id, "side": side, "index": index, "computed": computed}


def _first(view: View) -> Iterator[dict[str, Any]]:
    """Yield the map that a view opens with, unless it takes a computation."""
    from attnwidgets.views.presentation import Presentation

    source = Presentation.of(view).source
    if not source.ready or not sides_of(source)[1].patches:
        return
    side, index = element_of(view, source)
    if side == "query":
        yield _asked(source, side, index)


def _arguments(view: View, source: Source, side: str, queries: Sequence[int]) -> Iterator[dict[str, Any]]:
    """Yield the maps of a source that a page holds, the one it shows first."""
    cells = len(source.layers) * len(source.heads or (0,)) * source.weights
    is_recorded = source.method == "attention" and side == "query"
    if not source.ready or (cells > PAGE_CELLS and not is_recorded and not source.of_targets):
        return
    if source.of_targets:
        yield from [_asked(source, side, 0)] if side == "query" else ()
        return
    query, key = sides_of(source)
    places = query if side == "query" else key
    now, shown = element_of(view, source)
    special = [i for i in places.others if source.axes()[0 if side == "query" else 1]["special"][i]]
    wanted = [shown] if now == side else []
    wanted += special[:_MOST_SPECIAL] or [opening_element(places, [False] * len(places.labels))]
    if side == "query":
        wanted += queries
        each = len(source.layers) * len(source.heads or (0,)) * len(key.labels)
        wanted += range(len(places.labels)) if each * len(places.labels) <= FEW_BYTES else ()
    elif not query.patches:  # words apart from the picture: which of them read a patch
        each = len(source.layers) * len(source.heads or (0,)) * len(query.labels) + _OF_AN_ANSWER
        wanted += key.patches if each * len(key.patches) <= FEW_BYTES else ()
    for index in dict.fromkeys(wanted):
        yield _asked(source, side, index)


def _norms_of_page(view: View, trace: Any, neurons: Sequence[Any]) -> Iterator[dict[str, Any]]:
    """Yield the stacks whose norms a page holds: those of a trace with a model that attend to themselves."""
    if trace is None or getattr(trace, "model", None) is None:
        return
    sources = [source for source in shown_sources(view) if not source.of_targets]
    for stack in dict.fromkeys(one.stack for one in sources if one.explanation.query == one.explanation.key):
        yield {"stack": stack}
        if neurons:
            yield {"stack": stack, "registers": True}
