"""Functional analysis of variance: a function of several slots as a sum over slots, pairs, and so on."""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Float = NDArray[np.float64]
    Axes = tuple[int, ...]

MOST_TERMS = 4096
"""Subsets of slots whose shares are computed; beyond them only those up to the requested order."""
_COLUMNS = 3000  # of a least-squares fit


def exact(values: Float, order: int) -> dict[Axes, Float]:
    """Return the effects of every set of slots on a full grid [level, ...], an axis for each of its slots.

    Each effect has mean zero over each of its slots, and they are orthogonal: their mean squares add up to
    the variance.

    Args:
        values: The function on the grid.
        order: Largest number of slots of a set.
    """
    axes = range(values.ndim)
    effects: dict[Axes, Float] = {(): np.asarray(values.mean())}
    for size in range(1, order + 1):
        for chosen in combinations(axes, size):
            found = values.mean(tuple(axis for axis in axes if axis not in chosen))
            for smaller in range(size):
                for inside in combinations(chosen, smaller):
                    found = found - _spread(effects[inside], inside, chosen)
            effects[chosen] = found
    return effects


def _spread(effect: Float, inside: Axes, chosen: Axes) -> Float:
    """Return an effect with axes of size one for the slots that it does not have."""
    sizes = iter(effect.shape)
    return effect.reshape([next(sizes) if axis in inside else 1 for axis in chosen])


def estimated(
    values: Float, cells: NDArray[np.int64], shape: Sequence[int], order: int
) -> tuple[dict[Axes, Float], int]:
    """Return effects estimated by least squares from some cells of a grid, and the order that was fitted.

    Args:
        values: The function at the cells [cell].
        cells: Levels of the cells [cell, slot].
        shape: Number of levels of each slot.
        order: Largest number of slots of a set, 1 or 2; pairs are left out if they have too many columns.
    """
    pairs = sum((a - 1) * (b - 1) for a, b in combinations(shape, 2))
    columns = sum(size - 1 for size in shape)
    if order > 1 and columns + pairs > min(_COLUMNS, len(values) // 2):
        order = 1
    sets = [chosen for size in range(1, order + 1) for chosen in combinations(range(len(shape)), size)]
    blocks = [_columns(cells, shape, chosen) for chosen in sets]
    design = np.concatenate([np.ones((len(values), 1)), *blocks], axis=1)
    weights = np.linalg.lstsq(design, values, rcond=None)[0]
    effects: dict[Axes, Float] = {(): np.asarray(weights[0])}
    at = 1
    for chosen, block in zip(sets, blocks, strict=True):
        own = weights[at : at + block.shape[1]].reshape([shape[axis] - 1 for axis in chosen])
        for place, axis in enumerate(chosen):  # the last level is less the sum of the others
            own = np.tensordot(own, _coding(shape[axis]), axes=([0], [1])) if place < len(chosen) else own
        effects[chosen] = own
        at += block.shape[1]
    return effects, order


def _coding(levels: int) -> Float:
    """Return the code of every level [level, level - 1], which sums to zero over levels."""
    return np.concatenate([np.eye(levels - 1), -np.ones((1, levels - 1))])


def _columns(cells: NDArray[np.int64], shape: Sequence[int], chosen: Axes) -> Float:
    found = np.ones((len(cells), 1))
    for axis in chosen:
        own = _coding(shape[axis])[cells[:, axis]]
        found = (found[:, :, None] * own[:, None, :]).reshape(len(cells), -1)
    return found


def predicted(effects: dict[Axes, Float], cells: NDArray[np.int64], order: int) -> Float:
    """Return the sum of effects up to an order at cells [cell, slot] as [cell]."""
    total = np.zeros(len(cells))
    for chosen, effect in effects.items():
        if len(chosen) <= order:
            total += effect[tuple(cells[:, axis] for axis in chosen)] if chosen else float(effect)
    return total
