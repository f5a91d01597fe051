"""Attention between sentences: sums of all heads, streamed in blocks of queries."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
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
    rows, columns = (part.astype(np.float32) for part in (sentences.means(), sentences.sums()))
    blocks = getattr(trace, "attention_blocks", None)
    if blocks is None:  # given attention, which is held as it is
        weights = np.asarray(trace.attention_layer(layer, stack), dtype=np.float32)
        return np.einsum("sq,hqk,tk->hst", rows, weights, columns, optimize=True)
    sums: np.ndarray | None = None
    for queries, weights in blocks(layer, stack, limit=_BLOCK_BYTES):
        block = np.asarray(weights, dtype=np.float32)
        # [head, query, sentence], then the mean over the block's share of every sentence
        part = rows[:, queries] @ (block @ columns.T)
        sums = part if sums is None else sums + part
    if sums is None:  # never: a trace has queries
        raise AssertionError
    return sums
