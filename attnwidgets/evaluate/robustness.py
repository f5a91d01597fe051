"""How far a ranking survives the choices that a method leaves open: an interval of ranks for every token."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from attnwidgets.evaluate.explained import require_single

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    Float = NDArray[np.float64]


@dataclass(frozen=True)
class Robustness:
    """Intervals of ranks over several versions of an explanation.

    Attributes:
        labels: The elements.
        names: What the versions are called.
        ranks: 1 for the highest value [version, element]; equal values share their mean rank.
        low: The best rank of every element [element].
        high: The worst [element].
    """

    labels: tuple[str, ...]
    names: tuple[str, ...]
    ranks: Float

    @property
    def low(self) -> Float:
        """The best rank of every element [element]."""
        best: Float = self.ranks.min(axis=0)
        return best

    @property
    def high(self) -> Float:
        """The worst rank of every element [element]."""
        worst: Float = self.ranks.max(axis=0)
        return worst

    def undecided(self, k: int) -> NDArray[np.bool_]:
        """Return which elements are among the first `k` in some versions and not in others [element].

        Raises:
            ValueError: Where k is not 1 to the number of elements.
        """
        if not 1 <= k <= len(self.labels):
            message = f"k must be 1 to {len(self.labels)}, not {k}."
            raise ValueError(message)
        found: NDArray[np.bool_] = (self.low <= k) & (self.high > k)
        return found

    def survives(self, first: int, second: int) -> bool:
        """Return whether one element is ranked above another in every version."""
        return bool((self.ranks[:, first] < self.ranks[:, second]).all())

    def __str__(self) -> str:
        rows = [
            f"{label!r}: rank {low:g} to {high:g}"
            for label, low, high in zip(self.labels, self.low, self.high, strict=True)
        ]
        return "\n".join([f"{len(self.names)} versions: {', '.join(self.names)}", *rows])


def robustness(versions: Mapping[str, Any]) -> Robustness:
    """Return the interval of every element's rank over versions of an explanation.

    Reduction, residual, order, baseline: where a paper leaves a choice, each that can be defended is one::

        aw.evaluate.robustness({
            "l2": aw.saliency(trace), "l1": aw.saliency(trace, reduce="l1"),
        })

    Args:
        versions: Attributions of one input in one unit, by name; two or more.

    Returns:
        A Robustness: `.low`, `.high`, `.undecided(k)`, `.survives(a, b)`.

    Raises:
        ValueError: For fewer than two, or elements that differ.
        TypeError: Where one is no Attributions.
    """
    if len(versions) < 2:  # noqa: PLR2004 - one alone has no interval
        message = f"versions has {len(versions)}; two or more show what a choice changes."
        raise ValueError(message)
    found = {str(name): require_single(one, str(name)) for name, one in versions.items()}
    first = next(iter(found.values()))
    for name, one in found.items():
        if one.labels != first.labels:
            count = f"{len(one.labels)} {one.unit}s"
            message = f"version {name!r} is of other elements ({count}) than the first."
            raise ValueError(message)
    from scipy.stats import rankdata

    table = np.stack([rankdata(-np.asarray(one.values, dtype=np.float64)) for one in found.values()])
    return Robustness(tuple(first.labels), tuple(found), table)
