"""Several scorecards as one: beside each other, or their mean."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from attnwidgets.evaluate.scorecards.scorecard import Scorecard, mean_of_known
from attnwidgets.explanations.selecting import listed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_SAME = 1e-12  # a mean of equal numbers may differ from them in its last digit


def beside(cards: Mapping[str, Scorecard]) -> Scorecard:
    """Return scorecards of the same examples as groups of one: {"trained": a, "random weights": b}.

    A baseline that scores the same in all of them is kept once.

    Raises:
        ValueError: Where there is none, or they differ in metrics, number of examples, or the last axis.
    """
    if not cards:
        message = "cards is empty: give at least one scorecard by its name."
        raise ValueError(message)
    first = next(iter(cards.values()))
    for group, card in cards.items():
        _require_alike(f"cards[{group!r}]", card, first, ("metrics", "x", "n_examples"))
        if any(card.groups):
            message = f"cards[{group!r}] has groups already: {listed(dict.fromkeys(card.groups))}."
            raise ValueError(message)
    shared = [
        name
        for name in first.baselines
        if all(
            name in card.baselines
            and np.allclose(card.of(name), first.of(name), rtol=0, atol=_SAME, equal_nan=True)
            for card in cards.values()
        )
    ]
    rows = [(name, group) for group, card in cards.items() for name in card.methods if name not in shared]
    parts = [cards[group].of(name) for name, group in rows] + [first.of(name) for name in shared]
    rows += [(name, "") for name in shared]
    baselines = {name for card in cards.values() for name in card.baselines}
    return first.with_samples(
        np.stack(parts, axis=2),
        methods=[name for name, _ in rows],
        groups=[group for _, group in rows],
        baselines=[name for name in dict.fromkeys(name for name, _ in rows) if name in baselines],
        warning="; ".join(dict.fromkeys(card.warning for card in cards.values() if card.warning)),
    )


def averaged(cards: Sequence[Scorecard]) -> Scorecard:
    """Return the mean, example by example, of scorecards that differ in a draw: seeds of random weights.

    Raises:
        ValueError: Where there is none, or they differ in labels or in the number of examples.
    """
    if not cards:
        message = "cards is empty: give at least one scorecard."
        raise ValueError(message)
    first = cards[0]
    for number, card in enumerate(cards):
        _require_alike(f"cards[{number}]", card, first, ("metrics", "methods", "groups", "x", "n_examples"))
    samples = mean_of_known(np.stack([card.samples for card in cards]))
    return first.with_samples(samples, step=f"mean of {len(cards)} draws")


def _require_alike(name: str, card: Scorecard, first: Scorecard, what: Sequence[str]) -> None:
    """Raise ValueError where a scorecard differs from the first in what must be alike."""
    for label in what:
        own, other = getattr(card, label), getattr(first, label)
        if own != other:
            message = f"{name} has {label} {own!r}, the first has {other!r}: these do not compare."
            raise ValueError(message)
