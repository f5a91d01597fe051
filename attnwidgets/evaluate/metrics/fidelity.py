"""Fidelity: whether decisions, and the performance on a data set, survive without the top features."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np

from attnwidgets._errors import require_choice
from attnwidgets._selecting import listed
from attnwidgets.evaluate.documentation import documented
from attnwidgets.evaluate.examples.explained_input import as_list, explained, require_one_each
from attnwidgets.evaluate.metrics.faithfulness import removal_scores
from attnwidgets.evaluate.removals.ordering import FIDELITY, Metric, drop
from attnwidgets.evaluate.removals.protocol import RemovalOptions
from attnwidgets.evaluate.scorecards.build import of_means
from attnwidgets.evaluate.scorecards.scorecard import Scorecard
from attnwidgets.tracing.free_memory import forceable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from attnwidgets.evaluate.arrays import Float
    from attnwidgets.evaluate.removals.protocol import Removal
    from attnwidgets.evaluate.removals.removal import Answers, Operator

SHARES = (0.1, 0.2, 0.3, 0.5)

METRICS = ("relative_loss", "relative_accuracy")


_OF_FIDELITY = RemovalOptions(
    "fidelity", "thresholds", "rounding", "by", "oracle", "draws", thresholds=SHARES, score="probability"
)


@forceable
@documented
@_OF_FIDELITY.former_keywords
def fidelity(
    traces: Any,
    explanations: Any,
    labels: Any = None,
    *,
    operator: Operator | None = None,
    removal: Removal | None = None,
    mode: Literal["model", "phenomenon"] = "model",
    kind: Literal["hard", "probability"] = "hard",
    unit: str | None = None,
) -> Scorecard:
    """Measure whether the decision changes without the top features M (fid+), and with M alone (fid-).

    With y the prediction for the whole input ("model") or the true label ("phenomenon"), and y(.) the
    decision of the model:

        hard          fid+ = |1[y(x) = y] - 1[y(x - M) = y]|    fid- = the same with M alone
        probability   fid+ = p_y(x) - p_y(x - M)                fid- = the same with M alone

    fid+ is high and fid- low if M is both needed and enough; `characterization` combines the two.

    Args:
        traces: {traces}
        explanations: {explanations}
        labels: For mode="phenomenon": the true label (class or token) of every trace, or a label for all.
        operator: {operator}
        removal: {removal}
        mode: Compare with the prediction of the "model", or with the true label ("phenomenon").
        kind: Compare decisions ("hard") or probabilities.
        unit: {unit}
        force: {force}

    Returns:
        A Scorecard [fidelity_plus and fidelity_minus, method, share]; with "hard", 0 or 1 for an example.

    Raises:
        ValueError: If an option is unknown, or labels are missing or given for mode="model"; and as
            `faithfulness` does.
        TypeError: As `faithfulness` does.

    Source: Amara et al. 2022; PyTorch Geometric computes the hard scores in the same way.

    Example:
        >>> trace = aw.trace(*aw.demo_model("classifier"), "A fine film with a weak end.")
        >>> card = aw.evaluate.fidelity(trace, "saliency", operator="mask", unit="word")
        >>> card.metrics
        ('fidelity_plus', 'fidelity_minus')
    """
    require_choice("mode", mode, ("model", "phenomenon"))
    require_choice("kind", kind, ("hard", "probability"))
    if (labels is None) != (mode == "model"):
        raise ValueError(
            "labels are missing: mode='phenomenon' compares with the true label of every trace."
            if labels is None
            else "labels are for mode='phenomenon'; mode='model' compares with the prediction."
        )
    protocol = _OF_FIDELITY.protocol(operator, removal)
    soft = {name: replace(metric, formula=drop) for name, metric in FIDELITY.items()}
    return removal_scores(
        explained(traces, explanations, None, "fidelity", unit),
        list(labels) if isinstance(labels, (list, tuple)) else [labels],
        protocol,
        FIDELITY if kind == "hard" else soft,
        "fidelity",
        mode=mode,
        kind=kind,
    )


@overload
def characterization(
    fid_plus: Scorecard, fid_minus: None = None, weights: tuple[float, float] = (1.0, 1.0)
) -> Scorecard: ...


@overload
def characterization(fid_plus: Any, fid_minus: Any, weights: tuple[float, float] = (1.0, 1.0)) -> Float: ...


def characterization(fid_plus: Any, fid_minus: Any = None, weights: tuple[float, float] = (1.0, 1.0)) -> Any:
    """Return the weighted harmonic mean of fid+ and 1 - fid-: (w+ + w-) / (w+ / fid+ + w- / (1 - fid-)).

    Args:
        fid_plus: Result of `fidelity`, or the "removal" scores of `aw.evaluate.compare` with both
            fidelities; or fid+ itself, a number or an array of means over a data set, 0 to 1.
        fid_minus: fid-, of the same shape; None with a scorecard.
        weights: w+ and w-, both above zero; only their ratio matters.

    Returns:
        Numbers 0 to 1 of the same shape; for a scorecard, a scorecard [characterization, method, share] with
        a single example, the data set, and intervals from resampled examples. 0 if fid+ = 0 or fid- = 1, the
        limits; NaN if either is NaN or outside 0 to 1 (a probability may rise without a feature).

    Raises:
        ValueError: If a weight is not above zero, or a scorecard lacks a fidelity.

    Source: Amara et al. 2022, equation 5.

    Example:
        >>> aw.evaluate.characterization([0.8, 0.0], [0.2, 0.2]).round(2)
        array([0.8, 0. ])
    """
    if not all(np.isfinite(weight) and weight > 0 for weight in weights):
        raise ValueError(f"weights must be two numbers above zero, not {weights!r}.")
    if not isinstance(fid_plus, Scorecard):
        return _harmonic(np.asarray(fid_plus, np.float64), np.asarray(fid_minus, np.float64), weights)
    if fid_minus is not None or not set(FIDELITY) <= set(fid_plus.metrics):
        raise ValueError(
            f"fid_plus is a scorecard of {listed(fid_plus.metrics)}; it must have {listed(FIDELITY)}, and "
            "fid_minus must be left out."
        )
    plus, minus = (fid_plus.metrics.index(name) for name in FIDELITY)

    def combined(means: Float) -> Float:
        return _harmonic(means[:, plus], means[:, minus], weights)[:, None]

    return of_means(
        fid_plus,
        combined,
        metrics=["characterization"],
        step=f"characterization, weights {weights[0]:g} and {weights[1]:g}",
    )


def _harmonic(plus: Float, minus: Float, weights: tuple[float, float]) -> Float:
    enough = 1.0 - minus
    inside = (plus >= 0) & (plus <= 1) & (enough >= 0) & (enough <= 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        mean = sum(weights) / (weights[0] / plus + weights[1] / enough)
    return np.where(inside, np.where((plus == 0) | (enough == 0), 0.0, mean), np.nan)


_OF_PERFORMANCE = RemovalOptions(
    "performance_loss",
    *("thresholds", "rounding", "by", "oracle", "draws"),
    thresholds=(0.1, 0.2, 0.5),
    score="log_probability",
)


@forceable
@documented
@_OF_PERFORMANCE.former_keywords
def performance_loss(
    traces: Any,
    explanations: Any,
    labels: Sequence[Any],
    *,
    operator: Operator | None = None,
    removal: Removal | None = None,
    unit: str | None = None,
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
        removal: {removal}
        unit: {unit}
        force: {force}

    Returns:
        A Scorecard [metric, method, share] with a single example, the data set, and intervals from resampled
        texts. NaN if L is 1 or 0, or A is 0.

    Raises:
        ValueError: If an option is unknown, or labels and traces differ in number.
        TypeError: If an explanation is a map.

    Source: lectures; the accuracy form is that of ablation studies.

    Example:
        >>> traces = aw.trace(*aw.demo_model("classifier"), ["A fine film.", "A dull story."])
        >>> card = aw.evaluate.performance_loss(traces, "saliency", [1, 0], operator="mask")
        >>> card.metrics, card.examples
        (('relative_loss', 'relative_accuracy'), '2 examples as a whole')
    """
    require_one_each("labels", labels, as_list(traces))
    protocol = _OF_PERFORMANCE.protocol(operator, removal)

    def metric(read: Callable[[Answers, Answers], Float]) -> Metric:
        return Metric(keep=False, formula=lambda whole, part, _: read(whole, part), paper="lectures")

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
