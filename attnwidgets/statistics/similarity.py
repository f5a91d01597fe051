"""Heads like a head: those whose rows are nearest to its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from attnwidgets.statistics.row_shares import Float, Roles, by_layer, source_of
from attnwidgets.statistics.table import RankedHead

if TYPE_CHECKING:
    from attnwidgets.explanations.results.mixing_map import MixingMap
    from attnwidgets.statistics.row_shares import Rows


def similar_heads(
    shown: Any,
    layer: int,
    head: int,
    other: Any = None,
    *,
    k: int | None = 10,
    unit: str | None = None,
    stack: str | None = None,
) -> list[RankedHead]:
    """Return the heads whose attention is nearest to that of one head, nearest first.

    The distance of two heads is the Jensen-Shannon divergence of their rows, 1/2 KL(p, m) + 1/2 KL(q, m) with
    m = (p + q) / 2, as a mean over queries that are not special (and see more than one key). Rows are whole:
    attention to special elements counts.

    Args:
        shown: A trace (its attention), or a MixingMap without negative values.
        layer: Original layer number of the head.
        head: Original number of the head.
        other: Another trace or map to search, such as that of a fine-tuned model; by default `shown` itself,
            without the head. It needs the same numbers of queries and keys.
        k: Largest number of heads; None: all.
        unit: Read the maps by "word", "sentence", ...; by default in their own unit.
        stack: "encoder", "decoder" or "cross" of an encoder-decoder's trace.

    Returns:
        (layer, head, value), value being the divergence in nats: 0 for equal rows, ln 2 (0.693) for rows
        without a common key. Heads without a common row that counts are left out.

    Raises:
        IndexError: If the layer or head is out of range.
        ValueError: If `other` has other numbers of queries or keys, or values are negative.

    Source: Clark et al. 2019, What Does BERT Look At?, section 6 (who add it up over tokens).

    Example:
        >>> trace = aw.trace(*aw.demo_model("encoder"), "The cat sat on the mat.")
        >>> [(found.layer, found.head) for found in aw.statistics.similar_heads(trace, 0, 2, k=1)]
        [(2, 11)]
    """
    source, unit = source_of(shown, stack, None, unit, "similar_heads")
    roles = Roles(source.to(unit), "text")
    own = _rows_of(source, layer, head, unit, roles)
    among = source if other is None else source_of(other, stack, None, unit, "similar_heads")[0]
    sizes = Roles(among.to(unit), "text")
    if (sizes.queries, sizes.keys) != (roles.queries, roles.keys):
        raise ValueError(
            f"other has {sizes.queries} queries and {sizes.keys} keys, this map {roles.queries} and "
            f"{roles.keys}: rows can be compared only if they are over the same elements."
        )
    found: list[RankedHead] = []
    for index, first, rows in by_layer(among, unit, roles, "similar heads"):
        number = among.layers[index]
        for place, value in enumerate(_divergence(own, rows), first):
            name = None if among.heads is None else among.heads[place]
            if not np.isnan(value) and (other is not None or (number, name) != (layer, head)):
                found.append(RankedHead(number, name, float(value)))
    return sorted(found, key=lambda one: one.value)[:k]


def _rows_of(source: MixingMap, layer: int, head: int, unit: str, roles: Roles) -> Rows:
    one = source.select(layer=layer, head=head)
    [(_, _, rows)] = by_layer(one, unit, roles, "similar heads")
    return rows


def _divergence(own: Rows, rows: Rows) -> Float:
    """Return the mean Jensen-Shannon divergence from one head's rows [head]."""
    from scipy.special import xlogy

    p, q = own.shares, rows.shares
    middle = (p + q) / 2
    total = (xlogy(p, p) + xlogy(q, q)).sum(axis=2) / 2 - xlogy(middle, middle).sum(axis=2)
    return rows.mean(np.maximum(np.where(own.filled, total, 0.0), 0.0), own.filled[0])
