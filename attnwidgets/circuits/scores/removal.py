"""Attention with parts of a query or a key removed, and the norm recomputed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from attnwidgets._gradients import no_grad
from attnwidgets.circuits.scores.features import APART

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray
    from torch import Tensor

    from attnwidgets.circuits.scores.cell import Cell
    from attnwidgets.tracing.algebra.residual_parts import StateParts

    Float = NDArray[np.float64]

_OF_DRAWS = 0.95
_ROUNDING = 1e-6  # of a state: smaller parts are rounding
_FAR = 0.1  # largest gap between attention and its linear prediction that goes without a warning


@dataclass(frozen=True, repr=False)
class Removal:
    """Attention without some parts of the query or the key.

    Attributes:
        parts: The parts that were removed.
        side: "query" or "key": where they were removed.
        before: The weight as recorded.
        after: The weight without them.
        predicted: The weight that the shares predict, which hold norms fixed.
        random: The weight without as many parts drawn at random [draw].
        row: All weights of the row without them [key].
    """

    parts: tuple[str, ...]
    side: str
    before: float
    after: float
    predicted: float
    random: Float
    row: Float

    @property
    def holds(self) -> bool:
        """Whether attention falls by more than in 19 of 20 random draws."""
        lower = float((self.after < self.random).mean())
        return self.after < self.before and lower >= _OF_DRAWS

    @property
    def is_predicted(self) -> bool:
        """Whether the shares predict the weight to 0.1: they do not where parts make most of the norm."""
        return abs(self.after - self.predicted) <= _FAR

    def __repr__(self) -> str:
        count = f"{len(self.parts)} at random" if len(self.parts) > 1 else "one at random"
        words = (
            f"without {', '.join(self.parts)} in the {self.side}: {self.before:.2f} → {self.after:.2f}; "
            f"without {count} {self.random.mean():.2f}"
        )
        if not self.is_predicted:
            words += (
                f"; the shares predict {self.predicted:.2f}, which hold norms fixed; "
                "these parts make much of the norm"
            )
        return f"<Removal {words}>"


def remove(
    cell: Cell,
    states: StateParts,
    names: Sequence[str],
    removed: tuple[str, ...],
    side: str,
    *,
    n_random: int,
    seed: int,
) -> Removal:
    """Return attention without parts of a side.

    Args:
        cell: The cell.
        states: The parts of states.
        names: The names of all parts; the last one, of biases, is never removed.
        removed: Those to remove.
        side: "query" or "key".
        n_random: How many times as many others are drawn.
        seed: Seed of the draws.
    """
    token = cell.query if side == "query" else cell.key
    chosen = [index for index, name in enumerate(names[:-1]) if name in removed]
    if not chosen:
        raise ValueError(f"parts names none: no part of the {side} has a share above zero.")
    with no_grad():
        parts = states.at([token])
    # A part that the token lacks would change nothing.
    sizes, least = parts[:, 0].norm(dim=-1), _ROUNDING * float(cell.reader.states[token].norm())
    drawn = [
        index
        for index, (part, size) in enumerate(zip(states.names, sizes.tolist(), strict=True))
        if part.kind not in APART and size > least
    ]
    others = [index for index in drawn if index not in chosen]
    if len(others) < len(chosen):
        raise ValueError(
            f"parts names {len(chosen)} of {len(drawn)}, more than are left to draw from; name fewer."
        )
    generator = np.random.default_rng(seed)
    draws = [
        chosen,
        *(generator.choice(others, len(chosen), replace=False).tolist() for _ in range(n_random)),
    ]
    with no_grad():
        kept = cell.reader.states[token] - torch.stack([parts[draw, 0].sum(0) for draw in draws])
        vectors = cell.reader.vectors(side, kept[:, None], [token])[:, 0]
        linear = cell.reader.parts(side, parts, [token])[:, 0]
        fixed = linear.sum(0) - linear[chosen].sum(0)
        rows = _rows(cell, side, torch.cat([vectors, fixed[None]]))
    weights = rows[:, cell.key]
    return Removal(
        tuple(names[index] for index in chosen),
        side,
        float(cell.row.recorded[cell.key]),
        float(weights[0]),
        float(weights[-1]),
        weights[1:-1],
        rows[0],
    )


def _rows(cell: Cell, side: str, vectors: Tensor) -> Float:
    """Return the row [vector, key] with other vectors for the query or the key."""
    if side == "query":
        return cell.attention(vectors, cell.keys)
    keys = cell.keys.expand(len(vectors), -1, -1).clone()
    keys[:, cell.key] = vectors
    return cell.attention(cell.query_vector.expand(len(vectors), -1), keys)
