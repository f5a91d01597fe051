"""Templates: a sentence with named slots, and every text that they give."""

from __future__ import annotations

import string
from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np

from attnwidgets._errors import quoted, suggest
from attnwidgets._selecting import listed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

_LEAST = 2


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
        return tuple(len(each) for each in self.levels.values())

    @property
    def numeric(self) -> tuple[str, ...]:
        """Slots whose levels are all numbers: they have an order, and distances."""
        return tuple(
            name
            for name, each in self.levels.items()
            if all(isinstance(level, Real) and not isinstance(level, bool) for level in each)
        )

    def text(self, cell: Sequence[int]) -> str:
        """Return the text of one level of every slot, by their numbers."""
        chosen = {name: each[at] for (name, each), at in zip(self.levels.items(), cell, strict=True)}
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
    """Return a sentence and its slots, checked.

    Raises:
        TypeError: If `slots` is not a mapping.
        ValueError: If slots and sentence do not name the same, a slot has fewer than two levels, or one
        twice.
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
    levels = {str(name): _levels(name, given, purpose) for name, given in slots.items()}
    return Template(parts, levels)


def _levels(name: str, given: Any, purpose: str) -> tuple[Any, ...]:
    levels = (given,) if isinstance(given, str) else tuple(given)
    if len(levels) < _LEAST:
        raise ValueError(f"{purpose}: slot {name!r} has {len(levels)} level; give at least {_LEAST}.")
    if len(set(levels)) < len(levels):
        twice = next(level for level in levels if levels.count(level) > 1)
        raise ValueError(f"{purpose}: slot {name!r} holds {twice!r} twice.")
    return levels
