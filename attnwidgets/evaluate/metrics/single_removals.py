"""Do values follow what happens when each feature alone is removed? Rank correlations, and who is zero."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from attnwidgets._errors import suggest
from attnwidgets._selecting import listed
from attnwidgets.evaluate.examples.explained_input import explained, is_constant
from attnwidgets.evaluate.examples.rationales import rationale_elements
from attnwidgets.evaluate.metrics.rank_measures import kendall, spearman
from attnwidgets.evaluate.removals.ordering import singles
from attnwidgets.evaluate.removals.removal_metrics import Score, read_score
from attnwidgets.evaluate.removals.run import of_each_input
from attnwidgets.evaluate.scorecards.build import scored_explanations
from attnwidgets.tracing.free_memory import forceable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from attnwidgets.evaluate.examples.explained_input import ExplainedInput
    from attnwidgets.evaluate.removals.ordering import Order, Questions
    from attnwidgets.evaluate.removals.removal import Operator
    from attnwidgets.evaluate.scorecards.scorecard import Scorecard
    from attnwidgets.explanations.targets.resolve import Target

    Float = NDArray[np.float64]

_NGUYEN = "Nguyen and Martinez 2020, On Quantitative Aspects of Model Interpretability"
_TWO = 2
EPSILON = 1e-5


@dataclass(frozen=True)
class Singles:
    """What removing each feature alone does to one input.

    Attributes:
        drops: f(x) - f(x without it) [feature].
        losses: -log p(x without it) [feature].
        gold: Which features are gold [feature]; None where that was not given.
        epsilon: Below what a value is zero.
        change: Below what a drop is zero.
    """

    drops: Float
    losses: Float
    gold: NDArray[np.bool_] | None
    epsilon: float
    change: float


def _non_sensitivity(values: Float, found: Singles) -> float:
    still = np.abs(found.drops) < found.change if found.gold is None else ~found.gold
    return float(((np.abs(values) < found.epsilon) != still).sum())


def _monotonicity(values: Float, found: Singles) -> float:
    return _correlation(spearman, np.abs(values), found.drops**2)


def _loss_monotonicity(values: Float, found: Singles) -> float:
    return _correlation(spearman, values, found.losses)


def _leave_one_out(values: Float, found: Singles) -> float:
    return _correlation(kendall, values, found.drops)


METRICS: dict[str, tuple[Callable[[Float, Singles], float], str]] = {
    "non_sensitivity": (_non_sensitivity, _NGUYEN),
    "monotonicity": (_monotonicity, _NGUYEN),
    "loss_monotonicity": (_loss_monotonicity, "lectures"),
    "leave_one_out_tau": (_leave_one_out, "Jain and Wallace 2019, Attention is not Explanation"),
}


@forceable
def single_removals(
    traces: Any,
    explanations: Any,
    target: Any = None,
    *,
    operator: Operator,
    metrics: str | Sequence[str] = ("non_sensitivity", "monotonicity", "leave_one_out_tau"),
    epsilon: float = EPSILON,
    change: float = EPSILON,
    gold: Any = None,
    score: Score | None = None,
    special: bool = False,
    draws: int = 100,
    seed: int = 0,
    unit: str | None = None,
    batch_size: int = 32,
) -> Scorecard:
    """Whether values follow what the score f does when each feature i alone is removed, x - i.

        non_sensitivity     how many features are in one of {|a_i| < epsilon} and {|f(x) - f(x - i)| < change}
                            but not in the other; 0 at best
        monotonicity        Spearman's correlation of |a_i| with (f(x) - f(x - i))^2
        loss_monotonicity   Spearman's correlation of a_i with the loss -log p(x - i), as lectures have it
        leave_one_out_tau   Kendall's tau-b of a_i with f(x) - f(x - i)

    Args:
        traces: What `aw.trace` returned, or a list of such traces.
        explanations: As `faithfulness` takes them.
        target: As there.
        operator: How features are removed, see `OPERATORS`. It stands for the expectation over other values
            of the feature in the papers' formulas.
        metrics: One or several of these four.
        epsilon: For non_sensitivity: below what |a_i| is zero, in the explanation's own units.
        change: And below what a change of f is.
        gold: For non_sensitivity: which features matter (see `rationale_elements`), one for each trace. The
            second set is then all others, as some lectures have it.
        score: What f is, as in `faithfulness`.
        special: Whether special tokens are features.
        draws: How many random vectors the row "random" is the mean of.
        seed: Of those draws.
        unit: What features are; by default the unit of the explanations.
        batch_size: Inputs that run together.

    Returns:
        A Scorecard [metric, method, 1]. "oracle" is the vector of the drops themselves (of the losses for
        loss_monotonicity, of 0 and 1 where there is gold). NaN, with the reason in `.warning`: a correlation
        of fewer than two features or where one side is constant.

    Raises:
        ValueError: For unknown options, an explanation of another input or unit.
        TypeError: Where an explanation is a map or nothing of the kind.

    Source: Nguyen and Martinez 2020, sections 4.2 and 4.3; Jain and Wallace 2019, section 4.1.
    """
    names = (metrics,) if isinstance(metrics, str) else tuple(metrics)
    for name in names:
        if name not in METRICS:
            raise ValueError(f"metrics has {name!r}; there is {listed(METRICS)}.{suggest(name, METRICS)}")
    inputs = explained(traces, explanations, target, "single_removals", unit)
    rationales = [gold] if gold is not None and not isinstance(traces, (list, tuple)) else gold
    if rationales is not None and len(rationales) != len(inputs):
        raise ValueError(f"gold has {len(rationales)} for {len(inputs)} traces: give one for each.")

    def questions(
        number: int, one: ExplainedInput, features: Order, meant: Target
    ) -> Questions[list[list[float]]]:
        wanted = None
        if rationales is not None:
            wanted = np.isin(features, rationale_elements(one.trace, rationales[number], one.unit))
        return single_questions(
            one, features, meant.index, names, wanted, epsilon, change, score, draws, [seed, number]
        )

    samples = of_each_input(
        inputs,
        target,
        operator,
        questions,
        function="single_removals",
        special=special,
        batch_size=batch_size,
    )
    found = np.array(samples)[..., None]
    undefined = np.isnan(found[:, :, : len(inputs[0].values)]).any()
    return scored_explanations(
        inputs,
        found,
        "single_removals",
        metrics=names,
        notes=["undefined where one side is constant, or of fewer than two features" if undefined else ""],
        title=f"single removals, {operator}",
        paper="; ".join(dict.fromkeys(METRICS[name][1] for name in names)),
        options={
            "operator": operator,
            "epsilon": epsilon,
            "change": change,
            "gold": gold is not None,
            "score": score,
            "special": special,
            "draws": draws,
            "seed": seed,
        },
    )


def single_questions(
    one: ExplainedInput,
    features: NDArray[np.intp],
    index: int | None,
    names: Sequence[str],
    gold: NDArray[np.bool_] | None,
    epsilon: float,
    change: float,
    score: Score | None,
    draws: int,
    seed: Sequence[int],
) -> Questions[list[list[float]]]:
    """Yield what is to be removed from one input, and return its scores [metric, method]."""
    answers = yield singles(len(one.unit), features)
    numbers = read_score(answers, score, index)
    found = Singles(numbers[-1] - numbers[:-1], -answers.log_p[:-1], gold, epsilon, change)
    random = np.random.default_rng(seed).uniform(-1, 1, size=(draws, len(features)))
    return [_row(name, [v[features] for v in one.values.values()], random, found) for name in names]


def _row(name: str, given: Sequence[Float], random: Float, found: Singles) -> list[float]:
    """Return what explanations, chance and the oracle score by one metric."""
    score, _ = METRICS[name]
    if not random.shape[1]:
        return [float("nan")] * (len(given) + _TWO)
    best = found.losses if name == "loss_monotonicity" else found.drops
    if name == "non_sensitivity":
        # Zero exactly where it should be.
        still = np.abs(best) < found.change if found.gold is None else ~found.gold
        best = np.where(still, 0.0, max(1.0, found.epsilon))
    chance = float(np.mean([score(values, found) for values in random]))
    return [*(score(values, found) for values in given), chance, score(best, found)]


def _correlation(measure: Callable[[Float, Float], float], values: Float, wanted: Float) -> float:
    """Return a rank correlation; NaN where it is undefined, for which `rank_measures` has conventions."""
    if len(values) < _TWO or not np.isfinite(wanted).all() or is_constant(values) or is_constant(wanted):
        return float("nan")
    return measure(values, wanted)
