"""Keys from the scores of all candidates: right only where the runner-up is far enough behind."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from attnwidgets._errors import require_choice
from attnwidgets.course.errors import AnswerError, MarginError
from attnwidgets.course.grading.rules import Rule, any_of, exact, kendall

MARGIN = 0.10
"""The least margin of a question: other machines and versions move numbers a little."""


def key_of(
    question: str,
    scores: Mapping[Any, float] | Any,
    *,
    best: str = "max",
    shares: Sequence[float] = (1,),
    margin: float = MARGIN,
    points: float = 1,
    subject: str | None = None,
) -> Rule:
    """Return the rule for "which is the most?", from the scores of all candidates.

    Args:
        question: Id of the question, for the message.
        scores: A score for every candidate: a dict; or an array [layer, head], whose candidates are heads, or
            [layer] or [token], whose candidates are numbers. NaN: not a candidate.
        best: `"max"` or `"min"`.
        shares: What the best is worth, the second best, and so on: `(1, 0.5)` where the two are close.
        margin: The least margin. It is the distance between the last that is worth something and the first
            that is not, by the larger of their magnitudes: 0.1 is 10 %.
        points: Points for a share of 1.
        subject: The hash of the model and text that the answer must be about; None: not compared.

    Returns:
        `exact` or `any_of`, with its `.margin` and `.runner_up`.

    Raises:
        MarginError: The runner-up is too near (an AnswerError); the message names the question and both.
        AnswerError: There are too few candidates.

    Example:
        >>> rule = aw.course.key_of("q1", {"attention": 0.25, "LRP": 0.33, "IG": 0.2}, points=2)
        >>> rule, round(rule.margin, 2)
        (exact('LRP', points=2), 0.24)
    """
    require_choice("best", best, ("max", "min"))
    ranked = sorted(_candidates(scores), key=lambda pair: -pair[1] if best == "max" else pair[1])
    if not shares or len(ranked) <= len(shares):
        raise AnswerError(f"question {question!r} has {len(ranked)} candidates, and needs {len(shares) + 1}")
    (last, value), (runner_up, next_value) = ranked[len(shares) - 1], ranked[len(shares)]
    apart = _apart(value, next_value)
    if apart < margin:
        raise MarginError(
            f"question {question!r}: {last} ({value:.4g}) is only {apart:.1%} away from {runner_up} "
            f"({next_value:.4g}), and {margin:.0%} are needed: ask otherwise, or give shares=(1, 0.5)"
        )
    right = [candidate for candidate, _ in ranked[: len(shares)]]
    if len(right) == 1 and shares[0] == 1:
        rule = exact(right[0], points=points, subject=subject)
    else:
        rule = any_of(dict(zip(right, shares, strict=True)), points=points, subject=subject)
    return dataclasses.replace(rule, margin=apart, runner_up=runner_up)


def order_of(
    question: str,
    scores: Mapping[str, float],
    *,
    best: str = "max",
    tie: float = 0.001,
    margin: float = MARGIN,
    points: float = 1,
    subject: str | None = None,
) -> Rule:
    """Return the rule for "put these in order", from the score of each.

    Args:
        question: Id of the question, for the message.
        scores: A score for every name.
        best: Which comes first: `"max"` or `"min"`.
        tie: Scores within this margin share a place.
        margin: The least margin between neighbours that do not; see `key_of`.
        points: Points for a share of 1.
        subject: The hash of the model and text that the answer must be about; None: not compared.

    Returns:
        `kendall`, with the least margin between neighbours as its `.margin`.

    Raises:
        MarginError: Two neighbours are too near for an order, and too far apart for a tie.
        AnswerError: There are fewer than two places.

    Example:
        >>> aw.course.order_of("q4", {"same": 0.5, "all": 0.25, "different": 0.0})
        kendall(['same', 'all', 'different'], points=1)
    """
    require_choice("best", best, ("max", "min"))
    ranked = sorted(_candidates(scores), key=lambda pair: -pair[1] if best == "max" else pair[1])
    places: list[list[str]] = []
    least = np.inf
    for number, (name, value) in enumerate(ranked):
        apart = _apart(ranked[number - 1][1], value) if number else np.inf
        if tie < apart < margin:
            before, its = ranked[number - 1]
            raise MarginError(
                f"question {question!r}: {before} ({its:.4g}) and {name} ({value:.4g}) are only {apart:.1%} "
                f"apart, and {margin:.0%} are needed: leave one of them out"
            )
        if number and apart <= tie:
            places[-1].append(name)
        else:
            places.append([name])
            least = min(least, apart)
    order = [place if len(place) > 1 else place[0] for place in places]
    return dataclasses.replace(kendall(order, points=points, subject=subject), margin=float(least))


def _candidates(scores: Any) -> Iterable[tuple[Any, float]]:
    if isinstance(scores, Mapping):
        pairs = list(scores.items())
    else:
        array = np.asarray(scores, dtype=float)
        pairs = [(place if array.ndim > 1 else place[0], score) for place, score in np.ndenumerate(array)]
    return [(candidate, float(score)) for candidate, score in pairs if np.isfinite(score)]


def _apart(first: float, second: float) -> float:
    """Return how far two scores are apart, by the larger magnitude: 0 where both are 0."""
    largest = max(abs(first), abs(second))
    return abs(first - second) / largest if largest else 0.0
