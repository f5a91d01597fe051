"""Does a prediction move with what an explanation calls important? Comprehensiveness and its like."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from attnwidgets._errors import suggest
from attnwidgets._selecting import listed
from attnwidgets.evaluate.examples.explained_input import explained, is_constant, watched
from attnwidgets.evaluate.removals.ordering import (
    ORACLES,
    ROUNDINGS,
    Oracle,
    Rounding,
    answered,
    count_of,
    only,
    oracle_questions,
    random_orders,
    ranked,
    without,
)
from attnwidgets.evaluate.removals.removal import Answers, Operator, removable, removing
from attnwidgets.evaluate.removals.removal_metrics import METRICS, SCORES, Metric, Score, read_score
from attnwidgets.evaluate.scorecards.build import ORACLE, RANDOM, scored_explanations
from attnwidgets.explanations.targets.named import resolve_target
from attnwidgets.tracing.free_memory import forceable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from attnwidgets.evaluate.examples.explained_input import ExplainedInput
    from attnwidgets.evaluate.removals.ordering import Order, Questions
    from attnwidgets.evaluate.scorecards.scorecard import Scorecard

    Float = NDArray[np.float64]

ERASER = (0.01, 0.05, 0.1, 0.2, 0.5)
"""The shares of tokens at which DeYoung et al. 2020 remove and keep."""
_BY = ("value", "magnitude")


@dataclass(frozen=True)
class Plan:
    """How parts are chosen and removed: the options that every score by removal takes."""

    operator: Operator
    thresholds: tuple[float, ...]
    score: Score | None
    rounding: Rounding
    by: str
    positive: bool
    special: bool
    oracle: Oracle | None
    draws: int
    seed: int
    batch_size: int

    def __post_init__(self) -> None:
        choices: tuple[tuple[str, Any, tuple[str, ...]], ...] = (
            ("rounding", self.rounding, ROUNDINGS),
            ("by", self.by, _BY),
            ("oracle", self.oracle or ORACLES[0], ORACLES),
            ("score", self.score or SCORES[0], SCORES),
        )
        for name, value, known in choices:
            if value not in known:
                raise ValueError(
                    f"{name} {value!r} is not one of {listed(known)}.{suggest(str(value), known)}"
                )
        if not self.thresholds or not all(0 <= share <= 1 for share in self.thresholds):
            raise ValueError(f"thresholds must be shares of the features, 0 to 1, not {self.thresholds!r}.")
        if self.draws < 1:
            raise ValueError(f"draws must be at least 1, not {self.draws}.")

    def options(self) -> dict[str, Any]:
        """Return the options as provenance keeps them."""
        return dict(vars(self))


@forceable
def faithfulness(
    traces: Any,
    explanations: Any,
    target: Any = None,
    *,
    operator: Operator,
    metrics: str | Sequence[str] = ("comprehensiveness", "sufficiency"),
    thresholds: Sequence[float] = ERASER,
    score: Score | None = None,
    rounding: Rounding = "ceil",
    by: Literal["value", "magnitude"] = "value",
    positive: bool = False,
    special: bool = False,
    oracle: Oracle | None = "leave_one_out",
    draws: int = 10,
    seed: int = 0,
    unit: str | None = None,
    batch_size: int = 32,
) -> Scorecard:
    """What a prediction loses without the top features of an explanation, and what it keeps with them alone.

    With M the top k features, x without M written x - M, M alone x_M, and f the score of the target:

        comprehensiveness   f(x) - f(x - M): high where M was needed
        sufficiency         f(x) - f(x_M): near zero, or below it, where M is enough
        log_odds            log p(x - M) - log p(x): the lower the more M was needed
        deletion            f(x - M), the curve that falls
        insertion           f(x_M), the curve that rises

    `aopc(card)` is their mean over the thresholds, `area(card)` the area under the curve.

    Args:
        traces: What `aw.trace` returned, or a list of such traces.
        explanations: Attributions; a name in `aw.methods()`, a pair (name, options) or a function of a trace;
            a list of such methods; or a mapping from names to any of these. A row of a map is
            `.to_attributions('row', query='cls')`.
        target: As every method takes it; by default what the model predicts for the whole input.
        operator: How features are removed, see `OPERATORS`: "delete", "mask", "pad", "zero", "mean" or
            "attention_mask". There is no default: scores by different operators do not compare.
        metrics: One or several of the above.
        thresholds: Shares of the features that M is, 0 to 1.
        score: What f is: "probability", "log_probability", or "number" (the logit, or the target itself). By
            default the probability, and the number of a target that is not one logit.
        rounding: Of k = share * n features: "ceil", "floor" or "nearest". Features with equal values are
            ranked in the order of the text.
        by: Rank by "value", so that what speaks against the target comes last, or by "magnitude".
        positive: Whether only features above zero can be in M, so that M may have fewer than k.
        special: Whether special tokens are features; else they are always kept and never counted.
        oracle: The order of the row "oracle": by "leave_one_out", or "greedy", n(n + 1)/2 passes; None: no
            such row. It need not be the best there is: only where features do not interact is it.
        draws: How many random orders the row "random" is the mean of.
        seed: Of those draws.
        unit: What features are: "token", "word", ...; by default the unit of the explanations.
        batch_size: Inputs that run together.

    Returns:
        A Scorecard [metric, method, share], the baselines last. NaN, with the reason in `.warning`: where an
        explanation is constant and ranks nothing, no feature is there to be removed, nothing is left to read,
        or the target has no probability.

    Raises:
        ValueError: For an unknown or impossible operator or option; an explanation of another input or unit.
        TypeError: Where an explanation is a map or nothing of the kind.

    Source: DeYoung et al. 2020 (comprehensiveness, sufficiency, their mean over thresholds); Shrikumar et al.
    2017 (log-odds); Petsiuk et al. 2018 (deletion, insertion).
    """
    names = (metrics,) if isinstance(metrics, str) else tuple(metrics)
    for name in names:
        if name not in METRICS:
            raise ValueError(f"metrics has {name!r}; there is {listed(METRICS)}.{suggest(name, METRICS)}")
    plan = Plan(
        operator,
        tuple(thresholds),
        score=score,
        rounding=rounding,
        by=by,
        positive=positive,
        special=special,
        oracle=oracle,
        draws=draws,
        seed=seed,
        batch_size=batch_size,
    )
    return removal_scores(
        traces,
        explanations,
        [target],
        plan,
        {name: METRICS[name] for name in names},
        function="faithfulness",
        asked=target,
        unit=unit,
    )


def removal_scores(
    traces: Any,
    explanations: Any,
    targets: Sequence[Any],
    plan: Plan,
    metrics: Mapping[str, Metric],
    *,
    function: str,
    unit: str | None,
    asked: Any = None,
    options: Mapping[str, Any] | None = None,
) -> Scorecard:
    """Return scores by removal over examples: what `faithfulness` and `fidelity` share.

    Args:
        traces: One or several.
        explanations: As `faithfulness` takes them.
        targets: One for all traces, or one for each.
        plan: How parts are removed.
        metrics: What is read.
        function: Who asks.
        unit: What features are.
        asked: The target that methods given by name explain.
        options: Options of `function` beside the plan's.
    """
    inputs = explained(traces, explanations, asked, function, unit)
    if len(targets) not in (1, len(inputs)):
        raise ValueError(f"there are {len(targets)} targets for {len(inputs)} traces: give one for each.")
    notes: dict[str, None] = {}
    samples = []
    for number, one in enumerate(watched(inputs)):
        target = resolve_target(one.trace, targets[number % len(targets)], method=function)
        notes |= dict.fromkeys(filter(None, [target.note]))
        scorer = Example(one, target, plan, metrics, number, notes)
        samples.append(scorer.scores(watched=len(inputs) == 1))
    return scored_explanations(
        inputs,
        np.stack(samples),
        function,
        baselines=[RANDOM] if plan.oracle is None else [RANDOM, ORACLE],
        metrics=list(metrics),
        x=plan.thresholds,
        x_name="share",
        notes=[*(one.trace.warning for one in inputs), *notes],
        title=f"{function}, {plan.operator}",
        paper="; ".join(dict.fromkeys(metric.paper for metric in metrics.values())),
        options=plan.options() | dict(options or {}) | {"examples": len(inputs)},
    )


class Example:
    """The scores of one input by removal."""

    def __init__(
        self,
        one: ExplainedInput,
        target: Any,
        plan: Plan,
        metrics: Mapping[str, Metric],
        number: int,
        notes: dict[str, None],
    ) -> None:
        self.one, self.target, self.plan, self.metrics = one, target, plan, metrics
        self.number, self.notes = number, notes
        self.features = removable(one.trace, one.unit, one.stack, target, special=plan.special)
        self.ks = [count_of(share, len(self.features), plan.rounding) for share in plan.thresholds]

    def score(self, answers: Answers) -> Float:
        """Return what f is of some answers."""
        return read_score(answers, self.plan.score, self.target.index)

    def scores(self, *, watched: bool) -> Float:
        """Return the scores [metric, method, share]."""
        with removing(
            self.one.trace,
            self.plan.operator,
            self.target,
            unit=self.one.unit,
            stack=self.one.stack,
            batch_size=self.plan.batch_size,
            watched=watched,
        ) as ask:
            return answered(self.questions(), ask)

    def questions(self) -> Questions[Float]:
        """Yield what is to be removed, and return the scores [metric, method, share]."""
        plan, n = self.plan, len(self.one.unit)
        rows = len(self.one.values) + 1 + (plan.oracle is not None)
        if not len(self.features):
            self.notes["an input has no feature to remove"] = None
            return np.full((len(self.metrics), rows, len(self.ks)), np.nan)
        sets: dict[bool, list[list[Order] | None]] = {}
        for kept in {metric.kept for metric in self.metrics.values()}:
            sets[kept] = [[order] if order is not None else None for order in self._orders()]
            sets[kept].append(random_orders(self.features, plan.draws, [plan.seed, self.number]))
            if plan.oracle is not None:
                best = yield from oracle_questions(
                    plan.oracle, n, self.features, self.score, keep=kept, longest=max(self.ks)
                )
                sets[kept].append([best])
        found = yield from self._read(sets)
        return found

    def _orders(self) -> list[Order | None]:
        """Return the order of every explanation; None where it ranks nothing."""
        found: list[Order | None] = []
        for name, values in self.one.values.items():
            if is_constant(values[self.features]):
                self.notes[f"{name} is constant on an input and ranks nothing there"] = None
                found.append(None)
                continue
            order = ranked(values, self.features, by=self.plan.by)
            found.append(order[values[order] > 0] if self.plan.positive else order)
        return found

    def _read(self, sets: Mapping[bool, list[list[Order] | None]]) -> Questions[Float]:
        """Return the scores [metric, method, share], all variants of an input in one go."""
        n = len(self.one.unit)
        gone = [np.zeros(n, dtype=bool)]
        at: dict[tuple[bool, int], list[int]] = {}
        for kept, rows in sets.items():
            for row, orders in enumerate(rows):
                at[kept, row] = list(range(len(gone), len(gone) + len(orders or ()) * len(self.ks)))
                gone += [
                    only(n, order, self.features, k) if kept else without(n, order, k)
                    for order in orders or ()
                    for k in self.ks
                ]
        answers = yield np.stack(gone)
        whole = answers.part([0])
        n_rows = len(next(iter(sets.values())))
        found = np.full((len(self.metrics), n_rows, len(self.ks)), np.nan)
        for place, metric in enumerate(self.metrics.values()):
            for row in range(n_rows):
                if at[metric.kept, row]:
                    part = answers.part(at[metric.kept, row])
                    values = metric.formula(whole, part, self.score)
                    found[place, row] = values.reshape(-1, len(self.ks)).mean(axis=0)
        if np.isnan(found[:, [len(self.one.values)]]).any():
            self.notes["undefined where nothing is left to read, or where a target has no probability"] = None
        return found
