"""Human rationales: the words that a person names as the reason, located among the model's elements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from attnwidgets.explanations.targets.resolve import tokenizer_of

if TYPE_CHECKING:
    from attnwidgets.tracing.text.units import Unit
    from attnwidgets.tracing.trace import Trace

_PAIR = 2


def rationale_elements(trace: Trace, rationale: Any, unit: str | Unit = "token") -> tuple[int, ...]:
    """Return the elements of a unit that a rationale covers, in order.

    An element is covered if the rationale covers one of its characters.

    Args:
        trace: Trace returned by `aw.trace`; for spans of characters, of one text by a fast tokenizer.
        rationale: Spans (start, stop) of characters in the text; numbers of elements of the unit; or an
            object with such a `rationale` (`aw.demo_texts()`).
        unit: The unit, of the trace's default stack: "token", "word", ...

    Raises:
        ValueError: If a span or an element is not in the text, or the tokenizer reports no characters.
        TypeError: If the rationale is of another type.

    Example:
        >>> trace = aw.trace(*aw.demo_model("classifier"), "A fine film.")
        >>> trace.units["word"].labels
        ('[CLS]', 'A', 'fine', 'film', '.', '[SEP]')
        >>> aw.evaluate.rationale_elements(trace, [(2, 6)], "word")
        (2,)
    """
    elements = trace.units[unit] if isinstance(unit, str) else unit
    given = getattr(rationale, "rationale", rationale)
    if not isinstance(given, Sequence) or isinstance(given, str):
        raise TypeError(
            f"rationale is a {type(given).__name__}; give a list of spans (start, stop) or of elements."
        )
    if all(hasattr(number, "__index__") for number in given):
        for number in given:
            if not 0 <= number < len(elements):
                raise ValueError(
                    f"rationale has element {number}; there are {elements.name}s 0 to {len(elements) - 1}."
                )
        return tuple(sorted({int(number) for number in given}))
    token_spans = _character_spans(trace)
    tokens: set[int] = set()
    for span in given:
        if len(span) != _PAIR or not 0 <= span[0] < span[1] <= len(trace.text):
            raise ValueError(
                f"rationale has {span!r}; a span is (start, stop) of characters, 0 to {len(trace.text)} here."
            )
        tokens |= {
            token for token, (begin, end) in enumerate(token_spans) if begin < span[1] and end > span[0]
        }
    return tuple(number for number, span in enumerate(elements.spans) if tokens & set(span))


def _character_spans(trace: Trace) -> list[tuple[int, int]]:
    """Return the characters of every token, without the blank before it."""
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
