"""How many elements an explanation spreads over: sparsity, entropy, Gini, and the count above a threshold."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from attnwidgets._errors import suggest
from attnwidgets._selecting import listed
from attnwidgets.evaluate.examples.explained_input import by_name, require_single
from attnwidgets.evaluate.scorecards.build import scored

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from attnwidgets.evaluate.scorecards.scorecard import Scorecard

    Float = NDArray[np.float64]

THRESHOLD = 0.01
BASELINES = ("uniform", "one element")


def sparsity(values: Any, threshold: float = THRESHOLD) -> float:
    """Return the share of elements that an explanation leaves out: 1 - |M| / n, 0 to 1 - 1/n.

    M is where |a| is above `threshold` times the largest |a|. NaN where all values are zero.
    """
    return 1.0 - features_above(values, threshold) / len(_sizes(values))


def features_above(values: Any, threshold: float = THRESHOLD) -> float:
    """Return for how many elements |a| is above `threshold` times the largest |a|; NaN where all are zero.

    Quantus calls this effective complexity, and divides by the largest of a whole batch, so that a score
    depends on what else is in it; here it is the explanation's own. For that of Nguyen and Martinez, which
    asks the model, see `effective_complexity`.

    Raises:
        ValueError: Where the threshold is not 0 or more and below 1.
    """
    if not 0 <= threshold < 1:
        raise ValueError(f"threshold is a share of the largest value, from 0 and below 1, not {threshold!r}.")
    sizes = _sizes(values)
    largest = sizes.max()
    return float((sizes > threshold * largest).sum()) if largest else float("nan")


def entropy(values: Any) -> float:
    """Return -sum p log p in nats, with p = |a| / sum |a|: 0 for one element, log n for n equal ones.

    NaN where all values are zero.

    Source: Bhatt et al. 2020, Evaluating and Aggregating Feature-based Model Explanations ("complexity").
    """
    sizes = _sizes(values)
    total = sizes.sum()
    if not total:
        return float("nan")
    shares = sizes[sizes > 0] / total
    return float(-(shares * np.log(shares)).sum()) + 0.0


def gini(values: Any) -> float:
    """Return the Gini index of |a|: sum_i (2 i - n - 1) |a|_(i) / (n sum |a|), sorted from the least.

    0 where all are equal, 1 - 1/n where one has everything; NaN where all values are zero.

    Source: Hurley and Rickard 2009, Comparing Measures of Sparsity; Chalasani et al. 2020, Concise
    Explanations of Neural Networks Using Adversarial Training.
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
    """How many elements explanations spread over; the model is not asked.

    `sparsity`, `entropy`, `gini` and `features_above` say what each is. An explanation can be as simple as
    one likes and wrong: read these beside `faithfulness`.

    Args:
        explanations: Attributions, a list of them (one an input), or a mapping from names to either.
        metrics: One or several of these four.
        threshold: For sparsity and features_above: which share of the largest |a| is too little to count.
        special: Whether special elements count.

    Returns:
        A Scorecard [metric, method, 1]; the baselines are what an explanation scores that gives every
        element the same, and one that gives everything to one. NaN where all values are zero.

    Raises:
        ValueError: For an unknown metric, a threshold out of range, or lists of different lengths.
        TypeError: Where an explanation is none.
    """
    names = (metrics,) if isinstance(metrics, str) else tuple(metrics)
    for name in names:
        if name not in METRICS:
            raise ValueError(f"metrics has {name!r}; there is {listed(METRICS)}.{suggest(name, METRICS)}")
    given = by_name(explanations)
    lists = {str(name): list(one) if isinstance(one, (list, tuple)) else [one] for name, one in given.items()}
    if len({len(found) for found in lists.values()}) != 1 or not next(iter(lists.values())):
        sizes = ", ".join(f"{name!r} {len(found)}" for name, found in lists.items())
        raise ValueError(
            f"explanations must be as many for every name, one or more; there are {sizes or 'none'}."
        )
    options = {name: {"threshold": threshold} if name in _WITH_THRESHOLD else {} for name in names}
    rows = []
    silent: dict[str, None] = {}
    for place in range(len(next(iter(lists.values())))):
        columns = []
        for name, found in lists.items():
            one = require_single(found[place], name)
            apart = np.asarray(one.source_unit.special) & (not special)
            values = np.asarray(one.values, dtype=np.float64)[~apart]
            if not len(values) or not values.any():
                silent[f"{name} is zero on an input"] = None
                values = np.zeros(max(1, len(values)))
            columns.append(values)
        n = len(columns[0])
        columns += [np.ones(n), np.eye(n)[0]]
        rows.append([[[METRICS[m](values, **options[m])] for values in columns] for m in names])
    first = next(iter(lists.values()))[0]
    return scored(
        np.array(rows),
        "complexity",
        model=first.provenance.get("model", ""),
        metrics=names,
        methods=[*lists, *BASELINES],
        baselines=BASELINES,
        unit=first.unit,
        notes=silent,
        options={"metrics": names, "threshold": threshold, "special": special},
    )


def _sizes(values: Any) -> Float:
    sizes = np.abs(np.asarray(getattr(values, "values", values), dtype=np.float64))
    if sizes.ndim != 1 or not len(sizes) or not np.isfinite(sizes).all():
        raise ValueError(f"values must be one finite number an element; they have shape {sizes.shape}.")
    return sizes
