"""Do explanations stay when the model is the same in all that matters? Other seeds, and other code."""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np

from attnwidgets.evaluate.examples.explained_input import explained, is_constant
from attnwidgets.evaluate.metrics.rank_measures import spearman
from attnwidgets.evaluate.scorecards.build import ORACLE, RANDOM, scored, scored_explanations
from attnwidgets.tracing.free_memory import forceable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from attnwidgets.evaluate.scorecards.scorecard import Scorecard

    Float = NDArray[np.float64]

_TWO = 2
_SAME = 1e-3
_CONSTANT = "undefined where an explanation is constant, or of fewer than two elements"


@forceable
def consistency(
    traces: Sequence[Any], methods: Any, target: Any = None, *, unit: str | None = None, seed: int = 0
) -> Scorecard:
    """Whether models that were trained alike, from other seeds, get the same explanations.

    Spearman's rank correlation of the explanations of one text by every two models, on average.

    Args:
        traces: For every model, its traces of the same texts: [[model 1's], [model 2's], ...].
        methods: As `faithfulness` takes explanations, none of them finished.
        target: What is explained; by default what each model predicts.
        unit: What is compared; by default the unit of the explanations.
        seed: Of the row "random".

    Returns:
        A Scorecard [consistency, method, 1] over texts, -1 to 1; "oracle" is what never changes. NaN where an
        explanation is constant.

    Raises:
        ValueError: For fewer than two models, or models that read other texts.
    """
    rows = [list(one) if isinstance(one, (list, tuple)) else [one] for one in traces]
    if len(rows) < _TWO or len({len(row) for row in rows}) != 1:
        raise ValueError("traces takes two models or more with as many traces each: [[a's], [b's], ...].")
    read = [explained(row, methods, target, "consistency", unit) for row in rows]
    samples = []
    for number, same in enumerate(zip(*read, strict=True)):
        sizes = {len(one.unit) for one in same}
        if len(sizes) > 1:
            raise ValueError(
                f"text {number} has {sorted(sizes)} elements by the models: compare by unit='word'."
            )
        generator = np.random.default_rng([seed, number])
        drawn = generator.normal(size=(len(same), sizes.pop()))
        columns = [[one.values[name] for one in same] for name in same[0].values] + [list(drawn)]
        samples.append([*(_pairs(several) for several in columns), 1.0])
    return scored_explanations(
        read[0],
        np.array(samples)[:, None, :, None],
        "consistency",
        metrics=["consistency"],
        notes=[_CONSTANT if np.isnan(samples).any() else ""],
        title=f"consistency over {len(rows)} models",
        options={"seed": seed},
    )


@forceable
def implementation_invariance(
    trace: Any, twin: Any, methods: Any, target: Any = None, *, unit: str | None = None, seed: int = 0
) -> Scorecard:
    """Whether methods say the same of two models that compute the same function by other weights or code.

    The distance is |a - a'| / |a| (Euclidean), 0 where a method is invariant.

    Args:
        trace: A trace, or a list of them.
        twin: The same texts by the other model.
        methods: As `faithfulness` takes explanations, none of them finished.
        target: What is explained; by default what the first model predicts.
        unit: What is compared; by default the unit of the explanations.
        seed: Of the row "random", an explanation that is drawn anew for each model.

    Returns:
        A Scorecard [distance, method, 1] over texts; "oracle" is what never changes. NaN where an explanation
        is zero.

    Raises:
        ValueError: Where the two models do not return the same logits: they are no twins.

    Source: Sundararajan et al. 2017, Axiomatic Attribution for Deep Networks, section 2.
    """
    first = list(trace) if isinstance(trace, (list, tuple)) else [trace]
    second = list(twin) if isinstance(twin, (list, tuple)) else [twin]
    if len(first) != len(second):
        raise ValueError(f"twin has {len(second)} traces for {len(first)}: give one for each.")
    for number, (one, other) in enumerate(zip(first, second, strict=True)):
        if one.logits is None or other.logits is None or one.logits.shape != other.logits.shape:
            raise ValueError(f"traces[{number}] and its twin have no logits of one shape to compare.")
        gap = float((one.logits.double() - other.logits.double()).abs().max())
        scale = max(float(one.logits.double().abs().max()), 1e-6)
        if gap > _SAME * scale:
            raise ValueError(f"traces[{number}]: the models' logits differ by {gap:.2g}; they are no twins.")
    pairs = zip(
        explained(first, methods, target, "implementation_invariance", unit),
        explained(second, methods, target, "implementation_invariance", unit),
        strict=True,
    )
    samples, names = [], []
    for number, (one, other) in enumerate(pairs):
        names = list(one.values)
        drawn = np.random.default_rng([seed, number]).normal(size=(2, len(one.unit)))
        columns = [(one.values[name], other.values[name]) for name in names] + [(drawn[0], drawn[1])]
        samples.append([*(_distance(own, others) for own, others in columns), 0.0])
    return scored(
        np.array(samples)[:, None, :, None],
        "implementation_invariance",
        model=first[0].model_id,
        metrics=["distance"],
        methods=[*names, RANDOM, ORACLE],
        baselines=(RANDOM, ORACLE),
        notes=["undefined where an explanation is zero" if np.isnan(samples).any() else ""],
        paper="Sundararajan et al. 2017, Axiomatic Attribution for Deep Networks",
        options={"seed": seed},
    )


def _distance(one: Float, other: Float) -> float:
    norm = float(np.linalg.norm(one))
    return float(np.linalg.norm(one - other)) / norm if norm else float("nan")


def _pairs(several: Sequence[Float]) -> float:
    """Return the mean rank correlation of every two; NaN where one is constant."""
    if any(is_constant(one) or len(one) < _TWO for one in several):
        return float("nan")
    return float(np.mean([spearman(one, other) for one, other in combinations(several, 2)]))
