"""Attention rows set by hand: uniform, permuted, all on one token, or a matrix of one's own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from attnwidgets._errors import suggest
from attnwidgets._selecting import listed
from attnwidgets.intervene.head_selection import (
    chosen_heads,
    positions,
    said_heads,
    sites_of,
    some_layers,
    spoken,
)
from attnwidgets.tracing.interventions import Intervention

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

    from attnwidgets.tracing.interventions import Seen

KINDS = ("uniform", "permuted", "one_hot")
_MAP, _MAPS = 2, 3


def edit_attention(
    model: Any,
    heads: Any = None,
    to: Any = "uniform",
    *,
    query: Any = None,
    key: int | None = None,
    stack: str | None = None,
    seed: int = 0,
) -> Intervention:
    """Set rows of attention by hand, while a `with` block runs; everything after it follows from them.

        with aw.edit_attention(model, (3, 1), "uniform"):
            ...

    Args:
        model: A transformers model, or a trace of one.
        heads: (layer, head), a list of such pairs, heads by layer, or None for all heads of all layers.
        to: "uniform", equal weight on every key that a query may read; "permuted", the row's own weights in
            random order among these; "one_hot", all on `key`, where a query may read it (other rows stay); or
            a matrix [query, key] or [head, query, key] (head: of those chosen in a layer), taken as it is.
            Rows and columns beyond a matrix (tokens that are generated) stay and count as zeros.
        query: Positions of the rows; None for all.
        key: The one token that "one_hot" reads.
        stack: Which attention, where there are several ("encoder", "decoder", "cross").
        seed: Of what "permuted" draws.

    Returns:
        A context manager; the model is as it was when it is left, also after an exception.

    Raises:
        ValueError: For an unknown `to` or stack; a `key` that is missing or not needed; a matrix of
            another shape, with negative or infinite numbers, or with weight where a query may not read (when
            the model runs).
        IndexError: Where there is no such layer or head.

    Source: Jain and Wallace 2019, section 4.2.1 (permuted); Wiegreffe and Pinter 2019, section 3.2 (uniform).
    """
    name, own = sites_of(model, stack)
    chosen = chosen_heads(dict.fromkeys(some_layers(None, own), "all") if heads is None else heads, own)
    matrix = None
    if isinstance(to, str):
        if to not in KINDS:
            raise ValueError(f"to {to!r} is not one of {listed(KINDS)}, nor a matrix.{suggest(to, KINDS)}")
        kind = to
    else:
        kind, matrix = "matrix", _matrix(to, chosen)
    if (key is None) == (kind == "one_hot"):
        raise ValueError(
            "key is missing: to='one_hot' needs the token that is read."
            if key is None
            else f"key is for to='one_hot', and to is {kind!r}."
        )
    column = None if key is None else min(positions(key, "key", model, name, 1))
    rows = None if query is None else positions(query, "query", model, name, 0)
    how = {
        "uniform": "uniform",
        "permuted": "permuted",
        "one_hot": f"all on token {column}",
        "matrix": "set to a matrix",
    }[kind]
    which = "" if rows is None else f" at token{'s' * (len(rows) != 1)} {spoken(rows)}"
    return _Edit(
        model,
        name,
        chosen,
        kind,
        matrix,
        rows,
        column,
        seed,
        f"attention of {said_heads(chosen)}{which} {how}",
    )


class _Edit(Intervention):
    """See `edit_attention`."""

    def __init__(
        self,
        model: Any,
        stack: str,
        heads: Mapping[int, tuple[int, ...]],
        kind: str,
        matrix: Tensor | None,
        rows: frozenset[int] | None,
        column: int | None,
        seed: int,
        said: str,
    ) -> None:
        where = frozenset((stack, layer) for layer, own in heads.items() if own)
        super().__init__(model, "edit_attention", said, where)
        self._heads, self._to, self._matrix = heads, kind, matrix
        self._rows, self._column, self._seed = rows, column, seed

    def weigh(self, seen: Seen, weights: Tensor) -> Tensor:
        """Return weights with some rows of some heads set."""
        heads = list(self._heads[seen.layer])
        if heads[-1] >= weights.shape[1]:
            raise IndexError(
                f"layer {seen.layer} has heads 0 to {weights.shape[1] - 1}, and no head {heads[-1]}."
            )
        rows = seen.queries(self._rows)
        if not rows:
            return weights
        own = weights[:, heads][:, :, rows]
        readable = seen.readable[:, :, rows].expand(own.shape[0], own.shape[1], -1, -1)
        new = self._new(seen, own, readable, rows)
        # A row that may read nothing (padding) has nothing to be set to.
        new = torch.where(readable.any(-1, keepdim=True), new, own)
        weights = weights.clone()
        for place, head in enumerate(heads):
            weights[:, head, rows] = new[:, place]
        return weights

    def _new(self, seen: Seen, own: Tensor, readable: Tensor, rows: list[int]) -> Tensor:
        """Return what rows [batch, head, row, key] become."""
        if self._to == "uniform":
            return (readable / readable.sum(-1, keepdim=True).clamp_min(1)).to(own)
        if self._to == "permuted":
            return self._permuted(seen, own, readable, rows)
        if self._to == "one_hot":
            at = [] if self._column is None else seen.keys(frozenset([self._column]))
            if not at:
                return own
            new = torch.zeros_like(own)
            new[..., at] = 1
            return torch.where(readable[..., at], new, own)
        return self._given(seen, own, readable, rows)

    def _permuted(self, seen: Seen, own: Tensor, readable: Tensor, rows: list[int]) -> Tensor:
        # The draw belongs to a position, so that a cache does not change it.
        noise = torch.stack(
            [
                torch.rand(
                    own.shape[1],
                    seen.first_key + own.shape[-1],
                    generator=torch.Generator().manual_seed(
                        1_000_003 * self._seed + 1_009 * seen.layer + seen.first_query + row
                    ),
                )[:, seen.first_key :]
                for row in rows
            ],
            dim=1,
        ).to(own.device)
        last = torch.full_like(noise, 2.0)
        order = torch.where(readable, noise, last).argsort(dim=-1, stable=True)
        places = torch.where(readable, torch.zeros_like(noise), last).argsort(dim=-1, stable=True)
        return torch.zeros_like(own).scatter(-1, places, own.gather(-1, order))

    def _given(self, seen: Seen, own: Tensor, readable: Tensor, rows: list[int]) -> Tensor:
        matrix = self._matrix
        if matrix is None:
            raise AssertionError
        new = own.clone()
        first, n_keys = seen.first_key, own.shape[-1]
        for at, row in enumerate(rows):
            place = seen.first_query + row
            if place >= matrix.shape[1]:
                continue
            line = torch.zeros(matrix.shape[0], n_keys, dtype=own.dtype, device=own.device)
            known = matrix[:, place, first : first + n_keys].to(own)
            line[:, : known.shape[-1]] = known
            outside = matrix[:, place, first + n_keys :]
            refused = (line > 0) & ~readable[:, :, at].all(0)
            if bool(refused.any()) or bool((outside > 0).any()):
                key = first + int(refused.any(0).nonzero()[0]) if bool(refused.any()) else first + n_keys
                raise ValueError(
                    f"the matrix lets token {place} read token {key}, which this model does not."
                )
            new[:, :, at] = line.expand(own.shape[1], -1)
        return new


def _matrix(given: Any, heads: Mapping[int, tuple[int, ...]]) -> Tensor:
    """Return a matrix [head or 1, query, key] of finite weights, none negative."""
    # A copy, since an array may be read-only and may be written to later.
    found = torch.tensor(np.array(given)) if not isinstance(given, torch.Tensor) else given.detach().clone()
    counts = {len(own) for own in heads.values() if own}
    if found.dim() == _MAP:
        found = found[None]
    if found.dim() != _MAPS or (len(found) > 1 and counts != {len(found)}):
        raise ValueError(
            f"to has shape {tuple(np.shape(given))}; a matrix is [query, key], or "
            f"[head, query, key] for the {'/'.join(map(str, sorted(counts)))} heads chosen."
        )
    found = found.to(torch.promote_types(found.dtype, torch.float32))
    if not bool(torch.isfinite(found).all()) or bool((found < 0).any()):
        raise ValueError("to holds negative or infinite numbers; attention has weights of 0 and above.")
    return found
