"""Attention sinks: elements that most queries attend to, at the start of a text and inside it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from attnwidgets.explanations.registry.several_traces import takes_lists
from attnwidgets.statistics.row_shares import Float, Roles, Rows, Sums, means, seen_in, source_of
from attnwidgets.statistics.rows import places_compare
from attnwidgets.statistics.statistic import statistic

if TYPE_CHECKING:
    from numpy.typing import NDArray

THRESHOLD = 0.3
"""Importance above which Gu et al. call an element a sink (their epsilon)."""

# A mean over few queries says little: an element must be seen by 8 other queries, and by a quarter of them.
_FEWEST = 8
_PART = 4


class Sink(NamedTuple):
    """An attention sink of a head.

    Attributes:
        layer: Original layer number.
        head: Original head number; None if the map has no heads.
        position: Index of the element.
        label: The element.
        importance: Mean share of other queries that goes to it.
    """

    layer: int
    head: int | None
    position: int
    label: str
    importance: float


def _room_inside(roles: Roles) -> str:
    if roles.square and not _candidates(roles, roles.seen, inside=True).any():
        return f"the text is too short: no element inside it is seen by {_fewest(roles)} other queries"
    return places_compare(roles)


def _largest_inside(mean: Float, roles: Roles) -> Float:
    """Return the largest importance of candidates, of importance and the share of queries that see a key."""
    importance, seen_by = mean[:, :, 0], np.round(mean[:, :, 1] * roles.queries)
    inside = ~roles.special & (np.arange(roles.keys) > 0)
    importance = np.where((seen_by >= _fewest(roles)) & inside, importance, np.nan)
    empty = np.isnan(importance).all(axis=2)
    return np.where(empty, np.nan, np.nanmax(importance, axis=2, initial=0.0))


@statistic(title="sink inside the text", refusal=_room_inside, finish=_largest_inside)
def inner_sink(rows: Rows) -> Sums:
    """Mean share of other queries that goes to the one element of the text that they attend to most.

    Only elements that are neither first nor special are considered. The element's attention to itself does
    not count, and neither does an element that fewer than max(8, n/4) other queries see, because their mean
    would say little.

    Range: 0 to 1, the mean share of the strongest such element
    High: rests on one element inside the text (a full stop, a line end, a word without content)
    Low: no element inside the text is a sink
    Source: importance as in Gu et al. 2025; that sinks also occur inside texts: Sun et al. 2024, Massive
        Activations in Large Language Models; Yu et al. 2024, Unveiling and Harnessing Hidden Attention Sinks
    """
    totals, counts = rows.received()
    seen_by = rows.seen.sum(axis=0)
    seen_by[rows.queries] -= rows.seen[:, rows.queries].diagonal()
    parts = np.stack([totals, np.broadcast_to(seen_by, totals.shape)], axis=1)
    return parts, np.stack([counts, np.full_like(totals, len(rows.seen))], axis=1)


def _fewest(roles: Roles) -> int:
    return max(_FEWEST, math.ceil(roles.queries / _PART))


def _candidates(roles: Roles, seen: NDArray[np.bool_], *, inside: bool) -> NDArray[np.bool_]:
    """Return a mask of the elements of a square map that enough other queries see [key]."""
    positions = np.arange(roles.keys)
    seen_enough: NDArray[np.bool_] = (seen & ~np.eye(roles.keys, dtype=bool)).sum(axis=0) >= _fewest(roles)
    return seen_enough & (positions > 0) & ~roles.special if inside else seen_enough


def _enough(roles: Roles, seen: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return which elements can be sinks of a layer whose queries see these keys [key]."""
    if not roles.square:
        return np.ones(roles.keys, dtype=bool)
    enough = _candidates(roles, seen, inside=False)
    if not _candidates(roles, roles.seen, inside=False).any():  # a short text
        enough[0] = True
        enough |= not roles.causal
    return enough


@takes_lists
def sink_importance(
    shown: Any, *, unit: str | None = None, stack: str | None = None, layers: Any = None
) -> Float:
    """Return the mean share that goes to each element from the queries that see it [layer, head, key].

    With T elements, alpha_k = 1/(T - k + 1) sum_{i >= k} A_ik for k = 1 ... T of a causal map, including the
    element's row; for an encoder the mean over all rows. Late elements of a causal map are seen by few
    queries, so that their values are large.

    Args:
        shown: A trace (its attention), or a MixingMap without negative values; or a list of them.
        unit: Read the map by "word", "sentence", ...; by default in the unit of the map.
        stack: "encoder", "decoder" or "cross" of an encoder-decoder's trace.
        layers: Numbers of some layers; all by default.

    Returns:
        Shares from 0 to 1 in float64 [layer, head, key], without a head axis if the map has none; NaN for
        heads that a layer does not have. High: a sink. Low: an element few queries attend to.

    Source: Gu et al. 2025, When Attention Sink Emerges in Language Models (the importance score).

    Example:
        >>> trace = aw.trace(*aw.demo_model("encoder"), "The cat sat on the mat.")
        >>> aw.statistics.sink_importance(trace).shape
        (6, 12, 9)
    """
    importance, source, _ = _importance(shown, stack, layers, unit, with_itself=True)
    return importance if source.heads is not None else importance[:, 0]


@takes_lists
def sink_rate(
    shown: Any,
    *,
    position: int = 0,
    threshold: float = THRESHOLD,
    unit: str | None = None,
    stack: str | None = None,
    layers: Any = None,
) -> float:
    """Return the share of heads for which an element is a sink: the mean of [alpha_k > threshold].

    Args:
        shown: A trace (its attention), or a MixingMap without negative values; or a list of them.
        position: Index of the element, from 0.
        threshold: Importance above which an element is a sink (epsilon; the authors use 0.3, at 64 tokens).
        unit: Read the map by "word", "sentence", ...; by default in the unit of the map.
        stack: "encoder", "decoder" or "cross" of an encoder-decoder's trace.
        layers: Numbers of some layers; all by default.

    Returns:
        A share from 0 (a sink for no head) to 1 (for every head).

    Raises:
        IndexError: If the index of the element is out of range.

    Source: Gu et al. 2025 (Sink_k with epsilon, there a percentage).

    Example:
        >>> trace = aw.trace(*aw.demo_model("encoder"), "The cat sat on the mat.")
        >>> 0 <= aw.statistics.sink_rate(trace, position=0) <= 1
        True
    """
    importance, _, roles = _importance(shown, stack, layers, unit, with_itself=True)
    if not -roles.keys <= position < roles.keys:
        raise IndexError(f"position {position} is out of range: there are elements 0 to {roles.keys - 1}.")
    values = importance[..., position]
    return float((values[~np.isnan(values)] > threshold).mean())


@takes_lists
def attention_sinks(
    shown: Any,
    *,
    threshold: float = THRESHOLD,
    unit: str | None = None,
    stack: str | None = None,
    layers: Any = None,
) -> list[Sink]:
    """Return the sinks of every head, strongest first: at the start, at special elements, inside the text.

    An element is a sink if other queries attend to it with a mean share above `threshold`, and at least
    max(8, n/4) other queries see it (in texts of up to eight elements: all of them).

    Args:
        shown: A trace (its attention), or a MixingMap without negative values; or a list of them.
        threshold: Mean share above which an element is a sink.
        unit: Read the map by "word", "sentence", ...; by default in the unit of the map.
        stack: "encoder", "decoder" or "cross" of an encoder-decoder's trace.
        layers: Numbers of some layers; all by default.

    Returns:
        A `Sink` (layer, head, position, label, importance) for each, importance from 0 to 1.

    Example:
        >>> trace = aw.trace(*aw.demo_model("encoder"), "The cat sat on the mat.")
        >>> aw.statistics.attention_sinks(trace)[0].label
        '[CLS]'
    """
    importance, source, roles = _importance(shown, stack, layers, unit, with_itself=False)
    read_unit = unit or source.unit
    enough = np.stack([_enough(roles, seen_in(source, read_unit, roles, number)) for number in source.layers])
    strong = np.nan_to_num(importance) > threshold
    sinks = [
        Sink(
            source.layers[layer],
            None if source.heads is None else source.heads[head],
            int(key),
            roles.labels[key],
            float(importance[layer, head, key]),
        )
        for layer, head, key in np.argwhere(strong & enough[:, None])
    ]
    return sorted(sinks, key=lambda sink: -sink.importance)


def _importance(
    shown: Any, stack: str | None, layers: Any, unit: str | None, *, with_itself: bool
) -> tuple[Float, Any, Roles]:
    """Return importance [layer, head, key], the map and its roles; a map without heads counts as one head."""
    source, read_unit = source_of(shown, stack, layers, unit, "sink_importance")
    roles = Roles(source.to(read_unit))
    itself = with_itself or not roles.square
    [importance] = means(
        source, read_unit, roles, "attention sinks", [lambda rows: rows.received(itself=itself)]
    )
    return importance, source, roles
