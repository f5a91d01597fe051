"""What is left of a prediction as the top features of one explanation are removed step by step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from attnwidgets.evaluate.examples.explained_input import is_constant
from attnwidgets.evaluate.removals.ordering import oracle_questions, random_orders, ranked, steps_removed
from attnwidgets.evaluate.removals.removal_metrics import default_score, read_score

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from attnwidgets.evaluate.arrays import Float, Order
    from attnwidgets.evaluate.removals.ordering import Questions
    from attnwidgets.evaluate.removals.removal import Answers, Removal
    from attnwidgets.evaluate.removals.removal_metrics import Score

EVERY = 96
"""Up to so many features every step is computed; beyond, the first third and the same number of the rest."""
_BASELINE_STEPS = 12


@dataclass(frozen=True)
class Steps:
    """What is left of a prediction, step by step.

    Attributes:
        order: The features, the first to go first.
        ks: How many are removed, or kept, at each step; from 0 to all of them.
        score: What was read: "probability" or "number".
        values: The score [removed or kept alone, step]; NaN where nothing is left to read.
        decided: Index of the prediction [removed or kept alone, step]; NaN if the target is not one logit of
            several.
        certainty: Its probability [removed or kept alone, step].
    """

    order: Order
    ks: tuple[int, ...]
    score: Score
    values: Float
    decided: Float
    certainty: Float


@dataclass(frozen=True)
class Baselines:
    """What random orders and an oracle leave of a prediction.

    Attributes:
        ks: How many features are removed, or kept, at each step.
        random: The score [removed or kept alone, draw, step].
        oracle: The score if features go in the order in which each alone lowers it [removed or kept, step].
    """

    ks: tuple[int, ...]
    random: Float
    oracle: Float


def steps_of(n: int, most: int = EVERY) -> tuple[int, ...]:
    """Return how many of `n` features are removed at each step: dense at the start, where most changes."""
    if n <= most:
        return tuple(range(n + 1))
    first = most // 3
    later = np.rint(np.linspace(first, n, most - first + 1)).astype(int).tolist()
    return tuple(dict.fromkeys([*range(first), *later]))


def removal_steps(removal: Removal, values: NDArray[np.floating]) -> Steps:
    """Return what is left of a prediction as the top features are removed, or kept alone, one by one.

    The numbers are those of "deletion" and "insertion" of `faithfulness` at the shares k / n.

    Args:
        removal: What is removed, how, and what is read.
        values: The explanation [element].

    Raises:
        ValueError: If no feature can be removed, the explanation ranks nothing, or `Removal.answering`
            raises.
    """
    features = removal.features()
    if not len(features):
        raise ValueError("this text has no element to remove: special tokens, and the target itself, stay.")
    sizes = np.asarray(values, dtype=np.float64)
    if is_constant(sizes[features]):
        raise ValueError("the explanation is constant over the elements of this text, and ranks nothing.")
    order = ranked(sizes, features, by="value")
    ks = steps_of(len(features))
    answers = removal.ask(_curves(removal, features, [order], ks))
    scores, score = _read(removal, answers)
    shape = (2, len(ks))
    certainty = np.exp(answers.decided_log_p)
    return Steps(
        order, ks, score, scores.reshape(shape), answers.decided.reshape(shape), certainty.reshape(shape)
    )


def removal_baselines(removal: Removal, *, draws: int = 10, seed: int = 0) -> Baselines:
    """Return what random orders, and the order of single removals, leave of a prediction.

    Args:
        removal: What is removed, how, and what is read.
        draws: Number of random orders; the first that `faithfulness` draws with this seed.
        seed: Seed of the draws.
    """
    features = removal.features()
    ks = steps_of(len(features), _BASELINE_STEPS)
    orders = random_orders(features, draws, [seed, 0])

    def questions() -> Questions[Answers]:
        best = yield from oracle_questions(
            "leave_one_out",
            len(removal.unit),
            features,
            lambda answers: _read(removal, answers)[0],
            keep=False,
            longest=len(features),
        )
        return (yield from _curves(removal, features, [*orders, best], ks))

    scores, _ = _read(removal, removal.ask(questions()))
    curves = scores.reshape(2, draws + 1, len(ks))
    return Baselines(ks, curves[:, :-1], curves[:, -1])


def _read(removal: Removal, answers: Answers) -> tuple[Float, Score]:
    """Return the score of answers: the probability, or the target's number if it has none."""
    score = default_score(removal.target)
    return read_score(answers, score, removal.target), score


def _curves(
    removal: Removal, features: Order, orders: Sequence[Order], ks: Sequence[int]
) -> Questions[Answers]:
    """Ask for every step of some orders, and return the answers [removed or kept alone, order, step]."""
    n = len(removal.unit)
    return (
        yield np.concatenate(
            [steps_removed(n, features, order, ks, keep=keep) for keep in (False, True) for order in orders]
        )
    )
