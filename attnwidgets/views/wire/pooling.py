"""Max-pooling: the strongest value of every block of cells, also of a matrix that arrives row by row."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Places = NDArray[np.intp]


def even(size: int, count: int) -> Places:
    """Return where `count` blocks of about the same size begin along an axis of `size` cells."""
    return np.arange(count) * size // count


def pool(values: NDArray[np.float32], rows: int, cols: int) -> NDArray[np.float32]:
    """Return thumbnails [..., rows, cols]: the strongest value (by magnitude) of every block.

    A mean would lose the peaks, which are the point of a thumbnail (their median falls to 0.13 at 512 -> 64).
    """
    if values.shape[-2:] == (rows, cols):
        return values
    return _strongest(values, even(values.shape[-2], rows), even(values.shape[-1], cols))


class Pooled:
    """A matrix [..., query, key], pooled as its rows arrive.

    Args:
        lead: Sizes of the axes before rows and columns.
        rows: First rows of the blocks, in order, beginning with 0.
        cols: First columns of the blocks, likewise.
    """

    def __init__(self, lead: tuple[int, ...], rows: Places, cols: Places) -> None:
        self.values: NDArray[np.float32] = np.zeros((*lead, len(rows), len(cols)), dtype=np.float32)
        self._rows = rows
        self._cols = cols

    def add(self, first: int, values: NDArray[np.floating]) -> None:
        """Add rows [..., row, key], of which the first is row `first` of the matrix."""
        blocks = np.searchsorted(self._rows, np.arange(first, first + values.shape[-2]), side="right") - 1
        starts = np.flatnonzero(np.diff(blocks, prepend=-1))
        peaks = _strongest(np.asarray(values, dtype=np.float32), starts, self._cols)
        known = self.values[..., blocks[0] : blocks[-1] + 1, :]
        np.copyto(known, peaks, where=np.abs(peaks) > np.abs(known))


def _strongest(values: NDArray[np.float32], rows: Places, cols: Places) -> NDArray[np.float32]:
    high = _reduce(np.maximum, values, rows, cols)
    if not np.any(values < 0):
        return high
    low = _reduce(np.minimum, values, rows, cols)
    return np.where(-low > high, low, high)


def _reduce(ufunc: np.ufunc, values: NDArray[np.float32], rows: Places, cols: Places) -> NDArray[np.float32]:
    pooled = ufunc.reduceat(values, rows, axis=-2)
    return np.asarray(ufunc.reduceat(pooled, cols, axis=-1), dtype=np.float32)
