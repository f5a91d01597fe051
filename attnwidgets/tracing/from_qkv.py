"""aw.from_qkv: a trace of attention computed by hand, from embeddings and weights fit for a blackboard.

Linear attention and the delta rule, too, which have a state instead of all keys. A `QkvLayer` computes scores
and weights from queries and keys. Layers with a state have no softmax: their kernel is computed by the mixers
of models (`mixers/given.py`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from attnwidgets._errors import require_choice, suggest
from attnwidgets._former import former_keywords
from attnwidgets._selecting import with_options
from attnwidgets._tensors import as_array, as_tensor, is_tensor, kept_dtype
from attnwidgets.tracing.from_attentions import GivenTrace, axis_of_tokens
from attnwidgets.tracing.layers import SoftmaxLayer, Stack
from attnwidgets.tracing.row_selection import positions
from attnwidgets.tracing.text.axes import numbered

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray
    from torch import Tensor

    from attnwidgets.tracing.row_selection import Chosen
    from attnwidgets.tracing.text.units import TokenAxis

    Floats = NDArray[np.floating]

CAUSAL = "causal"
SCORES = ("dot", "additive")
Rule = Literal["softmax", "linear", "delta"]
RULES = {"softmax": (), "linear": ("decay",), "delta": ("beta", "decay")}
"""The options of every rule."""
_MATRIX = 2
_LEAST_DECAY = float(np.nextafter(0.0, 1.0))
_MOST_BETA = 2  # with a greater beta, the delta rule's state grows without bound


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


def _former_rule(rule: Rule = "softmax", **options: Any) -> tuple[Rule, dict[str, Any]]:
    """Return the rule from its former keywords, whose defaults were None."""
    return rule, {name: value for name, value in options.items() if value is not None}


@former_keywords(
    ("beta", "decay"), "rule", '("delta", {"beta": ..., "decay": ...})', _former_rule, also=("rule",)
)
def from_qkv(
    E: Any,
    W_q: Any,
    W_k: Any,
    W_v: Any = None,
    *,
    mask: Any = None,
    tokens: Sequence[str] | None = None,
    heads: int = 1,
    scale: float | None = None,
    score: Literal["dot", "additive"] = "dot",
    v_a: Any = None,
    rule: Rule | tuple[Rule, Mapping[str, Any]] = "softmax",
) -> QkvTrace:
    """Return one attention layer computed by hand: softmax(scale * Q K^T + mask), Q = E W_q, K = E W_k.

    With `score="additive"`, queries and keys are compared by a small network: softmax(scale * s + mask) with
    s[i, j] = v_a . tanh(q_i + k_j).

    With `rule="linear"` or `"delta"`, the layer has a state S instead of a softmax, which each token changes
    and then reads, o_i = scale * S_i q_i:

        linear:  S_i = decay_i S_{i-1} + v_i k_i^T
        delta:   S_i = R + beta_i (v_i - R k_i) k_i^T,  R = decay_i S_{i-1}

    The delta rule replaces the share beta of the value that the state holds under the key k. Keys are not
    normalised: a key of length 1 with beta 1 replaces all of it. The weights alpha of o_i = sum over j of
    alpha_ij v_j are `aw.mixing(trace, "kernel")`, and NeuronView shows how each of them comes about, token by
    token.

    The result is a trace: `aw.NeuronView(trace)` shows how each weight arises; the other views, and the
    methods that read attention, accept it like a model's. `.attention_layer(0)` returns the weights [head,
    query, key], `.query_key(0)` queries and keys; `.values` and `.head_outputs` are the heads' values and
    outputs. Accepts lists, numpy arrays and tensors; computes in float64 if any of them is float64 (numbers
    typed by hand are), else in float32.

    Args:
        E: Embeddings, one row per token [token, d].
        W_q: [d, heads * d_k]; the first d_k columns belong to the first head.
        W_k: [d, heads * d_k].
        W_v: [d, heads * d_v], for head outputs; None leaves them out.
        mask: "causal"; or [query, key] with True (1) where a key may be read; or numbers to add to the scores
            (0 and -inf). None: every query reads every key.
        tokens: One label per row of E.
        heads: Number of heads.
        scale: Factor on the scores; None: 1 / sqrt(d_k), of additive scores and of other rules 1.
        score: "dot", the product q . k; or "additive", v_a . tanh(q + k).
        v_a: Weights of additive scores [heads * d_k]; the first d_k belong to the first head.
        rule: "softmax", attention; "linear", linear attention; or "delta", the delta rule. The last two are
            causal and need W_v; torch computes them. Or a pair (rule, options), as ("delta", {"beta": 0.5,
            "decay": 0.9}), each a number or a number for each token: "decay" holds factors on the state,
            above 0 and at most 1 (1 by default); "beta", of the delta rule, the shares that it replaces, 0 to
            2 (1).

    Raises:
        ValueError: If shapes do not fit (the message lists all of them), a number is not finite, a query may
            read nothing, the score, the rule or an option of it is unknown, v_a is missing or not needed, or
            beta or decay is out of its range.
        TypeError: If an argument is not a numeric array.

    Example:
        >>> trace = aw.from_qkv(np.eye(3), np.eye(3), np.eye(3), mask="causal", tokens=["a", "b", "c"])
        >>> np.asarray(trace.attention_layer(0)[0]).round(2)
        array([[1.  , 0.  , 0.  ],
               [0.36, 0.64, 0.  ],
               [0.26, 0.26, 0.47]])
        >>> keys = [[1, 0], [0, 1], [1, 0]]  # the third token overwrites what the first one wrote
        >>> trace = aw.from_qkv(keys, np.eye(2), np.eye(2), np.eye(2), rule=("delta", {"beta": 0.75}))
        >>> print(aw.mixing(trace, "kernel").matrix(0, 0)[-1].round(2))
        [0.19 0.   0.75]

    Source: Vaswani et al. 2017, Attention Is All You Need, equation 1. Additive scores: Bahdanau et al. 2015,
    Neural Machine Translation by Jointly Learning to Align and Translate, appendix A.1.2 (there queries are
    the decoder's states, and keys the annotations of the source). Linear attention: Katharopoulos et al.
    2020, Transformers are RNNs. The delta rule: Yang et al. 2024, Parallelizing Linear Transformers with the
    Delta Rule over Sequence Length; with decay: Yang et al. 2024, Gated Delta Networks, equation 10.
    """
    require_choice("score", score, SCORES)
    name, options = with_options("rule", rule, RULES)
    matrices = {"E": E, "W_q": W_q, "W_k": W_k} | ({} if W_v is None else {"W_v": W_v})
    arrays = {name: _matrix(value, name) for name, value in matrices.items()}
    weights = _score_weights(v_a, score)
    dtype = np.result_type(*arrays.values(), *([] if weights is None else [weights]))
    arrays = {name: value.astype(dtype) for name, value in arrays.items()}
    _check_shapes(arrays, heads)
    embedded = arrays["E"]
    count = len(embedded)
    if tokens is not None and len(tokens) != count:
        raise ValueError(f"tokens has {len(tokens)} entries, and E has {count} rows")
    query, key = (_by_head(embedded @ arrays[name], heads) for name in ("W_q", "W_k"))
    if scale is not None and not (isinstance(scale, (int, float)) and math.isfinite(scale)):
        raise ValueError(f"scale must be a finite number or None (1 / sqrt(d_k)), not {scale!r}")
    axis = numbered(count) if tokens is None else axis_of_tokens(tokens)
    if name != "softmax":
        if "W_v" not in arrays:
            raise ValueError(f"W_v is missing: rule={name!r} writes values into a state")
        value = _by_head(embedded @ arrays["W_v"], heads)
        factor = 1.0 if scale is None else float(scale)
        _require_state_only(name, mask, weights)
        return _stateful(axis, query * factor, key, value, rule=name, **options)
    added = _added(mask, count, dtype)
    if weights is None:
        scaling = query.shape[-1] ** -0.5 if scale is None else float(scale)
        layer = QkvLayer(query, key, added, scaling)
    else:
        scaling = 1.0 if scale is None else float(scale)
        layer = AdditiveLayer(query, key, added, scaling, _of_heads(weights.astype(dtype), arrays, heads))
    trace = QkvTrace({"self": Stack((layer,), axis, axis)})
    if "W_v" in arrays:
        trace.values = as_tensor(_by_head(embedded @ arrays["W_v"], heads))
    return trace


def _stateful(
    axis: TokenAxis,
    query: Floats,
    key: Floats,
    value: Floats,
    *,
    rule: str,
    beta: Any = None,
    decay: Any = None,
) -> QkvTrace:
    """Return a trace of a layer with a state instead of a softmax."""
    from attnwidgets.tracing.mixers.given import given_stack

    stack = given_stack(
        axis,
        query,
        key,
        value,
        rule=rule,
        beta=_of_tokens(beta, "beta", len(axis), least=0.0, most=_MOST_BETA),
        decay=_of_tokens(decay, "decay", len(axis), least=_LEAST_DECAY, most=1.0),
    )
    why = f"rule={rule!r} mixes tokens by a state; aw.mixing(trace, 'kernel') has its weights"
    trace = QkvTrace({"self": stack}, no_attention=why)
    trace.values = as_tensor(value)
    return trace


def _require_state_only(rule: str, mask: Any, weights: Floats | None) -> None:
    """Raise ValueError for arguments that a layer with a state does not have."""
    if not (mask is None or (isinstance(mask, str) and mask == CAUSAL)) or weights is not None:
        raise ValueError(f"rule={rule!r} reads all earlier tokens by q . k: leave mask and score out")


def _matrix(value: Any, name: str) -> Floats:
    """Return a matrix of finite numbers: float64 if given as float64, integers or lists, else float32."""
    try:
        array = as_array(value)
        is_float = np.issubdtype(array.dtype, np.floating)
        matrix: Floats = array.astype(kept_dtype(array.dtype) if is_float else np.float64)
    except (TypeError, ValueError) as error:
        raise TypeError(f"{name} is not a numeric array: {error}") from error
    if matrix.ndim != _MATRIX or not matrix.size:
        raise ValueError(f"{name} has shape {tuple(matrix.shape)}, and must be a matrix that is not empty")
    if not np.isfinite(matrix).all():
        raise ValueError(f"{name} holds numbers that are not finite")
    return matrix


def _check_shapes(arrays: dict[str, Floats], heads: int) -> None:
    """Raise ValueError for matrices that do not fit each other; the message lists all shapes."""
    if not isinstance(heads, int) or isinstance(heads, bool) or heads < 1:
        raise ValueError(f"heads must be a number of heads, at least 1, not {heads!r}")
    shapes = {name: tuple(value.shape) for name, value in arrays.items()}
    listing = ", ".join(f"{name} {list(shape)}" for name, shape in shapes.items())
    depth = shapes["E"][1]
    for name, (rows, columns) in shapes.items():
        if name == "E":
            continue
        if rows != depth:
            raise ValueError(
                f"{name} has {rows} rows, and E has {depth} columns: E {name} is not defined ({listing})"
            )
        if columns % heads:
            raise ValueError(f"{name} has {columns} columns, which {heads} heads cannot share ({listing})")
    if shapes["W_q"] != shapes["W_k"]:
        raise ValueError(f"W_q and W_k must have the same shape ({listing})")


def _score_weights(v_a: Any, score: str) -> Floats | None:
    """Return v_a as a vector of finite numbers; None for dot products.

    Raises:
        ValueError: If it is missing, not needed, no vector, or not finite.
        TypeError: If it is not numeric.
    """
    if score == "dot":
        if v_a is not None:
            raise ValueError("v_a is for score='additive', and score is 'dot': give both or neither")
        return None
    if v_a is None:
        raise ValueError("v_a is missing: score='additive' computes v_a . tanh(q + k), v_a [heads * d_k]")
    shape = np.shape(as_array(v_a)) if is_tensor(v_a) else np.shape(v_a)
    if len(shape) != 1:
        raise ValueError(f"v_a has shape {tuple(shape)}, and must be a vector [heads * d_k]")
    return _matrix([v_a] if isinstance(v_a, (list, tuple)) else as_array(v_a)[None], "v_a")[0]


def _of_heads(weights: Floats, arrays: dict[str, Floats], heads: int) -> Floats:
    """Return v_a as [head, dim]; raise ValueError if it does not fit W_q."""
    columns = arrays["W_q"].shape[1]
    if len(weights) != columns:
        raise ValueError(
            f"v_a has {len(weights)} numbers, and W_q has {columns} columns (W_q "
            f"{list(arrays['W_q'].shape)}, v_a [{len(weights)}]): one weight for each"
        )
    return weights.reshape(heads, -1)


def _of_tokens(value: Any, name: str, count: int, *, least: float, most: float) -> Floats:
    """Return an argument as one number for each token [token], float64; 1 if it is None.

    Raises:
        ValueError: For another shape, or a number out of its range.
        TypeError: If it is not numeric.
    """
    try:
        array: Floats = np.array(1.0 if value is None else as_array(value), dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise TypeError(f"{name} is not numeric: {error}") from error
    if array.shape not in ((), (count,)):
        raise ValueError(
            f"{name} has shape {array.shape}, and must be a number or one for each of {count} tokens"
        )
    if not ((array >= least) & (array <= most)).all():
        above = "above 0 and at most" if least else "0 to"
        raise ValueError(f"{name} must be {above} {most:g}, not {value!r}")
    return np.broadcast_to(array, (count,)).copy()


def _by_head(states: Floats, heads: int) -> Floats:
    """Return [token, head * dim] as [head, token, dim]."""
    return np.ascontiguousarray(states.reshape(len(states), heads, -1).swapaxes(0, 1))


def _added(mask: Any, count: int, dtype: Any) -> Floats | None:
    """Return the numbers that a mask adds to the scores [1, 1, query, key], or None.

    Raises:
        ValueError: For another shape, an ambiguous mask, or a query that may read nothing.
    """
    if mask is None:
        return None
    if isinstance(mask, str):
        if mask != CAUSAL:
            near = suggest(mask, [CAUSAL])
            raise ValueError(f"mask {mask!r} is neither 'causal' nor an array [query, key].{near}")
        mask = np.tri(count, dtype=bool)
    array = as_array(mask) if is_tensor(mask) else np.array(mask)
    if array.shape != (count, count):
        raise ValueError(
            f"mask has shape {array.shape}, and {count} tokens need ({count}, {count}): query, key"
        )
    binary = bool(np.isin(array, (0, 1)).all())
    if array.dtype != bool and np.issubdtype(array.dtype, np.floating) and binary and array.any():
        raise ValueError(
            "mask holds 0.0 and 1.0: pass mask == 1 if 1 means that a key may be read, or the numbers to "
            "add to the scores (0.0 and -inf)"
        )
    if array.dtype == bool or (np.issubdtype(array.dtype, np.integer) and binary):
        array = np.where(array.astype(bool), 0.0, -np.inf)
    added: Floats = array.astype(dtype)
    if np.isnan(added).any() or (added == math.inf).any():
        raise ValueError("mask holds NaN or +inf; pass 0 where a key may be read and -inf where not")
    blind = np.flatnonzero((added == -math.inf).all(axis=1)).tolist()
    if blind:
        raise ValueError(f"mask lets query {blind[0]} read nothing: its softmax would be 0 / 0")
    return added[None, None]
