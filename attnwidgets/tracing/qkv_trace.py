"""The trace of a layer computed by hand: its scores and weights, its heads' outputs, and their recurrence.

A `QkvLayer` computes weights from queries and keys when they are read, an `AdditiveLayer` by other scores.
A layer with a state instead of a softmax is a kernel (`mixers/given.py`) in the same `QkvTrace`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from attnwidgets._tensors import as_array
from attnwidgets.tracing.from_attentions import GivenTrace
from attnwidgets.tracing.layers import SoftmaxLayer
from attnwidgets.tracing.row_selection import positions

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    from attnwidgets.tracing.row_selection import Chosen

    Floats = NDArray[np.floating]


@dataclass(frozen=True)
class QkvLayer(SoftmaxLayer):
    """A layer of given queries and keys.

    Args:
        query: [head, token, dim].
        key: [head, token, dim].
        mask: Added to the scores [1, 1, query, key], or None.
        scaling: Factor on the scores.
    """

    query: Floats
    key: Floats
    mask: Floats | None
    scaling: float

    @property
    def shape(self) -> tuple[int, int, int]:
        """Heads, queries, keys."""
        return (*self.query.shape[:2], self.key.shape[1])

    @property
    def dtype(self) -> np.dtype[Any]:
        """Precision of the weights."""
        return self.query.dtype

    def query_key(self) -> tuple[Floats, Floats]:
        """Return queries and keys [head, token, dim]."""
        return self.query, self.key

    def settings(self) -> dict[str, Any]:
        """Return mask, scaling, softcap, position bias and sink."""
        absent = dict.fromkeys(("softcap", "position_bias", "sink"))
        return {"mask": self.mask, "scaling": self.scaling, **absent}

    def compared(self) -> Floats:
        """Return how queries and keys compare [head, query, key], before scaling and mask."""
        return self.query @ self.key.swapaxes(1, 2)

    def scores(self) -> Floats:
        """Return the input of the softmax [head, query, key]."""
        scores = self.compared() * self.scaling
        return scores if self.mask is None else scores + self.mask[0]

    def weights(self, heads: Chosen = None, queries: Chosen = None) -> Floats:
        """Return [head, query, key], of the selected heads and queries."""
        scores = self.scores()
        shares = np.exp(scores - scores.max(-1, keepdims=True))
        shares /= shares.sum(-1, keepdims=True)
        chosen = shares[positions(heads, len(shares), "head")]
        return chosen[:, positions(queries, shares.shape[1], "query")]


@dataclass(frozen=True)
class AdditiveLayer(QkvLayer):
    """A layer that compares queries and keys by a small network instead of a product.

    Args:
        additive: The network's weights v_a [head, dim].
    """

    additive: Floats

    def settings(self) -> dict[str, Any]:
        """Return mask, scaling, softcap, position bias and sink, and the weights v_a as "additive"."""
        return {**super().settings(), "additive": self.additive}

    def compared(self) -> Floats:
        """Return v_a . tanh(q + k) [head, query, key], before scaling and mask."""
        return np.stack(
            [
                np.tanh(query[:, None] + key[None]) @ weights
                for query, key, weights in zip(self.query, self.key, self.additive, strict=True)
            ]
        )


class Running(NamedTuple):
    """Softmax attention of a query as a recurrence over its keys, after each of them.

    Attributes:
        score: The key's score [key]; -inf where it is masked.
        m: The largest score so far [key].
        c: The denominator so far, sum of exp(score - m) [key].
        a: The numerator so far, sum of exp(score - m) times the values [key, d_v].
        output: a / c [key, d_v], the attention over the keys so far; NaN before the first key that may be
            read.
    """

    score: Floats
    m: Floats
    c: Floats
    a: Floats
    output: Floats


class QkvTrace(GivenTrace):
    """One layer of given embeddings and weights, with queries and keys but without a model.

    Attributes:
        values: The values of every head, E W_v [head, token, d_v]; None without W_v.
    """

    values: Tensor | None = None

    @property
    def dtype(self) -> Literal["float32", "float64"]:
        """Precision of the weights, with a softmax or without."""
        if self.has_attention() or self.values is None:
            return super().dtype
        return "float64" if as_array(self.values).dtype == np.float64 else "float32"

    @property
    def head_outputs(self) -> Tensor:
        """The output of every head: its weights times the values, [head, token, d_v].

        Concatenated to [token, head * d_v], they would be the input of W_O.

        Raises:
            ValueError: If no W_v was given.
        """
        if self.values is None:
            raise ValueError("head outputs need the values: pass W_v to aw.from_qkv.")
        mixing = self.stack_table["self"].mixing
        if not mixing:
            return self.attention_layer(0) @ self.values
        alpha = mixing[0].mixes[0].kernel.rows(range(len(self.tokens)))
        return alpha.to(self.values) @ self.values

    def running(self, query: int, head: int = 0) -> Running:
        """Return softmax attention of a query as a recurrence, which reads one key after the other.

        A key with score s and value v changes the state (m, c, a), which begins with (-inf, 0, 0):

            m' = max(m, s),  c' = c exp(m - m') + exp(s - m'),  a' = a exp(m - m') + v exp(s - m')

        After the last key, a / c is the output of the head.

        Args:
            query: Index of the query's token.
            head: Number of the head.

        Raises:
            ValueError: If no W_v was given, or the rule is another than "softmax".
            IndexError: If the query or head is out of range.

        Source: Feng et al. 2024, Attention as an RNN, section 3.1.

        Example:
            >>> trace = aw.from_qkv(np.eye(2), np.eye(2), np.eye(2), [[1], [3]], scale=1.0)
            >>> running = trace.running(query=1)
            >>> print(running.m, running.c.round(3), running.output[:, 0].round(3))
            [0. 1.] [1.    1.368] [1.    2.462]
            >>> trace.head_outputs[0, 1].numpy().round(3)  # the same
            array([2.462])
        """
        if self.values is None or not self.has_attention():
            raise ValueError("running() follows a softmax to its output: pass W_v, and no other rule.")
        layer: Any = self.stack_table["self"].layers[0]
        for name, index, count in (("head", head, layer.shape[0]), ("query", query, layer.shape[1])):
            if not 0 <= index < count:
                raise IndexError(f"{name} {index} is out of range: this trace has {name} 0 to {count - 1}")
        scores, values = layer.scores()[head, query], as_array(self.values[head])
        state = (-math.inf, 0.0, np.zeros_like(values[0]))
        states = [state := _read(state, *key) for key in zip(scores.tolist(), values, strict=True)]
        m, c, a = (np.array(part, dtype=values.dtype) for part in zip(*states, strict=True))
        with np.errstate(invalid="ignore"):
            return Running(scores, m, c, a, a / c[:, None])


def _read(state: tuple[float, float, Floats], score: float, value: Floats) -> tuple[float, float, Floats]:
    """Return the state (m, c, a) of a running softmax after another key."""
    m, c, a = state
    if score == -math.inf:
        return state
    largest = max(m, score)
    rescale, new = math.exp(m - largest), math.exp(score - largest)
    return largest, c * rescale + new, a * rescale + value * new
