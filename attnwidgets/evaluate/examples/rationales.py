"""Human rationales: the words that a person names as the reason, found again among the model's elements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from attnwidgets.explanations.targets.resolve import tokenizer_of

if TYPE_CHECKING:
    from attnwidgets.tracing.text.units import Unit
    from attnwidgets.tracing.trace import Trace

_PAIR = 2


def rationale_elements(trace: Trace, rationale: Any, unit: str | Unit = "token") -> tuple[int, ...]:
    """Return the elements of a unit that a rationale lies in, in order.

    An element belongs to it if one of its characters does.

    Args:
        trace: Of a text and a fast tokenizer, where characters are given.
        rationale: Spans (start, stop) of characters in the text; numbers of elements of the unit; or an
            object with such a `rationale` (`aw.demo_texts()`).
        unit: The unit, of the trace's default stack.

    Raises:
        ValueError: Where a span or an element is not in the text, or the tokenizer reports no characters.
        TypeError: Where it is neither.
    """
    elements = trace.units[unit] if isinstance(unit, str) else unit
    given = getattr(rationale, "rationale", rationale)
    if not isinstance(given, Sequence) or isinstance(given, str):
        raise TypeError(
            f"rationale is a {type(given).__name__}; it is a list of spans (start, stop) or of elements."
        )
    if all(hasattr(one, "__index__") for one in given):
        for one in given:
            if not 0 <= one < len(elements):
                raise ValueError(
                    f"rationale names element {one}; there are {elements.name}s 0 to {len(elements) - 1}."
                )
        return tuple(sorted({int(one) for one in given}))
    places = _characters(trace)
    tokens: set[int] = set()
    for one in given:
        if len(one) != _PAIR or not 0 <= one[0] < one[1] <= len(trace.text):
            raise ValueError(
                f"rationale has {one!r}; a span is (start, stop) of characters, 0 to {len(trace.text)} here."
            )
        tokens |= {at for at, (begin, end) in enumerate(places) if begin < one[1] and end > one[0]}
    return tuple(number for number, span in enumerate(elements.spans) if tokens & set(span))


def _characters(trace: Trace) -> list[tuple[int, int]]:
    """Return where every token lies in the text, without the blank before it."""
    from attnwidgets.tracing.recording.inputs import encode, text_tokenizer
    from attnwidgets.tracing.text.axes import trim

    reader = text_tokenizer(tokenizer_of(trace))
    ids = None if trace.input_ids is None else trace.input_ids.tolist()
    if reader is not None and getattr(reader, "is_fast", False) and trace.text.strip():
        sample = encode(reader, trace.text)
        if sample.ids == ids and sample.text is not None:
            return [trim(trace.text, begin, end) for begin, end in sample.text.spans]
    raise ValueError(
        "rationale is given by characters, which need a trace of one text by a fast tokenizer; give the "
        "numbers of elements instead."
    )
