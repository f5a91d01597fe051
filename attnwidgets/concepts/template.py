"""Templates: sentences with named slots, and functions of the slots as sums over slots and pairs of them."""

from __future__ import annotations

import string
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations
from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np

from attnwidgets._errors import quoted, suggest
from attnwidgets._selecting import listed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Float = NDArray[np.float64]
    Axes = tuple[int, ...]

_LEAST = 2

MOST_TERMS = 4096
"""Subsets of slots whose shares are computed; beyond them only those up to the requested order."""

_COLUMNS = 3000  # of a least-squares fit


@dataclass(frozen=True)
class Template:
    """A sentence with slots, each with its levels.

    Attributes:
        parts: Literal text, and the slot with its format after it (or None).
        levels: The levels of every slot, in the order of the axes.
    """

    parts: tuple[tuple[str, tuple[str, str] | None], ...]
    levels: Mapping[str, tuple[Any, ...]]

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of levels of each slot."""
        return tuple(len(levels) for levels in self.levels.values())

    @property
    def numeric(self) -> tuple[str, ...]:
        """Slots whose levels are all numbers: they have an order, and distances."""
        return tuple(
            name
            for name, levels in self.levels.items()
            if all(isinstance(level, Real) and not isinstance(level, bool) for level in levels)
        )

    def text(self, cell: Sequence[int]) -> str:
        """Return the text of a cell, the numbers of its levels [slot]."""
        chosen = {
            name: levels[index] for (name, levels), index in zip(self.levels.items(), cell, strict=True)
        }
        words = []
        for literal, slot in self.parts:
            words.append(literal)
            if slot is not None:
                words.append(format(chosen[slot[0]], slot[1]))
        return "".join(words)

    def cells(self, most: int, seed: int) -> NDArray[np.int64]:
        """Return all cells [cell, slot], or `most` of them at random, in the order of the grid."""
        count = int(np.prod([float(size) for size in self.shape]))
        if count <= most:
            return np.indices(self.shape).reshape(len(self.shape), -1).T
        rng = np.random.default_rng(seed)
        numbers: NDArray[np.int64] = np.zeros(0, np.int64)
        while len(numbers) < most:
            numbers = np.unique(np.concatenate([numbers, rng.integers(0, count, most)]))
        numbers = np.sort(rng.permutation(numbers)[:most])
        return np.stack(np.unravel_index(numbers, self.shape), axis=1)


def template_of(sentence: str, slots: Any, purpose: str) -> Template:
    """Return the template of a sentence and the levels of its slots, after checking both.

    Raises:
        TypeError: If `slots` is not a mapping.
        ValueError: If slots and sentence do not name the same, a slot has fewer than two levels, or a level
            occurs twice.
    """
    if not isinstance(slots, Mapping):
        raise TypeError(
            f"{purpose}: slots is a {type(slots).__name__}; give a mapping from names to levels: "
            f"{{'adj': ['good', 'dull']}}."
        )
    try:
        parsed = list(string.Formatter().parse(sentence))
    except ValueError as error:
        raise ValueError(
            f"{purpose}: template {quoted(sentence)} cannot be read ({error}); a brace itself is {{{{."
        ) from error
    parts = tuple(
        (literal, None if name is None else (name, form or "")) for literal, name, form, _ in parsed
    )
    named = list(dict.fromkeys(slot[0] for _, slot in parts if slot is not None))
    if not named:
        raise ValueError(f"{purpose}: template {quoted(sentence)} has no slot; write one as {{name}}.")
    for name in named:
        if name not in slots:
            raise ValueError(
                f"{purpose}: the template names {name!r}, and slots has "
                f"{listed(map(str, slots)) or 'nothing'}.{suggest(name, map(str, slots))}"
            )
    if extra := [name for name in slots if name not in named]:
        raise ValueError(
            f"{purpose}: slots names {extra[0]!r}, which is not in the template; it has {listed(named)}."
        )
    levels = {str(name): _levels(name, levels, purpose) for name, levels in slots.items()}
    return Template(parts, levels)


def _levels(name: str, values: Any, purpose: str) -> tuple[Any, ...]:
    levels = (values,) if isinstance(values, str) else tuple(values)
    if len(levels) < _LEAST:
        raise ValueError(f"{purpose}: slot {name!r} has {len(levels)} level; give at least {_LEAST}.")
    if len(set(levels)) < len(levels):
        twice = next(level for level in levels if levels.count(level) > 1)
        raise ValueError(f"{purpose}: slot {name!r} holds {twice!r} twice.")
    return levels


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
            result = values.mean(tuple(axis for axis in axes if axis not in chosen))
            for smaller in range(size):
                for inside in combinations(chosen, smaller):
                    result = result - _spread(effects[inside], inside, chosen)
            effects[chosen] = result
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
        effect = weights[at : at + block.shape[1]].reshape([shape[axis] - 1 for axis in chosen])
        for axis in chosen:  # the last level's effect is minus the sum of the others
            effect = np.tensordot(effect, _coding(shape[axis]), axes=([0], [1]))
        effects[chosen] = effect
        at += block.shape[1]
    return effects, order


def _coding(levels: int) -> Float:
    """Return the code of every level [level, level - 1], which sums to zero over levels."""
    return np.concatenate([np.eye(levels - 1), -np.ones((1, levels - 1))])


def _columns(cells: NDArray[np.int64], shape: Sequence[int], chosen: Axes) -> Float:
    result = np.ones((len(cells), 1))
    for axis in chosen:
        codes = _coding(shape[axis])[cells[:, axis]]
        result = (result[:, :, None] * codes[:, None, :]).reshape(len(cells), -1)
    return result


def predicted(effects: dict[Axes, Float], cells: NDArray[np.int64], order: int) -> Float:
    """Return the sum of effects up to an order at cells [cell, slot] as [cell]."""
    total = np.zeros(len(cells))
    for chosen, effect in effects.items():
        if len(chosen) <= order:
            total += effect[tuple(cells[:, axis] for axis in chosen)] if chosen else float(effect)
    return total
