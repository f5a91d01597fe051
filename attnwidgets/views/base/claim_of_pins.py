"""From a head and what is pinned to a sentence that is checked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from attnwidgets.views.base.expressions import Path
    from attnwidgets.views.base.view import View


def claim_paths(
    view: View, *, source: str, layer: int, head: int, cells: Sequence[Sequence[int]]
) -> Iterator[Path]:
    """Yield the code that checks a claim about a head, on the view's text to begin with.

    From pinned cells: that it attends from their queries to their keys; from two pinned tokens: from the
    later to the earlier one. With nothing pinned: what the head does most, beyond the others of its layer.

    Args:
        view: The view.
        source: The map that it shows.
        layer: Number of the layer.
        head: Number of the head.
        cells: (query, key), counted in the unit of the source; -1: only the other side is pinned.

    Raises:
        LookupError: No claim can be made of this, with the reason.
    """
    import attnwidgets
    from attnwidgets.circuits.claims.writing import claim_of_cells, claim_of_head

    trace: Any = view.content.trace
    shown = next((one for one in view.store.sources() if one.id == source), None)
    if trace is None or trace.model is None or trace.tokenizer is None:
        raise LookupError("claims are checked with a model and its tokenizer: give the view their trace.")
    if shown is None or shown.stack != trace.default_stack or trace.default_stack != "self":
        raise LookupError("claims are about the attention of a text to itself in models with one stack.")
    sides = [axis.units[shown.unit].spans for axis in trace.axes()]
    tokens = [
        (query, key) for one in _of_two(cells) for query in sides[0][one[0]] for key in sides[1][one[1]]
    ]
    roles: dict[str, Any] = {}
    if tokens:
        claim, found = claim_of_cells(trace, int(layer), int(head), tokens)
        roles = {name: [entry] for name, entry in found.items()}
    else:
        claim = claim_of_head(trace, int(layer), int(head))
    code = f".circuits.claim({str(claim)!r}).check("
    after = f", [{trace.text!r}]{f', roles={roles!r}' if roles else ''}).view()"
    yield attnwidgets, code, trace.model, ", ", trace.tokenizer, after
    yield (f"aw{code}model, tokenizer{after}",)


def _of_two(cells: Sequence[Sequence[int]]) -> list[tuple[int, int]]:
    """Return the cells of two elements; or of two that are pinned alone, the later one and the other.

    Raises:
        LookupError: More than two are pinned alone.
    """
    found = [(int(query), int(key)) for query, key in cells if min(query, key) >= 0]
    alone = sorted({int(max(query, key)) for query, key in cells if min(query, key) < 0})
    if found or len(alone) < 2:  # noqa: PLR2004 - two tokens
        return found
    if len(alone) > 2:  # noqa: PLR2004
        raise LookupError("a claim goes from one token to another: pin two, or cells of two.")
    return [(alone[1], alone[0])]
