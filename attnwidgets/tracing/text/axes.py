"""Axes of maps: text tokens with their words and sentences, or plain numbers."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from attnwidgets.tracing.text.messages import (
    TEMPLATE,
    messages_of,
    owners_of_characters,
    owners_of_tokens,
    unit_of_passages,
    units_of_chat,
)
from attnwidgets.tracing.text.units import TokenAxis, Unit, Units, soft_prompt_label
from attnwidgets.tracing.text.words import (
    GIVEN,
    STANDARD,
    given_spans,
    paragraph_spans,
    sentence_spans,
    unit_from_spans,
    word_spans,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from attnwidgets.tracing.text.messages import Chat, Message, Passage


@dataclass(frozen=True)
class Text:
    """Tokens and their positions in the text (or in the two texts of a pair).

    Args:
        tokens: Display strings.
        spans: Character span of each token in the text of its segment; empty for special tokens.
        special: Whether each token is special.
        segment: 0 or 1 per token.
        texts: The text of each segment.
        words: The user's words for each segment; None to split the text by a rule.
        boundary: Index of the first generated token.
        chat: The messages that the text was rendered from, if it was; special tokens then have their spans.
        passages: Titled passages of the text.
    """

    tokens: tuple[str, ...]
    spans: tuple[tuple[int, int], ...]
    special: tuple[bool, ...]
    segment: tuple[int, ...]
    texts: tuple[str, ...]
    words: tuple[Sequence[str] | None, ...] = (None, None)
    boundary: int | None = None
    chat: Chat | None = None
    passages: tuple[Passage, ...] = ()

    def axis(self, rule: str = STANDARD) -> TokenAxis:
        """Return the axis with units token, word, sentence and paragraph.

        In a chat, words, sentences and paragraphs end with its messages, and message, role and turn are
        units, too; tokens of the template are special. With passages, the unit passage is added.

        Args:
            rule: The rule that splits the text if the user gives no words: a name in `words.RULES`.
        """
        # Segments are concatenated, so that one pass over characters serves both texts.
        whole = "".join(f"{text}\n" for text in self.texts)
        starts = [0, *accumulate(len(text) + 1 for text in self.texts)]
        spans = [
            (starts[s] + b, starts[s] + e) if e > b else (0, 0)
            for (b, e), s in zip(self.spans, self.segment, strict=True)
        ]
        special, owners = self.special, [TEMPLATE] * len(spans)
        if self.chat is not None:
            owners, spans = owners_of_tokens(
                whole, spans, special, owners_of_characters(whole, [part.runs for part in self.chat.parts])
            )
            special = tuple(apart or owner == TEMPLATE for apart, owner in zip(special, owners, strict=True))
        trimmed = [trim(whole, begin, end) for begin, end in spans]

        def words(text: str, user_words: Sequence[str] | None) -> list[tuple[int, int]]:
            return word_spans(text, rule) if user_words is None else given_spans(text, user_words)

        def unit(name: str, spans_in: Callable[..., list[tuple[int, int]]], unit_rule: str = "") -> Unit:
            elements = [
                (start + begin, start + end)
                for start, *stretch in self._stretches()
                for begin, end in spans_in(*stretch)
            ]
            return unit_from_spans(name, whole, elements, trimmed, special, self.tokens, unit_rule)

        units: dict[str, Unit | Callable[[], Unit]] = {
            "token": Unit("token", self.tokens, _each(len(self.tokens)), special),
            "word": partial(unit, "word", words, GIVEN if any(self.words) else rule),
            "sentence": partial(unit, "sentence", lambda text, _: sentence_spans(text)),
            "paragraph": partial(unit, "paragraph", lambda text, _: paragraph_spans(text)),
        }
        if any(self.words):  # which may not be in the text
            units["word"] = unit("word", words, GIVEN)
        if self.passages:
            parts = () if self.chat is None else self.chat.parts
            units["passage"] = unit_of_passages(
                self.passages, whole, spans, parts, owners, self.tokens, special
            )
        messages: tuple[Message, ...] = ()
        if self.chat is not None:
            units |= units_of_chat(self.chat, whole, owners, self.tokens, special)
            messages = messages_of(self.chat, whole, owners, special, Units(units)["sentence"])
        text = "\n".join(t for t in self.texts if t)
        return TokenAxis(self.tokens, Units(units), self.segment, self.boundary, text, messages)

    def _stretches(self) -> Iterator[tuple[int, str, Sequence[str] | None]]:
        """Yield start, text and the user's words of stretches that words and sentences do not cross."""
        if self.chat is not None:
            for start, end in sorted(run for part in self.chat.parts for run in part.runs):
                yield start, self.texts[0][start:end], None
            return
        start = 0
        for text, user_words in zip(self.texts, self.words, strict=False):
            yield start, text, user_words
            start += len(text) + 1


def trim(text: str, begin: int, end: int) -> tuple[int, int]:
    """Return a token's span without leading blanks, which do not belong to a word.

    A token that is a single space ("␣" before a digit, or before a character of several bytes) belongs to the
    character after it; longer blanks and line ends are separate elements.
    """
    if text[begin:end].strip():
        return end - len(text[begin:end].lstrip()), end
    if text[begin:end] == " " and text[end : end + 1].strip():
        return end, end + 1
    return begin, begin


def numbered(n: int, note: str = "") -> TokenAxis:
    """Return an axis of plain numbers."""
    return TokenAxis.plain([f"{note}{i}" for i in range(n)])


def media_axis(unit: Unit) -> TokenAxis:
    """Return the axis whose tokens are the elements of a unit."""
    token = Unit("token", unit.labels, unit.spans, unit.special)
    return TokenAxis(unit.labels, {"token": token, unit.name: unit})


def _each(n: int) -> tuple[tuple[int, ...], ...]:
    return tuple((i,) for i in range(n))


def _described(unit: Unit, change: Callable[[tuple[Any, ...]], tuple[Any, ...]]) -> dict[str, Any]:
    """Return what a unit holds of some elements, changed as its labels are; None where it holds nothing."""
    values = {name: getattr(unit, name) for name in ("cells", "boxes", "times", "titled")}
    return {name: None if value is None else change(value) for name, value in values.items()}


def prefixed(axis: TokenAxis, extra: int) -> TokenAxis:
    """Return an axis with `extra` positions before it that have no token (a PEFT prefix)."""
    names = tuple(map(soft_prompt_label, range(extra)))
    units = {}
    for name, unit in axis.units.items():
        spans = (*_each(extra), *(tuple(i + extra for i in span) for span in unit.spans))
        units[name] = replace(
            unit,
            labels=(*names, *unit.labels),
            spans=spans,
            special=(True,) * extra + unit.special,
            **_described(unit, lambda values: (None,) * extra + values),
        )
    boundary = None if axis.boundary is None else axis.boundary + extra
    messages = tuple(message.moved(extra) for message in axis.messages)
    segment = (0,) * extra + axis.segment
    return TokenAxis((*names, *axis.tokens), units, segment, boundary, axis.text, messages)


def appended(axis: TokenAxis, labels: Sequence[str]) -> TokenAxis:
    """Return an axis with special tokens after it."""
    n = len(axis)
    units = {}
    for name, unit in axis.units.items():
        units[name] = replace(
            unit,
            labels=(*unit.labels, *labels),
            spans=(*unit.spans, *((n + i,) for i in range(len(labels)))),
            special=(*unit.special, *(True,) * len(labels)),
            **_described(unit, lambda values: values + (None,) * len(labels)),
        )
    segment = (*axis.segment, *(axis.segment[-1:] or (0,)) * len(labels))
    return replace(axis, tokens=(*axis.tokens, *labels), units=units, segment=segment)


def without_last(axis: TokenAxis, count: int) -> TokenAxis:
    """Return an axis without its last tokens, each of which is a separate element in every unit."""
    units = {
        name: replace(
            unit,
            labels=unit.labels[:-count],
            spans=unit.spans[:-count],
            special=unit.special[:-count],
            **_described(unit, lambda values: values[:-count]),
        )
        for name, unit in axis.units.items()
    }
    return replace(axis, tokens=axis.tokens[:-count], units=units, segment=axis.segment[:-count])
