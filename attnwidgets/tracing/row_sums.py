"""Sums over the queries of a layer's attention, whose weights are never in memory at once.

For long texts: the weights of a head and a few queries stay in a CPU's cache and are written in place, they
are never divided by their sums, and keys that a causal mask or a window hides are not computed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from attnwidgets.tracing.causal_mask import CausalMask
from attnwidgets.tracing.layers import HIDDEN
from attnwidgets.tracing.recording.attention_function import HEADS, QUERIES, part_of
from attnwidgets.tracing.row_selection import blocks

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

    from attnwidgets.tracing.layers import RecordedLayer

_CPU_BYTES, _OTHER_BYTES = 2**20, 2**28
"""Bytes of the weights that are computed at a time."""

_SAFE = 40.0
"""Scores up to here have exponentials that neither overflow nor vanish, in float32 too."""


class _Read(NamedTuple):
    """The keys that some queries may read, those to which the mask adds, and whether it raises any."""

    keys: slice
    masked: slice
    raises: bool


def row_sums(layer: RecordedLayer, factors: Tensor) -> Iterator[tuple[Tensor, int, Tensor]]:
    """Iterate over the products of factors [sum, query] and a layer's attention, in blocks of queries.

    Args:
        layer: The layer, in float32 or float64, whose weights are a softmax that nothing changed.
        factors: Factors on the rows of attention.

    Yields:
        The sums that a block of queries adds to, the first key that it reads, and the terms that it adds
        [head, sum, key], for the keys that it reads.
    """
    settings = layer.settings()
    query, key = (part.detach() for part in layer.query_key())
    factors = factors.to(query)
    scaling, softcap = settings["scaling"], settings["softcap"]
    query = query * (query.shape[-1] ** -0.5 if scaling is None else scaling)
    columns = key.transpose(1, 2).contiguous()
    shared, n_keys = len(query) // len(key), key.shape[1]
    size = shared * n_keys * query.element_size()
    limit = _CPU_BYTES if query.device.type == "cpu" else _OTHER_BYTES
    # No score is larger than this [head, query].
    reach = query.norm(dim=-1) * key.norm(dim=-1).amax(-1).repeat_interleave(shared)[:, None]
    sink, buffer = settings.get("sink"), query.new_empty(0)
    for queries in blocks(layer.queries, size, limit):
        keys, masked, raises = _read(settings["mask"], queries, n_keys)
        bias = part_of(settings["position_bias"], queries, QUERIES)
        added = _columns(settings["mask"], queries, masked)
        sums = factors[:, queries].any(1).nonzero()[:, 0]
        chosen = factors[:, queries][sums]
        bounded = bias is None and sink is None and not raises
        few, many = queries.stop - queries.start, keys.stop - keys.start
        if len(buffer) < shared * few * many:
            buffer = query.new_empty(shared * few * n_keys)
        result = query.new_empty((len(query), len(sums), many))
        for number in range(len(key)):
            heads = slice(number * shared, (number + 1) * shared)
            scores = buffer[: shared * few * many].view(shared * few, many)
            torch.mm(query[heads, queries].flatten(0, 1), columns[number][:, keys], out=scores)
            weights = scores.view(shared, few, many)
            if softcap is not None:
                weights.div_(softcap).tanh_().mul_(softcap)
            if bias is not None:
                weights += part_of(bias, heads, HEADS)[0][..., keys]
            if added is not None:
                within = slice(masked.start - keys.start, masked.stop - keys.start)
                weights[..., within] += part_of(added, heads, HEADS)[0]
            extra = None if sink is None else part_of(part_of(sink, heads, HEADS), queries, QUERIES)[0]
            if not bounded or reach[heads, queries].max() > _SAFE:
                top = weights.amax(-1, keepdim=True)
                top = top if extra is None else torch.maximum(top, extra.to(top))
                weights -= top
                extra = None if extra is None else (extra - top).exp_()
            total = weights.exp_().sum(-1)
            total = total if extra is None else total + extra[..., 0]
            result[heads] = (chosen / total[:, None]) @ weights
        yield sums, keys.start, result


def _columns(mask: Any, queries: slice, keys: slice) -> Tensor | None:
    """Return the terms of a mask [1, head or 1, query or 1, key] for some queries and keys, or None."""
    if keys.stop <= keys.start:
        return None
    if isinstance(mask, CausalMask):
        return mask.rows(queries, keys)
    part: Tensor = part_of(mask, queries, QUERIES)[..., keys]
    return part


def _read(mask: Any, queries: slice, n_keys: int) -> _Read:
    """Return the effect of a mask [1, head or 1, query or 1, key] on some queries."""
    every = slice(0, n_keys)
    if mask is None:
        return _Read(every, slice(0, 0), raises=False)
    if isinstance(mask, CausalMask):
        return _Read(slice(0, queries.stop), queries, raises=False)
    part = part_of(mask, queries, QUERIES)[0].flatten(0, 1)
    largest = part.amax(0)
    # A query that may read nothing reads everything alike.
    alike = bool((part.amax(1) <= HIDDEN).any())
    keys = every if alike else _span(largest > HIDDEN)
    masked = _span(((largest != 0) | (part.amin(0) != 0))[keys], keys.start)
    return _Read(keys, masked, raises=alike or bool(largest.max() > 0))


def _span(chosen: Tensor, first: int = 0) -> slice:
    """Return the slice from the first to the last true entry, counted from `first`."""
    entries = chosen.nonzero()
    return slice(first + int(entries[0]), first + int(entries[-1]) + 1) if len(entries) else slice(0, 0)
