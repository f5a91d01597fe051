"""Thumbnails: every matrix of a source, max-pooled to a few cells, each with its own scale.

Special tokens are left out, as they stand apart from the map that a thumbnail stands for: `Source.content`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from attnwidgets._progress import progress
from attnwidgets.views.wire.codec import GAMMA, quantise
from attnwidgets.views.wire.pooling import Pooled, even, pool
from attnwidgets.views.wire.reader import SLOW_VALUES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from attnwidgets.views.wire.sources import Source

THUMB_SIDE = 64
"""Largest number of cells along a side of a thumbnail."""
THUMB_BUDGET = 1_200_000
"""Size limit of the thumbnails of one source, and of all that are sent without a request."""
PART_VALUES = 2**26
"""Values that are read at a time for thumbnails that come in parts; a single head may have more."""
_LEAST = 8
PRUNED = -1.0
"""The scale of a thumbnail whose head was pruned."""


@dataclass(frozen=True)
class Thumbnails:
    """The thumbnails of one source (`Thumbs` of wire.ts), and their bytes.

    `scale` is the largest magnitude [layer][head], `PRUNED` where there is no such head; `data` holds the
    codes [layer][head][row][col]. Both leave out layers that are not computed yet, and heads of a later part.
    `part` is the Part of wire.ts: the places of a layer and of the first head in it.
    """

    source: str
    rows: int
    cols: int
    signed: bool
    scale: list[list[float]]
    data: bytes
    part: tuple[int, int] | None = None

    def meta(self) -> dict[str, Any]:
        """Return the description that the browser needs to read the bytes."""
        described = {name: getattr(self, name) for name in ("source", "rows", "cols", "signed", "scale")}
        return described | {"gamma": GAMMA} | ({} if self.part is None else {"part": list(self.part)})


def thumbnails(source: Source, room: int = THUMB_BUDGET) -> Thumbnails | None:
    """Return thumbnails of a source, as large as `room` bytes allow.

    None if other sources left so little of the budget that only a few cells of each would fit: a view then
    requests them. With the whole budget, thousands of heads get small thumbnails rather than none.
    """
    size = _size(source, room)
    if size is None:
        return None
    heads = range(len(source.heads or (0,)))
    is_slow = len(source.layers) * len(heads) * source.weights > SLOW_VALUES
    layers = progress(source.layers, desc="thumbnails") if is_slow else source.layers
    ready = source.ready
    pooled = [_of_layer(source, layer, heads, size) if layer in ready else ([], b"") for layer in layers]
    scales, codes = zip(*pooled, strict=True)
    return Thumbnails(source.id, *size, source.signed, list(scales), b"".join(codes))


def first_thumbnails(source: Source, layer: int, most: int) -> Thumbnails | None:
    """Return the thumbnails for which about `most` values are read, those of `layer` first.

    None if that is not even one. The others come in parts; see `some_thumbnails`.
    """
    size = _size(source, THUMB_BUDGET)
    left = most // max(1, source.weights)
    if size is None or not left:
        return None
    by_layer: dict[int, tuple[list[float], bytes]] = {}
    for number in sorted(source.layers, key=lambda number: number != layer):
        heads = range(min(left, len(source.heads or (0,))))
        left -= len(heads)
        by_layer[number] = _of_layer(source, number, heads, size) if heads else ([], b"")
    scales, codes = zip(*(by_layer[number] for number in source.layers), strict=True)
    return Thumbnails(source.id, *size, source.signed, list(scales), b"".join(codes))


def some_thumbnails(source: Source, place: int, head: int) -> Thumbnails:
    """Return the thumbnails of a layer, from a head on, that take only a moment; at least one.

    Args:
        source: A source whose thumbnails come in parts.
        place: Place of the layer among those of the source.
        head: Place of the first head.

    Raises:
        IndexError: There is no such layer or head.
        ValueError: There are too many for thumbnails.
    """
    count = len(source.heads or (0,))
    if not (0 <= place < len(source.layers) and 0 <= head < count):
        raise IndexError(f"{source.id} has no thumbnail at layer {place}, head {head}.")
    size = _size(source, THUMB_BUDGET)
    if size is None:
        raise ValueError(f"{source.id} has too many layers and heads for thumbnails.")
    heads = range(head, min(count, head + max(1, PART_VALUES // max(1, source.weights))))
    scale, data = _of_layer(source, source.layers[place], heads, size)
    scales: list[list[float]] = [[] for _ in source.layers]
    scales[place] = scale
    return Thumbnails(source.id, *size, source.signed, scales, data, (place, head))


def _size(source: Source, room: int) -> tuple[int, int] | None:
    count = len(source.layers) * len(source.heads or (0,))
    rows, cols = (min(THUMB_SIDE, int(places.sum())) for places in source.content)
    least = min(_LEAST, rows)
    while count * rows * cols > room:
        if rows <= 1 and cols <= 1:
            return None
        share = min((room / (count * rows * cols)) ** 0.5, 1 - 1 / max(rows, cols))
        rows, cols = max(1, int(rows * share)), max(1, int(cols * share))
    return None if rows < least and room < THUMB_BUDGET else (rows, cols)


def _of_layer(
    source: Source, layer: int, places: Sequence[int], size: tuple[int, int]
) -> tuple[list[float], bytes]:
    """Return the scales and the codes of some heads, by their places."""
    values = _pooled(source, layer, places, size)
    # NaN and infinity do not count towards the scale.
    scale = np.max(np.abs(values), axis=(1, 2), initial=0.0, where=np.isfinite(values))
    present = source.count(layer)
    marks = [float(value) if at < present else PRUNED for at, value in zip(places, scale, strict=True)]
    return marks, quantise(values, scale[:, None, None], signed=source.signed).tobytes()


def _pooled(source: Source, layer: int, places: Sequence[int], size: tuple[int, int]) -> NDArray[np.float32]:
    if not source.long:
        # A cell that a row cannot read is not a peak.
        whole = padded(source, layer)
        values = whole if len(places) == len(whole) else whole[list(places)]
        rows, cols = source.content
        if not (rows.all() and cols.all()):
            values = values[:, rows][:, :, cols]
        return pool(np.nan_to_num(values, nan=0.0, posinf=np.inf, neginf=-np.inf), *size)
    present = [at for at in places if at < source.count(layer)]
    rows, cols = source.content
    blocks = (even(int(kept.sum()), side) for kept, side in zip((rows, cols), size, strict=True))
    pooled = Pooled((len(present),), *blocks)
    if present:
        heads = None if source.heads is None else [source.heads[at] for at in present]
        for first, values in source.blocks_of(layer, heads):
            kept = rows[first : first + values.shape[-2]]
            if kept.any():
                pooled.add(int(rows[:first].sum()), values[..., kept, :][..., cols])
    return np.pad(pooled.values, ((0, len(places) - len(present)), (0, 0), (0, 0)))  # pruned heads are empty


def marked(source: Source, layer: int, scale: NDArray[np.floating] | list[float]) -> list[float]:
    """Return the scales of a layer's heads, `PRUNED` for those that were pruned."""
    present = source.count(layer)
    return [float(value) if head < present else PRUNED for head, value in enumerate(scale)]


def padded(source: Source, layer: int) -> NDArray[np.float32]:
    """Return a layer with all heads of the source: those that were pruned are empty."""
    values = source.layer(layer)
    missing = len(source.heads or (0,)) - len(values)
    return np.pad(values, ((0, missing), (0, 0), (0, 0))) if missing else values
