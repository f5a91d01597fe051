"""Fidelity: whether the decision changes without the top features (fid+), and without all others (fid-)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np

from attnwidgets._errors import suggest
from attnwidgets._selecting import listed
from attnwidgets.evaluate.metrics.faithfulness import Plan, removal_scores
from attnwidgets.evaluate.removals.removal_metrics import FIDELITY
from attnwidgets.evaluate.scorecards.bootstrap import bootstrap_of
from attnwidgets.evaluate.scorecards.scorecard import Scorecard
from attnwidgets.tracing.free_memory import forceable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from attnwidgets.evaluate.removals.ordering import Oracle, Rounding
    from attnwidgets.evaluate.removals.removal import Answers, Operator

    Float = NDArray[np.float64]

MODES = ("model", "phenomenon")
KINDS = ("hard", "probability")
SHARES = (0.1, 0.2, 0.3, 0.5)


@forceable
def fidelity(
    traces: Any,
    explanations: Any,
    labels: Any = None,
    *,
    operator: Operator,
    mode: Literal["model", "phenomenon"] = "model",
    kind: Literal["hard", "probability"] = "hard",
    thresholds: Sequence[float] = SHARES,
    rounding: Rounding = "ceil",
    by: Literal["value", "magnitude"] = "value",
    special: bool = False,
    oracle: Oracle | None = "leave_one_out",
    draws: int = 10,
    seed: int = 0,
    unit: str | None = None,
    batch_size: int = 32,
) -> Scorecard:
    """Whether a decision falls with the top features M removed (fid+), and with all others removed (fid-).

    With y the prediction for the whole input ("model") or the true label ("phenomenon"), and y(.) what the
    model decides:

        hard          fid+ = |1[y(x) = y] - 1[y(x - M) = y]|    fid- = the same with M alone
        probability   fid+ = p_y(x) - p_y(x - M)                fid- = the same with M alone

    fid+ is high and fid- low where M is both needed and enough; `characterization` weighs the two.

    Args:
        traces: What `aw.trace` returned, or a list of such traces.
        explanations: As `faithfulness` takes them.
        labels: For "phenomenon": the true label (class or token) of every trace, or one for all.
        mode: Against what is compared.
        kind: Decisions, or probabilities.
        operator: How features are removed, see `OPERATORS`.
        thresholds: Shares of the features that M is.
        rounding: Of k = share * n features: "ceil", "floor" or "nearest".
        by: Rank by "value" or by "magnitude".
        special: Whether special tokens are features.
        oracle: See `faithfulness`; by the probability of y.
        draws: How many random orders the row "random" is the mean of.
        seed: Of those draws.
        unit: What features are; by default the unit of the explanations.
        batch_size: Inputs that run together.

    Returns:
        A Scorecard [fidelity_plus and fidelity_minus, method, share]; "hard" 0 or 1 for an example.

    Raises:
        ValueError: For unknown options; labels missing or given to "model"; and as `faithfulness` says.
        TypeError: As there.

    Source: Amara et al. 2022, whose hard scores PyTorch Geometric computes as this does.
    """
    for name, value, known in (("mode", mode, MODES), ("kind", kind, KINDS)):
        if value not in known:
            raise ValueError(f"{name} {value!r} is not one of {listed(known)}.{suggest(str(value), known)}")
    if (labels is None) != (mode == "model"):
        raise ValueError(
            "labels are missing: mode='phenomenon' compares with the true label of every trace."
            if labels is None
            else "labels are for mode='phenomenon'; mode='model' compares with the prediction."
        )

    def drop(x: Answers, part: Answers, f: Any) -> Float:
        return f(x) - f(part)

    plan = Plan(
        operator,
        tuple(thresholds),
        score="probability",
        rounding=rounding,
        by=by,
        positive=False,
        special=special,
        oracle=oracle,
        draws=draws,
        seed=seed,
        batch_size=batch_size,
    )
    several = list(labels) if isinstance(labels, (list, tuple)) else [labels]
    return removal_scores(
        traces,
        explanations,
        several,
        plan,
        FIDELITY
        if kind == "hard"
        else {name: replace(metric, formula=drop) for name, metric in FIDELITY.items()},
        function="fidelity",
        unit=unit,
        options={"mode": mode, "kind": kind},
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
        fid_plus: What `fidelity` returned (or the scores of `compare` by removal, with both fidelities); or
            fid+, a number or an array, 0 to 1: means over a data set.
        fid_minus: fid-, of the same shape; None with a scorecard.
        weights: w+ and w-, both above zero; only their ratio matters.

    Returns:
        0 to 1, of the same shape; of a scorecard, one [characterization, method, share] of one example, the
        data set, its intervals from examples drawn again. 0 where fid+ = 0 or fid- = 1, which are the limits;
        NaN where one of them is NaN or outside 0 to 1 (a probability may rise without a feature).

    Raises:
        ValueError: Where a weight is not above zero, or a scorecard is of something else.

    Source: Amara et al. 2022, equation 5.
    """
    if not all(np.isfinite(weight) and weight > 0 for weight in weights):
        raise ValueError(f"weights must be two numbers above zero, not {weights!r}.")
    if not isinstance(fid_plus, Scorecard):
        return _harmonic(np.asarray(fid_plus, np.float64), np.asarray(fid_minus, np.float64), weights)
    missing = [name for name in FIDELITY if name not in fid_plus.metrics]
    if missing or fid_minus is not None:
        raise ValueError(
            f"fid_plus is a scorecard of {listed(fid_plus.metrics)}; it must have {listed(FIDELITY)}, and "
            "fid_minus be left out."
        )
    places = [fid_plus.metrics.index(name) for name in FIDELITY]

    def of(means: Float) -> Float:
        return _harmonic(means[:, places[0]], means[:, places[1]], weights)[:, None]

    ends = bootstrap_of(
        of, fid_plus.samples, level=fid_plus.level, resamples=fid_plus.resamples, seed=fid_plus.seed
    )
    return fid_plus.with_samples(
        of(fid_plus.mean[None]),
        step=f"characterization, weights {weights[0]:g} and {weights[1]:g}",
        metrics=["characterization"],
        ends=np.stack(ends),
    )


def _harmonic(plus: Float, minus: Float, weights: tuple[float, float]) -> Float:
    enough = 1.0 - minus
    inside = (plus >= 0) & (plus <= 1) & (enough >= 0) & (enough <= 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        found = sum(weights) / (weights[0] / plus + weights[1] / enough)
    return np.where(inside, np.where((plus == 0) | (enough == 0), 0.0, found), np.nan)
