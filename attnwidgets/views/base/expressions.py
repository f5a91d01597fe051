"""Numbers of a view as others read them: as Python in the names of its reader, and as CSV."""

from __future__ import annotations

import keyword
from typing import TYPE_CHECKING, Any

import numpy as np

from attnwidgets._notebook import running_shell
from attnwidgets._tables import csv_of
from attnwidgets.explanations.results.verbalise import SINK_NAME
from attnwidgets.views.base.accepts import RECORDED
from attnwidgets.views.wire.axes import by_layer, is_by_layer, method_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from typing import TypeAlias

    from attnwidgets.views.base.view import View
    from attnwidgets.views.wire.handlers import Answer
    from attnwidgets.views.wire.sources import Source
    from attnwidgets.views.wire.store import TileStore

    Path: TypeAlias = tuple[Any, ...]
    """Code in pieces: text, and objects that stand for the name that the reader gave them."""
    Kinds: TypeAlias = dict[str, Callable[..., Iterable[Path]]]
    """Kinds of number by name; each takes the position of a number, returns paths to it, the best first."""
    ByKey: TypeAlias = Sequence[tuple[str, Any]]

FEW = 10
"""Number of predictions that `trace.predictions()` returns."""

PART_BYTES = 2_000_000
"""Approximate size of the part of a table that is sent at once."""

_NUMBER = 13  # bytes of a number in it


def expression(kinds: Callable[[], Kinds], of: str, **position: Any) -> Answer:
    """Answer with Python that returns a shown number: code, and a note on objects without a name.

    The first of the view's paths counts whose objects all have a name in the notebook. Names are looked up
    now, as they may have changed since the view was displayed.

    Args:
        kinds: Returns the kinds of number that a view shows: `View._numbers`.
        of: The kind of number.
        **position: Position of the number, by the arguments of its kind.

    Raises:
        LookupError: The view shows no such number.
    """
    numbers = kinds()
    if of not in numbers:
        raise LookupError(f"this view has no number {of!r}.")
    paths = list(numbers[of](**position))
    if not paths:
        raise LookupError("no expression returns this number.")
    names = reader_names()
    for path in paths:
        if all(isinstance(piece, str) or id(piece) in names for piece in path):
            return {"code": _code(path, names), "note": ""}, []
    unnamed = {id(piece): _placeholder(piece) for piece in paths[-1] if not isinstance(piece, str)}
    missing = " and ".join(dict.fromkeys(name for key, name in unnamed.items() if key not in names))
    note = f"nothing here has a name yet: write {missing} = … where it is made"
    return {"code": _code(paths[-1], unnamed | names), "note": note}, []


def reader_names() -> dict[int, str]:
    """Return the names of objects in the notebook by identity; leading underscores do not count."""
    names: dict[int, str] = {}
    for name, value in getattr(running_shell(), "user_ns", {}).copy().items():
        if name.isidentifier() and not name.startswith("_") and not keyword.iskeyword(name):
            names.setdefault(id(value), name)
    return names


def _code(path: Path, names: Mapping[int, str]) -> str:
    return "".join(piece if isinstance(piece, str) else names[id(piece)] for piece in path)


def _placeholder(value: Any) -> str:
    return "view" if hasattr(value, "comm") else "trace"


def listed(*positional: Any, **named: Any) -> str:
    """Return arguments as code; named arguments that are None are left out."""
    words = (f"{name}={value!r}" for name, value in named.items() if value is not None)
    return ", ".join([*map(repr, positional), *words])


def cell_paths(
    view: View,
    trace: Any,
    opened: ByKey,
    *,
    source: str,
    layer: int,
    head: int | str,
    query: int,
    key: int,
) -> Iterator[Path]:
    """Yield the paths to a cell of a map, or to the value of a source (`key`) for a target (`query`).

    Args:
        view: The view that shows it.
        trace: The trace of the view, or None.
        opened: The explanations that it opened with, by method key.
        source: Its source.
        layer: Number of the layer.
        head: Number of the head, a reduction, or "-".
        query: The row.
        key: The column.

    Raises:
        LookupError: The matrix is unknown, or this cell is empty.
        IndexError: The layer, head or row is out of range.
    """
    shown = next((item for item in view.store.sources() if item.id == source), None)
    if shown is None:
        raise LookupError(f"this view shows no {source!r}; run the cell again.")
    row = shown.row(layer, head, query)
    if not 0 <= key < len(row) or not np.isfinite(row[key]):
        raise LookupError("this cell is empty.")
    filters = view.options.get("filters") or {}
    rescales = filters.get("special") == "renormalise" and shown.stochastic
    special = "renormalise" if rescales else None

    def value(explanation: Any) -> str:
        unit = None if explanation.unit == shown.unit else shown.unit
        if shown.attributions:
            return f".value({listed(key, target=query if explanation.values.ndim > 1 else None, unit=unit)})"
        number = layer if len(explanation.layers) > 1 else None
        some = None if explanation.heads is None or head == "-" else head
        return f".value({listed(query, key, layer=number, head=some, unit=unit, special=special)})"

    if trace is not None and not rescales:
        yield from _recorded(trace, shown, (layer, head, query, key), float(row[key]), value)
    for start, explanation in _nameable(
        [*opened, *((entry.method, entry.explanation) for entry in view.store.sources())], shown
    ):
        yield *start, value(explanation)
    called = listed(shown.method, stack=None if shown.stack == "self" else shown.stack)
    yield view, f".explanation({called}){value(shown.explanation)}"


def outcome_code(rank: int) -> str:
    """Return the code, after a trace, of the probability of the outcome of a rank, from 0."""
    return f".predictions({'' if rank < FEW else rank + 1})[{rank}].probability"


def _recorded(
    trace: Any,
    shown: Source,
    cell: tuple[int, int | str, int, int],
    number: float,
    value: Callable[[Any], str],
) -> Iterator[Path]:
    """Yield the paths from a trace that run no model, if they lead to this very number."""
    import attnwidgets

    (layer, head, query, key), name = cell, method_of(shown.method)
    if name not in RECORDED or is_by_layer(shown.method):
        return
    stack = None if shown.stack in {"self", trace.default_stack} else shown.stack
    if name == "attention" and shown.unit == "token" and isinstance(head, int):
        weights = trace.attention_rows(layer, [head], [query], stack)
        if float(weights[0, 0, key]) == number:
            yield trace, f".attention_layer({listed(layer, stack=stack)})[{head}, {query}, {key}].item()"
    make = getattr(attnwidgets, name)
    again = make(trace, **({} if stack is None else {"stack": stack}))
    of = None if again.heads is None or head == "-" else head
    if shown.unit not in again.available_units() or layer not in again.layers:
        return
    if np.float32(again.value(query, key, layer=layer, head=of, unit=shown.unit)) == number:
        after = f"{', ' if stack else ''}{listed(stack=stack)}){value(again)}"
        yield attnwidgets, f".{name}(", trace, after
        yield make, "(", trace, after


def _nameable(explanations: ByKey, shown: Source) -> Iterator[tuple[Path, Any]]:
    """Yield objects that a reader may have named, each with the explanation that it leads to."""
    for key, item in explanations:
        if (item.stack or "self") != shown.stack or shown.unit not in item.available_units():
            continue
        if key == shown.method:
            yield (item,), item
        elif (
            by_layer(key) == shown.method
            and item.map is not None
            and shown.unit in item.map.available_units()
        ):
            yield (item, ".map"), item.map


def part_of_csv(
    store: TileStore, method: str, stack: str, unit: str, layer: int, head: int | str, first: int = 0
) -> dict[str, Any]:
    """Return a matrix as CSV with all digits: a row for each query (or target), a column for each key.

    The cell of a key that its query was not compared with is empty, and the share of a sink is the last
    column. Labels that a spreadsheet would run as a formula begin with an apostrophe. Of a large matrix, only
    the rows of a part are read.

    Args:
        store: The store that holds it.
        method: Key of the method.
        stack: Name of the stack.
        unit: The unit.
        layer: Number of the layer.
        head: Number of the head, or a reduction.
        first: First row of the part; the first part begins with the names of the columns.

    Returns:
        "text", and "next": the first row of the next part, or None.

    Raises:
        LookupError: The source is unknown.
        IndexError: The layer, head or row is out of range.
        ValueError: The layer is not computed yet.
    """
    selected = (method, stack, unit)
    source = next((s for s in store.sources() if (s.method, s.stack, s.unit) == selected), None)
    if source is None:
        raise LookupError(f"{method!r} by {unit} is no longer shown; run the cell again.")
    if layer in source.layers and layer not in source.ready:
        raise ValueError(f"layer {layer} is not computed yet; select it first.")
    query, key = source.axes()
    rows, cols = source.shape
    last = min(rows, first + max(1, PART_BYTES // (_NUMBER * max(1, cols))))
    values = source.where_compared(source.rows(layer, head, first, last), layer, slice(first, last))
    names = [*map(str, key["labels"])]
    sink = source.to_sink(layer, head)
    if sink is not None:
        values, names = np.column_stack([values, sink[first:last].astype(values.dtype)]), [*names, SINK_NAME]
    lines = [["", *names]] if first == 0 else []
    for label, row in zip(query["labels"][first:last], values, strict=True):
        lines.append([str(label), *("" if np.isnan(value) else str(value) for value in row)])
    return {"text": csv_of(lines), "next": last if last < rows else None}
