"""How many elements an explanation spreads over, and how many of them the model needs.

`sparsity`, `entropy`, `gini` and `features_above` are numbers of a vector; `complexity` makes a Scorecard of
them. `effective_complexity` runs the model on the top features instead, with the protocol of removals.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from attnwidgets._errors import require_choice
from attnwidgets.evaluate.documentation import documented
from attnwidgets.evaluate.examples.explained_input import as_list, by_name, explained, require_single
from attnwidgets.evaluate.removals.ordering import ORACLES, default_score, steps_removed
from attnwidgets.evaluate.removals.protocol import RemovalOptions
from attnwidgets.evaluate.scorecards.build import metric_names, scored, scored_explanations
from attnwidgets.tracing.free_memory import forceable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from attnwidgets.evaluate.arrays import Bools, Float
    from attnwidgets.evaluate.removals.ordering import Questions
    from attnwidgets.evaluate.removals.protocol import Removal, RemovalCase
    from attnwidgets.evaluate.removals.removal import Operator
    from attnwidgets.evaluate.scorecards.scorecard import Scorecard

THRESHOLD = 0.01
BASELINES = ("uniform", "one element")

PAPER = "Nguyen and Martinez 2020, On Quantitative Aspects of Model Interpretability"
EPSILON = 0.1
UNDEFINED = "undefined where no number of features will do, or nothing is ranked"


def sparsity(values: Any, threshold: float = THRESHOLD) -> float:
    """Return the share of elements that an explanation leaves out: 1 - |M| / n, 0 to 1 - 1/n.

    Args:
        values: Attributions of a single target, or numbers [element].
        threshold: M is where |a| is above this share of the largest |a|, from 0 and below 1.

    Returns:
        The share; NaN if all values are zero.

    Raises:
        ValueError: If the threshold is out of range, or the values are not a vector of finite numbers.

    Example:
        >>> aw.evaluate.sparsity([4.0, 0.0, -1.0, 0.0])
        0.5
    """
    return 1.0 - features_above(values, threshold) / len(_sizes(values))


def features_above(values: Any, threshold: float = THRESHOLD) -> float:
    """Return the number of elements with |a| above `threshold` times the largest |a|; NaN if all are zero.

    Quantus calls this effective complexity, and divides by the largest value of a whole batch, so that a
    score depends on the rest of the batch; here the largest value is that of the explanation. For the measure
    of Nguyen and Martinez, which runs the model, see `effective_complexity`.

    Args:
        values: Attributions of a single target, or numbers [element].
        threshold: A share of the largest |a|, from 0 and below 1.

    Raises:
        ValueError: If the threshold is out of range, or the values are not a vector of finite numbers.

    Example:
        >>> aw.evaluate.features_above([4.0, 0.0, -1.0, 0.0])
        2.0
    """
    if not 0 <= threshold < 1:
        raise ValueError(f"threshold is a share of the largest value, from 0 and below 1, not {threshold!r}.")
    sizes = _sizes(values)
    largest = sizes.max()
    return float((sizes > threshold * largest).sum()) if largest else float("nan")


def entropy(values: Any) -> float:
    """Return -sum p log p in nats, with p = |a| / sum |a|: 0 for a single element, log n for n equal values.

    Args:
        values: Attributions of a single target, or numbers [element].

    Returns:
        The entropy; NaN if all values are zero.

    Source: Bhatt et al. 2020, Evaluating and Aggregating Feature-based Model Explanations ("complexity").

    Example:
        >>> round(aw.evaluate.entropy([1.0, 1.0]), 4)  # log 2
        0.6931
    """
    sizes = _sizes(values)
    total = sizes.sum()
    if not total:
        return float("nan")
    shares = sizes[sizes > 0] / total
    return float(-(shares * np.log(shares)).sum()) + 0.0


def gini(values: Any) -> float:
    """Return the Gini index of |a|: sum_i (2 i - n - 1) |a|_(i) / (n sum |a|), in ascending order.

    Args:
        values: Attributions of a single target, or numbers [element].

    Returns:
        0 if all are equal, 1 - 1/n if a single element has everything; NaN if all values are zero.

    Source: Hurley and Rickard 2009, Comparing Measures of Sparsity; Chalasani et al. 2020, Concise
    Explanations of Neural Networks Using Adversarial Training.

    Example:
        >>> aw.evaluate.gini([0.0, 0.0, 0.0, 1.0])
        0.75
    """
    sizes = np.sort(_sizes(values))
    total = sizes.sum()
    if not total:
        return float("nan")
    n = len(sizes)
    return float(((2 * np.arange(1, n + 1) - n - 1) * sizes).sum() / (n * total))


METRICS: dict[str, Callable[..., float]] = {
    "sparsity": sparsity,
    "entropy": entropy,
    "gini": gini,
    "features_above": features_above,
}
_WITH_THRESHOLD = ("sparsity", "features_above")


def complexity(
    explanations: Any,
    *,
    metrics: str | Sequence[str] = tuple(METRICS),
    threshold: float = THRESHOLD,
    special: bool = False,
) -> Scorecard:
    """Measure over how many elements explanations spread, without running the model.

    `sparsity`, `entropy`, `gini` and `features_above` describe the metrics. A simple explanation can still be
    wrong: read these metrics along with `faithfulness`.

    Args:
        explanations: Attributions, a list of them (one per input), or a mapping from names to either.
        metrics: One or several of these four.
        threshold: For sparsity and features_above: the share of the largest |a| below which a value does not
            count.
        special: Count special tokens as elements.

    Returns:
        A Scorecard [metric, method, 1]. The baselines "uniform" and "one element" give all elements the same
        value, and all value to an element. NaN if all values are zero.

    Raises:
        ValueError: If a metric is unknown, a threshold is out of range, or lists differ in length.
        TypeError: If an explanation is a map, or not an explanation.

    Example:
        >>> trace = aw.trace(*aw.demo_model("classifier"), "A fine film with a weak end.")
        >>> aw.evaluate.complexity({"saliency": aw.saliency(trace)}).methods
        ('saliency', 'uniform', 'one element')
    """
    names = metric_names(metrics, METRICS)
    lists = {str(name): as_list(explanation) for name, explanation in by_name(explanations).items()}
    counts = {name: len(explanations) for name, explanations in lists.items()}
    if len(set(counts.values())) != 1 or not next(iter(counts.values())):
        entries = ", ".join(f"{name!r} has {count}" for name, count in counts.items()) or "there are none"
        raise ValueError(f"explanations need one entry per input, equally many for every name; {entries}.")
    options = {name: {"threshold": threshold} if name in _WITH_THRESHOLD else {} for name in names}
    samples = []
    notes: dict[str, None] = {}
    for explanations_of_input in zip(*lists.values(), strict=True):
        columns = []
        for name, explanation in zip(lists, explanations_of_input, strict=True):
            single = require_single(explanation, name)
            ignored = np.asarray(single.source_unit.special) & (not special)
            values = np.asarray(single.values, dtype=np.float64)[~ignored]
            if not values.any():
                notes[f"{name} is zero on an input"] = None
                values = np.zeros(max(1, len(values)))
            columns.append(values)
        n = len(columns[0])
        columns += [np.ones(n), np.eye(n)[0]]
        samples.append([[[METRICS[m](values, **options[m])] for values in columns] for m in names])
    first = next(iter(lists.values()))[0]
    return scored(
        samples,
        "complexity",
        model=first.provenance.get("model", ""),
        metrics=names,
        methods=[*lists, *BASELINES],
        baselines=BASELINES,
        unit=first.unit,
        notes=notes,
        options={"metrics": names, "threshold": threshold, "special": special},
    )


def _sizes(values: Any) -> Float:
    sizes = np.abs(np.asarray(getattr(values, "values", values), dtype=np.float64))
    if sizes.ndim != 1 or not len(sizes) or not np.isfinite(sizes).all():
        raise ValueError(f"values must be a vector of finite numbers; they have shape {sizes.shape}.")
    return sizes


_OPTIONS = RemovalOptions(
    "effective_complexity", "score", "by", "oracle", "draws", by="magnitude", oracle="greedy"
)


@forceable
@documented
@_OPTIONS.former_keywords
def effective_complexity(
    traces: Any,
    explanations: Any,
    target: Any = None,
    *,
    operator: Operator | None = None,
    removal: Removal | None = None,
    epsilon: float = EPSILON,
    selected: Literal["kept", "deleted"] = "kept",
    loss: Literal["change", "log_loss"] = "change",
    unit: str | None = None,
) -> Scorecard:
    """Count the top features that the model needs, k*: the fewer, the better the explanation.

        kept      k* = min k with loss(M_k alone) < epsilon
        deleted   k* = min k with loss(all but M_k) >= epsilon, another reading of the definition

    The loss is the change |f(x) - f(part)|, or "log_loss", -log p(part).

    Args:
        traces: {traces}
        explanations: {explanations}
        target: {target}
        operator: {operator} It replaces the paper's expectation over other values.
        removal: {removal}
        epsilon: The loss that is tolerated.
        selected: Whether the top features are kept or deleted.
        loss: The loss that is compared with epsilon.
        unit: {unit}
        force: {force}

    Returns:
        A Scorecard [k*, method, 1], 0 to the number of features. NaN if no k suffices, or the explanation is
        constant. `features_above` is another measure: how many values are above a threshold.

    Raises:
        ValueError: If an option is unknown, or an explanation belongs to another input or unit.
        TypeError: If an explanation is a map, or not an explanation.

    Source: Nguyen and Martinez 2020, definition 4.

    Example:
        >>> trace = aw.trace(*aw.demo_model("classifier"), "A fine film with a weak end.")
        >>> card = aw.evaluate.effective_complexity(trace, "saliency", operator="mask", unit="word")
        >>> card.x_name, card.shape
        ('features', (1, 3, 1))
    """
    require_choice("selected", selected, ("kept", "deleted"))
    require_choice("loss", loss, ("change", "log_loss"))
    protocol = _OPTIONS.protocol(operator, removal)
    require_choice("removal.oracle", protocol.oracle, ORACLES)
    inputs = explained(traces, explanations, target, "effective_complexity", unit)
    samples = [
        case.ask(needed_questions(case, epsilon, keep=selected == "kept", log_loss=loss == "log_loss"))
        for case in protocol.cases(inputs, [target], "effective_complexity")
    ]
    return scored_explanations(
        inputs,
        np.array(samples)[:, None],
        "effective_complexity",
        metrics=["effective_complexity"],
        x=["k*"],
        x_name="features",
        undefined=UNDEFINED,
        title=f"effective complexity, {protocol.operator}",
        paper=PAPER,
        options=protocol.options("operator", "score", "by", "special", "oracle", "draws", "seed")
        | {"epsilon": epsilon, "selected": selected, "loss": loss},
    )


def needed_questions(
    case: RemovalCase, epsilon: float, *, keep: bool = True, log_loss: bool = False
) -> Questions[list[float]]:
    """Yield the elements to remove from an input, and return k* of every method, baselines last."""
    features = case.features
    best = yield from case.oracle_order(keep=keep, longest=len(features))
    explained_orders = [[] if order is None else [order] for order in case.given_orders().values()]
    rows = [*explained_orders, case.random_orders(), best]
    ks = range(len(features) + 1)
    variants = [steps_removed(case.n, features, order, ks, keep=keep) for row in rows for order in row]
    answers = yield np.concatenate([np.zeros((1, case.n), dtype=bool), *variants])
    scores = case.read(answers)
    if log_loss and default_score(case.removal.target) == "number":
        raise ValueError(
            f'loss="log_loss": {case.removal.target.label!r} is a number without a probability; take '
            'loss="change".'
        )
    losses = -answers.log_p if log_loss else np.abs(scores - scores[0])
    met = losses < epsilon if keep else losses >= epsilon
    firsts = [_first(curve) for curve in met[1:].reshape(-1, len(ks))]
    ends = np.cumsum([0, *(len(row) for row in rows)])
    return [
        float(np.mean(firsts[start:stop])) if stop > start else float("nan") for start, stop in pairwise(ends)
    ]


def _first(met: Bools) -> float:
    return float(np.argmax(met)) if met.any() else float("nan")
