"""Whether explanations agree across models that should not differ: other seeds, and other code."""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np

from attnwidgets.evaluate.documentation import documented
from attnwidgets.evaluate.examples.explained_input import as_list, explained, is_constant, require_one_each
from attnwidgets.evaluate.metrics.ranking import spearman
from attnwidgets.evaluate.scorecards.build import scored_explanations
from attnwidgets.tracing.free_memory import forceable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from attnwidgets.evaluate.arrays import Float
    from attnwidgets.evaluate.scorecards.scorecard import Scorecard

_TWO = 2
_SAME = 1e-3


@forceable
@documented
def consistency(
    traces: Sequence[Any], methods: Any, target: Any = None, *, unit: str | None = None, seed: int = 0
) -> Scorecard:
    """Measure whether models trained alike, from other seeds, get the same explanations.

    The score is Spearman's rank correlation of the explanations of a text, averaged over pairs of models.

    Args:
        traces: For every model, its traces of the same texts: [[model 1's], [model 2's], ...].
        methods: {methods}
        target: The explained target; by default the prediction of each model.
        unit: The unit to compare in; by default the unit of the explanations.
        seed: Seed of the baseline "random".
        force: {force}

    Returns:
        A Scorecard [consistency, method, 1] over texts, -1 to 1; "oracle" never changes. NaN if an
        explanation is constant.

    Raises:
        ValueError: If there are fewer than two models, or they read different texts.

    Example:
        >>> model, tokenizer = aw.demo_model("classifier")
        >>> first = aw.trace(model, tokenizer, ["A fine film."])
        >>> aw.evaluate.consistency([first, first], "saliency").of("saliency").round(2)
        array([[[1.]]])
    """
    by_model = [as_list(model_traces) for model_traces in traces]
    if len(by_model) < _TWO or len({len(model_traces) for model_traces in by_model}) != 1:
        raise ValueError(
            "traces needs two models or more, with equal numbers of traces: [[a's], [b's], ...]."
        )
    inputs = [explained(model_traces, methods, target, "consistency", unit) for model_traces in by_model]
    samples = []
    for number, versions in enumerate(zip(*inputs, strict=True)):
        sizes = {len(version.unit) for version in versions}
        if len(sizes) > 1:
            raise ValueError(
                f"text {number} has {sorted(sizes)} elements in different models; compare by unit='word'."
            )
        random = np.random.default_rng([seed, number]).normal(size=(len(versions), sizes.pop()))
        by_method = [[version.values[name] for version in versions] for name in versions[0].values]
        samples.append([*(_mean_correlation(vectors) for vectors in [*by_method, list(random)]), 1.0])
    return scored_explanations(
        inputs[0],
        np.array(samples)[:, None],
        "consistency",
        metrics=["consistency"],
        undefined="undefined where an explanation is constant, or of fewer than two elements",
        title=f"consistency over {len(by_model)} models",
        options={"seed": seed},
    )


@forceable
@documented
def implementation_invariance(
    trace: Any, twin: Any, methods: Any, target: Any = None, *, unit: str | None = None, seed: int = 0
) -> Scorecard:
    """Measure whether methods explain two models alike that compute the same function in different ways.

    The models may differ in weights or code. The distance is |a - a'| / |a| (Euclidean), 0 for a method that
    is invariant.

    Args:
        trace: A trace, or a list of them.
        twin: Traces of the same texts by the other model.
        methods: {methods}
        target: The explained target; by default the prediction of each model.
        unit: The unit to compare in; by default the unit of the explanations.
        seed: Seed of the baseline "random", which is drawn anew for each model.
        force: {force}

    Returns:
        A Scorecard [distance, method, 1] over texts; "oracle" never changes. NaN if an explanation is zero.

    Raises:
        ValueError: If the two models do not return the same logits, and so are not twins.

    Source: Sundararajan et al. 2017, Axiomatic Attribution for Deep Networks, section 2.

    Example:
        >>> trace = aw.trace(*aw.demo_model("classifier"), "A fine film.")
        >>> aw.evaluate.implementation_invariance(trace, trace, "saliency").of("saliency")
        array([[[0.]]])
    """
    first, second = as_list(trace), as_list(twin)
    require_one_each("twin", second, first)
    for number, (entry, other) in enumerate(zip(first, second, strict=True)):
        if entry.logits is None or other.logits is None or entry.logits.shape != other.logits.shape:
            raise ValueError(f"traces[{number}] and its twin have no logits of the same shape to compare.")
        gap = float((entry.logits.double() - other.logits.double()).abs().max())
        scale = max(float(entry.logits.double().abs().max()), 1e-6)
        if gap > _SAME * scale:
            raise ValueError(f"traces[{number}]: the models' logits differ by {gap:.2g}; they are not twins.")
    inputs, twins = (
        explained(traces, methods, target, "implementation_invariance", unit) for traces in (first, second)
    )
    samples = []
    for number, (item, other) in enumerate(zip(inputs, twins, strict=True)):
        random = np.random.default_rng([seed, number]).normal(size=(2, len(item.unit)))
        pairs = [*((item.values[name], other.values[name]) for name in item.values), (random[0], random[1])]
        samples.append([*(_distance(values, others) for values, others in pairs), 0.0])
    return scored_explanations(
        inputs,
        np.array(samples)[:, None],
        "implementation_invariance",
        metrics=["distance"],
        undefined="undefined where an explanation is zero",
        paper="Sundararajan et al. 2017, Axiomatic Attribution for Deep Networks",
        options={"seed": seed},
    )


def _distance(values: Float, others: Float) -> float:
    norm = float(np.linalg.norm(values))
    return float(np.linalg.norm(values - others)) / norm if norm else float("nan")


def _mean_correlation(vectors: Sequence[Float]) -> float:
    """Return the mean rank correlation of all pairs; NaN if a vector is constant."""
    if any(is_constant(values) or len(values) < _TWO for values in vectors):
        return float("nan")
    return float(np.mean([spearman(values, others) for values, others in combinations(vectors, 2)]))
