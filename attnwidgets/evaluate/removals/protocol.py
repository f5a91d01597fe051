"""The protocol of a metric by removal, and the curve of an explanation, feature by feature."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from attnwidgets._errors import require_choice
from attnwidgets.evaluate.examples.explained_input import is_constant, watched
from attnwidgets.evaluate.removals.ordering import (
    BY,
    ORACLES,
    ROUNDINGS,
    SCORES,
    count_of,
    default_score,
    oracle_questions,
    random_orders,
    ranked,
    read_score,
    steps_removed,
)
from attnwidgets.evaluate.removals.removal import EVERY, Removal
from attnwidgets.explanations.targets.named import resolve_target

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from attnwidgets.evaluate.arrays import Float, Order
    from attnwidgets.evaluate.examples.explained_input import ExplainedInput
    from attnwidgets.evaluate.removals.ordering import By, Oracle, Questions, Rounding, Score, T
    from attnwidgets.evaluate.removals.removal import Answers, Operator
    from attnwidgets.explanations.targets.resolve import Target

ERASER = (0.01, 0.05, 0.1, 0.2, 0.5)
"""The shares of tokens at which DeYoung et al. 2020 remove and keep."""

MOST_STEPS = 96
"""Up to so many features every step is computed; beyond, the first third and the same number of the rest."""

_BASELINE_STEPS = 12


@dataclass(frozen=True)
class RemovalProtocol:
    """The options that metrics by removal share, checked once. The keywords of `faithfulness` describe them.

    Raises:
        ValueError: If an option is unknown or out of range.
    """

    operator: Operator
    thresholds: tuple[float, ...] = ERASER
    score: Score | None = None
    rounding: Rounding = "ceil"
    by: By = "value"
    positive: bool = False
    special: bool = False
    oracle: Oracle | None = "leave_one_out"
    draws: int = 10
    seed: int = 0
    batch_size: int = 32

    def __post_init__(self) -> None:
        require_choice("operator", self.operator, EVERY)
        require_choice("rounding", self.rounding, ROUNDINGS)
        require_choice("by", self.by, BY)
        require_choice("oracle", self.oracle, (*ORACLES, None))
        require_choice("score", self.score, (*SCORES, None))
        if not self.thresholds or not all(0 <= share <= 1 for share in self.thresholds):
            raise ValueError(f"thresholds must be shares of the features, 0 to 1, not {self.thresholds!r}.")
        for name in ("draws", "batch_size"):
            if vars(self)[name] < 1:
                raise ValueError(f"{name} must be at least 1, not {vars(self)[name]}.")

    def options(self, *names: str) -> dict[str, Any]:
        """Return the options as provenance keeps them: those named, or all."""
        return {name: value for name, value in vars(self).items() if not names or name in names}

    def case(
        self, item: ExplainedInput, target: Target, number: int, *, watched: bool = False
    ) -> RemovalCase:
        """Return one explained input under this protocol; its draws depend on its number."""
        removal = Removal(item.trace, item.unit, item.stack, target, self.operator)
        return RemovalCase(self, removal, item.values, number, watched)

    def cases(
        self, inputs: Sequence[ExplainedInput], targets: Sequence[Any], function: str
    ) -> Iterator[RemovalCase]:
        """Yield the case of every input, under one progress bar.

        Args:
            inputs: The inputs with their explanations.
            targets: One target for all inputs, or one for each, as every method takes it.
            function: Name of the calling function, for messages.

        Raises:
            ValueError: If an input does not have the target.
        """
        for number, item in enumerate(watched(inputs)):
            named = targets[number % len(targets)]
            target = (
                item.target(function) if named is None else resolve_target(item.trace, named, method=function)
            )
            yield self.case(item, target, number, watched=len(inputs) == 1)


@dataclass(frozen=True)
class RemovalCase:
    """One explained input under a protocol.

    Attributes:
        protocol: How features are removed, ranked and scored.
        removal: The input, its elements, the operator and the target.
        values: What each explanation gives every element [element], by name.
        number: The number of the input, on which its random draws depend.
        watched: Whether batches show their progress.
    """

    protocol: RemovalProtocol
    removal: Removal
    values: Mapping[str, Float]
    number: int
    watched: bool = False

    @cached_property
    def features(self) -> Order:
        """The elements that can be removed."""
        return self.removal.features(special=self.protocol.special)

    @property
    def n(self) -> int:
        """Number of elements."""
        return len(self.removal.unit)

    @property
    def seed(self) -> list[int]:
        """Seed of this input's draws."""
        return [self.protocol.seed, self.number]

    @property
    def counts(self) -> list[int]:
        """How many features each threshold means."""
        count, rounding = len(self.features), self.protocol.rounding
        return [count_of(share, count, rounding) for share in self.protocol.thresholds]

    def read(self, answers: Answers) -> Float:
        """Return the score f of some answers [variant]."""
        return read_score(answers, self.protocol.score, self.removal.target)

    def ask(self, questions: Questions[T]) -> T:
        """Put questions to the model, and return what they come to."""
        return self.removal.ask(questions, batch_size=self.protocol.batch_size, watched=self.watched)

    def given_orders(self) -> dict[str, Order | None]:
        """Return the order of every explanation; None if it is constant and ranks nothing."""
        return {
            name: None
            if is_constant(values[self.features])
            else ranked(values, self.features, by=self.protocol.by)
            for name, values in self.values.items()
        }

    def random_orders(self) -> list[Order]:
        """Return the random orders of the features."""
        return random_orders(self.features, self.protocol.draws, self.seed)

    def oracle_order(self, *, keep: bool, longest: int) -> Questions[list[Order]]:
        """Yield what the oracle asks, and return its order in a list; an empty list without an oracle."""
        how = self.protocol.oracle
        if how is None:
            return []
        order = yield from oracle_questions(how, self.n, self.features, self.read, keep=keep, longest=longest)
        return [order]


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


def steps_of(n: int, most: int = MOST_STEPS) -> tuple[int, ...]:
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
