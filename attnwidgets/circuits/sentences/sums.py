"""Attention between sentences: sums of all heads, streamed in blocks of queries."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from attnwidgets._gradients import no_grad
from attnwidgets._tensors import as_array, is_half
from attnwidgets.tracing.layers import RecordedLayer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from attnwidgets.circuits.sentences.sentence_units import Sentences
    from attnwidgets.explanations.results.trace_protocol import TraceLike

_BLOCK_BYTES = 2**26


def between_sentences(trace: TraceLike, layer: int, sentences: Sentences, stack: str) -> np.ndarray:
    """Return attention of a layer between sentences [head, sentence, sentence], without building the layer.

    The sum over a sentence's keys, and the mean over a sentence's queries, of the tokens that count. Rows are
    computed from recorded queries and keys in blocks, of which one is in memory at a time.

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
    if blocks is None:  # given attention, which is held as it is
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
