"""Shares of a score or a weight: pairs of a part of the query and a part of the key, ranked."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from attnwidgets._errors import require_choice
from attnwidgets._selecting import at_most

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

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


def ranked_shares(
    parts: tuple[Sequence[str], Sequence[str]], pairs: NDArray[np.float64], k: int | None, of: str
) -> list[Share]:
    """Return the largest shares by size, and the sum of all others as the last.

    Args:
        parts: Names of the query's parts, and of the key's.
        pairs: Shares [query part, key part].
        k: How many are named; None: all.
        of: "pairs", "asks" (the query's parts) or "offers" (the key's parts).

    Raises:
        ValueError: If `k` is below 1, or `of` is something else.
    """
    require_choice("of", of, OF)
    asking, offering = parts
    if of == "pairs":
        every = [
            Share(asks, offers, float(value))
            for asks, row in zip(asking, pairs, strict=True)
            for offers, value in zip(offering, row, strict=True)
        ]
    elif of == "asks":
        every = [Share(part, "", float(value)) for part, value in zip(asking, pairs.sum(1), strict=True)]
    else:
        every = [Share("", part, float(value)) for part, value in zip(offering, pairs.sum(0), strict=True)]
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
