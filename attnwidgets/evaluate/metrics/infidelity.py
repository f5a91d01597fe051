"""Infidelity: whether the values of what is removed add up to what the score loses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from attnwidgets.evaluate.examples.explained_input import explained
from attnwidgets.evaluate.removals.removal_metrics import Score, read_score
from attnwidgets.evaluate.removals.run import of_each_input
from attnwidgets.evaluate.scorecards.build import scored_explanations
from attnwidgets.tracing.free_memory import forceable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from attnwidgets.evaluate.examples.explained_input import ExplainedInput
    from attnwidgets.evaluate.removals.ordering import Order, Questions
    from attnwidgets.evaluate.removals.removal import Operator
    from attnwidgets.evaluate.scorecards.scorecard import Scorecard

    Float = NDArray[np.float64]

PAPER = "Yeh et al. 2019, On the (In)fidelity and Sensitivity of Explanations"
SAMPLES, SHARE = 64, 0.5


def mean_squared_error(expected: Any, changes: Any, *, normalize: bool = False) -> float:
    """Return the mean over perturbations of (b expected - change)^2: infidelity's formula.

    Args:
        expected: What the values say that each perturbation d changes, d . a [sample].
        changes: What it does change, f(x) - f(x - d) [sample].
        normalize: Whether b is the number that makes this least, so that the scale of the values does not
            matter; else 1.

    Source: Yeh et al. 2019, definition 2.1, and section 4 for b.
    """
    products = np.asarray(expected, dtype=np.float64)
    found = np.asarray(changes, dtype=np.float64)
    power = float(products @ products)
    scale = float(products @ found) / power if normalize and power else 1.0
    return float(np.mean((scale * products - found) ** 2))


@forceable
def infidelity(
    traces: Any,
    explanations: Any,
    target: Any = None,
    *,
    operator: Operator,
    samples: int = SAMPLES,
    share: float = SHARE,
    normalize: bool = False,
    score: Score | None = "number",
    special: bool = False,
    draws: int = 10,
    seed: int = 0,
    unit: str | None = None,
    batch_size: int = 32,
) -> Scorecard:
    """How far the values of random sets S of features are from what f loses without them; 0 at best.

    The mean over S of (sum of a_i over S - (f(x) - f(x - S)))^2, in the square of f's units. It holds values
    to their size, not their order alone, so that it is for methods that share out f: attention does not claim
    that much, for which `normalize` scales it first.

    Args:
        traces: What `aw.trace` returned, or a list of such traces.
        explanations: As `faithfulness` takes them.
        target: As there.
        operator: How features are removed, see `OPERATORS`.
        samples: How many sets are drawn, for each input.
        share: With what probability a feature is in a set; empty sets are left out, and those without which
            nothing is left to read.
        normalize: Whether every explanation is first multiplied by the number that serves it best.
        score: What f is: the target's own "number" (a logit), which most methods explain, "probability" or
            "log_probability".
        special: Whether special tokens are features.
        draws: How many random explanations the row "random" is the mean of.
        seed: Of all draws.
        unit: What features are; by default the unit of the explanations.
        batch_size: Inputs that run together.

    Returns:
        A Scorecard [infidelity, method, 1]. "oracle" is the least-squares fit to the same sets: no values do
        better; what it leaves is what does not add up. "random" is a random vector, scaled as `normalize`
        does. NaN where there is no feature to remove, or no set leaves anything to read.

    Raises:
        ValueError: For an unknown or impossible operator, options out of range, an explanation of another
            input or unit.
        TypeError: Where an explanation is a map or nothing of the kind.

    Source: Yeh et al. 2019, definition 2.1, with d = x - (x without S).
    """
    if samples < 1 or not 0 < share < 1 or draws < 1:
        raise ValueError(
            f"samples and draws must be at least 1 and share between 0 and 1; they are {samples}, {draws} "
            f"and {share}."
        )
    inputs = explained(traces, explanations, target, "infidelity", unit)
    found = of_each_input(
        inputs,
        target,
        operator,
        lambda number, one, features, meant: infidelity_questions(
            one, features, meant.index, samples, share, score, draws, [seed, number], normalize=normalize
        ),
        function="infidelity",
        special=special,
        batch_size=batch_size,
    )
    return scored_explanations(
        inputs,
        np.array(found)[:, None, :, None],
        "infidelity",
        metrics=["infidelity"],
        notes=[
            "undefined where nothing is removed, or nothing left to read" if np.isnan(found).any() else ""
        ],
        title=f"infidelity, {operator}",
        paper=PAPER,
        options={
            "operator": operator,
            "samples": samples,
            "share": share,
            "normalize": normalize,
            "score": score,
            "special": special,
            "draws": draws,
            "seed": seed,
        },
    )


def infidelity_questions(
    one: ExplainedInput,
    features: Order,
    index: int | None,
    samples: int,
    share: float,
    score: Score | None,
    draws: int,
    seed: Sequence[int],
    *,
    normalize: bool,
) -> Questions[list[float]]:
    """Yield what is to be removed from one input, and return its scores [method], baselines last."""
    if not len(features):
        return [np.nan] * (len(one.values) + 2)
    generator = np.random.default_rng(seed)
    sets = generator.random((samples, len(features))) < share
    empty = ~sets.any(axis=1)
    sets[empty, generator.integers(len(features), size=int(empty.sum()))] = True
    gone = np.zeros((samples + 1, len(one.unit)), dtype=bool)
    gone[:-1, features] = sets
    numbers = read_score((yield gone), score, index)
    known = np.isfinite(numbers[:-1])
    if not known.any():
        return [np.nan] * (len(one.values) + 2)
    changes = (numbers[-1] - numbers[:-1])[known]
    chosen = sets[known].astype(float)
    random = generator.normal(size=(draws, len(features)))
    return [
        *(
            mean_squared_error(chosen @ values[features], changes, normalize=normalize)
            for values in one.values.values()
        ),
        float(np.mean([mean_squared_error(chosen @ v, changes, normalize=True) for v in random])),
        _least(chosen, changes),
    ]


def _least(chosen: Float, changes: Float) -> float:
    """Return the infidelity of the values that fit best."""
    best = np.linalg.lstsq(chosen, changes, rcond=None)[0]
    return mean_squared_error(chosen @ best, changes)
