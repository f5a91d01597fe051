"""Thumbnails: every matrix of a source, max-pooled to a few cells, with a scale of its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from attnwidgets._progress import progress
from attnwidgets.views.wire.codec import GAMMA, pool, quantise

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from attnwidgets.views.wire.sources import Source

THUMB_SIDE = 64
"""Cells along the longer side of a thumbnail, at most."""
THUMB_BUDGET = 1_200_000
"""Bytes that the thumbnails of one source may take, and those that are sent unasked together."""
_LEAST = 8
_SLOW = 2**27  # values beyond which reading them takes so long that it is shown
PRUNED = -1.0
"""The scale of a thumbnail where there is no head."""


@dataclass(frozen=True)
class Thumbnails:
    """The thumbnails of one source: what wire.ts calls Thumbs, and its bytes.

    `scale` is the largest magnitude [layer][head], `PRUNED` where there is no such head; `data` holds the
    codes [layer][head][row][col]. A layer that is not computed yet has neither.
    """

    source: str
    rows: int
    cols: int
    signed: bool
    scale: list[list[float]]
    data: bytes

    def meta(self) -> dict[str, Any]:
        """Return what the browser needs to read the bytes."""
        return describe_thumbs(self.source, self.rows, self.cols, self.scale, signed=self.signed)


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
    count = len(source.layers) * len(source.heads or (0,))
    rows, cols = (min(THUMB_SIDE, size) for size in source.shape)
    least = min(_LEAST, rows)
    while count * rows * cols > room:
        if rows <= 1 and cols <= 1:
            return None
        share = min((room / (count * rows * cols)) ** 0.5, 1 - 1 / max(rows, cols))
        rows, cols = max(1, int(rows * share)), max(1, int(cols * share))
    if rows < least and room < THUMB_BUDGET:
        return None
    scales: list[list[float]] = []
    parts = []
    ready = source.ready
    size = count * source.shape[0] * source.shape[1]
    for layer in progress(source.layers, desc="thumbnails") if size > _SLOW else source.layers:
        if layer not in ready:
            scales.append([])
            continue
        # What a row does not read is no peak.
        known = np.nan_to_num(padded(source, layer), nan=0.0, posinf=np.inf, neginf=-np.inf)
        values = pool(known, rows, cols)
        # What is no finite number has no place on a scale.
        scale = np.max(np.abs(values), axis=(1, 2), initial=0.0, where=np.isfinite(values))
        scales.append(marked(source, layer, scale))
        parts.append(quantise(values, scale[:, None, None], signed=source.signed).tobytes())
    return Thumbnails(source.id, rows, cols, source.signed, scales, b"".join(parts))


def marked(source: Source, layer: int, scale: NDArray[np.floating] | list[float]) -> list[float]:
    """Return the scales of a layer's heads, `PRUNED` beyond those that there are."""
    present = len(source.layer(layer))
    return [float(value) if head < present else PRUNED for head, value in enumerate(scale)]


def padded(source: Source, layer: int) -> NDArray[np.float32]:
    """Return a layer with as many heads as the source counts: empty ones where heads were pruned."""
    values = source.layer(layer)
    missing = len(source.heads or (0,)) - len(values)
    return np.pad(values, ((0, missing), (0, 0), (0, 0))) if missing else values
