"""Dynamic time warping, and the median filter that smooths attention before it.

Both compute what openai/whisper's `timing.py` does, ties included: word times follow from them, and must be
the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

_BOTH, _ROW, _COLUMN = 0, 1, 2  # the step that led to a cell


def warp(cost: NDArray[np.floating]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return the cheapest monotonic path through a matrix, from its first to its last cell.

    Every step moves one row, one column, or both. Among equally cheap steps, a step along the row wins, as
    `dtw_cpu` of openai/whisper does; sums are float32, as there.

    Args:
        cost: [row, column], at least one of each.

    Returns:
        Rows [step] and columns [step] of the path.
    """
    rows, columns = cost.shape
    total = np.full((rows + 1, columns + 1), np.inf, dtype=np.float32)
    total[0, 0] = 0.0
    came = np.full((rows + 1, columns + 1), _COLUMN, dtype=np.int8)
    # The cells of an anti-diagonal depend on those before it alone.
    for diagonal in range(2, rows + columns + 1):
        i = np.arange(max(1, diagonal - columns), min(rows, diagonal - 1) + 1)
        j = diagonal - i
        both, row, column = total[i - 1, j - 1], total[i - 1, j], total[i, j - 1]
        step = np.where(
            (both < row) & (both < column), _BOTH, np.where((row < both) & (row < column), _ROW, _COLUMN)
        )
        came[i, j] = step
        total[i, j] = cost[i - 1, j - 1].astype(np.float64) + np.choose(step, (both, row, column))
    came[0], came[:, 0] = _COLUMN, _ROW
    path = []
    row_at, column_at = rows, columns
    while row_at > 0 or column_at > 0:
        path.append((row_at - 1, column_at - 1))
        move = int(came[row_at, column_at])
        row_at -= move != _COLUMN
        column_at -= move != _ROW
    found = np.array(path[::-1], dtype=np.intp)
    return found[:, 0], found[:, 1]


def median_filter(values: NDArray[np.floating], width: int) -> NDArray[np.floating]:
    """Return the medians of `width` neighbours along the last axis; the ends are mirrored.

    Args:
        values: [..., frame]; returned unchanged up to half of `width` frames.
        width: An odd number of frames.
    """
    half = width // 2
    if values.shape[-1] <= half:
        return values
    padded = np.pad(values, [(0, 0)] * (values.ndim - 1) + [(half, half)], mode="reflect")
    windows = np.lib.stride_tricks.sliding_window_view(padded, width, axis=-1)
    return np.asarray(np.sort(windows, axis=-1)[..., half])
