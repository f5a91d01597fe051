"""One cell of a map of attention: how its score comes about, checked on the recorded weights."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from attnwidgets._errors import quoted
from attnwidgets._gradients import no_grad
from attnwidgets._selecting import element, pick
from attnwidgets.explanations.mixing.attention import attention_row
from attnwidgets.explanations.results.trace_protocol import require_trace, resolve_stack
from attnwidgets.tracing.algebra.block_runs import block_of
from attnwidgets.tracing.algebra.blocks import require_chain, tail_dtype, tolerance
from attnwidgets.tracing.algebra.query_key import score_reader
from attnwidgets.tracing.unsupported import UnsupportedModelError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from attnwidgets.explanations.mixing.attention import AttentionRow, Float
    from attnwidgets.tracing.algebra.blocks import Block
    from attnwidgets.tracing.algebra.query_key import ScoreReader
    from attnwidgets.tracing.algebra.residual_parts import StateParts
    from attnwidgets.tracing.text.units import TokenAxis
    from attnwidgets.tracing.trace import Trace

NAME = "why"
OTHERS, WORDS, ROW = "others", "words", "row"
_CLOSE = 1e-5  # how near sums come to recorded numbers, in single precision or better
_HELD_BYTES = 2**26  # of the parts of states that are in memory at once


@dataclass(frozen=True)
class Cell:
    """A query and a key of one head.

    Args:
        trace: The trace.
        stack: The stack.
        layer: Number of the layer.
        head: Number of the head.
        query: Index of the token that reads.
        key: Index of the token that is read.
        blocks: The blocks up to the head's, itself included.
        reader: How the head makes queries and keys.
        row: How the query's row of attention comes about.
        note: Which tokens of words were taken, or "".
    """

    trace: Trace
    stack: str
    layer: int
    head: int
    query: int
    key: int
    blocks: tuple[Block, ...]
    reader: ScoreReader
    row: AttentionRow
    note: str = ""

    @property
    def labels(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The labels of queries and keys."""
        query, key = (axis.units["token"].labels for axis in self.trace.axes(self.stack))
        return query, key

    @property
    def words(self) -> tuple[str, str]:
        """Query and key in quotes."""
        queries, keys = self.labels
        return quoted(_bare(queries[self.query])), quoted(_bare(keys[self.key]))

    @property
    def allowed(self) -> float:
        """The error that is allowed in a weight."""
        dtype = self.blocks[-1].call.dtype
        return _CLOSE if tail_dtype(dtype) == dtype else tolerance(dtype)

    @cached_property
    def keys(self) -> Tensor:
        """The keys of all tokens [key, dim]."""
        return self.reader.vectors("key", self.reader.states, range(len(self.reader.states)))

    @cached_property
    def query_vector(self) -> Tensor:
        """The query [dim]."""
        return self.reader.vectors("query", self.reader.states[[self.query]], [self.query])[0]

    def attention(self, query: Tensor, keys: Tensor) -> Float:
        """Return the weights [..., key] of queries [..., dim] and keys [..., key, dim] in this row.

        Everything but the query and the keys stays: soft cap, position bias, mask, sink.
        """
        row = self.row
        scores = (row.scaling * (keys @ query[..., None])[..., 0]).numpy()
        if row.softcap is not None:
            scores = row.softcap * np.tanh(scores / row.softcap)
        scores = np.where(row.masked, -np.inf, scores + (0.0 if row.bias is None else row.bias))
        top = scores.max(-1, keepdims=True)
        top = top if row.sink is None else np.maximum(top, row.sink)
        exponentials = np.exp(scores - top)
        total = exponentials.sum(-1, keepdims=True)
        total = total if row.sink is None else total + np.exp(row.sink - top)
        weights: Float = exponentials / total
        return weights

    def require_recorded(self) -> None:
        """Raise UnsupportedModelError unless queries and keys give the recorded scores and weights."""
        scores = (self.row.scaling * self.keys @ self.query_vector).numpy()
        lengths = self.row.scaling * self.query_vector.norm() * self.keys.norm(dim=-1).max()
        wrong = float(np.abs(scores - self.row.scaled).max()) / max(1.0, float(lengths))
        off = float(np.abs(self.attention(self.query_vector, self.keys) - self.row.recorded).max())
        if not (wrong <= self.allowed and off <= self.allowed):
            raise UnsupportedModelError(
                f"{NAME}: the states of layer {self.layer} do not give the recorded attention (scores off by "
                f"{wrong:.2g}, weights by {off:.2g}). An intervention on attention is not followed; "
                "otherwise trace the text again."
            )

    def foil_weights(self, foil: int | str | None) -> Float:
        """Return how much of each key is subtracted [key]; sums to one, to zero for None.

        Raises:
            ValueError: If there is nothing to compare the key with, or the foil is the key or masked.
        """
        weights = np.zeros(len(self.row.scores))
        if foil is None:
            return weights
        if isinstance(foil, int):
            if foil == self.key:
                raise ValueError("foil is the key itself, and every part would be zero; name another token.")
            self._require_read(foil, "foil")
            weights[foil] = 1.0
            return weights
        rivals = ~self.row.masked
        if foil == ROW:
            return rivals / rivals.sum()
        rivals[self.key] = False
        if foil == WORDS:
            rivals &= ~np.asarray(self.trace.axes(self.stack)[1].units["token"].special, dtype=bool)
        if not rivals.any():
            raise ValueError(
                f"foil {foil!r}: {self.say(self.query)} reads no other token that counts, so there is "
                "nothing to choose between; another query has some."
            )
        # In logarithms, since the key's weight may be 1.
        scores = np.where(rivals, self.row.scores, -np.inf)
        exponentials: Float = np.exp(scores - scores.max())
        result: Float = exponentials / exponentials.sum()
        return result

    def _require_read(self, key: int, name: str) -> None:
        if self.row.masked[key]:
            queries, keys = self.labels
            raise ValueError(
                f"{name}: token {self.query} ({quoted(queries[self.query])}) does not read token {key} "
                f"({quoted(keys[key])}) in layer {self.layer}, where it is masked: nothing is split."
            )

    def say(self, token: int) -> str:
        """Return a token in quotes."""
        return quoted(_bare(self.labels[0][token]))

    def split(self, parts: StateParts, foil: Float) -> tuple[Tensor, Tensor, Tensor]:
        """Return the parts of the query [part, dim], of the key, and of the key less the foil's keys.

        Each sums to the whole vector; the last part of each holds the biases.
        """
        with no_grad():
            both = parts.at([self.query, self.key])
            query = self.reader.parts("query", both[:, :1], [self.query])[:, 0]
            key = self.reader.parts("key", both[:, 1:], [self.key])[:, 0]
            contrast = key.clone()
            size = max(1, _HELD_BYTES // (len(query) * self.reader.states.shape[1] * 8))
            rivals = np.flatnonzero(foil).tolist()
            for start in range(0, len(rivals), size):
                tokens = rivals[start : start + size]
                of_rivals = self.reader.parts("key", parts.at(tokens), tokens)
                contrast -= torch.einsum("ptd,t->pd", of_rivals, torch.as_tensor(foil[tokens]))
        return query, key, contrast


def _bare(label: str) -> str:
    return label.strip(" ␣▁")


def read_cell(trace: Any, query: int | str, key: int | str, layer: int, head: int, stack: str | None) -> Cell:
    """Return a cell that a user names, checked.

    Raises:
        ValueError, IndexError, TypeError: If there is none such, or the key is masked.
        UnsupportedModelError: If no description fits the blocks, queries and keys were not recorded, or they
            do not give the recorded attention.
    """
    require_trace(trace, f"circuits.{NAME}")
    stack = resolve_stack(trace, stack)
    if layer in set(trace.mixing_layers(stack)) - set(trace.layers(stack)):
        raise UnsupportedModelError(
            f"{NAME} splits the scores of a softmax, and layer {layer} mixes tokens without one; "
            "aw.circuits.kernel_parts splits weights of linear attention, delta rules and Mamba 2."
        )
    (layer,) = pick(layer, trace.layers(stack), "layer")
    (head,) = pick(head, range(trace.n_heads(stack, layer)), "head")
    axes = trace.axes(stack)
    *_, at = asking = tokens_of(axes[0], query, "query")
    reading = tokens_of(axes[1], key, "key")
    keys = axes[1].units["token"].labels
    blocks = blocks_below(trace, layer, stack, NAME)
    with no_grad():
        reader = score_reader(blocks[-1], head, NAME)
    if len(keys) != len(reader.states):
        raise UnsupportedModelError(f"{NAME} needs keys that are tokens of this text; {len(keys)} were read.")
    row = attention_row(trace, layer, head, at, stack=stack)
    read = most_read(row, reading)
    notes = (
        f"{quoted(str(word))} is {len(tokens)} tokens: it {does}, {quoted(label)} ({token})."
        for word, tokens, does, token, label in (
            (query, asking, "asks with the last", at, axes[0].units["token"].labels[at]),
            (key, reading, "offers the one that is read most", read, keys[read]),
        )
        if len(tokens) > 1
    )
    cell = Cell(trace, stack, layer, head, at, read, blocks, reader, row, " ".join(notes))
    cell._require_read(read, "key")  # noqa: SLF001 - of this module
    cell.require_recorded()
    return cell


def blocks_below(trace: Trace, layer: int, stack: str, method: str) -> tuple[Block, ...]:
    """Return the blocks of a stack up to a layer, itself included, which read their own tokens.

    Raises:
        UnsupportedModelError: If no description fits one, they read another sequence, or something unknown
            lies between them.
    """
    numbers = trace.layers(stack)
    blocks = tuple(block_of(trace, number, stack, method) for number in numbers if number <= layer)
    if any(block.crosses or block.cross is not None for block in blocks):
        raise UnsupportedModelError(
            f"{method} follows blocks that read their own tokens; those of stack {stack!r} read another "
            "sequence as well, whose parts are unknown."
        )
    require_chain(blocks, method)
    return blocks


def foil_of(cell: Cell, foil: int | str | None) -> int | str | None:
    """Return a foil: the index of a token, or one of the names."""
    if foil is None or foil in (OTHERS, WORDS, ROW):
        return foil
    return most_read(cell.row, tokens_of(cell.trace.axes(cell.stack)[1], foil, "foil"))


def most_read(row: AttentionRow, tokens: Sequence[int]) -> int:
    """Return the one of some keys that a query reads most."""
    return max(tokens, key=lambda token: row.recorded[token])


def tokens_of(axis: TokenAxis, which: int | str, name: str) -> tuple[int, ...]:
    """Return the tokens of a word that is named, or the one token that is named.

    Raises:
        ValueError: If no token or word has this label, or several have.
        IndexError, TypeError: As of `element`.
    """
    labels = axis.units["token"].labels
    if not isinstance(which, str) or "word" not in axis.units or which in labels:
        return (element(which, labels, name),)
    word, bare = axis.units["word"], which.strip()
    if bare in (label.strip(" ␣▁") for label in labels) or bare not in word.labels:
        return (element(which, labels, name),)
    spans = [span for label, span in zip(word.labels, word.spans, strict=True) if label == bare]
    if len(spans) > 1:
        ends = ", ".join(str(span[-1]) for span in spans)
        raise ValueError(f"{name} {which!r} is a word that ends at {ends}; give one of these numbers.")
    return tuple(spans[0])
