"""aw.from_qkv: a trace of attention computed by hand, from embeddings and weights fit for a blackboard.

Linear attention and the delta rule, too, which have a state instead of all keys. Arguments are checked here,
with messages that list all shapes; `qkv_trace.py` computes.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from attnwidgets._errors import require_choice, suggest
from attnwidgets._former import former_keywords
from attnwidgets._selecting import with_options
from attnwidgets._tensors import as_array, as_tensor, is_tensor, kept_dtype
from attnwidgets.tracing.from_attentions import axis_of_tokens
from attnwidgets.tracing.layers import Stack
from attnwidgets.tracing.qkv_trace import AdditiveLayer, QkvLayer, QkvTrace
from attnwidgets.tracing.text.axes import numbered

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

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
