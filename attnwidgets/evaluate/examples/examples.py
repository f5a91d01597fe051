"""Examples with a target and its cues, or with a person's reasons, located among the model's tokens."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from attnwidgets._errors import suggest
from attnwidgets.explanations.targets.resolve import tokenizer_of

if TYPE_CHECKING:
    from attnwidgets.tracing.text.units import Unit
    from attnwidgets.tracing.trace import Trace

    Pieces = Literal["first", "all"]

# The names of each field, ours first.
_NAMES = {
    "target": ("target", "target_index", "target_indices"),
    "cues": ("cues", "cue_indices", "cue", "cue_index"),
    "words": ("words",),
    "text": ("text",),
}

_PAIR = 2


@dataclass(frozen=True)
class Example:
    """An example as the model reads it.

    Attributes:
        number: Its number in the data.
        ids: Token ids, the target masked if it should be.
        special: Which tokens are special.
        target: Tokens of the target.
        cues: Tokens of the cues.
    """

    number: int
    ids: tuple[int, ...]
    special: tuple[bool, ...]
    target: tuple[int, ...]
    cues: tuple[int, ...]


def read(
    model: Any, tokenizer: Any, source: Any, number: int, *, unit: str, pieces: Pieces, mask: bool
) -> Example:
    """Return an example located among the model's tokens.

    Raises:
        ValueError: If a field is missing or an index out of range; the message names the example.
    """
    from attnwidgets.tracing.recording.inputs import encode, limit_of, text_tokenizer, words_text

    name = f"examples[{number}]"
    words, text = _field(source, "words", name, needed=False), _field(source, "text", name, needed=False)
    if words is None and text is None:
        raise ValueError(
            f"{name} has neither words (a list) nor text; it needs one of them, a target and cues."
        )
    target = _indices(_field(source, "target", name), f"{name}: target")
    cues = _indices(_field(source, "cues", name), f"{name}: cues")
    if both := sorted(set(target) & set(cues)):
        raise ValueError(f"{name}: {both[0]} is both target and cue; a target cannot be its own cue.")
    reader = text_tokenizer(tokenizer)
    text = str(text) if words is None else words_text(words, text, f"{name}: words")
    try:
        sample = encode(reader, text, limit=limit_of(model, reader))
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from error
    if sample.text is None or sample.ids is None:
        raise ValueError(f"{name}: the tokenizer returns no tokens for it.")
    if unit == "token":
        elements: Sequence[tuple[int, ...]] = [(token,) for token in range(len(sample.ids))]
    else:
        elements = _tokens_of_words(sample.text, text, words, name)
    target_tokens = _tokens_of(target, elements, f"{name}: target", unit)
    cue_tokens = _tokens_of(cues, elements, f"{name}: cues", unit)
    ids = list(sample.ids)
    if mask:
        for token in (token for group in target_tokens for token in group):
            ids[token] = reader.mask_token_id
    return Example(
        number,
        tuple(ids),
        tuple(sample.text.special),
        tuple(token for group in target_tokens for token in group),
        tuple(token for group in cue_tokens for token in (group[:1] if pieces == "first" else group)),
    )


def _field(source: Any, field: str, example: str, *, needed: bool = True) -> Any:
    """Return a field of a mapping or an object, under any of its names."""
    names = _NAMES[field]
    if isinstance(source, Mapping):
        fields = {str(key): value for key, value in source.items()}
    else:
        fields = {key: None for key in dir(source) if not key.startswith("_")}
        fields |= {key: getattr(source, key, None) for key in names}
    value = next((fields[key] for key in names if fields.get(key) is not None), None)
    if value is None and needed:
        present = [key for key in fields if isinstance(source, Mapping) or hasattr(source, key)]
        raise ValueError(
            f"{example} has no {field} (accepted too: {', '.join(names[1:])}); it has {', '.join(present)}."
            f"{suggest(field, present)}"
        )
    return value


def _indices(value: Any, name: str) -> tuple[int, ...]:
    several = value if isinstance(value, Iterable) and not isinstance(value, str) else [value]
    try:
        indices = tuple(operator.index(index) for index in several)
    except TypeError as error:
        raise ValueError(f"{name} must be an index or several, not {value!r}.") from error
    if not indices:
        raise ValueError(f"{name} is empty; leave out examples without it.")
    return tuple(dict.fromkeys(indices))


def _tokens_of_words(
    sample: Any, text: str, words: Sequence[str] | None, example: str
) -> list[tuple[int, ...]]:
    """Return the tokens of every word: those that share a character with it."""
    from attnwidgets.tracing.text.axes import trim
    from attnwidgets.tracing.text.words import given_spans, word_spans

    token_spans = [trim(text, begin, end) for begin, end in sample.spans]
    spans = word_spans(text) if words is None else given_spans(text, words, f"{example}: words")
    return [
        tuple(
            token
            for token, (first, last) in enumerate(token_spans)
            if not sample.special[token] and first < end and last > begin
        )
        for begin, end in spans
    ]


def _tokens_of(
    indices: Iterable[int], elements: Sequence[tuple[int, ...]], name: str, unit: str
) -> list[tuple[int, ...]]:
    for index in indices:
        if not 0 <= index < len(elements):
            raise ValueError(f"{name} {index} is out of range: there are {unit}s 0 to {len(elements) - 1}.")
        if not elements[index]:
            raise ValueError(f"{name} {index} has no token of its own in this tokenizer.")
    return [elements[index] for index in indices]


def rationale_elements(trace: Trace, rationale: Any, unit: str | Unit = "token") -> tuple[int, ...]:
    """Return the elements of a unit that a rationale covers, in order.

    An element is covered if the rationale covers any of its characters.

    Args:
        trace: Trace returned by `aw.trace`; for spans of characters, of a single text by a fast tokenizer.
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
    spans = getattr(rationale, "rationale", rationale)
    if not isinstance(spans, Sequence) or isinstance(spans, str):
        raise TypeError(
            f"rationale is a {type(spans).__name__}; give a list of spans (start, stop) or of elements."
        )
    if all(hasattr(number, "__index__") for number in spans):
        for number in spans:
            if not 0 <= number < len(elements):
                raise ValueError(
                    f"rationale has element {number}; there are {elements.name}s 0 to {len(elements) - 1}."
                )
        return tuple(sorted({int(number) for number in spans}))
    token_spans = _character_spans(trace)
    tokens: set[int] = set()
    for span in spans:
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
