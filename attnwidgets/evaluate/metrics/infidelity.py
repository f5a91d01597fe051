"""Whether values follow the effect of removals: of single features, or of sets, whose values add up.

`infidelity` compares the sum of values over random sets of features with the fall of the score without them.
`single_removals` compares each value with the effect of removing its feature alone. Both yield the removals
that they need (`infidelity_questions`, `single_questions`), so that several metrics can share batches.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from attnwidgets.evaluate.documentation import documented
from attnwidgets.evaluate.examples.examples import rationale_elements
from attnwidgets.evaluate.examples.explained_input import as_list, explained, require_one_each
from attnwidgets.evaluate.metrics.ranking import defined, kendall, spearman
from attnwidgets.evaluate.removals.ordering import singles
from attnwidgets.evaluate.removals.protocol import RemovalOptions
from attnwidgets.evaluate.scorecards.build import metric_names, scored_explanations
from attnwidgets.tracing.free_memory import forceable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from attnwidgets.evaluate.arrays import Bools, Float
    from attnwidgets.evaluate.removals.ordering import Questions
    from attnwidgets.evaluate.removals.protocol import Removal, RemovalCase
    from attnwidgets.evaluate.removals.removal import Operator
    from attnwidgets.evaluate.scorecards.scorecard import Scorecard

PAPER = "Yeh et al. 2019, On the (In)fidelity and Sensitivity of Explanations"
SAMPLES, SHARE = 64, 0.5
UNDEFINED = "undefined where nothing is removed, or nothing left to read"

_NGUYEN = "Nguyen and Martinez 2020, On Quantitative Aspects of Model Interpretability"
EPSILON = 1e-5
UNDEFINED_ALONE = "undefined where one side is constant, or of fewer than two features"


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


_OF_INFIDELITY = RemovalOptions("infidelity", "score", "draws", score="number")


@forceable
@documented
@_OF_INFIDELITY.former_keywords
def infidelity(
    traces: Any,
    explanations: Any,
    target: Any = None,
    *,
    operator: Operator | None = None,
    removal: Removal | None = None,
    samples: int = SAMPLES,
    share: float = SHARE,
    normalize: bool = False,
    unit: str | None = None,
) -> Scorecard:
    """Measure the error between the values of random sets of features and the effect of removing them.

    The mean over S of (sum of a_i over S - (f(x) - f(x - S)))^2, in squared units of f; 0 is best. It judges
    the size of values, not only their order, and so suits methods that distribute f over the features.
    Attention does not claim to; `normalize` scales it first.

    Args:
        traces: {traces}
        explanations: {explanations}
        target: {target}
        operator: {operator}
        removal: {removal}
        samples: Number of sets drawn for each input.
        share: Probability that a feature is in a set, above 0 and below 1. Empty sets, and those that leave
            nothing to read, do not count.
        normalize: First multiply every explanation by the factor that fits best.
        unit: {unit}
        force: {force}

    Returns:
        A Scorecard [infidelity, method, 1]. "oracle" is the least-squares fit to the same sets: no values do
        better, and its error is the part of f that is not additive. "random" is a random vector, scaled as by
        `normalize`. NaN without a feature to remove, or if no set leaves anything to read.

    Raises:
        ValueError: If an operator is unknown or impossible, an option is out of range, or an explanation
            belongs to another input or unit.
        TypeError: If an explanation is a map, or not an explanation.

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
    protocol = _OF_INFIDELITY.protocol(operator, removal)
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
        title=f"infidelity, {protocol.operator}",
        paper=PAPER,
        options=protocol.options("operator", "score", "special", "draws", "seed")
        | {"samples": samples, "share": share, "normalize": normalize},
    )


def infidelity_questions(
    case: RemovalCase, samples: int = SAMPLES, share: float = SHARE, *, normalize: bool = False
) -> Questions[list[float]]:
    """Yield the elements to remove from an input, and return its scores [method], baselines last."""
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
    defined_sets = np.isfinite(scores[:-1])
    if not defined_sets.any():
        return undefined
    changes = (scores[-1] - scores[:-1])[defined_sets]
    chosen = sets[defined_sets].astype(float)
    random = generator.normal(size=(case.protocol.draws, len(features)))
    best = np.linalg.lstsq(chosen, changes, rcond=None)[0]
    vectors = (values[features] for values in case.values.values())
    return [
        *(mean_squared_error(chosen @ values, changes, normalize=normalize) for values in vectors),
        float(np.mean([mean_squared_error(chosen @ values, changes, normalize=True) for values in random])),
        mean_squared_error(chosen @ best, changes),
    ]


@dataclass(frozen=True)
class Effects:
    """Effects of removing each feature of an input alone.

    Attributes:
        drops: f(x) - f(x without it) [feature].
        losses: -log p(x without it) [feature].
        still: Features that should have no value: no effect on f, or not among those that matter [feature].
        epsilon: A value below this counts as zero.
    """

    drops: Float
    losses: Float
    still: Bools
    epsilon: float


def _non_sensitivity(values: Float, effects: Effects) -> float:
    return float(((np.abs(values) < effects.epsilon) != effects.still).sum())


def _monotonicity(values: Float, effects: Effects) -> float:
    return defined(spearman, np.abs(values), effects.drops**2)


def _loss_monotonicity(values: Float, effects: Effects) -> float:
    return defined(spearman, values, effects.losses)


def _leave_one_out(values: Float, effects: Effects) -> float:
    return defined(kendall, values, effects.drops)


METRICS: dict[str, tuple[Callable[[Float, Effects], float], str]] = {
    "non_sensitivity": (_non_sensitivity, _NGUYEN),
    "monotonicity": (_monotonicity, _NGUYEN),
    "loss_monotonicity": (_loss_monotonicity, "lectures"),
    "leave_one_out_tau": (_leave_one_out, "Jain and Wallace 2019, Attention is not Explanation"),
}


_OF_SINGLE = RemovalOptions("single_removals", "score", "draws", draws=100)


@forceable
@documented
@_OF_SINGLE.former_keywords
def single_removals(
    traces: Any,
    explanations: Any,
    target: Any = None,
    *,
    operator: Operator | None = None,
    removal: Removal | None = None,
    metrics: str | Sequence[str] = ("non_sensitivity", "monotonicity", "leave_one_out_tau"),
    epsilon: float = EPSILON,
    change: float = EPSILON,
    gold: Any = None,
    unit: str | None = None,
) -> Scorecard:
    """Measure whether values follow the score f when each feature i alone is removed, x - i.

        non_sensitivity     number of features in either {|a_i| < epsilon} or {|f(x) - f(x - i)| < change} but
                            not in both; 0 is best
        monotonicity        Spearman's correlation of |a_i| with (f(x) - f(x - i))^2
        loss_monotonicity   Spearman's correlation of a_i with the loss -log p(x - i), as in lectures
        leave_one_out_tau   Kendall's tau-b of a_i with f(x) - f(x - i)

    Args:
        traces: {traces}
        explanations: {explanations}
        target: {target}
        operator: {operator} It replaces the papers' expectation over other values of the feature.
        removal: {removal}
        metrics: One or several of these four.
        epsilon: For non_sensitivity: a value |a_i| below this counts as zero, in the explanation's units.
        change: For non_sensitivity: a change of f below this counts as none.
        gold: For non_sensitivity: the features that matter (see `rationale_elements`), one entry per trace.
            The second set is then all other features, as in some lectures.
        unit: {unit}
        force: {force}

    Returns:
        A Scorecard [metric, method, 1]. "oracle" is the vector of the drops themselves (of the losses for
        loss_monotonicity, of 0 and 1 with `gold`). NaN, with the reason in `.warning`, for a correlation of
        fewer than two features or if one side is constant.

    Raises:
        ValueError: If an option is unknown, or an explanation belongs to another input or unit.
        TypeError: If an explanation is a map, or not an explanation.

    Source: Nguyen and Martinez 2020, sections 4.2 and 4.3; Jain and Wallace 2019, section 4.1.

    Example:
        >>> trace = aw.trace(*aw.demo_model("classifier"), "A fine film with a weak end.")
        >>> card = aw.evaluate.single_removals(trace, "saliency", operator="mask", unit="word")
        >>> card.of("oracle")[0, 1:, 0]
        array([1., 1.])
    """
    names = metric_names(metrics, METRICS)
    protocol = _OF_SINGLE.protocol(operator, removal)
    inputs = explained(traces, explanations, target, "single_removals", unit)
    rationales = [None] * len(inputs)
    if gold is not None:
        rationales = gold if isinstance(traces, (list, tuple)) else [gold]
        require_one_each("gold", rationales, as_list(traces))
    samples = [
        case.ask(single_questions(case, names, epsilon, change, rationale))
        for case, rationale in zip(
            protocol.cases(inputs, [target], "single_removals"), rationales, strict=True
        )
    ]
    return scored_explanations(
        inputs,
        samples,
        "single_removals",
        metrics=names,
        undefined=UNDEFINED_ALONE,
        title=f"single removals, {protocol.operator}",
        paper="; ".join(dict.fromkeys(METRICS[name][1] for name in names)),
        options=protocol.options("operator", "score", "special", "draws", "seed")
        | {"epsilon": epsilon, "change": change, "gold": gold is not None},
    )


def single_questions(
    case: RemovalCase,
    names: Sequence[str],
    epsilon: float = EPSILON,
    change: float = EPSILON,
    rationale: Any = None,
) -> Questions[list[list[float]]]:
    """Yield the elements to remove from an input, and return its scores [metric, method], baselines last."""
    features = case.features
    answers = yield singles(case.n, features)
    scores = case.read(answers)
    drops = scores[-1] - scores[:-1]
    still = np.abs(drops) < change
    if rationale is not None:
        matters = rationale_elements(case.removal.trace, rationale, case.removal.unit)
        still = ~np.isin(features, matters)
    effects = Effects(drops, -answers.log_p[:-1], still, epsilon)
    random = np.random.default_rng(case.seed).uniform(-1, 1, size=(case.protocol.draws, len(features)))
    vectors = [values[features] for values in case.values.values()]
    return [_row(name, vectors, random, effects) for name in names]


def _row(name: str, vectors: Sequence[Float], random: Float, effects: Effects) -> list[float]:
    """Return the scores of explanations, of chance and of the oracle by a metric."""
    score, _ = METRICS[name]
    if not random.shape[1]:
        return [float("nan")] * (len(vectors) + 2)
    best = effects.losses if name == "loss_monotonicity" else effects.drops
    if name == "non_sensitivity":  # zero exactly where it should be
        best = np.where(effects.still, 0.0, max(1.0, effects.epsilon))
    chance = float(np.mean([score(values, effects) for values in random]))
    return [*(score(values, effects) for values in vectors), chance, score(best, effects)]
