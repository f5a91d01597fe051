"""Examples with a target and its cues, found again among the model's tokens."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from attnwidgets._errors import suggest

if TYPE_CHECKING:
    Pieces = Literal["first", "all"]

# The names a field goes by, ours first.
_NAMES = {
    "target": ("target", "target_index", "target_indices"),
    "cues": ("cues", "cue_indices", "cue", "cue_index"),
    "words": ("words",),
    "text": ("text",),
}


@dataclass(frozen=True)
class Example:
    """One example as the model reads it.

    Attributes:
        number: Its place in the data.
        ids: Token ids, the target masked where it should be.
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
    model: Any, tokenizer: Any, given: Any, number: int, *, unit: str, pieces: Pieces, mask: bool
) -> Example:
    """Return one example found among the model's tokens.

    Raises:
        ValueError: Where a field is missing or an index out of range; the message names the example.
    """
    from attnwidgets.tracing.recording.inputs import encode, limit_of, text_tokenizer, words_text

    place = f"examples[{number}]"
    words, text = _field(given, "words", place, needed=False), _field(given, "text", place, needed=False)
    if words is None and text is None:
        raise ValueError(
            f"{place} has neither words (a list) nor text; it needs one of them, a target and cues."
        )
    target = _indices(_field(given, "target", place), f"{place}: target")
    cues = _indices(_field(given, "cues", place), f"{place}: cues")
    if both := sorted(set(target) & set(cues)):
        raise ValueError(f"{place}: {both[0]} is target and cue at once; a target is no cue of itself.")
    reader = text_tokenizer(tokenizer)
    text = str(text) if words is None else words_text(words, text, f"{place}: words")
    try:
        sample = encode(reader, text, limit=limit_of(model, reader))
    except ValueError as error:
        raise ValueError(f"{place}: {error}") from error
    if sample.text is None or sample.ids is None:
        raise ValueError(f"{place}: the tokenizer made no tokens of it.")
    if unit == "token":
        tokens: Sequence[tuple[int, ...]] = [(token,) for token in range(len(sample.ids))]
    else:
        tokens = _tokens_of_words(sample.text, text, words, place)
    targets = _found(target, tokens, f"{place}: target", unit)
    found = _found(cues, tokens, f"{place}: cues", unit)
    ids = list(sample.ids)
    if mask:
        for token in (token for group in targets for token in group):
            ids[token] = reader.mask_token_id
    return Example(
        number,
        tuple(ids),
        tuple(sample.text.special),
        tuple(token for group in targets for token in group),
        tuple(token for group in found for token in (group[:1] if pieces == "first" else group)),
    )


def _field(given: Any, name: str, place: str, *, needed: bool = True) -> Any:
    """Return a field of a mapping or an object, under any of its names."""
    names = _NAMES[name]
    if isinstance(given, Mapping):
        found = next((given[key] for key in names if given.get(key) is not None), None)
        there: Iterable[str] = [str(key) for key in given]
    else:
        found = next((value for key in names if (value := getattr(given, key, None)) is not None), None)
        there = [key for key in dir(given) if not key.startswith("_")]
    if found is None and needed:
        near = suggest(name, there)
        raise ValueError(
            f"{place} has no {name} (also taken: {', '.join(names[1:])}); it has {', '.join(there)}.{near}"
        )
    return found


def _indices(given: Any, what: str) -> tuple[int, ...]:
    several = given if isinstance(given, Iterable) and not isinstance(given, str) else [given]
    try:
        found = tuple(operator.index(index) for index in several)
    except TypeError as error:
        raise ValueError(f"{what} must be an index or several, not {given!r}.") from error
    if not found:
        raise ValueError(f"{what} is empty; leave examples without it out.")
    return tuple(dict.fromkeys(found))


def _tokens_of_words(shown: Any, text: str, words: Sequence[str] | None, place: str) -> list[tuple[int, ...]]:
    """Return the tokens of every word: those that share a character with it."""
    from attnwidgets.tracing.text.axes import trim
    from attnwidgets.tracing.text.words import given_spans, word_spans

    places = [trim(text, begin, end) for begin, end in shown.spans]
    spans = word_spans(text) if words is None else given_spans(text, words, f"{place}: words")
    return [
        tuple(
            token
            for token, (first, last) in enumerate(places)
            if not shown.special[token] and first < end and last > begin
        )
        for begin, end in spans
    ]


def _found(
    wanted: Iterable[int], tokens: Sequence[tuple[int, ...]], what: str, unit: str
) -> list[tuple[int, ...]]:
    groups = []
    for index in wanted:
        if not 0 <= index < len(tokens):
            raise ValueError(f"{what} {index} is out of range: there are {unit}s 0 to {len(tokens) - 1}.")
        if not tokens[index]:
            raise ValueError(f"{what} {index} has no token of its own in this tokenizer.")
        groups.append(tokens[index])
    return groups
