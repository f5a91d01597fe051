"""Handlers of a view of a picture: maps and rows of an element, layers yet to compute, norms of states.

Patches and other elements (class and register tokens, words) are sent apart: patches as bytes on a scale,
since a page may hold the maps of all of them, the few others as float32.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from attnwidgets._errors import require_choice
from attnwidgets.explanations.results.trace_protocol import is_trace
from attnwidgets.tracing.media.patches import PADDING
from attnwidgets.tracing.media.picture import with_media
from attnwidgets.views.heads.handlers import PAGE_CELLS, source_of
from attnwidgets.views.wire.handlers import Handler
from attnwidgets.views.wire.thumbnails import quantise

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from attnwidgets.tracing.text.units import Unit
    from attnwidgets.views.base.accepts import Content
    from attnwidgets.views.base.view import View
    from attnwidgets.views.wire.handlers import Answer
    from attnwidgets.views.wire.sources import Source

    Floats = NDArray[np.float32]

FEW_BYTES = 300_000
"""A page holds the maps of every patch if they take no more than this; of others those that are named."""

_MOST_SPECIAL = 8
_HEADER = 250  # bytes of a page for the head of an answer, at most

OUTLIER = 3.0
"""A patch is an outlier above so many times the median of its layer, as in `aw.vision.outlier_tokens`."""

_EXACT = 32
"""Up to so many elements other than patches are sent as float32: their shares are printed."""


def picture_handlers(
    view: View, trace: Any, queries: Sequence[int] = (), neurons: Sequence[Any] = ()
) -> dict[str, Handler]:
    """Return the handlers of a view that shows a picture.

    - "reads" (source, side "query", index, computed), answered at once: `packed_values` of an element's row;
      `computed` is how many layers are, None if all are there from the start.
    - "readers" (the same with side "key"), a job: who reads an element.
    - "layer": `layer_handler`.
    - "norms" (stack, registers: whether with test-time registers), a job that runs the model: layers, and
      outlier, the multiple of the median from which on a patch is an outlier, and registers, the labels of
      those added; buffers norms [layer, token] and those of the added registers [layer, register] (float32).

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
    """Return the side and the number of the element whose map a view shows: the pinned, or the first."""
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


def _request(source: Source, side: str, index: int) -> dict[str, Any]:
    """Return arguments as the browser writes them."""
    computed = len(source.ready) if source.on_demand else None
    return {"source": source.id, "side": side, "index": index, "computed": computed}


def _first(view: View) -> Iterator[dict[str, Any]]:
    """Yield the map that a view opens with, unless it takes a computation."""
    source = view.presentation.source
    if not source.ready or not sides_of(source)[1].patches:
        return
    side, index = element_of(view, source)
    if side == "query":
        yield _request(source, side, index)


def _arguments(view: View, source: Source, side: str, queries: Sequence[int]) -> Iterator[dict[str, Any]]:
    """Yield the requests for the maps of a source that a page holds; it opens with the first."""
    cells = len(source.layers) * len(source.heads or (0,)) * source.weights
    is_recorded = source.method == "attention" and side == "query"
    if not source.ready or (cells > PAGE_CELLS and not is_recorded and not source.of_targets):
        return
    if source.of_targets:
        yield from [_request(source, side, 0)] if side == "query" else ()
        return
    query, key = sides_of(source)
    axis = query if side == "query" else key
    now, shown = element_of(view, source)
    special = [i for i in axis.others if source.axes()[0 if side == "query" else 1]["special"][i]]
    elements = [shown] if now == side else []
    elements += special[:_MOST_SPECIAL] or [opening_element(axis, [False] * len(axis.labels))]
    if side == "query":
        elements += queries
        size = len(source.layers) * len(source.heads or (0,)) * len(key.labels)
        elements += range(len(axis.labels)) if size * len(axis.labels) <= FEW_BYTES else ()
    elif not query.patches:  # words apart from the picture: which of them read a patch
        size = len(source.layers) * len(source.heads or (0,)) * len(query.labels) + _HEADER
        elements += key.patches if size * len(key.patches) <= FEW_BYTES else ()
    for index in dict.fromkeys(elements):
        yield _request(source, side, index)


def _norms_of_page(view: View, trace: Any, neurons: Sequence[Any]) -> Iterator[dict[str, Any]]:
    """Yield the stacks whose norms a page holds: those of a trace with a model that attend to themselves."""
    if trace is None or getattr(trace, "model", None) is None:
        return
    sources = [source for source in shown_sources(view) if not source.of_targets]
    for stack in dict.fromkeys(
        item.stack for item in sources if item.explanation.query == item.explanation.key
    ):
        yield {"stack": stack}
        if neurons:
            yield {"stack": stack, "registers": True}


def token_norms(trace: Any, stack: str) -> NDArray[np.float32]:
    """Return the L2 norm of every token's state after each layer, [layer, token].

    Runs the model once, unless another method has done so for this trace.

    Args:
        trace: A recorded trace with its model.
        stack: Name of a stack that attends to itself.

    Raises:
        UnsupportedModelError: If the model is missing, or its blocks are not recognised.

    Source:
        Darcet, Oquab, Mairal, Bojanowski (2024), "Vision Transformers Need Registers", figure 3.
    """
    from attnwidgets.tracing.block_replay import captured

    blocks = captured(trace, stack, "token norms")
    norms = [block.output[0].float().norm(dim=-1).cpu().numpy() for block in blocks.layers.values()]
    return np.asarray(np.stack(norms), dtype=np.float32)


def norms_with_registers(
    trace: Any, stack: str, neurons: Sequence[Any]
) -> tuple[NDArray[np.float32], tuple[str, ...]]:
    """Return `token_norms` with test-time registers, [layer, token], added registers last, and their labels.

    Args:
        trace: A recorded trace with its model.
        stack: Name of a stack that attends to itself.
        neurons: Units as pairs (layer, unit).
    """
    from attnwidgets.vision.test_time_registers import test_time_registers

    with test_time_registers(trace, neurons):
        clean = trace.rerun()
        norms = token_norms(clean, stack)
    return norms, clean.axes(stack)[0].tokens[len(trace.axes(stack)[0]) :]


def values_of(source: Source, side: str, index: int) -> Floats:
    """Return the weights with which an element reads, or is read, [layer, head, element].

    Layers are those that are ready. A head that was pruned holds NaN. Of attributions every target is a head,
    whatever the element.

    Args:
        source: The map or attributions.
        side: "query": the element's row; "key": its column.
        index: Number of the element in the source's unit.

    Raises:
        IndexError: The element is out of range.
    """
    if source.of_targets:
        return np.stack([source.layer(layer)[0] for layer in source.ready])
    rows = [source.across(layer, side, index) for layer in source.ready]
    heads = len(source.heads or (0,))
    whole = [np.pad(row, ((0, heads - len(row)), (0, 0)), constant_values=np.nan) for row in rows]
    return np.stack(whole).astype(np.float32)


def packed_values(source: Source, side: str, index: int) -> Answer:
    """Return `values_of` for the browser: `PatchRows` of js/src/views/media/rows.ts, and its buffers.

    The buffers are the codes of patches [layer, head, patch], row by row; the scale of every map of patches
    [layer, head], float32, NaN for a pruned head; the sum over patches [layer, head], float32; and the other
    elements [layer, head, element]: float32, or if they are many codes, followed by their scales.
    """
    values = values_of(source, side, index)
    query, key = sides_of(source)
    axis = key if side == "query" or source.of_targets else query
    patches, others = (values[..., list(part)] for part in (axis.patches, axis.others))
    codes, scale = _coded(patches, signed=source.signed)
    sums = np.nansum(patches, axis=-1, dtype=np.float64).astype("<f4")
    exact = len(axis.others) <= _EXACT
    rest = [others.astype("<f4").tobytes()]
    if not exact:
        other_codes, other_scale = _coded(others, signed=source.signed)
        rest = [other_codes.tobytes(), other_scale.tobytes()]
    meta = {
        "layers": list(source.ready),
        "heads": values.shape[1],
        "grid": list(axis.grid),
        "patches": _runs(axis.patches),
        "others": _runs(axis.others),
        "signed": source.signed,
        "exact": exact,
    }
    return meta, [codes.tobytes(), scale.tobytes(), sums.tobytes(), *rest]


def _coded(values: Floats, *, signed: bool) -> tuple[NDArray[np.uint8], Floats]:
    """Return codes, and the scale of every layer and head, NaN for pruned heads."""
    missing = np.isnan(values).all(axis=-1) & (values.shape[-1] > 0)
    scale = np.max(np.abs(np.nan_to_num(values)), axis=-1, initial=0.0).astype("<f4")
    codes = quantise(values, scale[..., None], signed=signed)
    return codes, np.where(missing, np.nan, scale).astype("<f4")


def _runs(elements: tuple[int, ...]) -> list[Any]:
    """Return elements as [first, count] if they follow each other, else as [numbers]."""
    first = elements[0] if elements else 0
    if elements == tuple(range(first, first + len(elements))):
        return [first, len(elements)]
    return [list(elements)]


@dataclass(frozen=True)
class PatchAxis:
    """The elements of an axis, those that are patches apart from the others.

    Attributes:
        grid: Rows and columns of patches; (0, 0) where there are none.
        patches: The element of every patch, row by row.
        others: The other elements: class and register tokens, words.
        labels: Names of all elements.
    """

    grid: tuple[int, int]
    patches: tuple[int, ...]
    others: tuple[int, ...]
    labels: tuple[str, ...]

    def name(self, element: int) -> str:
        """Return the name of an element: "[CLS]", or "patch 6,9", row and column."""
        label = self.labels[element]
        return f"patch {label}" if element in self.patches else label


def places_of(unit: Unit) -> PatchAxis:
    """Return where the patches of a unit stand."""
    count = len(unit.labels)
    if unit.grid is None or unit.cells is None:
        return PatchAxis((0, 0), (), tuple(range(count)), tuple(unit.labels))
    result = {cell: element for element, cell in enumerate(unit.cells) if cell is not None}
    patches = tuple(result[cell] for cell in sorted(result))
    others = tuple(element for element, cell in enumerate(unit.cells) if cell is None)
    return PatchAxis(unit.grid, patches, others, tuple(unit.labels))


def units_on_grid(explanation: Any) -> list[str]:
    """Return the units in which the keys of an explanation hold the patches of a picture."""
    axis = getattr(explanation, "axis", None) or explanation.key
    return [name for name, unit in axis.units.items() if unit.grid is not None and unit.cells is not None]


def pictured_of(shown: Any) -> Any:
    """Return the trace of a picture behind a trace, map or attributions; None if there is none in memory."""
    trace = shown if is_trace(shown) else with_media(str(getattr(shown, "trace_id", "")))
    if trace is None or trace.picture is None:
        return None
    axes = (trace.axes(stack)[1] for stack in trace.stacks)
    return trace if any(unit.grid is not None for axis in axes for unit in axis.units.values()) else None


def is_only_a_picture(trace: Any) -> bool:
    """Return whether all that a trace attends to are the patches of pictures."""
    axes = [axis for stack in trace.stacks for axis in trace.axes(stack)]
    units = [[unit for unit in axis.units.values() if unit.grid is not None] for axis in axes]
    return all(
        any(all(is_special or cell is not None for is_special, cell in _members(unit)) for unit in on_grid)
        for on_grid in units
    )


def on_grid_first(content: Content) -> Content:
    """Return a view's content with its maps over patches first, before those of a text."""
    on_grid = [item for item in content.explanations if units_on_grid(item)]
    others = [item for item in content.explanations if item not in on_grid]
    return replace(content, explanations=(*on_grid, *others))


def _members(unit: Unit) -> Iterable[tuple[bool, int | None]]:
    return zip(unit.special, unit.cells or (), strict=True)


def sides_of(source: Source) -> tuple[PatchAxis, PatchAxis]:
    """Return where the patches stand among the queries and among the keys of a source.

    Targets of attributions are not elements: the axis of the keys is returned for both.
    """
    explanation, unit = source.explanation, source.unit
    if source.of_targets:
        axis = getattr(explanation, "axis", None) or explanation.key
        return places_of(axis.units[unit]), places_of(axis.units[unit])
    query, key = (
        axis.units.get(unit) or next(iter(axis.units.values()))
        for axis in (explanation.query, explanation.key)
    )
    return places_of(query), places_of(key)


def opening_element(axis: PatchAxis, special: Sequence[bool]) -> int:
    """Return the element whose map a picture opens with.

    It is the last word, where a text holds the picture or reads it; else the class token; else, as padding is
    not looked at, the patch in the middle.
    """
    words = [element for element in axis.others if not special[element]]
    apart = [element for element in axis.others if axis.labels[element] != PADDING]
    if words or apart:
        return words[-1] if words else apart[0]
    rows, columns = axis.grid
    return axis.patches[rows // 2 * columns + columns // 2]
