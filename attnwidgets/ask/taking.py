"""Taking an answer from the shared selection of a view: twin of js/src/views/question/places.ts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from attnwidgets.views.wire.axes import elements_of

if TYPE_CHECKING:
    from attnwidgets.ask.question import Question
    from attnwidgets.views.base.selection import Selection


def selected_answer(question: Question) -> Any:
    """Return the answer that the selection of a question's view holds now.

    Raises:
        ValueError: Nothing that answers the question is chosen there; the message says what to do.
    """
    view, kind = question.view, question.kind
    if view is None:
        raise ValueError(f"{question.id} has no view to take an answer from: set answer.")
    if view.selection is not question.selection:
        raise ValueError("The view shows another text than the question is about: go back to that one.")
    state: Selection = question.selection
    if kind == "layer":
        return state.layer
    if kind == "head":
        if state.heads:
            return [list(head) for head in state.heads] if len(state.heads) > 1 else list(state.heads[0])
        if isinstance(state.head, str):
            raise ValueError(f"The view shows the {state.head} of all heads: choose one of them.")
        return [state.layer, state.head]
    if kind == "span":
        if state.span is None:
            raise ValueError("No span is chosen in the view: drag over its text.")
        sides = _members(question, state.span.unit)[state.span.side != "query"]
        tokens = [token for place in range(*state.span[:2]) for token in sides[place]]
        return [min(tokens), max(tokens) + 1]
    if kind in ("tokens", "cell"):
        return _pinned(question, state)
    raise ValueError(f"An answer of the kind {kind!r} cannot be read from a view: set answer.")


def _pinned(question: Question, state: Selection) -> Any:
    if question.kind == "tokens":
        if not state.pins:
            raise ValueError("No token is chosen in the view: click one, and more with Shift.")
        found: set[int] = set()
        for pin in state.pins:
            queries, keys = _members(question, pin.unit)
            found.update(keys[pin.key] if pin.key >= 0 else queries[pin.query])
        return sorted(found)
    cell = state.pinned
    if cell is None or min(cell) < 0:
        raise ValueError("No cell is pinned in the view: click one in the map.")
    sides = [part[place] for part, place in zip(_members(question, cell.unit), cell, strict=True)]
    if any(len(side) > 1 for side in sides):
        raise ValueError(f"The pinned cell is of {cell.unit}s of several tokens: let the view show tokens.")
    return [side[0] for side in sides]


def _members(question: Question, unit: str) -> tuple[list[tuple[int, ...]], list[tuple[int, ...]]]:
    """Return the tokens behind every query and every key of a unit."""
    source = question.view.sources()[0]  # type: ignore[union-attr] # who calls this has a view
    shown = source.explanation
    axes = (shown.axis, shown.axis) if source.attributions else (shown.query, shown.key)
    queries, keys = ([tuple(span) for span in elements_of(tokens, unit).spans] for tokens in axes)
    return queries, keys
