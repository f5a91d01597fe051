"""One explanation taken away step by step: what is left of a prediction as its top features go."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from attnwidgets.evaluate.examples.explained_input import is_constant
from attnwidgets.evaluate.removals.ordering import (
    answered,
    only,
    oracle_questions,
    random_orders,
    ranked,
    without,
)
from attnwidgets.evaluate.removals.removal import removable, removing
from attnwidgets.evaluate.removals.removal_metrics import read_score

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from attnwidgets.evaluate.removals.ordering import Order, Questions
    from attnwidgets.evaluate.removals.removal import Answers, Operator
    from attnwidgets.evaluate.removals.removal_metrics import Score
    from attnwidgets.explanations.targets.resolve import Target
    from attnwidgets.tracing.text.units import Unit
    from attnwidgets.tracing.trace import Trace

    Float = NDArray[np.float64]

EVERY = 96
"""Up to so many features every step is computed; of more, all of the first third and as many of the rest."""
_BASELINE_STEPS = 12


@dataclass(frozen=True)
class Removal:
    """What is removed: the elements of one stack of a trace, by one operator, as one target sees it.

    Attributes:
        trace: The input.
        unit: The elements.
        stack: Whose they are.
        target: What is read.
        operator: How elements are removed.
        batch_size: Inputs that run together.
    """

    trace: Trace
    unit: Unit
    stack: str
    target: Target
    operator: Operator
    batch_size: int = 32

    @property
    def features(self) -> Order:
        """The elements that can go: no special ones, not the one that the target is read at."""
        return removable(self.trace, self.unit, self.stack, self.target, special=False)

    def ask(self, questions: Questions[Answers]) -> Answers:
        """Return what a generator of questions comes to, put to the model."""
        with removing(
            self.trace,
            self.operator,
            self.target,
            unit=self.unit,
            stack=self.stack,
            batch_size=self.batch_size,
        ) as ask:
            return answered(questions, ask)

    def read(self, answers: Answers) -> tuple[Float, Score]:
        """Return what is drawn of answers: the probability, or the target's number where it has none."""
        score: Score = (
            "number" if self.target.index is None or np.isnan(answers.log_p).all() else "probability"
        )
        return read_score(answers, score, self.target.index), score


@dataclass(frozen=True)
class Steps:
    """What is left of a prediction, step by step.

    Attributes:
        order: The features, the first to go first.
        ks: How many are gone, or kept, at each step; the first is 0, the last all of them.
        score: What was read: "probability" or "number".
        values: What is left of the target [removed or kept alone, step]; NaN where nothing is left to read.
        decided: Index of what is predicted then [removed or kept alone, step]; NaN where the target is no
            logit of several.
        certainty: The probability of that [removed or kept alone, step].
    """

    order: Order
    ks: tuple[int, ...]
    score: Score
    values: Float
    decided: Float
    certainty: Float


@dataclass(frozen=True)
class Baselines:
    """What other orders leave of a prediction at some steps: chance, and an oracle.

    Attributes:
        ks: How many features are gone, or kept, at each step.
        random: [removed or kept alone, draw, step].
        oracle: In the order in which single features, removed alone, lower the score [removed or kept, step].
    """

    ks: tuple[int, ...]
    random: Float
    oracle: Float


def steps_of(n: int, most: int = EVERY) -> tuple[int, ...]:
    """Return how many of `n` features are gone at each step: dense at the start, where the most happens."""
    if n <= most:
        return tuple(range(n + 1))
    first = most // 3
    later = np.rint(np.linspace(first, n, most - first + 1)).astype(int).tolist()
    return tuple(dict.fromkeys([*range(first), *later]))


def removal_steps(removal: Removal, values: NDArray[np.floating]) -> Steps:
    """Return what is left of a prediction as the top features of an explanation go, or come back, one by one.

    The same numbers as "deletion" and "insertion" of `faithfulness` at the shares k / n.

    Args:
        removal: What is removed, how, and what is read.
        values: What the explanation says of every element [element].

    Raises:
        ValueError: Where no feature can be removed, or the explanation ranks nothing; and what `removing`
            raises.
    """
    features = removal.features
    if not len(features):
        raise ValueError(
            "this text has no element that can be removed: special tokens, and what is asked for, stay."
        )
    given = np.asarray(values, dtype=np.float64)
    if is_constant(given[features]):
        raise ValueError("the explanation says the same of every element here, and ranks nothing.")
    order = ranked(given, features, by="value")
    ks = steps_of(len(features))
    answers = removal.ask(_curves(removal, [order], ks))
    scores, score = removal.read(answers)
    shape = (2, len(ks))
    return Steps(
        order,
        ks,
        score,
        scores.reshape(shape),
        answers.decided.reshape(shape),
        np.exp(answers.decided_log_p).reshape(shape),
    )


def removal_baselines(removal: Removal, *, draws: int = 10, seed: int = 0) -> Baselines:
    """Return what random orders, and the order of single removals, leave of a prediction.

    Args:
        removal: What is removed, how, and what is read.
        draws: How many random orders; the first ones that `faithfulness` draws with this seed.
        seed: Of the draws.
    """
    features = removal.features
    ks = steps_of(len(features), _BASELINE_STEPS)
    orders = random_orders(features, draws, [seed, 0])

    def asked() -> Questions[Answers]:
        best = yield from oracle_questions(
            "leave_one_out",
            len(removal.unit),
            features,
            lambda answers: removal.read(answers)[0],
            keep=False,
            longest=len(features),
        )
        found = yield from _curves(removal, [*orders, best], ks)
        return found

    scores, _ = removal.read(removal.ask(asked()))
    curves = scores.reshape(2, draws + 1, len(ks))
    return Baselines(ks, curves[:, :-1], curves[:, -1])


def _curves(removal: Removal, orders: Sequence[Order], ks: Sequence[int]) -> Questions[Answers]:
    """Ask for every step of some orders, and return the answers [removed or kept alone, order, step]."""
    n, features = len(removal.unit), removal.features
    gone = [without(n, order, k) for order in orders for k in ks]
    kept = [only(n, order, features, k) for order in orders for k in ks]
    answers = yield np.stack([*gone, *kept])
    return answers
