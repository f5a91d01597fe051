"""Orders in which parts are taken away: an explanation's, chance's, and an oracle's that asks the model."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal, TypeVar

import numpy as np

T = TypeVar("T")

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

    from numpy.typing import NDArray

    from attnwidgets.evaluate.removals.removal import Answers

    Float = NDArray[np.float64]
    Order = NDArray[np.intp]
    Ask = Callable[[NDArray[np.bool_]], Answers]
    Questions = Generator[NDArray[np.bool_], Answers, T]

Rounding = Literal["ceil", "floor", "nearest"]
ROUNDINGS: tuple[Rounding, ...] = ("ceil", "floor", "nearest")
Oracle = Literal["leave_one_out", "greedy"]
ORACLES: tuple[Oracle, ...] = ("leave_one_out", "greedy")

_SLACK = 1e-9  # 0.1 * 30 is a little more than 3


def count_of(share: float, n: int, rounding: Rounding) -> int:
    """Return how many of `n` elements a share is: "ceil", "floor" (int()), or "nearest" (halves up)."""
    exact = share * n
    if rounding == "ceil":
        return math.ceil(exact - _SLACK)
    return math.floor(exact + (_SLACK if rounding == "floor" else 0.5 + _SLACK))


def ranked(values: Float, features: Order, *, by: str) -> Order:
    """Return features from the highest value to the lowest; equal ones in the order of the text."""
    own = values[features]
    return features[np.argsort(-(np.abs(own) if by == "magnitude" else own), kind="stable")]


def without(n: int, order: Order, k: int) -> NDArray[np.bool_]:
    """Return what is removed [element] where the first `k` of an order are taken away."""
    gone = np.zeros(n, dtype=bool)
    gone[order[:k]] = True
    return gone


def only(n: int, order: Order, features: Order, k: int) -> NDArray[np.bool_]:
    """Return what is removed [element] where of all features the first `k` of an order alone are kept."""
    gone = np.zeros(n, dtype=bool)
    gone[features] = True
    gone[order[:k]] = False
    return gone


def singles(n: int, features: Order) -> NDArray[np.bool_]:
    """Return each feature removed alone, and last nothing [feature + 1, element]."""
    gone = np.zeros((len(features) + 1, n), dtype=bool)
    gone[np.arange(len(features)), features] = True
    return gone


def answered(questions: Questions[T], ask: Ask) -> T:
    """Return what a generator of questions (what is removed) comes to, every question put to `ask`."""
    try:
        removed = next(questions)
        while True:
            removed = questions.send(ask(removed))
    except StopIteration as end:
        return end.value


def oracle_order(
    how: Oracle,
    n: int,
    features: Order,
    ask: Ask,
    score: Callable[[Answers], Float],
    *,
    keep: bool,
    longest: int,
) -> Order:
    """Return the order that an oracle takes, who may ask the model; see `oracle_questions`."""
    return answered(oracle_questions(how, n, features, score, keep=keep, longest=longest), ask)


def oracle_questions(
    how: Oracle,
    n: int,
    features: Order,
    score: Callable[[Answers], Float],
    *,
    keep: bool,
    longest: int,
) -> Questions[Order]:
    """Yield what an oracle asks, and return the order that it takes.

    Args:
        how: "leave_one_out": by how much the score falls without each feature alone; "greedy": the feature
            that lowers the score most is removed, then of what is left the one that does, and so on.
        n: How many elements there are.
        features: Those that are ranked.
        score: The number that should fall.
        keep: Of "greedy", whether features are added to nothing instead, the one that raises the score most.
        longest: How many steps are needed.
    """
    if how == "leave_one_out":
        answers = yield singles(n, features)
        left_over = np.nan_to_num(score(answers)[:-1], nan=np.inf)
        return features[np.argsort(left_over, kind="stable")]
    chosen: list[int] = []
    left = features.tolist()
    while left and len(chosen) < longest:
        sets = [np.array([*chosen, one], dtype=np.intp) for one in left]
        gone = np.stack([only(n, s, features, len(s)) if keep else without(n, s, len(s)) for s in sets])
        found = score((yield gone)) * (1 if keep else -1)
        chosen.append(left.pop(int(np.argmax(np.nan_to_num(found, nan=-np.inf)))))
    return np.array(chosen + left, dtype=np.intp)


def random_orders(features: Order, draws: int, seed: Sequence[int]) -> list[Order]:
    """Return orders drawn at random."""
    generator = np.random.default_rng(seed)
    return [generator.permutation(features) for _ in range(draws)]
