"""The baseline "random" of metrics that need no model: random values in place of an explanation's."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np

from attnwidgets._former import former_keywords

if TYPE_CHECKING:
    from attnwidgets.evaluate.arrays import Float


@dataclass(frozen=True, kw_only=True)
class RandomBaseline:
    """Chance, for `plausibility` and `localisation`: the mean score of random explanations.

    Args:
        draws: Number of random explanations that are averaged over.
        seed: Seed of all random draws.

    Raises:
        ValueError: If `draws` is below 1.

    Example:
        >>> trace = aw.trace(*aw.demo_model("classifier"), "A fine film with a weak end.")
        >>> many = aw.evaluate.RandomBaseline(draws=1000, seed=1)
        >>> aw.evaluate.plausibility(trace, "saliency", [(2, 6)], unit="word", baseline=many).methods
        ('saliency', 'random', 'oracle')
    """

    draws: int = 100
    seed: int = 0

    def __post_init__(self) -> None:
        if self.draws < 1:
            raise ValueError(f"draws must be at least 1, not {self.draws!r}.")

    def values(self, number: int, shape: int | tuple[int, ...]) -> list[Float]:
        """Return random explanations of an input, by its number: values from 0 to 1 of a shape."""
        generator = np.random.default_rng([self.seed, number])
        return [generator.random(shape) for _ in range(self.draws)]


DEFAULT = RandomBaseline()

with_former = former_keywords(
    [option.name for option in fields(RandomBaseline)],
    "baseline",
    "aw.evaluate.RandomBaseline(...)",
    RandomBaseline,
)
"""Lets a metric take the former keywords."""


def require_baseline(baseline: Any) -> None:
    """Raise a TypeError unless the argument is a RandomBaseline."""
    if not isinstance(baseline, RandomBaseline):
        raise TypeError(f"baseline takes an aw.evaluate.RandomBaseline, not {baseline!r:.60}.")
