"""Where views of a picture open: a head whose class token reads few adjacent patches."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from attnwidgets.tracing.media.patches import PADDING

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from attnwidgets.explanations.results.mixing_map import MixingMap
    from attnwidgets.tracing.text.units import Unit

_LEAST = 8  # patches, of which fewer cannot be few


class Found(NamedTuple):
    """A head, by its layer's number and its own, and the score that chose it, 0 to 1."""

    layer: int
    head: int
    score: float


def grid_unit(shown: MixingMap) -> Unit | None:
    """Return the unit in which a map is between the patches of one picture; None if it is of something else.

    All its other elements are special: a text with a picture in it opens as a text does.
    """
    if shown.query != shown.key:
        return None
    units = [unit for unit in shown.key.units.values() if unit.grid is not None and unit.cells is not None]
    return next(
        (
            unit
            for unit in units
            if all(
                (cell is None) == bool(flag)
                for cell, flag in zip(unit.cells or (), unit.special, strict=True)
            )
        ),
        None,
    )


def first_query(unit: Unit) -> int:
    """Return the first token that is neither a patch nor padding, else the patch in the middle."""
    apart = (place for place, special in enumerate(unit.special) if special)
    first = next((place for place in apart if unit.labels[place] != PADDING), None)
    if first is not None:
        return first
    rows, columns = unit.grid or (1, 1)
    return list(unit.cells or ()).index(rows // 2 * columns + columns // 2)


def focused_head(shown: MixingMap, unit: Unit, query: int) -> Found | None:
    """Return the head in which an element reads few patches that lie together; None with too few patches.

    The score of a head is the product of the share that patches get, of how far the entropy of their map is
    below its largest, and of the correlation of neighbouring patches (Moran's I, not below zero).
    """
    rows, columns = unit.grid or (0, 0)
    if rows * columns < _LEAST or min(rows, columns) < 2:  # noqa: PLR2004 - neighbours on both axes
        return None
    cells = {cell: element for element, cell in enumerate(unit.cells or ()) if cell is not None}
    order = [cells[cell] for cell in range(rows * columns)]
    best: Found | None = None
    for layer in shown.layers:
        weights = np.asarray(shown.rows(layer, None, [query]), dtype=np.float64)[:, 0, order]
        for head, score in enumerate(_scores(np.nan_to_num(weights).reshape(-1, rows, columns))):
            if score > 0 and (best is None or score > best.score):
                best = Found(layer, (shown.heads or (0,))[head], float(score))
    return best


def _scores(maps: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the score of maps [head, row, column]."""
    mass = maps.sum(axis=(1, 2))
    shares = maps / np.where(mass > 0, mass, 1.0)[:, None, None]
    logs = np.log(np.where(shares > 0, shares, 1.0))
    entropy = -(shares * logs).sum(axis=(1, 2)) / np.log(maps[0].size)
    off = shares - shares.mean(axis=(1, 2), keepdims=True)
    variance = (off**2).sum(axis=(1, 2))
    near = (off[:, 1:] * off[:, :-1]).sum(axis=(1, 2)) + (off[:, :, 1:] * off[:, :, :-1]).sum(axis=(1, 2))
    together = np.clip(near / 2 / np.where(variance > 0, variance, 1.0), 0.0, 1.0)
    scores: NDArray[np.float64] = mass * (1 - entropy) * together
    return scores
