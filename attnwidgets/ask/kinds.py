"""The kinds of answers: their values, their line of code, and how they are read from a view.

`valid` checks a value against its kind and the ranges of the view (`Ranges`); `words` and `code_value` write
it; `selected_answer` reads it from the selection of the question's view.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from attnwidgets._errors import quoted, suggest
from attnwidgets.course.errors import AnswerError
from attnwidgets.course.values import checked
from attnwidgets.views.wire.axes import axis, elements_of, span

if TYPE_CHECKING:
    from collections.abc import Sequence

    from attnwidgets.ask.question import Question
    from attnwidgets.views.base.selection import Selection
    from attnwidgets.views.base.view import View

OF_VIEWS = ("head", "layer", "tokens", "span", "cell")
"""Kinds that are answered in a view of a trace or an explanation."""

OF_TEXTS = ("tokens", "span", "cell")
"""Kinds whose numbers are positions in the text."""

_MOST_WORDS = 12


@dataclass(frozen=True)
class Ranges:
    """Layers, heads and tokens that can be chosen in a view.

    Attributes:
        layers: Layers, by number.
        heads: Heads, by number.
        queries: Names of the queries, in the unit of the explanation.
        keys: Names of the keys.
        unit: That unit.
        index_base: Whether layers and heads are counted from 0 or from 1.
    """

    layers: tuple[int, ...] = ()
    heads: tuple[int, ...] = ()
    queries: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    unit: str = ""
    index_base: int = 0

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the elements of the text: of the longer side, where they differ."""
        return max(self.queries, self.keys, key=len)

    @classmethod
    def of(cls, view: View | None) -> Ranges:
        """Return the ranges of a view; empty ranges without a view."""
        sources = [] if view is None else view.sources()
        if view is None or not sources:
            return cls()
        explanation = sources[0].explanation
        unit = str(explanation.unit)
        attributed = sources[0].attributions
        queries, keys = (
            (explanation.axis, explanation.axis) if attributed else (explanation.query, explanation.key)
        )
        return cls(
            tuple(sorted({number for source in sources for number in source.layers})),
            tuple(sorted({number for source in sources for number in source.heads or ()})),
            tuple(axis(queries, unit)["labels"]),
            tuple(axis(keys, unit)["labels"]),
            unit,
            int(view.options.get("indexBase", 0)),
        )


def valid(
    kind: str,
    value: Any,
    ranges: Ranges,
    options: Sequence[str] | None,
    *,
    multiple: bool,
    least: float | None = None,
) -> Any:
    """Return an answer in the form in which it is stored.

    Raises:
        AnswerError: It does not fit its kind, is not among the options, or is below the least number.
        IndexError: The layer, head or position is out of range; the message names the range.
    """
    result = checked(kind, value)
    if kind in OF_VIEWS:
        _in_view(kind, result, ranges)
    elif kind == "number" and least is not None and result < least:
        raise AnswerError(f"answer={value!r} is below {least:g}, the least that it can be.")
    elif kind == "choice":
        _among(result, options or (), multiple=multiple)
    elif kind == "order" and options is not None:
        names = [name for rank in result for name in (rank if isinstance(rank, list) else [rank])]
        if sorted(map(str, names)) != sorted(options):
            raise AnswerError(f"answer={value!r} is not an order of all of {', '.join(map(repr, options))}.")
    return result


def _in_view(kind: str, answer: Any, ranges: Ranges) -> None:
    if kind == "head":
        for layer, head in answer if isinstance(answer[0], list) else [answer]:
            _within("layer", layer, ranges.layers)
            _within("head", head, ranges.heads)
    elif kind == "layer":
        for layer in answer if isinstance(answer, list) else [answer]:
            _within("layer", layer, ranges.layers)
    elif kind == "cell":
        _below("query", answer[0], len(ranges.queries))
        _below("key", answer[1], len(ranges.keys))
    else:
        for position in answer if kind == "tokens" else (answer[0], answer[1] - 1):
            _below("position", position, len(ranges.names))


def _within(name: str, number: int, available: Sequence[int]) -> None:
    if number not in available:
        raise IndexError(
            f"answer: {name} {number} is out of range: the {name}s are {span(tuple(available))}."
        )


def _below(name: str, number: int, size: int) -> None:
    if number >= size:
        raise IndexError(f"answer: {name} {number} is out of range: they are 0 to {size - 1}.")


def _among(answer: Any, options: Sequence[str], *, multiple: bool) -> None:
    if isinstance(answer, list) != multiple:
        form = "a list of options, as several may be chosen" if multiple else "one option"
        raise AnswerError(f"answer={answer!r} is not {form}: {', '.join(map(repr, options))}.")
    for name in answer if multiple else [answer]:
        if name not in options:
            raise AnswerError(
                f"answer={name!r} is not one of {', '.join(map(repr, options))}.{suggest(name, options)}"
            )


def words(kind: str, value: Any, ranges: Ranges, unit: str | None = None) -> str:
    """Return an answer in words; the twin of `said` in js/src/views/question/kinds.ts."""
    if kind in OF_VIEWS:
        return _words_of_view(kind, value, ranges)
    if kind == "number":
        return f"{value:g}{f' {unit}' if unit else ''}"
    if kind == "order":
        return " > ".join(
            " = ".join(map(str, item)) if isinstance(item, list) else str(item) for item in value
        )
    if kind == "choice":
        return (", ".join(value) if isinstance(value, list) else value) or "none of them"
    return quoted(" ".join(value.split()), 200)[1:-1]


def _words_of_view(kind: str, value: Any, ranges: Ranges) -> str:
    base = ranges.index_base
    if kind == "head":
        heads = value if isinstance(value[0], list) else [value]
        return _counted("head", [f"{layer + base}.{head + base}" for layer, head in heads])
    if kind == "layer":
        return _counted(
            "layer", [str(layer + base) for layer in (value if isinstance(value, list) else [value])]
        )
    if kind == "cell":
        return f"{_name(ranges.queries, value[0])} → {_name(ranges.keys, value[1])}"
    chosen = list(range(*value)) if kind == "span" else value
    names = [_name(ranges.names, position) for position in chosen[:_MOST_WORDS]]
    rest = len(chosen) - len(names)
    return (" ".join(names) + (f" and {rest} more" if rest else "")) or "no token"


def _counted(name: str, items: Sequence[str]) -> str:
    return f"{name}{'s' * (len(items) > 1)} {', '.join(items)}"


def _name(names: Sequence[str], position: int) -> str:
    return f"“{names[position]}”" if 0 <= position < len(names) else f"token {position}"


def code_value(kind: str, value: Any) -> str:
    """Return an answer as Python writes it: `(0, 2)`."""
    if kind in ("head", "cell", "span") and not isinstance(value[0], list):
        return repr(tuple(value))
    return repr(value)


def selected_answer(question: Question) -> Any:
    """Return the answer that is selected in a question's view.

    Raises:
        ValueError: The selection does not answer the question; the message says what to do.
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
        tokens = [token for index in range(*state.span[:2]) for token in sides[index]]
        return [min(tokens), max(tokens) + 1]
    if kind in ("tokens", "cell"):
        return _pinned(question, state)
    raise ValueError(f"An answer of the kind {kind!r} cannot be read from a view: set answer.")


def _pinned(question: Question, state: Selection) -> Any:
    if question.kind == "tokens":
        if not state.pins:
            raise ValueError("No token is chosen in the view: click one, and more with Shift.")
        result: set[int] = set()
        for pin in state.pins:
            queries, keys = _members(question, pin.unit)
            result.update(keys[pin.key] if pin.key >= 0 else queries[pin.query])
        return sorted(result)
    cell = state.pinned
    if cell is None or min(cell) < 0:
        raise ValueError("No cell is pinned in the view: click one in the map.")
    sides = [members[index] for members, index in zip(_members(question, cell.unit), cell, strict=True)]
    if any(len(side) > 1 for side in sides):
        raise ValueError(f"The pinned cell is of {cell.unit}s of several tokens: let the view show tokens.")
    return [side[0] for side in sides]


def _members(question: Question, unit: str) -> tuple[list[tuple[int, ...]], list[tuple[int, ...]]]:
    """Return the tokens behind every query and every key of a unit."""
    source = question.view.sources()[0]  # type: ignore[union-attr] # callers checked that there is a view
    explanation = source.explanation
    axes = (
        (explanation.axis, explanation.axis) if source.attributions else (explanation.query, explanation.key)
    )
    queries, keys = ([tuple(span) for span in elements_of(tokens, unit).spans] for tokens in axes)
    return queries, keys
