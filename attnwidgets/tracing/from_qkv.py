"""aw.from_qkv: attention by hand, from embeddings and weights small enough for a blackboard, as a trace."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from attnwidgets._errors import suggest
from attnwidgets.tracing.from_attentions import GivenTrace, axis_of_tokens
from attnwidgets.tracing.precision import widened
from attnwidgets.tracing.recording.recorder import Call
from attnwidgets.tracing.text.axes import numbered
from attnwidgets.tracing.trace import RecordedLayer, Stack

if TYPE_CHECKING:
    from collections.abc import Sequence

CAUSAL = "causal"
_MATRIX = 2


class QkvTrace(GivenTrace):
    """One attention layer of given embeddings and weights: queries and keys are known, and no model is.

    Attributes:
        values: What every head reads of a token, E W_v [head, token, d_v]; None without W_v.
    """

    values: Tensor | None = None

    @property
    def head_outputs(self) -> Tensor:
        """What every head writes: its attention times the values, [head, token, d_v].

        Beside each other, as [token, head * d_v], they are what W_O would be given.

        Raises:
            ValueError: If no W_v was given.
        """
        if self.values is None:
            raise ValueError("what heads write needs their values: give W_v to aw.from_qkv.")
        weights = self.attention_layer(0)
        return weights @ self.values.to(weights.dtype)


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
) -> QkvTrace:
    """Return one attention layer computed by hand: softmax(scale * Q K^T + mask), Q = E W_q, K = E W_k.

    What it returns is a trace: `aw.NeuronView(trace)` draws how each weight comes about, the other views and
    the methods that read attention take it as they take a model's. `.attention_layer(0)` are the weights
    [head, query, key], `.query_key(0)` queries and keys, `.values` and `.head_outputs` what heads read and
    write. Lists, numpy arrays and tensors are taken; it is computed in float64 where they are (numbers typed
    by hand are), else in float32.

    Args:
        E: Embeddings, one row a token [token, d].
        W_q: [d, heads * d_k]; the first d_k columns are the first head's.
        W_k: [d, heads * d_k].
        W_v: [d, heads * d_v], for what heads write; None leaves that out.
        mask: "causal"; or [query, key] of True (1) where a key may be read; or of numbers that are added to
            the scores (0 and -inf). None: every query reads every key.
        tokens: One label a row of E.
        heads: Number of heads.
        scale: Factor on the scores; None: 1 / sqrt(d_k).

    Raises:
        ValueError: Where shapes do not fit (all of them are named), something is not finite, or a query may
            read nothing.
        TypeError: Where something is no array of numbers.

    Source: Vaswani et al. 2017, Attention Is All You Need, equation 1.
    """
    given = {"E": E, "W_q": W_q, "W_k": W_k} | ({} if W_v is None else {"W_v": W_v})
    arrays = {name: _matrix(value, name) for name, value in given.items()}
    dtype = torch.float64 if any(a.dtype == torch.float64 for a in arrays.values()) else torch.float32
    arrays = {name: value.to(dtype) for name, value in arrays.items()}
    _check_shapes(arrays, heads)
    embedded = arrays["E"]
    count = len(embedded)
    if tokens is not None and len(tokens) != count:
        raise ValueError(f"tokens has {len(tokens)} entries, and E has {count} rows")
    query, key = (_by_head(embedded @ arrays[name], heads) for name in ("W_q", "W_k"))
    if scale is not None and not (isinstance(scale, (int, float)) and math.isfinite(scale)):
        raise ValueError(f"scale must be a finite number or None (1 / sqrt(d_k)), not {scale!r}")
    settings = {
        "mask": _added(mask, count, dtype),
        "scaling": query.shape[-1] ** -0.5 if scale is None else float(scale),
        "softcap": None,
        "position_bias": None,
    }
    axis = numbered(count) if tokens is None else axis_of_tokens(tokens)
    call = Call("attention", query[None], key[None], settings)
    found = QkvTrace({"self": Stack((RecordedLayer(call, 0, count, count),), axis, axis)})
    if "W_v" in arrays:
        found.values = _by_head(embedded @ arrays["W_v"], heads)
    return found


def _matrix(value: Any, name: str) -> Tensor:
    """Return a matrix of finite numbers: float64 where it is given in it, or as numbers, else float32."""
    if isinstance(value, Tensor):
        found = widened(value.detach().to("cpu", copy=True))
    else:
        try:
            array = np.array(value)
            is_float = np.issubdtype(array.dtype, np.floating) and array.dtype != np.float64
            found = torch.from_numpy(array.astype(np.float32 if is_float else np.float64))
        except (TypeError, ValueError) as error:
            raise TypeError(f"{name} is no array of numbers: {error}") from error
    if not found.is_floating_point():
        found = found.double()
    if found.dim() != _MATRIX or not found.numel():
        raise ValueError(f"{name} has shape {tuple(found.shape)}, and must be a matrix with something in it")
    if not torch.isfinite(found).all():
        raise ValueError(f"{name} holds numbers that are not finite")
    return found


def _check_shapes(arrays: dict[str, Tensor], heads: int) -> None:
    """Refuse matrices that do not fit each other, with all their shapes.

    Raises:
        ValueError: The message says which two do not fit.
    """
    if not isinstance(heads, int) or isinstance(heads, bool) or heads < 1:
        raise ValueError(f"heads must be a number of heads, at least 1, not {heads!r}")
    shapes = {name: tuple(value.shape) for name, value in arrays.items()}
    all_of_them = ", ".join(f"{name} {list(shape)}" for name, shape in shapes.items())
    depth = shapes["E"][1]
    for name, (rows, columns) in shapes.items():
        if name == "E":
            continue
        if rows != depth:
            raise ValueError(
                f"{name} has {rows} rows, and E has {depth} columns: E {name} is not defined ({all_of_them})"
            )
        if columns % heads:
            raise ValueError(
                f"{name} has {columns} columns, which {heads} heads cannot share ({all_of_them})"
            )
    if shapes["W_q"] != shapes["W_k"]:
        raise ValueError(f"W_q and W_k must have one shape: queries meet keys ({all_of_them})")


def _by_head(states: Tensor, heads: int) -> Tensor:
    """Return [token, head * dim] as [head, token, dim]."""
    return states.reshape(len(states), heads, -1).transpose(0, 1).contiguous()


def _added(mask: Any, count: int, dtype: torch.dtype) -> Tensor | None:
    """Return what a mask adds to the scores [1, 1, query, key], or None.

    Raises:
        ValueError: For another shape, something ambiguous, or a query that may read nothing.
    """
    if mask is None:
        return None
    if isinstance(mask, str):
        if mask != CAUSAL:
            near = suggest(mask, [CAUSAL])
            raise ValueError(f"mask {mask!r} is neither 'causal' nor an array [query, key].{near}")
        mask = np.tri(count, dtype=bool)
    array = mask.detach().cpu().numpy() if isinstance(mask, Tensor) else np.array(mask)
    if array.shape != (count, count):
        raise ValueError(
            f"mask has shape {array.shape}, and {count} tokens need ({count}, {count}): query, key"
        )
    binary = bool(np.isin(array, (0, 1)).all())
    if array.dtype != bool and np.issubdtype(array.dtype, np.floating) and binary and array.any():
        raise ValueError(
            "mask holds 0.0 and 1.0: give mask == 1 if 1 means that a key may be read, or what is to be "
            "added to the scores (0.0 and -inf)"
        )
    if array.dtype == bool or (np.issubdtype(array.dtype, np.integer) and binary):
        array = np.where(array.astype(bool), 0.0, -np.inf)
    added = torch.from_numpy(array.astype(np.float64)).to(dtype)
    if torch.isnan(added).any() or (added == math.inf).any():
        raise ValueError("mask holds NaN or +inf; give 0 where a key may be read and -inf where not")
    blind = (added == -math.inf).all(dim=1).nonzero().flatten().tolist()
    if blind:
        raise ValueError(f"mask lets query {blind[0]} read nothing: its softmax would be 0 / 0")
    return added[None, None]
