"""Relative performance loss: how much worse a model is on a data set without what an explanation names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from attnwidgets.evaluate.metrics.faithfulness import Plan, removal_scores
from attnwidgets.evaluate.removals.removal_metrics import Metric
from attnwidgets.evaluate.scorecards.bootstrap import bootstrap_of
from attnwidgets.tracing.free_memory import forceable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from attnwidgets.evaluate.removals.ordering import Oracle, Rounding
    from attnwidgets.evaluate.removals.removal import Answers, Operator
    from attnwidgets.evaluate.scorecards.scorecard import Scorecard

    Float = NDArray[np.float64]

METRICS = ("relative_loss", "relative_accuracy")


@forceable
def performance_loss(
    traces: Any,
    explanations: Any,
    labels: Sequence[Any],
    *,
    operator: Operator,
    thresholds: Sequence[float] = (0.1, 0.2, 0.5),
    rounding: Rounding = "ceil",
    by: Literal["value", "magnitude"] = "value",
    special: bool = False,
    oracle: Oracle | None = "leave_one_out",
    draws: int = 10,
    seed: int = 0,
    unit: str | None = None,
    batch_size: int = 32,
) -> Scorecard:
    """How much a data set's loss and accuracy change without the top features F of every text.

    With L the mean over the data set of -log p(label), and A the share of right decisions:

        relative_loss       (log L(without F) - log L) / log L
        relative_accuracy   (A - A(without F)) / A

    The first is as lectures have it. Its denominator is log L: below 1 nat a greater loss makes it negative,
    and at L = 1 it is undefined. The second is positive where decisions are lost.

    Args:
        traces: A list of traces.
        explanations: As `faithfulness` takes them.
        labels: The true class or token of every trace; what methods given by name explain.
        operator: How features are removed, see `OPERATORS`.
        thresholds: Shares of the features that F is.
        rounding: Of k = share * n features.
        by: Rank by "value" or by "magnitude".
        special: Whether special tokens are features.
        oracle: See `faithfulness`.
        draws: How many random orders the row "random" is the mean of.
        seed: Of those draws.
        unit: What features are.
        batch_size: Inputs that run together.

    Returns:
        A Scorecard [metric, method, share] of one example, the data set, its intervals from texts drawn
        again. NaN where L is 1 or 0, or A is 0.

    Raises:
        ValueError: For unknown options; where there is not one label for every trace.
        TypeError: Where an explanation is a map.

    Source: lectures; the accuracy form is that of ablation studies.
    """
    several = list(traces) if isinstance(traces, (list, tuple)) else [traces]
    if len(labels) != len(several):
        raise ValueError(f"labels has {len(labels)} for {len(several)} traces: give one for each.")
    plan = Plan(
        operator, tuple(thresholds), score="log_probability", rounding=rounding, by=by, positive=False,
        special=special, oracle=oracle, draws=draws, seed=seed, batch_size=batch_size,
    )  # fmt: skip

    def read(pick: Callable[[Answers, Answers], Float]) -> Metric:
        return Metric(kept=False, formula=lambda whole, part, _: pick(whole, part), paper="lectures")

    card = removal_scores(
        several,
        explanations,
        list(labels),
        plan,
        {
            "whole": read(lambda whole, part: np.broadcast_to(whole.log_p, part.log_p.shape)),
            "part": read(lambda _, part: part.log_p),
            "whole_right": read(lambda whole, part: np.broadcast_to(whole.right, part.right.shape)),
            "part_right": read(lambda _, part: part.right),
        },
        function="performance_loss",
        unit=unit,
    )
    ends = bootstrap_of(_relative, card.samples, level=card.level, resamples=card.resamples, seed=card.seed)
    found = _relative(card.mean[None])
    return card.with_samples(found, metrics=METRICS, ends=np.stack(ends))


def _relative(means: Float) -> Float:
    """Return the relative loss and accuracy [draw, metric, ...] of means [draw, four, ...]."""
    whole, part, right, still = np.moveaxis(means, 1, 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        loss = (np.log(-part) - np.log(-whole)) / np.log(-whole)
        accuracy = (right - still) / right
    found = np.stack([loss, accuracy], axis=1)
    found[~np.isfinite(found)] = np.nan
    return found
