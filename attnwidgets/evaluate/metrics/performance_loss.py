"""Relative performance loss: how much worse a model does on a data set without the top features."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from attnwidgets.evaluate.documentation import documented
from attnwidgets.evaluate.examples.explained_input import as_list, explained, require_one_each
from attnwidgets.evaluate.metrics.faithfulness import removal_scores
from attnwidgets.evaluate.removals.protocol import RemovalProtocol
from attnwidgets.evaluate.removals.removal_metrics import Metric
from attnwidgets.evaluate.scorecards.build import of_means
from attnwidgets.tracing.free_memory import forceable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from attnwidgets.evaluate.arrays import Float
    from attnwidgets.evaluate.removals.ordering import By, Oracle, Rounding
    from attnwidgets.evaluate.removals.removal import Answers, Operator
    from attnwidgets.evaluate.scorecards.scorecard import Scorecard

METRICS = ("relative_loss", "relative_accuracy")


@forceable
@documented
def performance_loss(
    traces: Any,
    explanations: Any,
    labels: Sequence[Any],
    *,
    operator: Operator,
    thresholds: Sequence[float] = (0.1, 0.2, 0.5),
    rounding: Rounding = "ceil",
    by: By = "value",
    special: bool = False,
    oracle: Oracle | None = "leave_one_out",
    draws: int = 10,
    seed: int = 0,
    unit: str | None = None,
    batch_size: int = 32,
) -> Scorecard:
    """Measure how a data set's loss and accuracy change without the top features F of every text.

    With L the mean over the data set of -log p(label), and A the share of correct decisions:

        relative_loss       (log L(without F) - log L) / log L
        relative_accuracy   (A - A(without F)) / A

    The first is the form used in lectures. Its denominator is log L: below 1 nat a greater loss makes it
    negative, and at L = 1 it is undefined. The second is positive if correct decisions are lost.

    Args:
        traces: A list of traces.
        explanations: {explanations}
        labels: The true class or token of every trace, whose probability is read.
        operator: {operator}
        thresholds: Sizes of F, as shares of the features, 0 to 1.
        rounding: {rounding}
        by: {by}
        special: {special}
        oracle: {oracle}
        draws: {draws}
        seed: {seed}
        unit: {unit}
        batch_size: {batch_size}
        force: {force}

    Returns:
        A Scorecard [metric, method, share] with a single example, the data set, and intervals from resampled
        texts. NaN if L is 1 or 0, or A is 0.

    Raises:
        ValueError: If an option is unknown, or there is not one label for every trace.
        TypeError: If an explanation is a map.

    Source: lectures; the accuracy form is that of ablation studies.

    Example:
        >>> traces = aw.trace(*aw.demo_model("classifier"), ["A fine film.", "A dull story."])
        >>> card = aw.evaluate.performance_loss(traces, "saliency", [1, 0], operator="mask")
        >>> card.metrics, card.examples
        (('relative_loss', 'relative_accuracy'), '2 examples as a whole')
    """
    require_one_each("labels", labels, as_list(traces))
    protocol = RemovalProtocol(
        operator,
        tuple(thresholds),
        score="log_probability",
        rounding=rounding,
        by=by,
        special=special,
        oracle=oracle,
        draws=draws,
        seed=seed,
        batch_size=batch_size,
    )

    def metric(read: Callable[[Answers, Answers], Float]) -> Metric:
        return Metric(kept=False, formula=lambda whole, part, _: read(whole, part), paper="lectures")

    card = removal_scores(
        explained(as_list(traces), explanations, None, "performance_loss", unit),
        list(labels),
        protocol,
        {
            "whole": metric(lambda whole, part: np.broadcast_to(whole.log_p, part.log_p.shape)),
            "part": metric(lambda _, part: part.log_p),
            "whole_right": metric(lambda whole, part: np.broadcast_to(whole.right, part.right.shape)),
            "part_right": metric(lambda _, part: part.right),
        },
        "performance_loss",
    )
    return of_means(card, _relative, metrics=METRICS)


def _relative(means: Float) -> Float:
    """Return the relative loss and accuracy [draw, metric, ...] of means [draw, four, ...]."""
    whole, part, right, right_without = np.moveaxis(means, 1, 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        loss = (np.log(-part) - np.log(-whole)) / np.log(-whole)
        accuracy = (right - right_without) / right
    relative = np.stack([loss, accuracy], axis=1)
    relative[~np.isfinite(relative)] = np.nan
    return relative
