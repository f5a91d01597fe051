"""Thumbnails of a map: every layer and head in a matrix."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from attnwidgets.explanations.results.mixing_map import MixingMap

_THUMBNAIL = 48  # cells of a side


@dataclass(frozen=True)
class Atlas:
    """Thumbnails of every layer and head in a matrix.

    Attributes:
        values: The thumbnails, a row for every layer and a column for every head; NaN between them.
        rows: Row of the centre of each layer's thumbnails [layer].
        columns: Column of the centre of each head's thumbnails [head].
        ratio: Height of a thumbnail by its width.
        note: How they are scaled, in words.
    """

    values: NDArray[np.floating]
    rows: NDArray[np.floating]
    columns: NDArray[np.floating]
    ratio: float
    note: str


def atlas_of(
    shown: MixingMap,
    *,
    common: bool = False,
    kept: tuple[NDArray[np.bool_], NDArray[np.bool_]] | None = None,
) -> Atlas:
    """Return thumbnails, max-pooled and each scaled to its largest value, so that patterns show.

    Masked cells, keys that were not compared and pruned heads stay empty.

    Args:
        shown: A map.
        common: Whether all thumbnails share a scale.
        kept: Which queries and which keys they show; None: all.
    """

    def pooled_cells(layer: NDArray[Any]) -> NDArray[Any]:
        return _thumbnails(layer if kept is None else layer[..., kept[0], :][..., kept[1]])

    pooled = [pooled_cells(shown.layer(number)) for number in shown.layers]
    wide, high = max(len(layer) for layer in pooled), len(pooled)
    rows, columns = pooled[0].shape[-2:]
    gap = max(1, round(0.08 * max(rows, columns)))
    overall = max(float(np.abs(layer).max(initial=0.0)) for layer in pooled)
    masked = rows == columns and shown.causal
    atlas = np.full((high * (rows + gap) - gap, wide * (columns + gap) - gap), np.nan)
    for y, (number, layer) in enumerate(zip(shown.layers, pooled, strict=True)):
        allowed = shown.compared(number)
        read = None if allowed is None else pooled_cells(allowed)[0]
        for x, thumbnail in enumerate(layer):
            top, left = y * (rows + gap), x * (columns + gap)
            largest = (overall if common else np.abs(thumbnail).max()) or 1.0
            cells = np.where(np.tri(rows, dtype=bool), thumbnail, np.nan) if masked else thumbnail
            cells = cells if read is None else np.where(read, cells, np.nan)
            atlas[top : top + rows, left : left + columns] = cells / largest
    return Atlas(
        atlas,
        np.arange(high) * (rows + gap) + rows / 2 - 0.5,
        np.arange(wide) * (columns + gap) + columns / 2 - 0.5,
        rows / columns,
        f"one scale for all, up to {overall:.2g}" if common else "each scaled to its largest value",
    )


def _thumbnails(layer: NDArray[np.floating]) -> NDArray[np.floating]:
    """Return [head, <=side, <=side]: the value of largest size in every block, so that no peak is lost."""
    array = layer if layer.ndim == len(("head", "query", "key")) else layer[None]
    for axis in (-2, -1):
        n = array.shape[axis]
        if n > _THUMBNAIL:
            starts = np.arange(_THUMBNAIL) * n // _THUMBNAIL
            high = np.maximum.reduceat(array, starts, axis=axis)
            low = np.minimum.reduceat(array, starts, axis=axis)
            array = np.where(np.abs(low) > np.abs(high), low, high)
    return array
