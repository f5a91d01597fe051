"""Combine several scorecards: side by side, as their mean, or one after another."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from attnwidgets._selecting import listed
from attnwidgets.evaluate.scorecards.scorecard import Scorecard, mean_of_known

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

_SAME = 1e-12  # a mean of equal numbers may differ from them in its last digit


def beside(cards: Mapping[str, Scorecard]) -> Scorecard:
    """Return scorecards of the same examples as groups of one: {"trained": a, "random weights": b}.

    A baseline with the same scores in all of them is kept once.

    Args:
        cards: Scorecards by the name of their group.

    Raises:
        ValueError: If there are none, they have groups already, or they differ in metrics, number of
            examples, or the last axis.

    Example:
        >>> trace = aw.trace(*aw.demo_model("classifier"), "A fine film with a weak end.")
        >>> by = lambda name: aw.evaluate.faithfulness(trace, "saliency", operator=name, oracle=None)
        >>> card = aw.evaluate.beside({"masked": by("mask"), "deleted": by("delete")})
        >>> card.groups
        ('masked', 'masked', 'deleted', 'deleted')
    """
    first = _first(list(cards.values()))
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
        warning=warning_of(cards.values()),
    )


def averaged(cards: Sequence[Scorecard]) -> Scorecard:
    """Return the mean, example by example, of scorecards that differ in a draw: seeds of random weights.

    Args:
        cards: Scorecards of the same examples and methods.

    Raises:
        ValueError: If there are none, or they differ in labels or in the number of examples.

    Example:
        >>> trace = aw.trace(*aw.demo_model("classifier"), "A fine film with a weak end.")
        >>> draw = lambda seed: aw.evaluate.faithfulness(trace, "saliency", operator="mask", seed=seed)
        >>> aw.evaluate.averaged([draw(0), draw(1)]).n_examples
        1
    """
    first = _first(cards)
    for number, card in enumerate(cards):
        _require_alike(f"cards[{number}]", card, first, ("metrics", "methods", "groups", "x", "n_examples"))
    samples = mean_of_known(np.stack([card.samples for card in cards]))
    return first.with_samples(samples, step=f"mean of {len(cards)} draws")


def merged(cards: Sequence[Scorecard]) -> Scorecard:
    """Return scorecards of different examples as one of them all, in the order given.

    So independent tasks (an array job) may each `.save` theirs, and `aw.load` reads them.

    Args:
        cards: Scorecards of different examples, by the same methods and metrics.

    Raises:
        ValueError: If there are none, they differ in labels, options or model (its weights, not its name, if
            the scores record them), or they score a data set as a whole and so keep no examples.

    Example:
        >>> traces = aw.trace(*aw.demo_model("classifier"), ["A fine film.", "A dull story."])
        >>> cards = [aw.evaluate.faithfulness(trace, "saliency", operator="mask") for trace in traces]
        >>> aw.evaluate.merged(cards).n_examples
        2
    """
    first = _first(cards)
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
    return first.with_samples(samples, provenance=provenance, warning=warning_of(cards))


def warning_of(cards: Iterable[Scorecard]) -> str:
    """Return the warnings of several scorecards, each once."""
    return "; ".join(dict.fromkeys(card.warning for card in cards if card.warning))


def _first(cards: Sequence[Scorecard]) -> Scorecard:
    if not cards:
        raise ValueError("cards is empty: give at least one scorecard.")
    return cards[0]


def _origin(card: Scorecard) -> dict[str, Any]:
    """Return where a scorecard comes from, apart from its number of examples."""
    options = {
        # as it is after saving and loading: a tuple as a list
        name: list(value) if isinstance(value, tuple) else value
        for name, value in card.provenance.get("options", {}).items()
        if name != "examples"
    }
    return {**card.provenance, "options": options}


def _require_alike(name: str, card: Scorecard, first: Scorecard, labels: Sequence[str]) -> None:
    """Raise ValueError if a scorecard differs from the first in some labels."""
    for label in labels:
        value, other = getattr(card, label), getattr(first, label)
        if value != other:
            raise ValueError(f"{name} has {label} {value!r}, the first has {other!r}: these do not compare.")
