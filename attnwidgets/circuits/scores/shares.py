"""Shares of a score or a weight: pairs of a part of the query and a part of the key, ranked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from attnwidgets._errors import require_choice
from attnwidgets._selecting import at_most

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    Float = NDArray[np.float64]

OF = ("pairs", "asks", "offers")
_ROUNDING = 1e-12  # of the largest share: smaller ones are none but for rounding


class Share(NamedTuple):
    """A part of a score.

    Attributes:
        query: The part of the query; "" for all of it.
        key: The part of the key; "" for all of it.
        value: How much of the score they make.
    """

    query: str
    key: str
    value: float


class Paired:
    """A score or a weight that is a sum over pairs of a part of the query and a part of the key.

    Attributes:
        parts: Names of the parts of both.
        pairs: Shares [query part, key part], float64.
    """

    parts: Any
    pairs: Float

    @property
    def _sides(self) -> tuple[Sequence[str], Sequence[str]]:
        """The names of the query's parts, and of the key's."""
        return self.parts, self.parts

    @property
    def asks(self) -> Float:
        """The shares of the query's parts [part], each with the whole key."""
        asks: Float = self.pairs.sum(1)
        return asks

    @property
    def offers(self) -> Float:
        """The shares of the key's parts [part], each with the whole query."""
        offers: Float = self.pairs.sum(0)
        return offers

    def top(self, k: int | None = 6, of: str = "pairs") -> list[Share]:
        """Return the largest shares by size, and the sum of all others as the last.

        Args:
            k: How many are named; None: all.
            of: "pairs", "asks" (the query's parts) or "offers" (the key's parts).

        Raises:
            ValueError: If `k` is below 1, or `of` is something else.
        """
        require_choice("of", of, OF)
        asking, offering = self._sides
        if of == "pairs":
            every = [
                Share(asks, offers, float(value))
                for asks, row in zip(asking, self.pairs, strict=True)
                for offers, value in zip(offering, row, strict=True)
            ]
        elif of == "asks":
            every = [Share(part, "", float(value)) for part, value in zip(asking, self.asks, strict=True)]
        else:
            every = [Share("", part, float(value)) for part, value in zip(offering, self.offers, strict=True)]
        least = _ROUNDING * max((abs(share.value) for share in every), default=0.0)
        every = [share for share in every if abs(share.value) > least]
        ranked = sorted(every, key=lambda share: -abs(share.value))
        named = at_most(ranked, k)
        rest = ranked[len(named) :]
        if not rest:
            return named
        label = f"{len(rest):,} other{'s' if len(rest) > 1 else ''}"
        other = (label if of != "offers" else "", label if of != "asks" else "")
        return [*named, Share(*other, sum(share.value for share in rest))]
