"""Effective complexity: how many of an explanation's top features the model needs."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from attnwidgets._errors import require_choice
from attnwidgets.evaluate.documentation import documented
from attnwidgets.evaluate.examples.explained_input import explained
from attnwidgets.evaluate.removals.ordering import ORACLES, steps_removed
from attnwidgets.evaluate.removals.protocol import RemovalProtocol
from attnwidgets.evaluate.removals.removal_metrics import default_score
from attnwidgets.evaluate.scorecards.build import scored_explanations
from attnwidgets.tracing.free_memory import forceable

if TYPE_CHECKING:
    from attnwidgets.evaluate.arrays import Bools
    from attnwidgets.evaluate.removals.ordering import By, Oracle, Questions
    from attnwidgets.evaluate.removals.protocol import RemovalCase
    from attnwidgets.evaluate.removals.removal import Operator
    from attnwidgets.evaluate.removals.removal_metrics import Score
    from attnwidgets.evaluate.scorecards.scorecard import Scorecard

PAPER = "Nguyen and Martinez 2020, On Quantitative Aspects of Model Interpretability"
EPSILON = 0.1
UNDEFINED = "undefined where no number of features will do, or nothing is ranked"


@forceable
@documented
def effective_complexity(
    traces: Any,
    explanations: Any,
    target: Any = None,
    *,
    operator: Operator,
    epsilon: float = EPSILON,
    selected: Literal["kept", "deleted"] = "kept",
    loss: Literal["change", "log_loss"] = "change",
    score: Score | None = None,
    by: By = "magnitude",
    special: bool = False,
    oracle: Oracle = "greedy",
    draws: int = 10,
    seed: int = 0,
    unit: str | None = None,
    batch_size: int = 32,
) -> Scorecard:
    """Count the top features that the model needs, k*: the fewer, the better the explanation.

        kept      k* = min k with loss(M_k alone) < epsilon
        deleted   k* = min k with loss(all but M_k) >= epsilon, as one reading of the definition has it

    The loss is the change |f(x) - f(part)|, or "log_loss", -log p(part).

    Args:
        traces: {traces}
        explanations: {explanations}
        target: {target}
        operator: {operator} It stands in for the paper's expectation over other values.
        epsilon: The loss that is tolerated.
        selected: Whether the top features are kept or deleted.
        loss: What is compared with epsilon.
        score: {score}
        by: {by} The paper ranks by magnitude.
        special: {special}
        oracle: How the baseline "oracle" orders the features, "greedy" or "leave_one_out"; see
            `faithfulness`.
        draws: {draws}
        seed: {seed}
        unit: {unit}
        batch_size: {batch_size}
        force: {force}

    Returns:
        A Scorecard [k*, method, 1], 0 to the number of features. NaN if no k suffices, or the explanation is
        constant. `features_above` is another measure: how many values are above a threshold.

    Raises:
        ValueError: If an option is unknown, or an explanation belongs to another input or unit.
        TypeError: If an explanation is a map, or no explanation at all.

    Source: Nguyen and Martinez 2020, definition 4.

    Example:
        >>> trace = aw.trace(*aw.demo_model("classifier"), "A fine film with a weak end.")
        >>> card = aw.evaluate.effective_complexity(trace, "saliency", operator="mask", unit="word")
        >>> card.x_name, card.shape
        ('features', (1, 3, 1))
    """
    require_choice("selected", selected, ("kept", "deleted"))
    require_choice("loss", loss, ("change", "log_loss"))
    require_choice("oracle", oracle, ORACLES)
    protocol = RemovalProtocol(
        operator,
        score=score,
        by=by,
        special=special,
        oracle=oracle,
        draws=draws,
        seed=seed,
        batch_size=batch_size,
    )
    inputs = explained(traces, explanations, target, "effective_complexity", unit)
    samples = [
        case.ask(needed_questions(case, epsilon, keep=selected == "kept", log_loss=loss == "log_loss"))
        for case in protocol.cases(inputs, [target], "effective_complexity")
    ]
    return scored_explanations(
        inputs,
        np.array(samples)[:, None],
        "effective_complexity",
        metrics=["effective_complexity"],
        x=["k*"],
        x_name="features",
        undefined=UNDEFINED,
        title=f"effective complexity, {operator}",
        paper=PAPER,
        options=protocol.options("operator", "score", "by", "special", "oracle", "draws", "seed")
        | {"epsilon": epsilon, "selected": selected, "loss": loss},
    )


def needed_questions(
    case: RemovalCase, epsilon: float, *, keep: bool = True, log_loss: bool = False
) -> Questions[list[float]]:
    """Yield what is removed from one input, and return k* of every method, baselines last."""
    features = case.features
    best = yield from case.oracle_order(keep=keep, longest=len(features))
    given = [[] if order is None else [order] for order in case.given_orders().values()]
    rows = [*given, case.random_orders(), best]
    ks = range(len(features) + 1)
    variants = [steps_removed(case.n, features, order, ks, keep=keep) for row in rows for order in row]
    answers = yield np.concatenate([np.zeros((1, case.n), dtype=bool), *variants])
    scores = case.read(answers)
    if log_loss and default_score(case.removal.target) == "number":
        raise ValueError(
            f'loss="log_loss": {case.removal.target.label!r} is a number without a probability; take '
            'loss="change".'
        )
    losses = -answers.log_p if log_loss else np.abs(scores - scores[0])
    met = losses < epsilon if keep else losses >= epsilon
    firsts = [_first(curve) for curve in met[1:].reshape(-1, len(ks))]
    ends = np.cumsum([0, *(len(row) for row in rows)])
    return [
        float(np.mean(firsts[start:stop])) if stop > start else float("nan") for start, stop in pairwise(ends)
    ]


def _first(met: Bools) -> float:
    return float(np.argmax(met)) if met.any() else float("nan")
