"""Several scorecards as one: beside each other, their mean, or one after another."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from attnwidgets._selecting import listed
from attnwidgets.evaluate.scorecards.scorecard import Scorecard, mean_of_known

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
        raise ValueError("cards is empty: give at least one scorecard by its name.")
    first = next(iter(cards.values()))
    for group, card in cards.items():
        _require_alike(f"cards[{group!r}]", card, first, ("metrics", "x", "n_examples"))
        if any(card.groups):
            raise ValueError(f"cards[{group!r}] has groups already: {listed(dict.fromkeys(card.groups))}.")
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
        raise ValueError("cards is empty: give at least one scorecard.")
    first = cards[0]
    for number, card in enumerate(cards):
        _require_alike(f"cards[{number}]", card, first, ("metrics", "methods", "groups", "x", "n_examples"))
    samples = mean_of_known(np.stack([card.samples for card in cards]))
    return first.with_samples(samples, step=f"mean of {len(cards)} draws")


def merged(cards: Sequence[Scorecard]) -> Scorecard:
    """Return scorecards of different examples as one of them all, in the order given.

    So tasks that know nothing of each other (an array job) may each `.save` theirs; `aw.load` reads them.

    Raises:
        ValueError: Where there is none, they differ in labels, options or model (its weights, not its name,
            where the scores say what those were), or score a data set as a
            whole, whose examples they do not keep.
    """
    if not cards:
        raise ValueError("cards is empty: give at least one scorecard.")
    first = cards[0]
    for number, card in enumerate(cards):
        _require_alike(f"cards[{number}]", card, first, ("metrics", "methods", "groups", "x", "unit"))
        if _origin(card) != _origin(first):
            raise ValueError(
                f"cards[{number}] has another model or other options than the first; these do not merge."
            )
        if card.ends is not None:
            raise ValueError(f"cards[{number}] scores a data set as a whole; such scores do not merge.")
    samples = np.concatenate([card.samples for card in cards])
    provenance = dict(first.provenance)
    if "examples" in provenance.get("options", {}):
        provenance["options"] = provenance["options"] | {"examples": len(samples)}
    warning = "; ".join(dict.fromkeys(card.warning for card in cards if card.warning))
    return first.with_samples(samples, provenance=provenance, warning=warning)


def _origin(card: Scorecard) -> dict[str, Any]:
    """Return where a scorecard comes from, apart from how many examples it has."""
    options = {
        name: value for name, value in card.provenance.get("options", {}).items() if name != "examples"
    }
    return {**card.provenance, "options": {name: _plain(value) for name, value in options.items()}}


def _plain(value: Any) -> Any:
    """Return a value as it is after it was saved and read again: a tuple as a list."""
    return list(value) if isinstance(value, tuple) else value


def _require_alike(name: str, card: Scorecard, first: Scorecard, what: Sequence[str]) -> None:
    """Raise ValueError where a scorecard differs from the first in what must be alike."""
    for label in what:
        own, other = getattr(card, label), getattr(first, label)
        if own != other:
            raise ValueError(f"{name} has {label} {own!r}, the first has {other!r}: these do not compare.")
