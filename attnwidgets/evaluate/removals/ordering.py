"""Orders in which features are removed, by explanation, chance or oracle; and the metrics of removal.

A metric that needs the model is a generator of `Questions`: it yields masks of removed elements [variant,
element], receives the model's `Answers`, and returns its scores. `answered` runs such a generator; the caller
decides which variants share a pass.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeVar

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

    from attnwidgets.evaluate.arrays import Bools, Float, Order
    from attnwidgets.evaluate.removals.removal import Answers
    from attnwidgets.explanations.targets.resolve import Target

    Read = Callable[[Answers], Float]

T = TypeVar("T")

Score = Literal["probability", "log_probability", "number"]
SCORES: tuple[Score, ...] = ("probability", "log_probability", "number")


if TYPE_CHECKING:
    Questions = Generator[Bools, Answers, T]


Rounding = Literal["ceil", "floor", "nearest"]
ROUNDINGS: tuple[Rounding, ...] = ("ceil", "floor", "nearest")
By = Literal["value", "magnitude"]
BY: tuple[By, ...] = ("value", "magnitude")
Oracle = Literal["leave_one_out", "greedy"]
ORACLES: tuple[Oracle, ...] = ("leave_one_out", "greedy")
_SLACK = 1e-9  # 0.1 * 30 is a little more than 3


def count_of(share: float, n: int, rounding: Rounding) -> int:
    """Return a share of `n` as a count, rounded by "ceil", "floor" (as int()) or "nearest" (halves up)."""
    exact = share * n
    if rounding == "ceil":
        return math.ceil(exact - _SLACK)
    return math.floor(exact + (_SLACK if rounding == "floor" else 0.5 + _SLACK))


def ranked(values: Float, features: Order, *, by: str) -> Order:
    """Return features from the highest value to the lowest; equal values stay in text order."""
    sizes = values[features]
    return features[np.argsort(-(np.abs(sizes) if by == "magnitude" else sizes), kind="stable")]


def steps_removed(n: int, features: Order, order: Order, ks: Sequence[int], *, keep: bool) -> Bools:
    """Return a mask of the elements that are removed at every step of an order [step, element].

    Args:
        n: Number of elements.
        features: All elements that can be removed.
        order: The order.
        ks: Number of the order's first features that are removed at each step.
        keep: Keep these features and remove all others instead.
    """
    removed = np.zeros((len(ks), n), dtype=bool)
    removed[:, features] = keep
    for variant, k in zip(removed, ks, strict=True):
        variant[order[:k]] = not keep
    return removed


def singles(n: int, features: Order) -> Bools:
    """Return removals [feature + 1, element]: of each feature alone, and last of none."""
    removed = np.zeros((len(features) + 1, n), dtype=bool)
    removed[np.arange(len(features)), features] = True
    return removed


def answered(questions: Questions[T], ask: Callable[[Bools], Answers]) -> T:
    """Put every question of a generator to `ask`, and return the generator's result."""
    try:
        removed = next(questions)
        while True:
            removed = questions.send(ask(removed))
    except StopIteration as end:
        return end.value


def oracle_questions(
    how: Oracle,
    n: int,
    features: Order,
    score: Callable[[Answers], Float],
    *,
    keep: bool,
    longest: int,
) -> Questions[Order]:
    """Yield the removals that an oracle tries, and return its order.

    Args:
        how: "leave_one_out" ranks features by the fall of the score without each alone; "greedy" removes the
            feature that lowers the score most, then, of the others, that which lowers it most, and so on.
        n: Number of elements.
        features: The features to rank.
        score: The score that should fall.
        keep: For "greedy": start from nothing and add the feature that raises the score most instead.
        longest: Number of steps needed.
    """
    if how == "leave_one_out":
        answers = yield singles(n, features)
        remaining = np.nan_to_num(score(answers)[:-1], nan=np.inf)
        return features[np.argsort(remaining, kind="stable")]
    chosen: list[int] = []
    left = features.tolist()
    while left and len(chosen) < longest:
        orders = [np.array([*chosen, candidate], dtype=np.intp) for candidate in left]
        k = len(chosen) + 1
        answers = yield np.concatenate(
            [steps_removed(n, features, order, [k], keep=keep) for order in orders]
        )
        scores = score(answers) * (1 if keep else -1)
        chosen.append(left.pop(int(np.argmax(np.nan_to_num(scores, nan=-np.inf)))))
    return np.array(chosen + left, dtype=np.intp)


def random_orders(features: Order, draws: int, seed: Sequence[int]) -> list[Order]:
    """Return random orders of features."""
    generator = np.random.default_rng(seed)
    return [generator.permutation(features) for _ in range(draws)]


@dataclass(frozen=True)
class Metric:
    """A score of the input without its top features, or of these alone.

    Attributes:
        keep: Whether the top features are kept and all others removed.
        formula: Takes the answers to the whole input [1] and to its parts [variant], and a function that
            reads the score of answers.
        paper: Its source.
    """

    keep: bool
    formula: Callable[[Answers, Answers, Read], Float]
    paper: str


_DEYOUNG = "DeYoung et al. 2020, ERASER: A Benchmark to Evaluate Rationalized NLP Models"
_SHRIKUMAR = "Shrikumar et al. 2017, Learning Important Features Through Propagating Activation Differences"
_PETSIUK = "Petsiuk et al. 2018, RISE: Randomized Input Sampling for Explanation of Black-box Models"


def drop(whole: Answers, part: Answers, read: Read) -> Float:
    """Return the fall of the score from the whole input to each part [variant]."""
    return read(whole) - read(part)


def _log_odds(whole: Answers, part: Answers, _: Read) -> Float:
    return part.log_p - whole.log_p


def _remaining(_: Answers, part: Answers, read: Read) -> Float:
    return read(part)


def _flip(whole: Answers, part: Answers, _: Read) -> Float:
    return np.abs(whole.right - part.right)


METRICS: dict[str, Metric] = {
    "comprehensiveness": Metric(keep=False, formula=drop, paper=_DEYOUNG),
    "sufficiency": Metric(keep=True, formula=drop, paper=_DEYOUNG),
    "log_odds": Metric(keep=False, formula=_log_odds, paper=_SHRIKUMAR),
    "deletion": Metric(keep=False, formula=_remaining, paper=_PETSIUK),
    "insertion": Metric(keep=True, formula=_remaining, paper=_PETSIUK),
}
"""Metrics of `faithfulness` by name."""

AMARA = "Amara et al. 2022, GraphFramEx: Towards Systematic Evaluation of Explainability Methods"
FIDELITY: dict[str, Metric] = {
    "fidelity_plus": Metric(keep=False, formula=_flip, paper=AMARA),
    "fidelity_minus": Metric(keep=True, formula=_flip, paper=AMARA),
}
"""Hard fidelity by name: whether the model still decides for the target."""


def default_score(target: Target) -> Score:
    """Return the default score: the probability, if the target has one."""
    return "number" if target.index is None or target.reading == "none" else "probability"


def read_score(answers: Answers, score: Score | None, target: Target) -> Float:
    """Return the score of some answers [variant].

    Args:
        answers: The model's predictions.
        score: Name of the score; None: `default_score`.
        target: The target.

    Raises:
        ValueError: If a probability is requested and the target has none.
    """
    score = score or default_score(target)
    if score == "number":
        return answers.number
    if default_score(target) == "number":
        raise ValueError(
            f'score={score!r}: {target.label!r} is a number without a probability; take score="number" '
            "of aw.evaluate.faithfulness."
        )
    return np.exp(answers.log_p) if score == "probability" else answers.log_p
