"""The sentences of a trace, which of their tokens count, and sums of the attention between them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from attnwidgets._gradients import no_grad
from attnwidgets._tensors import as_array, is_half
from attnwidgets.explanations.results.units import add_units, new_unit
from attnwidgets.tracing.layers import RecordedLayer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from attnwidgets.explanations.results.trace_protocol import TraceLike
    from attnwidgets.tracing.text.units import TokenAxis, Unit

_FEWEST = 2

_BLOCK_BYTES = 2**26


@dataclass(frozen=True)
class Sentences:
    """The sentences of a text.

    Attributes:
        axis: The tokens, which can be read by the unit.
        unit: The sentences.
        counted: Whether a token counts [token]: all but the first, if that is left out.
    """

    axis: TokenAxis
    unit: Unit
    counted: np.ndarray

    def __len__(self) -> int:
        return len(self.unit)

    def means(self) -> np.ndarray:
        """Return the weights of the mean over the counted tokens of each sentence [sentence, token]."""
        members = self.unit.membership(len(self.axis)) * self.counted
        return members / np.maximum(members.sum(axis=1, keepdims=True), 1)

    def sizes(self) -> np.ndarray:
        """Return the numbers of tokens that count [sentence]."""
        return self.unit.membership(len(self.axis)) @ self.counted

    def summed(self, values: np.ndarray, first: int = 0) -> np.ndarray:
        """Return sums over the tokens of a sentence that count [..., sentence].

        Args:
            values: [..., token], of some tokens that follow each other; all others are 0.
            first: The first of these.
        """
        tokens, owners = self._order
        inside = (tokens >= first) & (tokens < first + values.shape[-1])
        tokens, owners = tokens[inside] - first, owners[inside]
        result = np.zeros((*values.shape[:-1], len(self)), dtype=values.dtype)
        if len(tokens):
            starts = np.flatnonzero(np.diff(owners, prepend=-1))
            # Sentences mostly follow each other: then a slice, which copies nothing.
            rising = bool((np.diff(tokens) == 1).all())
            chosen = slice(tokens[0], tokens[-1] + 1) if rising else tokens
            result[..., owners[starts]] = np.add.reduceat(values[..., chosen], starts, axis=-1)
        return result

    @cached_property
    def _order(self) -> tuple[np.ndarray, np.ndarray]:
        """The tokens that count, sentence by sentence, and the sentence of each."""
        spans = self.unit.spans
        pairs = [(token, at) for at, span in enumerate(spans) for token in span if self.counted[token]]
        tokens, owners = np.array(pairs, dtype=np.intp).reshape(-1, 2).T
        return tokens, owners


def sentences_of(
    trace: TraceLike, stack: str, unit: Any, function: str, *, skip_first_token: bool
) -> Sentences:
    """Return the sentences of a trace.

    Args:
        trace: The trace.
        stack: Name of the stack.
        unit: Name of a unit ("sentence", "paragraph"), a Unit, or spans of tokens.
        function: Name of the public function, for messages.
        skip_first_token: Whether the first token does not count: attention rests there.

    Raises:
        ValueError: If the text lacks the unit, or has only a single sentence.
    """
    axis, keys = trace.axes(stack)
    if keys is not axis and keys != axis:
        raise ValueError(f"{function} compares sentences of one text; stack {stack!r} reads another.")
    if isinstance(unit, str):
        if unit not in axis.units:
            raise ValueError(f"unit {unit!r} is not known of this text; it has {', '.join(axis.units)}.")
        result = axis.units[unit]
    else:
        result = new_unit(unit, axis, "token", "query")
        axis, _ = add_units(axis, axis, (result, result))
    if sum(not special for special in result.special) < _FEWEST:
        raise ValueError(
            f"{function} compares sentences, and this text has only one; pass a longer text, or "
            'unit="word", or spans of tokens: unit=[(0, 4), (4, 9)].'
        )
    counted = np.ones(len(axis))
    counted[0] = not skip_first_token
    return Sentences(axis, result, counted)


def between_sentences(trace: TraceLike, layer: int, sentences: Sentences, stack: str) -> np.ndarray:
    """Return attention of a layer between sentences [head, sentence, sentence], without building the layer.

    The sum over a sentence's keys, and the mean over a sentence's queries, of the tokens that count. Rows are
    computed from recorded queries and keys in blocks, of which a single block is in memory at a time.

    Args:
        trace: The trace.
        layer: Number of the layer.
        sentences: Its sentences.
        stack: Name of the stack.
    """
    sums: np.ndarray | None = None
    # Queries first: a block belongs to few sentences, so that little is left when keys are summed.
    for touched, first, read in _means(trace, layer, sentences.means().astype(np.float32), stack):
        if sums is None:
            sums = np.zeros((len(read), len(sentences), len(sentences)), dtype=np.float32)
        sums[:, touched] += sentences.summed(read, first)
    if sums is None:  # never: a trace has queries
        raise AssertionError
    return sums


def _means(
    trace: Any, layer: int, means: np.ndarray, stack: str
) -> Iterator[tuple[np.ndarray, int, np.ndarray]]:
    """Yield which sentences a block of queries belongs to, a key, and from there on its part of their means.

    They are [head, sentence, key].
    """
    blocks = getattr(trace, "attention_blocks", None)
    if blocks is None:  # attention from a file or an array, which is in memory already
        yield np.arange(len(means)), 0, means @ as_array(trace.attention_layer(layer, stack))
        return
    source = trace.stack_table[stack].layers[trace.layers(stack).index(layer)]
    if isinstance(source, RecordedLayer) and source.is_softmax() and not is_half(source.call.query):
        import torch

        from attnwidgets.tracing.row_sums import row_sums

        with no_grad():
            for rows, first, read in row_sums(source, torch.from_numpy(means)):
                yield as_array(rows), first, as_array(read)
        return
    for queries, weights in blocks(layer, stack, limit=_BLOCK_BYTES):
        touched = np.flatnonzero(means[:, queries].any(axis=1))
        yield touched, 0, means[touched][:, queries] @ as_array(weights)
