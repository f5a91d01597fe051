"""Links: an address, a line of code or a claim that brings back a method, layer, head and pin.

Addresses and code name the whole selection of a view. `js/src/link.ts` is the twin, which writes and reads
addresses.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import quote
from zlib import crc32

from attnwidgets.tracing.text.display import well_formed
from attnwidgets.views.base.expressions import listed
from attnwidgets.views.wire.axes import base_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from os import PathLike

    from attnwidgets.views.base.expressions import Path
    from attnwidgets.views.base.selectable import Cell, Span
    from attnwidgets.views.base.selection import Selection
    from attnwidgets.views.base.view import View

_PLAIN = ",.!*'()"  # in addition to letters, digits and -_~; unescaped by `encodeURIComponent`, and the comma
_LONGEST = 200  # characters of an argument that is written out


def selection_arguments(view: View) -> dict[str, Any]:
    """Return a view's selection as arguments of `View.at`, without the arguments that the view fixes."""
    selection, options = view.selection, view.options
    if not view.sources():
        return {}
    arguments: dict[str, Any] = {}
    if options["method"] is None and selection.method:
        arguments["method"] = base_of(selection.method)
    if options["unit"] is None:
        arguments["unit"] = selection.unit
    if options["stack"] is None and len({source.stack for source in view.sources()}) > 1:
        arguments["stack"] = selection.stack
    arguments["layer"] = selection.layer
    if selection.head != "-":
        arguments["head"] = selection.head
    return arguments | _chosen(selection, arguments.get("unit"))


def _chosen(selection: Selection, unit: str | None) -> dict[str, Any]:
    """Return the pins, heads, span, target and interventions of the reader; empty if there are none."""
    chosen = {
        "heads": [*selection.heads],
        "pins": [_cell(cell, unit) for cell in selection.pins],
        "span": selection.span and _span(selection.span, unit),
        "target": selection.target and selection.target.id,
        "foil": selection.foil and selection.foil.id,
        "inside": selection.inside or None,
        "feature": selection.feature,
        "interventions": [dict(spec) for spec in selection.interventions],
    }
    return {name: value for name, value in chosen.items() if value is not None and value != []}


def _cell(cell: Cell, unit: str | None) -> tuple[Any, ...]:
    if cell.layer is not None:
        return (*cell, cell.unit, cell.layer)
    return tuple(cell) if cell.unit == unit else (*cell, cell.unit)


def _span(span: Span, unit: str | None) -> tuple[Any, ...]:
    if span.side != "query":
        return tuple(span)
    return span[:2] if span.unit == unit else span[:3]


# -- code ------------------------------------------------------------------------------------------
def link_paths(view: View) -> Iterator[Path]:
    """Yield the paths to this view at its selection: a view made anew, then the view itself."""
    import attnwidgets

    arguments = selection_arguments(view)
    at = f".at({listed(**arguments)})" if arguments else ""
    made_by, given = view._made_by  # noqa: SLF001
    rest, named = view._made_with  # noqa: SLF001
    shown = given if view.content.trace is None else view.content.trace  # the text that is shown now
    named = {option: value for option, value in named.items() if option not in arguments}
    pieces: list[Any] = []
    for value in (shown, *rest):
        pieces += [", " if pieces else "", *_pieces(value)]
    for option, value in named.items():
        pieces += [f"{', ' if pieces else ''}{option}=", *_pieces(value)]
    if getattr(attnwidgets, made_by.__name__, None) is made_by:
        yield attnwidgets, f".{made_by.__name__}(", *pieces, f"){at}"
    yield made_by, "(", *pieces, f"){at}"
    several = arguments and len(view.traces) > 1
    yield view, f".at({listed(text=_shown_text(view), **arguments)})" if several else at


def _shown_text(view: View) -> int:
    return next(index for index, trace in enumerate(view.traces) if trace is view.trace)


def _pieces(value: Any) -> Iterator[Any]:
    """Yield an argument as code in pieces: values are written out, objects stand for their names."""
    if isinstance(value, (list, tuple)):
        yield "["
        for number, item in enumerate(value):
            yield ", " if number else ""
            yield from _pieces(item)
        yield "]"
    elif (value is None or isinstance(value, (bool, int, float, str))) and len(repr(value)) <= _LONGEST:
        yield repr(value)
    else:
        yield value


# -- addresses -------------------------------------------------------------------------------------
def address(view: View, page: str | PathLike[str], number: int) -> str:
    """Return the address of a page that opens at a view's selection.

    Args:
        view: The view.
        page: The page's file or address.
        number: Which view of the page it is, from 1.
    """
    return f"{str(page).partition('#')[0]}#{fragment(view, number)}"


def fragment(view: View, number: int = 1) -> str:
    """Return the part of an address after `#`; see `js/src/link.ts`."""
    arguments = selection_arguments(view)
    pairs = [("view", str(number))] if number != 1 else []
    pairs += [("text", str(_shown_text(view)))] if len(view.traces) > 1 else []
    pairs += [
        (name, str(arguments[name]))
        for name in ("method", "unit", "stack", "layer", "head")
        if name in arguments
    ]
    if "heads" in arguments:
        pairs.append(("heads", ",".join(f"{layer}.{head}" for layer, head in arguments["heads"])))
    pairs += [("pin", ",".join(map(str, pin))) for pin in arguments.get("pins", ())]
    if "span" in arguments:
        pairs.append(("span", ",".join(map(str, arguments["span"]))))
    pairs += [(name, str(arguments[name])) for name in ("target", "foil", "feature") if name in arguments]
    pairs += [("inside", "1")] if "inside" in arguments else []
    pairs += [("of", mark)] if (mark := _mark(view)) else []
    return "&".join(f"{name}={quote(well_formed(value), safe=_PLAIN)}" for name, value in pairs)


def _mark(view: View) -> str:
    """Return the checksum by which a page recognises the text whose elements are counted; "" if none are."""
    selection = view.selection
    counted = next((item.unit for item in (*selection.pins, selection.span) if item is not None), None)
    if counted is None:
        return ""
    in_unit = [entry for entry in view.sources() if (entry.unit, entry.stack) == (counted, selection.stack)]
    source = next((item for item in in_unit if not item.of_targets), next(iter(in_unit), None))
    if source is None:
        return ""
    query, key = source.axes()
    text = _sum(key["labels"])
    return text if source.of_targets or query == key else f"{text}.{_sum(query['labels'])}"


def _sum(labels: list[str]) -> str:
    return f"{crc32(well_formed(chr(10).join(labels)).encode()):08x}"


def claim_paths(
    view: View, *, source: str, layer: int, head: int, cells: Sequence[Sequence[int]]
) -> Iterator[Path]:
    """Yield the code that checks a claim about a head, on the view's text to begin with.

    From pinned cells: that it attends from their queries to their keys; from two pinned tokens: from the
    later to the earlier token. With nothing pinned: the pattern of the head that stands out in its layer.

    Args:
        view: The view.
        source: The map that it shows.
        layer: Number of the layer.
        head: Number of the head.
        cells: (query, key), counted in the unit of the source; -1: only the other side is pinned.

    Raises:
        LookupError: No claim can be made of these cells or this head; the message says why.
    """
    import attnwidgets
    from attnwidgets.circuits.claims.writing import claim_of_cells, claim_of_head

    trace: Any = view.content.trace
    shown = next((item for item in view.store.sources() if item.id == source), None)
    if trace is None or trace.model is None or trace.tokenizer is None:
        raise LookupError("claims are checked with a model and its tokenizer: give the view their trace.")
    if shown is None or shown.stack != trace.default_stack or trace.default_stack != "self":
        raise LookupError("claims are about the attention of a text to itself in models with one stack.")
    sides = [axis.units[shown.unit].spans for axis in trace.axes()]
    tokens = [
        (query, key) for item in _of_two(cells) for query in sides[0][item[0]] for key in sides[1][item[1]]
    ]
    roles: dict[str, Any] = {}
    if tokens:
        claim, result = claim_of_cells(trace, int(layer), int(head), tokens)
        roles = {name: [entry] for name, entry in result.items()}
    else:
        claim = claim_of_head(trace, int(layer), int(head))
    code = f".circuits.claim({str(claim)!r}).check("
    after = f", [{trace.text!r}]{f', roles={roles!r}' if roles else ''}).view()"
    yield attnwidgets, code, trace.model, ", ", trace.tokenizer, after
    yield (f"aw{code}model, tokenizer{after}",)


def _of_two(cells: Sequence[Sequence[int]]) -> list[tuple[int, int]]:
    """Return the cells of two elements; or of two tokens that are pinned alone, (later, earlier).

    Raises:
        LookupError: More than two tokens are pinned alone.
    """
    result = [(int(query), int(key)) for query, key in cells if min(query, key) >= 0]
    alone = sorted({int(max(query, key)) for query, key in cells if min(query, key) < 0})
    if result or len(alone) < 2:  # noqa: PLR2004 - two tokens
        return result
    if len(alone) > 2:  # noqa: PLR2004
        raise LookupError("a claim goes from one token to another: pin two, or cells of two.")
    return [(alone[1], alone[0])]
