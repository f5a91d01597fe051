"""aw.circuits.sentence_lens: which sentence comes next, according to the states of each layer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from attnwidgets._errors import quoted
from attnwidgets._gradients import no_grad
from attnwidgets._tables import Table, cells
from attnwidgets.circuits.lens import decoded
from attnwidgets.tracing.recording.run import trace as traced

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from attnwidgets._tables import Columns
    from attnwidgets.circuits.translator import Translator
    from attnwidgets.tracing.trace import Trace

    Float = NDArray[np.float64]

NAME = "circuits.sentence_lens"


@dataclass(frozen=True, eq=False, repr=False)
class SentenceLens(Table):
    """How probable sentences are after a text, by the states of each layer.

    Attributes:
        values: Mean log probability of a sentence's tokens, in nats [layer, sentence]; layer l reads the
            states before block l, and the last row is the model's own.
        sentences: The sentences.
        text: The text before them.
    """

    values: Float
    sentences: tuple[str, ...]
    text: str

    @property
    def nearest(self) -> tuple[str, ...]:
        """The most probable sentence of every layer [layer]."""
        return tuple(self.sentences[best] for best in self.values.argmax(axis=1))

    def _columns(self) -> Iterator[Columns]:
        """Yield layer, sentence, log probability."""
        axes = {"layer": range(len(self.values)), "sentence": self.sentences}
        yield cells(axes, {"log_probability": self.values})

    def __repr__(self) -> str:
        final = self.nearest[-1]
        same = [layer for layer, name in enumerate(self.nearest) if name != final]
        since = max(same, default=-1) + 1
        layers, count = self.values.shape
        return f"<SentenceLens [layer {layers}, sentence {count}]: {quoted(final)} from layer {since} on>"


def sentence_lens(
    model: Any, tokenizer: Any, text: str, sentences: Sequence[str], *, translator: Translator | None = None
) -> SentenceLens:
    """Return how probable each sentence is as the next one, by the states of every layer.

    The logit lens shows the next token of a layer, which says little of where a text goes. Here every
    sentence follows the text in turn, and each layer's states are decoded by the model's head:

        value of sentence s at layer l = mean over its tokens t of log p_l(t | text, tokens of s before t)

    A mean over tokens does not prefer short sentences. Only the sentences that are given are compared.

    Args:
        model: A causal language model, as `aw.trace` takes it.
        tokenizer: Its tokenizer.
        text: The text before the next sentence.
        sentences: Sentences that could come next. The text and a sentence are joined as they are: begin with
            a blank where one belongs.
        translator: Result of `aw.circuits.fit_translator`; by default states are read as they are.

    Returns:
        `SentenceLens` [layer, sentence]: `.values`, `.nearest` of every layer.

    Raises:
        ValueError: If there are fewer than two sentences, or one of them is empty or changes the tokens of
            the text.
        TypeError: If `sentences` is a string.
        UnsupportedModelError: If the model does not predict tokens, or its head is not described.

    Source: nostalgebraist 2020, the logit lens, for a token; a sentence's probability is the product over its
    tokens.

    Example:
        >>> model, tokenizer = aw.zoo.induction(letters="abcdefgh", length=16)
        >>> lens = aw.circuits.sentence_lens(model, tokenizer, "fadebcfad", ["eb", "bc", "ha"])
        >>> lens.nearest[-1]
        'eb'
    """
    if isinstance(sentences, str):
        raise TypeError("sentences must be a list of strings, not a string.")
    if len(sentences) < 2 or not all(sentences):  # noqa: PLR2004 - the nearest of one says nothing
        raise ValueError("sentences must hold two or more texts, none of them empty.")
    before = _ids(traced(model, tokenizer, text))
    columns = []
    for sentence in sentences:
        whole = traced(model, tokenizer, text + sentence)
        ids = _ids(whole)
        start = len(before)
        if ids[:start] != before or len(ids) == start:
            raise ValueError(
                f"sentences: {quoted(sentence)} changes the tokens of the text before it; end the text, and "
                "begin every sentence, where a token ends (a blank belongs to the sentence)."
            )
        columns.append(_log_probabilities(whole, ids, start, translator))
    return SentenceLens(np.stack(columns, axis=1), tuple(sentences), text)


def _ids(trace: Trace) -> list[int]:
    from attnwidgets.tracing.unsupported import UnsupportedModelError

    if trace.input_ids is None:
        raise UnsupportedModelError(f"{NAME}: {trace.model_id or 'this model'} reads no token ids.")
    return [int(index) for index in trace.input_ids]


def _log_probabilities(whole: Trace, ids: list[int], start: int, translator: Translator | None) -> Float:
    """Return the mean log probability of the tokens from `start` on, by every layer [layer]."""
    import torch

    following = torch.tensor(ids[start:])[:, None]
    rows = slice(start - 1, len(ids) - 1)
    with no_grad():
        means = [
            float(logits.double().log_softmax(-1).cpu().gather(1, following).mean())
            for logits in decoded(whole, rows, NAME, translator)
        ]
    return np.array(means)
