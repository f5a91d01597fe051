"""Attention sinks: elements that most queries rest on, at the start of a text and inside it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from attnwidgets.statistics.positional import places_compare
from attnwidgets.statistics.row_shares import Float, Roles, Rows, by_layer, divided, source_of
from attnwidgets.statistics.statistic import statistic

if TYPE_CHECKING:
    from numpy.typing import NDArray

THRESHOLD = 0.3
"""Importance above which Gu et al. call an element a sink (their epsilon)."""
_FEWEST = 8
_PART = 4


class Sink(NamedTuple):
    """An element that a head rests on.

    Attributes:
        layer: Original layer number.
        head: Original head number; None where the map has no heads.
        position: Which element.
        label: The element.
        importance: What other queries draw from it, on average.
    """

    layer: int
    head: int | None
    position: int
    label: str
    importance: float


def _room_inside(roles: Roles) -> str:
    if roles.square and not _candidates(roles, inside=True).any():
        return f"no element inside the text is seen by {_fewest(roles)} other queries: the text is too short"
    return places_compare(roles)


@statistic(
    title="sink inside the text",
    scale="0 to 1, the mean share of the strongest such element",
    high="rests on one element inside the text (a full stop, a line end, a word without content)",
    paper="importance as in Gu et al. 2025; that sinks lie inside texts too: Sun et al. 2024, "
    "Massive Activations in Large Language Models; Yu et al. 2024, Unveiling and Harnessing Hidden "
    "Attention Sinks",
    refusal=_room_inside,
)
def inner_sink(rows: Rows) -> Float:
    """What other queries draw on average from the one element of the text that they draw most from.

    Of the elements that are neither the first nor special. What an element draws from itself does not count,
    nor does an element that fewer than max(8, n/4) other queries see: their mean would say little.
    """
    found = _from_others(rows)[:, _candidates(rows.roles, inside=True)]
    empty = np.isnan(found).all(axis=1)
    return np.where(empty, np.nan, np.nanmax(found, axis=1, initial=0.0))


def _fewest(roles: Roles) -> int:
    return max(_FEWEST, math.ceil(roles.queries / _PART))


def _candidates(roles: Roles, *, inside: bool) -> NDArray[np.bool_]:
    """Return which elements enough other queries see [key]."""
    places = np.arange(roles.keys)
    others = roles.queries - 1 - places if roles.causal else np.full(roles.keys, roles.queries - 1)
    found: NDArray[np.bool_] = others >= _fewest(roles)
    return found & (places > 0) & ~roles.special if inside else found


def _from_others(rows: Rows) -> Float:
    """Return the mean share that other queries draw from every key they see [head, key]."""
    n = rows.roles.keys
    shares = np.where(np.eye(n, dtype=bool), 0.0, rows.shares)
    seen = np.tril(np.ones((n, n), bool), -1) if rows.roles.causal else ~np.eye(n, dtype=bool)
    return _mean_over_queries(shares, rows.filled[:, :, None] & seen)


def _mean_over_queries(shares: Float, seen: NDArray[np.bool_]) -> Float:
    return divided(np.where(seen, shares, 0.0).sum(axis=1), seen.sum(axis=1))


def sink_importance(
    shown: Any, *, unit: str | None = None, stack: str | None = None, layers: Any = None
) -> Float:
    """Return how much the queries that see an element draw from it, on average [layer, head, key].

    With T elements, alpha_k = 1/(T - k + 1) sum_{i >= k} A_ik for k = 1 ... T of a causal map, the element's
    own row included; of an encoder's the mean over all rows. Late elements of a causal map have few rows, so
    that theirs are large by themselves.

    Args:
        shown: A trace (its attention), or a map of which no value is negative.
        unit: Read it by "word", "sentence", ...; by default as it is.
        stack: "encoder", "decoder" or "cross" of an encoder-decoder's trace.
        layers: Some layers by number; all by default.

    Returns:
        Shares from 0 to 1 in float64 [layer, head, key], without a head axis where the map has none; NaN for
        heads that a layer does not have.

    Source: Gu et al. 2025, When Attention Sink Emerges in Language Models (the importance score).
    """
    found, source, _ = _importance(shown, stack, layers, unit, own=True)
    return found if source.heads is not None else found[:, 0]


def sink_rate(
    shown: Any,
    *,
    position: int = 0,
    threshold: float = THRESHOLD,
    unit: str | None = None,
    stack: str | None = None,
    layers: Any = None,
) -> float:
    """Return the share of heads, 0 to 1, for which an element is a sink: the mean of [alpha_k > threshold].

    Args:
        shown: A trace or map.
        position: Which element, counted from 0.
        threshold: The importance that makes a sink (epsilon; the authors': 0.3, at 64 tokens).
        unit: Read it by "word", "sentence", ...; by default as it is.
        stack: "encoder", "decoder" or "cross" of an encoder-decoder's trace.
        layers: Some layers by number; all by default.

    Raises:
        IndexError: Where there is no such element.

    Source: Gu et al. 2025 (Sink_k with epsilon, a percentage there).
    """
    found, _, roles = _importance(shown, stack, layers, unit, own=True)
    if not -roles.keys <= position < roles.keys:
        raise IndexError(f"position {position} is out of range: there are elements 0 to {roles.keys - 1}.")
    values = found[..., position]
    return float((values[~np.isnan(values)] > threshold).mean())


def attention_sinks(
    shown: Any,
    *,
    threshold: float = THRESHOLD,
    unit: str | None = None,
    stack: str | None = None,
    layers: Any = None,
) -> list[Sink]:
    """Return every sink of every head, the strongest first: at the start, at special elements, in the text.

    An element is one where other queries draw more than `threshold` from it on average, its own row left
    out, and at least max(8, n/4) other queries see it (in texts of up to eight elements: all of them).

    Args:
        shown: A trace or map.
        threshold: The share that makes a sink.
        unit: Read it by "word", "sentence", ...; by default as it is.
        stack: "encoder", "decoder" or "cross" of an encoder-decoder's trace.
        layers: Some layers by number; all by default.
    """
    found, source, roles = _importance(shown, stack, layers, unit, own=False)
    enough = _candidates(roles, inside=False) if roles.square else np.ones(roles.keys, bool)
    if not enough.any():
        enough[0] = True
        enough |= not roles.causal
    strong = np.nan_to_num(found) > threshold
    sinks = [
        Sink(
            source.layers[layer],
            None if source.heads is None else source.heads[head],
            int(key),
            roles.labels[key],
            float(found[layer, head, key]),
        )
        for layer, head, key in np.argwhere(strong & enough)
    ]
    return sorted(sinks, key=lambda sink: -sink.importance)


def _importance(
    shown: Any, stack: str | None, layers: Any, unit: str | None, *, own: bool
) -> tuple[Float, Any, Roles]:
    """Return [layer, head, key], the map and its roles; a map without heads has one here."""
    source, wanted = source_of(shown, stack, layers, unit, "sink_importance")
    roles = Roles(source.to(wanted))
    heads = 1 if source.heads is None else len(source.heads)
    found = np.full((len(source.layers), heads, roles.keys), np.nan)
    causal = np.tril(np.ones((roles.queries, roles.keys), bool)) if roles.causal else np.ones((1, 1), bool)
    for layer, head, rows in by_layer(source, wanted, roles, "attention sinks"):
        means = _from_others(rows) if roles.square and not own else None
        if means is None:
            means = _mean_over_queries(rows.shares, rows.filled[:, :, None] & causal)
        found[layer, head : head + len(means)] = means
    return found, source, roles
