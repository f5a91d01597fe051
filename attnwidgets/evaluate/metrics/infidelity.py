"""Infidelity: whether the values of removed features add up to what the score loses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from attnwidgets.evaluate.documentation import documented
from attnwidgets.evaluate.examples.explained_input import explained
from attnwidgets.evaluate.removals.protocol import RemovalProtocol
from attnwidgets.evaluate.scorecards.build import scored_explanations
from attnwidgets.tracing.free_memory import forceable

if TYPE_CHECKING:
    from attnwidgets.evaluate.removals.ordering import Questions
    from attnwidgets.evaluate.removals.protocol import RemovalCase
    from attnwidgets.evaluate.removals.removal import Operator
    from attnwidgets.evaluate.removals.removal_metrics import Score
    from attnwidgets.evaluate.scorecards.scorecard import Scorecard

PAPER = "Yeh et al. 2019, On the (In)fidelity and Sensitivity of Explanations"
SAMPLES, SHARE = 64, 0.5
UNDEFINED = "undefined where nothing is removed, or nothing left to read"


def mean_squared_error(expected: Any, changes: Any, *, normalize: bool = False) -> float:
    """Return the mean over perturbations of (b expected - change)^2, the formula of infidelity.

    Args:
        expected: The change that the values predict for each perturbation d, d . a [sample].
        changes: The actual change, f(x) - f(x - d) [sample].
        normalize: Choose b to minimise the error, so that the scale of the values does not matter; else b =
            1.

    Source: Yeh et al. 2019, definition 2.1, and section 4 for b.
    """
    products = np.asarray(expected, dtype=np.float64)
    actual = np.asarray(changes, dtype=np.float64)
    power = float(products @ products)
    scale = float(products @ actual) / power if normalize and power else 1.0
    return float(np.mean((scale * products - actual) ** 2))


@forceable
@documented
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
    """Measure how far the values of random sets S of features are from what f loses without them; 0 is best.

    The mean over S of (sum of a_i over S - (f(x) - f(x - S)))^2, in squared units of f. It judges the size of
    values, not only their order, and so suits methods that distribute f over the features. Attention does not
    claim to; `normalize` scales it first.

    Args:
        traces: {traces}
        explanations: {explanations}
        target: {target}
        operator: {operator}
        samples: Number of sets drawn for each input.
        share: Probability that a feature is in a set, above 0 and below 1. Empty sets, and those that leave
            nothing to read, do not count.
        normalize: First multiply every explanation by the factor that fits best.
        score: {score} Most methods explain the "number", the default here.
        special: {special}
        draws: Number of random explanations that the baseline "random" averages over.
        seed: {seed}
        unit: {unit}
        batch_size: {batch_size}
        force: {force}

    Returns:
        A Scorecard [infidelity, method, 1]. "oracle" is the least-squares fit to the same sets: no values do
        better, and what it leaves does not add up. "random" is a random vector, scaled as by `normalize`. NaN
        without a feature to remove, or if no set leaves anything to read.

    Raises:
        ValueError: If an operator is unknown or impossible, an option is out of range, or an explanation
            belongs to another input or unit.
        TypeError: If an explanation is a map, or no explanation at all.

    Source: Yeh et al. 2019, definition 2.1, with d = x - (x without S).

    Example:
        >>> trace = aw.trace(*aw.demo_model("classifier"), "A fine film with a weak end.")
        >>> card = aw.evaluate.infidelity(trace, ["saliency", "lrp"], operator="mask", samples=16)
        >>> card.methods
        ('saliency', 'lrp', 'random', 'oracle')
    """
    if samples < 1 or not 0 < share < 1:
        raise ValueError(
            f"samples must be at least 1 and share between 0 and 1; they are {samples} and {share}."
        )
    protocol = RemovalProtocol(
        operator, score=score, special=special, draws=draws, seed=seed, batch_size=batch_size
    )
    inputs = explained(traces, explanations, target, "infidelity", unit)
    scores = [
        case.ask(infidelity_questions(case, samples, share, normalize=normalize))
        for case in protocol.cases(inputs, [target], "infidelity")
    ]
    return scored_explanations(
        inputs,
        np.array(scores)[:, None],
        "infidelity",
        metrics=["infidelity"],
        undefined=UNDEFINED,
        title=f"infidelity, {operator}",
        paper=PAPER,
        options=protocol.options("operator", "score", "special", "draws", "seed")
        | {"samples": samples, "share": share, "normalize": normalize},
    )


def infidelity_questions(
    case: RemovalCase, samples: int = SAMPLES, share: float = SHARE, *, normalize: bool = False
) -> Questions[list[float]]:
    """Yield what is removed from one input, and return its scores [method], baselines last."""
    features = case.features
    undefined = [np.nan] * (len(case.values) + 2)
    if not len(features):
        return undefined
    generator = np.random.default_rng(case.seed)
    sets = generator.random((samples, len(features))) < share
    empty = ~sets.any(axis=1)
    sets[empty, generator.integers(len(features), size=int(empty.sum()))] = True
    removed = np.zeros((samples + 1, case.n), dtype=bool)
    removed[:-1, features] = sets
    scores = case.read((yield removed))
    known = np.isfinite(scores[:-1])
    if not known.any():
        return undefined
    changes = (scores[-1] - scores[:-1])[known]
    chosen = sets[known].astype(float)
    random = generator.normal(size=(case.protocol.draws, len(features)))
    best = np.linalg.lstsq(chosen, changes, rcond=None)[0]
    given = (values[features] for values in case.values.values())
    return [
        *(mean_squared_error(chosen @ values, changes, normalize=normalize) for values in given),
        float(np.mean([mean_squared_error(chosen @ values, changes, normalize=True) for values in random])),
        mean_squared_error(chosen @ best, changes),
    ]
