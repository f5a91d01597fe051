"""The protocol of a metric by removal: how features are removed, ranked, scored and drawn."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from attnwidgets._errors import require_choice
from attnwidgets.evaluate.examples.explained_input import is_constant, watched
from attnwidgets.evaluate.removals.ordering import (
    BY,
    ORACLES,
    ROUNDINGS,
    count_of,
    oracle_questions,
    random_orders,
    ranked,
)
from attnwidgets.evaluate.removals.removal import EVERY, Removal
from attnwidgets.evaluate.removals.removal_metrics import SCORES, read_score
from attnwidgets.explanations.targets.named import resolve_target

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from attnwidgets.evaluate.arrays import Float, Order
    from attnwidgets.evaluate.examples.explained_input import ExplainedInput
    from attnwidgets.evaluate.removals.ordering import By, Oracle, Questions, Rounding, T
    from attnwidgets.evaluate.removals.removal import Answers, Operator
    from attnwidgets.evaluate.removals.removal_metrics import Score
    from attnwidgets.explanations.targets.resolve import Target

ERASER = (0.01, 0.05, 0.1, 0.2, 0.5)
"""The shares of tokens at which DeYoung et al. 2020 remove and keep."""


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
