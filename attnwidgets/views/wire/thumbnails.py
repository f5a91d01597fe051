"""Thumbnails: every matrix of a source, max-pooled to a few cells, with a scale of its own."""

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
"""Cells along the longer side of a thumbnail, at most."""
THUMB_BUDGET = 1_200_000
"""Bytes that the thumbnails of one source may take, and those that are sent unasked together."""
PART_VALUES = 2**26
"""Values that are read at a time for thumbnails that come in parts; one head may be more."""
_LEAST = 8
PRUNED = -1.0
"""The scale of a thumbnail where there is no head."""


@dataclass(frozen=True)
class Thumbnails:
    """The thumbnails of one source: what wire.ts calls Thumbs, and its bytes.

    `scale` is the largest magnitude [layer][head], `PRUNED` where there is no such head; `data` holds the
    codes [layer][head][row][col]. A layer that is not computed yet has neither, nor have the heads of a layer
    that come later. `part` is the Part of wire.ts: the places of a layer and of the first head that is here.
    """

    source: str
    rows: int
    cols: int
    signed: bool
    scale: list[list[float]]
    data: bytes
    part: tuple[int, int] | None = None

    def meta(self) -> dict[str, Any]:
        """Return what the browser needs to read the bytes."""
        described = describe_thumbs(self.source, self.rows, self.cols, self.scale, signed=self.signed)
        return described if self.part is None else described | {"part": list(self.part)}


def describe_thumbs(
    source: str, rows: int, cols: int, scale: list[list[float]], *, signed: bool
) -> dict[str, Any]:
    """Return the Thumbs of wire.ts."""
    return {"source": source, "rows": rows, "cols": cols, "gamma": GAMMA, "signed": signed, "scale": scale}


def thumbnails(source: Source, room: int = THUMB_BUDGET) -> Thumbnails | None:
    """Return thumbnails of a source, as large as `room` bytes allow.

    None where other sources left so little of the budget that no more than a few dots of each would fit:
    these are asked for by themselves. With all of it, thousands of heads are small rather than not there.
    """
    size = _size(source, room)
    if size is None:
        return None
    every = range(len(source.heads or (0,)))
    is_slow = len(source.layers) * len(every) * source.weights > SLOW_VALUES
    layers = progress(source.layers, desc="thumbnails") if is_slow else source.layers
    ready = source.ready
    made = [_of_layer(source, layer, every, size) if layer in ready else ([], b"") for layer in layers]
    return Thumbnails(
        source.id, *size, source.signed, [scale for scale, _ in made], b"".join(data for _, data in made)
    )


def first_thumbnails(source: Source, layer: int, most: int) -> Thumbnails | None:
    """Return the thumbnails that are made by reading about `most` values, those of `layer` first.

    None where not even one is. The others come in parts; see `some_thumbnails`.
    """
    size = _size(source, THUMB_BUDGET)
    left = most // max(1, source.weights)
    scales: dict[int, list[float]] = {}
    parts: dict[int, bytes] = {}
    for number in sorted(source.layers, key=lambda number: number != layer):
        heads = range(min(left, len(source.heads or (0,))))
        left -= len(heads)
        scales[number], parts[number] = (
            _of_layer(source, number, heads, size) if size and heads else ([], b"")
        )
    if size is None or not any(scales.values()):
        return None
    data = b"".join(parts[number] for number in source.layers)
    return Thumbnails(source.id, *size, source.signed, [scales[number] for number in source.layers], data)


def some_thumbnails(source: Source, place: int, head: int) -> Thumbnails:
    """Return those of a layer, from a head on, that are made in a moment; at least one.

    Args:
        source: One whose thumbnails come in parts.
        place: Of the layer among those of the source.
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
    rows, cols = (min(THUMB_SIDE, size) for size in source.shape)
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
    # NaN and infinity have no place on a scale.
    scale = np.max(np.abs(values), axis=(1, 2), initial=0.0, where=np.isfinite(values))
    present = source.count(layer)
    marks = [float(value) if at < present else PRUNED for at, value in zip(places, scale, strict=True)]
    return marks, quantise(values, scale[:, None, None], signed=source.signed).tobytes()


def _pooled(source: Source, layer: int, places: Sequence[int], size: tuple[int, int]) -> NDArray[np.float32]:
    if not source.long:
        # What a row does not read is no peak.
        whole = padded(source, layer)
        some = whole if len(places) == len(whole) else whole[list(places)]
        return pool(np.nan_to_num(some, nan=0.0, posinf=np.inf, neginf=-np.inf), *size)
    there = [at for at in places if at < source.count(layer)]
    made = Pooled((len(places),), *map(even, source.shape, size))
    found = Pooled((len(there),), *map(even, source.shape, size))
    if there:
        heads = None if source.heads is None else [source.heads[at] for at in there]
        for first, values in source.blocks_of(layer, heads):
            found.add(first, values)
    made.values[: len(there)] = found.values  # heads that were pruned stay empty
    return made.values


def marked(source: Source, layer: int, scale: NDArray[np.floating] | list[float]) -> list[float]:
    """Return the scales of a layer's heads, `PRUNED` beyond those that there are."""
    present = source.count(layer)
    return [float(value) if head < present else PRUNED for head, value in enumerate(scale)]


def padded(source: Source, layer: int) -> NDArray[np.float32]:
    """Return a layer with as many heads as the source counts: empty ones where heads were pruned."""
    values = source.layer(layer)
    missing = len(source.heads or (0,)) - len(values)
    return np.pad(values, ((0, missing), (0, 0), (0, 0))) if missing else values
