"""The protocol of a metric by removal, and the curve of an explanation, feature by feature."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, TypeVar

import numpy as np

from attnwidgets._errors import require_choice
from attnwidgets._former import former_keywords
from attnwidgets._selecting import listed
from attnwidgets.evaluate.documentation import documented
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
from attnwidgets.evaluate.removals.removal import EVERY, ElementRemoval
from attnwidgets.explanations.targets.named import resolve_target

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from attnwidgets.evaluate.arrays import Float, Order
    from attnwidgets.evaluate.examples.explained_input import ExplainedInput
    from attnwidgets.evaluate.removals.ordering import By, Oracle, Questions, Rounding, Score, T
    from attnwidgets.evaluate.removals.removal import Answers, Operator
    from attnwidgets.explanations.targets.resolve import Target

P = ParamSpec("P")
R = TypeVar("R")

ERASER = (0.01, 0.05, 0.1, 0.2, 0.5)
"""The shares of tokens at which DeYoung et al. 2020 remove and keep."""

MOST_STEPS = 96
"""Up to so many features every step is computed; beyond, the first third and the same number of the rest."""

_BASELINE_STEPS = 12


@documented
@dataclass(frozen=True, kw_only=True)
class Removal:
    """How metrics remove features: made once, and passed as `removal` to each of them.

    Args:
        operator: {operator} None is for `compare` by metrics that remove nothing.
        thresholds: Sizes of the sets of top features, as shares of the features, 0 to 1. Default: the
            metric's; of `faithfulness` 0.01, 0.05, 0.1, 0.2 and 0.5.
        score: {score} `infidelity` reads the number unless told otherwise.
        rounding: {rounding}
        by: {by} Default: "magnitude" for `effective_complexity`, "value" for the others.
        positive: Remove only features above zero, which may be fewer than a threshold says.
        special: {special}
        oracle: {oracle} Default: "greedy" for `effective_complexity`, "leave_one_out" for the others.
        draws: {draws} Of metrics that judge values, of random values. Default: 10, or 100 for
            `single_removals` and `importance_correlation`.
        seed: {seed}
        batch_size: {batch_size} Default: 32, and 64 in `compare`.

    Raises:
        ValueError: If an option is unknown or out of range. A metric raises it for an option that it does
            not read.

    Example:
        >>> trace = aw.trace(*aw.demo_model("classifier"), "A fine film with a weak end.")
        >>> removal = aw.evaluate.Removal("mask", thresholds=[0.2, 0.5], oracle=None)
        >>> aw.evaluate.faithfulness(trace, "saliency", removal=removal).shape
        (2, 2, 2)
        >>> aw.evaluate.fidelity(trace, "saliency", removal=removal).shape
        (2, 2, 2)
    """

    operator: Operator | None = field(default=None, kw_only=False)
    thresholds: Sequence[float] | None = None
    score: Score | None = None
    rounding: Rounding = "ceil"
    by: By | None = None
    positive: bool = False
    special: bool = False
    oracle: Oracle | Literal["default"] | None = "default"
    draws: int | None = None
    seed: int = 0
    batch_size: int | None = None

    def __post_init__(self) -> None:
        if self.thresholds is not None:
            object.__setattr__(self, "thresholds", tuple(self.thresholds))
        RemovalProtocol(self.operator or EVERY[0], **self.chosen())

    def chosen(self) -> dict[str, Any]:
        """Return the options that differ from their defaults, without the operator."""
        options = (option for option in fields(self) if option.name != "operator")
        return {
            option.name: value
            for option in options
            if (value := getattr(self, option.name)) != option.default
        }


class RemovalOptions:
    """The options of `Removal` that a metric reads, and its defaults.

    Args:
        function: The metric's name.
        *reads: The options it reads besides those that all metrics read: `special`, `seed`, `batch_size`.
        operator: The operator by default; None if there is none.
        **defaults: Its defaults where they are not those of `RemovalProtocol`, and the options that it fixes.
    """

    def __init__(self, function: str, *reads: str, operator: Operator | None = None, **defaults: Any) -> None:
        self._function, self._operator, self._defaults = function, operator, defaults
        self._reads = (*reads, "special", "seed", "batch_size")

    def protocol(self, operator: Operator | None, removal: Removal | None) -> RemovalProtocol:
        """Return the metric's protocol from its two arguments, of which the user passes exactly one.

        Raises:
            ValueError: If both are given, or neither; or if `removal` has an option that the metric ignores.
            TypeError: If `removal` is not a Removal.
        """
        if removal is None:
            removal = Removal(operator)
        elif operator is not None:
            raise ValueError("operator and removal are both given; the operator is part of the removal.")
        if not isinstance(removal, Removal):
            raise TypeError(
                f"removal takes an aw.evaluate.Removal, not {removal!r:.60}; an operator alone is `operator`."
            )
        chosen = removal.chosen()
        if ignored := [name for name in chosen if name not in self._reads]:
            raise ValueError(
                f"removal: {self._function} does not read {listed(ignored)}; "
                f"it reads {listed(('operator', *self._reads))}."
            )
        operator = removal.operator or self._operator
        if operator is None:
            raise ValueError("operator is missing: say how features are removed (see aw.evaluate.OPERATORS).")
        return RemovalProtocol(operator, **self._defaults | chosen)

    def former_keywords(self, function: Callable[P, R]) -> Callable[P, R]:
        """Return the metric with its former keywords for these options, which warn."""
        take = former_keywords(
            self._reads, "removal", "aw.evaluate.Removal(...)", Removal, also=("operator",)
        )
        return take(function)


@dataclass(frozen=True)
class RemovalProtocol:
    """The options of a metric by removal with every default filled in; `Removal` describes them.

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
        """Return the case of an explained input under this protocol; its draws depend on its number."""
        removal = ElementRemoval(item.trace, item.unit, item.stack, target, self.operator)
        return RemovalCase(self, removal, item.values, number, watched)

    def cases(
        self, inputs: Sequence[ExplainedInput], targets: Sequence[Any], function: str
    ) -> Iterator[RemovalCase]:
        """Yield the case of every input, with a progress bar.

        Args:
            inputs: The inputs with their explanations.
            targets: A target for all inputs, or a target for each, as every method takes it.
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
    """An explained input under a protocol.

    Attributes:
        protocol: How features are removed, ranked and scored.
        removal: The input, its elements, the operator and the target.
        values: The value of every element by each explanation [element], by name.
        number: The number of the input, on which its random draws depend.
        watched: Whether batches show their progress.
    """

    protocol: RemovalProtocol
    removal: ElementRemoval
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
        """Put questions to the model, and return the generator's result."""
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
        """Yield the oracle's questions, and return its order in a list; an empty list without an oracle."""
        how = self.protocol.oracle
        if how is None:
            return []
        order = yield from oracle_questions(how, self.n, self.features, self.read, keep=keep, longest=longest)
        return [order]


@dataclass(frozen=True)
class Steps:
    """The score of a prediction, step by step, as features are removed.

    Attributes:
        order: The features, the first to go first.
        ks: How many features are removed, or stay, at each step; from 0 to all of them.
        score: The score that was read: "probability" or "number".
        values: The score [removed or alone, step]; NaN where nothing is left to read.
        decided: Index of the prediction [removed or alone, step]; NaN if the target is not a logit of
            several.
        certainty: Its probability [removed or alone, step].
    """

    order: Order
    ks: tuple[int, ...]
    score: Score
    values: Float
    decided: Float
    certainty: Float


@dataclass(frozen=True)
class Baselines:
    """The scores of a prediction under random orders and an oracle's order.

    Attributes:
        ks: How many features are removed, or stay, at each step.
        random: The score [removed or alone, draw, step].
        oracle: The score if features go in the order in which each alone lowers it [removed or alone, step].
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


def removal_steps(removal: ElementRemoval, values: NDArray[np.floating]) -> Steps:
    """Return the `Steps` of a prediction as the top features are removed, or stay alone, one by one.

    The numbers are those of "deletion" and "insertion" of `faithfulness` at the shares k / n.

    Args:
        removal: The elements, the operator, and the target that is read.
        values: The explanation [element].

    Raises:
        ValueError: If no feature can be removed, the explanation ranks nothing, or `ElementRemoval.answering`
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


def removal_baselines(removal: ElementRemoval, *, draws: int = 10, seed: int = 0) -> Baselines:
    """Return the scores of a prediction under random orders and the order of single removals.

    Args:
        removal: The elements, the operator, and the target that is read.
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


def _read(removal: ElementRemoval, answers: Answers) -> tuple[Float, Score]:
    """Return the score of answers: the probability, or the target's number if it has none."""
    score = default_score(removal.target)
    return read_score(answers, score, removal.target), score


def _curves(
    removal: ElementRemoval, features: Order, orders: Sequence[Order], ks: Sequence[int]
) -> Questions[Answers]:
    """Ask for every step of some orders, and return the answers [removed or alone, order, step]."""
    n = len(removal.unit)
    return (
        yield np.concatenate(
            [steps_removed(n, features, order, ks, keep=keep) for keep in (False, True) for order in orders]
        )
    )
