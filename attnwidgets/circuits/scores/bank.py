"""The states of the tokens of other texts, which are put in the place of a query or a key."""

from __future__ import annotations

import re
import weakref
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from attnwidgets._errors import quoted
from attnwidgets.concepts.batches import Inputs, texts_of
from attnwidgets.concepts.states import states_of
from attnwidgets.demo import demo_book, demo_texts
from attnwidgets.explanations.results.trace_protocol import is_trace
from attnwidgets.sae.corpus import Digest
from attnwidgets.tracing.interventions import said_of
from attnwidgets.tracing.model_state import state_of
from attnwidgets.tracing.recording.borrow import unwrap
from attnwidgets.tracing.recording.inputs import encode, text_tokenizer
from attnwidgets.tracing.text.display import visible
from attnwidgets.tracing.unsupported import UnsupportedModelError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray
    from torch import nn

    from attnwidgets.concepts.states_result import States
    from attnwidgets.tracing.trace import Trace

METHOD = "in_other_texts"
NAME = f"why.{METHOD}"
SKIPPED = 4
"""Tokens at the start of a decoder's text: a sink, whose state is large, and those without context."""

_MEMORY = "256MB"  # of states; beyond it they are read from a temporary file
_MOST = 2  # banks of one model that are remembered
_PARAGRAPHS = slice(None, None, 6)
_PARAGRAPH = (120, 400)  # characters of a paragraph of the book
_UNKNOWN = 0.1  # share of unknown tokens from which a vocabulary is another one
_TRIED = 20  # texts that say whether a vocabulary is another one
_CONTEXT = 48  # characters before a token
_BETWEEN_WORDS = re.compile(r"\W")

_banks: weakref.WeakKeyDictionary[nn.Module, dict[tuple[Any, ...], Bank]] = weakref.WeakKeyDictionary()


class RankedToken(NamedTuple):
    """A token of another text, as the query or the key of a cell.

    Attributes:
        token: Its characters.
        before: The text before it.
        after: The rest of its word; "" in a text without blanks.
        word: Its word; the token itself in a text without blanks.
        text: Number of the text.
        position: Number of the token in it.
        score: The score that it has in the cell, as the softmax reads it.
        attention: The weight that the key then gets in the cell's row.
    """

    token: str
    before: str
    after: str
    word: str
    text: int
    position: int
    score: float
    attention: float


@dataclass(frozen=True)
class Bank:
    """The states of many texts' tokens at the input of every layer, without special ones.

    Args:
        states: Their states [token, layer, width].
        rows: The rows of `states` that count.
        texts: The texts.
        numbers: Number of the text of each row of `states`.
        spans: The characters of each row of `states` in its text.
        tokenizer: The tokenizer, whose identity is a part of the key.
    """

    states: States
    rows: NDArray[np.int64]
    texts: tuple[str, ...]
    numbers: NDArray[np.int64]
    spans: NDArray[np.int64]
    tokenizer: Any
    _last: dict[int, NDArray[np.floating]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.rows)

    def layer(self, layer: int) -> NDArray[np.floating]:
        """Return the states at the input of a layer [token, width], float32."""
        if layer not in self._last:
            self._last.clear()
            self._last[layer] = self.states.layer(layer)[self.rows]
        return self._last[layer]

    def token(self, index: int, score: float, attention: float) -> RankedToken:
        """Return a token of the bank with its context, score and attention."""
        row = self.rows[index]
        number, (start, stop) = int(self.numbers[row]), self.spans[row].tolist()
        text = self.texts[number]
        start += len(text[start:stop]) - len(text[start:stop].lstrip())
        before, token = text[max(0, start - _CONTEXT) : start], text[start:stop]
        after, word = "", token
        if " " in text:  # spelled in words
            after = _BETWEEN_WORDS.split(text[stop:], 1)[0] if token[-1:].isalnum() else ""
            begun = _BETWEEN_WORDS.split(before)[-1] if token[:1].isalnum() else ""
            word = begun + token + after
        if start > _CONTEXT:
            before = before[before.find(" ") + 1 :]
        return RankedToken(
            visible(token),
            " ".join(before.split()) + " " * before.endswith((" ", "\n")),
            after,
            visible(word),
            number,
            int(self.states.positions[row]),
            score,
            attention,
        )


@cache
def texts_of_demo() -> tuple[str, ...]:
    """Return the texts that are read by default: the demo's sentences and paragraphs of its book."""
    least, most = _PARAGRAPH
    paragraphs = [text for text in demo_book() if least <= len(text) <= most][_PARAGRAPHS]
    return (*(text.text for text in demo_texts()), *paragraphs)


def bank_of(trace: Trace, stack: str, texts: Any = None) -> Bank:
    """Return the states of other texts, computed at the first call for a model and these texts.

    Args:
        trace: A trace of the model.
        stack: The stack.
        texts: The texts; None: those of the demo.

    Raises:
        ValueError: If the texts are empty, none of their tokens counts, or the tokenizer cannot spell them.
        TypeError: If an input is not a text.
        UnsupportedModelError: If the model reads something else.
    """
    listed = _listed(trace, texts)
    model, key = unwrap(trace.model), _key(trace, stack, listed)
    banks = _banks.setdefault(model, {})
    if key not in banks:
        _require_spelled(trace, listed, texts)
        made = _made(trace, stack, listed)
        while len(banks) >= _MOST:
            del banks[next(iter(banks))]
        banks[key] = made
    return banks[key]


def has_bank(trace: Trace, stack: str, texts: Any = None) -> bool:
    """Return whether the states of these texts are here already."""
    try:
        listed = _listed(trace, texts)
    except (ValueError, TypeError):
        return False
    return _key(trace, stack, listed) in _banks.get(unwrap(trace.model), {})


def reads_texts(trace: Trace, texts: Any = None) -> bool:
    """Return whether a model reads texts, and its tokenizer can spell these."""
    try:
        _require_spelled(trace, _listed(trace, texts), texts)
    except (ValueError, TypeError):
        return False
    return True


def _key(trace: Trace, stack: str, texts: Sequence[str]) -> tuple[Any, ...]:
    digest, model = Digest(), unwrap(trace.model)
    for text in texts:
        digest.add(text)
    return stack, id(trace.tokenizer), state_of(model), tuple(said_of(model)), str(digest)


def _listed(trace: Trace, texts: Any) -> tuple[str, ...]:
    """Return the texts as strings."""
    if text_tokenizer(trace.tokenizer) is None or "input_ids" not in trace.inputs:
        raise UnsupportedModelError(
            f"{NAME} puts words of other texts in this place; the model must read texts by a tokenizer, and "
            f"{trace.model_id or 'this one'} was traced without."
        )
    listed = texts_of_demo() if texts is None else tuple(texts_of(texts, NAME))
    for number, text in enumerate(listed):
        if is_trace(text):
            raise TypeError(f"{NAME}: texts[{number}] must be a string, not a {type(text).__name__}.")
    return listed


def _require_spelled(trace: Trace, listed: Sequence[str], texts: Any) -> None:
    """Raise ValueError if the tokenizer cannot spell the first texts."""
    try:
        unknown = _unknown(text_tokenizer(trace.tokenizer), listed[:_TRIED])
    except ValueError as error:
        if texts is not None or type(error) is not ValueError:
            raise
        raise ValueError(f"{_other_vocabulary(texts)} ({error})") from error
    if unknown > _UNKNOWN:
        raise ValueError(f"{_other_vocabulary(texts)} ({unknown:.0%} of their tokens are unknown)")


def _unknown(reader: Any, texts: Sequence[str]) -> float:
    ids = [number for text in texts for number in encode(reader, text, truncation=True).ids or ()]
    unknown = getattr(reader, "unk_token_id", None)
    return sum(number == unknown for number in ids) / max(1, len(ids))


def _other_vocabulary(texts: Any) -> str:
    whose = "the demo's texts" if texts is None else "texts"
    return f"{NAME}: the tokenizer cannot spell {whose}; pass texts in its vocabulary."


def _made(trace: Trace, stack: str, texts: Sequence[str]) -> Bank:
    inputs = Inputs(trace.model, trace.tokenizer, texts, NAME, truncation=True)
    states = states_of(inputs, layers=trace.layers(stack), at="tokens", stack=stack, memory=_MEMORY)
    numbers, spans = [], []
    for read in inputs.reads:
        if read.sample is None or read.sample.text is None:
            raise UnsupportedModelError(
                f"{NAME} reads tokens of texts, and those of stack {stack!r} are none."
            )
        special = read.sample.text.special
        for span, apart in zip(read.sample.text.spans, special, strict=True):
            if not apart:
                numbers.append(read.index)
                spans.append(span)
    rows = np.arange(len(states))
    if trace.is_causal(stack):
        rows = rows[states.positions >= SKIPPED]
    if not len(rows):
        raise ValueError(
            f"{NAME}: texts have no token that counts ({quoted(texts[0])}, ...): special tokens do not, nor "
            f"the first {SKIPPED} of a decoder."
        )
    return Bank(states, rows, tuple(texts), np.array(numbers), np.array(spans), trace.tokenizer)
