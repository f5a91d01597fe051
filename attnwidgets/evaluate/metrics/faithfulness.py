"""Faithfulness: how a prediction changes when an explanation's top features are removed or kept alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from attnwidgets.evaluate.documentation import documented
from attnwidgets.evaluate.examples.explained_input import explained
from attnwidgets.evaluate.removals.ordering import METRICS, Metric, steps_removed
from attnwidgets.evaluate.removals.protocol import RemovalOptions, RemovalProtocol
from attnwidgets.evaluate.scorecards.build import ORACLE, RANDOM, metric_names, scored_explanations
from attnwidgets.tracing.free_memory import forceable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from attnwidgets.evaluate.arrays import Float, Order
    from attnwidgets.evaluate.examples.explained_input import ExplainedInput
    from attnwidgets.evaluate.removals.ordering import Questions
    from attnwidgets.evaluate.removals.protocol import Removal, RemovalCase
    from attnwidgets.evaluate.removals.removal import Operator
    from attnwidgets.evaluate.scorecards.scorecard import Scorecard


_OPTIONS = RemovalOptions(
    "faithfulness", "thresholds", "score", "rounding", "by", "positive", "oracle", "draws"
)


@forceable
@documented
@_OPTIONS.former_keywords
def faithfulness(
    traces: Any,
    explanations: Any,
    target: Any = None,
    *,
    operator: Operator | None = None,
    removal: Removal | None = None,
    metrics: str | Sequence[str] = ("comprehensiveness", "sufficiency"),
    unit: str | None = None,
) -> Scorecard:
    """Measure the fall of a prediction without an explanation's top features, and with these alone.

    With M the top k features, x without M written x - M, M alone x_M, and f the score of the target:

        comprehensiveness   f(x) - f(x - M): high if M was needed
        sufficiency         f(x) - f(x_M): near zero, or below it, if M is enough
        log_odds            log p(x - M) - log p(x): the lower, the more M was needed
        deletion            f(x - M), the curve that falls
        insertion           f(x_M), the curve that rises

    `aopc(card)` is their mean over the thresholds, `area(card)` the area under the curve.

    Args:
        traces: {traces}
        explanations: {explanations}
        target: {target}
        operator: {operator}
        removal: {removal}
        metrics: One or several of these.
        unit: {unit}
        force: {force}

    Returns:
        A Scorecard [metric, method, share], the baselines "random" and "oracle" last. NaN, with the reason in
        `.warning`, if an explanation is constant and ranks nothing, no feature can be removed, nothing is
        left to read, or the target has no probability.

    Raises:
        ValueError: If an operator or option is unknown or impossible, or an explanation belongs to another
            input or unit.
        TypeError: If an explanation is a map, or no explanation at all.

    Source: DeYoung et al. 2020 (comprehensiveness, sufficiency, their mean over thresholds); Shrikumar et al.
    2017 (log-odds); Petsiuk et al. 2018 (deletion, insertion).

    Example:
        >>> trace = aw.trace(*aw.demo_model("classifier"), "A fine film with a weak end.")
        >>> card = aw.evaluate.faithfulness(trace, "saliency", operator="mask", unit="word")
        >>> card.methods, card.shape
        (('saliency', 'random', 'oracle'), (2, 3, 5))
    """
    protocol = _OPTIONS.protocol(operator, removal)
    return removal_scores(
        explained(traces, explanations, target, "faithfulness", unit),
        [target],
        protocol,
        {name: METRICS[name] for name in metric_names(metrics, METRICS)},
        "faithfulness",
    )


def removal_scores(
    inputs: Sequence[ExplainedInput],
    targets: Sequence[Any],
    protocol: RemovalProtocol,
    metrics: Mapping[str, Metric],
    function: str,
    **options: Any,
) -> Scorecard:
    """Return scores by removal, for `faithfulness`, `fidelity` and `performance_loss`.

    Args:
        inputs: The inputs with their explanations.
        targets: A target for all inputs, or one for each.
        protocol: How features are removed.
        metrics: The metrics by name.
        function: Name of the calling function.
        **options: Further options of that function, for the provenance.
    """
    if len(targets) not in (1, len(inputs)):
        raise ValueError(f"there are {len(targets)} targets for {len(inputs)} traces; give one for each.")
    notes: dict[str, None] = {}
    samples = []
    for case in protocol.cases(inputs, targets, function):
        notes[case.removal.target.note] = None
        samples.append(case.ask(removal_questions(case, metrics, notes)))
    return scored_explanations(
        inputs,
        np.stack(samples),
        function,
        baselines=[RANDOM] if protocol.oracle is None else [RANDOM, ORACLE],
        metrics=list(metrics),
        x=protocol.thresholds,
        x_name="share",
        notes=[*(item.trace.warning for item in inputs), *notes],
        title=f"{function}, {protocol.operator}",
        paper="; ".join(dict.fromkeys(metric.paper for metric in metrics.values())),
        options=protocol.options() | options | {"examples": len(inputs)},
    )


def removal_questions(
    case: RemovalCase, metrics: Mapping[str, Metric], notes: dict[str, None]
) -> Questions[Float]:
    """Yield the elements to remove, and return the scores [metric, method, share], baselines last.

    Args:
        case: The input.
        metrics: The metrics by name.
        notes: Receives notes for the reader.
    """
    n_explained, counts = len(case.values), case.counts
    n_rows = n_explained + 1 + (case.protocol.oracle is not None)
    scores = np.full((len(metrics), n_rows, len(counts)), np.nan)
    if not len(case.features):
        notes["an input has no feature to remove"] = None
        return scores
    orders: dict[bool, list[list[Order]]] = {}
    for keep in {metric.keep for metric in metrics.values()}:
        orders[keep] = [*_explained_orders(case, notes), case.random_orders()]
        if best := (yield from case.oracle_order(keep=keep, longest=max(counts))):
            orders[keep].append(best)
    # All variants of the input in a single question, the whole input first.
    variants = [np.zeros((1, case.n), dtype=bool)]
    where: dict[tuple[bool, int], slice] = {}
    stop = 1
    for keep, rows in orders.items():
        for row, row_orders in enumerate(rows):
            variants += [
                steps_removed(case.n, case.features, order, counts, keep=keep) for order in row_orders
            ]
            start, stop = stop, stop + len(row_orders) * len(counts)
            where[keep, row] = slice(start, stop)
    answers = yield np.concatenate(variants)
    whole = answers.part([0])
    for at, metric in enumerate(metrics.values()):
        for row in range(n_rows):
            part = answers.part(where[metric.keep, row])
            values = metric.formula(whole, part, case.read)
            if values.size:
                scores[at, row] = values.reshape(-1, len(counts)).mean(axis=0)
    if np.isnan(scores[:, n_explained]).any():
        notes[
            "undefined where nothing is left to read, or where a target has no probability; "
            '`faithfulness` with Removal(..., score="number") scores its number'
        ] = None
    return scores


def _explained_orders(case: RemovalCase, notes: dict[str, None]) -> list[list[Order]]:
    """Return the order of every explanation, each in a list; an empty list if it ranks nothing."""
    orders: list[list[Order]] = []
    for name, order in case.given_orders().items():
        if order is None:
            notes[f"{name} is constant on an input and ranks nothing there"] = None
            orders.append([])
        else:
            orders.append([order[case.values[name][order] > 0] if case.protocol.positive else order])
    return orders
