"""aw.evaluate.agreement: how alike methods rank tokens.

Items become rows of vectors over the same elements (`_rows`); each pair of items is scored row by row, and
the mean is an entry of the matrix. `Agreement.caveat` says which conclusions the numbers do not allow.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from attnwidgets._errors import require_choice
from attnwidgets._selecting import listed, spoken_range
from attnwidgets.evaluate.documentation import documented
from attnwidgets.evaluate.metrics.agreement_matrix import Agreement
from attnwidgets.evaluate.metrics.ranking import is_constant, kendall, spearman, top_k_overlap
from attnwidgets.evaluate.removals.ordering import BY
from attnwidgets.explanations.results.attributions import Attributions
from attnwidgets.explanations.results.mixing_map import MixingMap
from attnwidgets.tracing.free_memory import forceable

if TYPE_CHECKING:
    from collections.abc import Callable

    from attnwidgets.evaluate.arrays import Float
    from attnwidgets.evaluate.removals.ordering import By

Measure = Literal["spearman", "kendall", "top_k"]
MEASURES: tuple[Measure, ...] = ("spearman", "kendall", "top_k")
_QUARTER = 4
_TWO = 2
PAPERS = {
    "spearman": "Spearman 1904",
    "kendall": "Kendall 1945 (tau-b)",
    "top_k": "Krishna et al. 2024, The Disagreement Problem in Explainable Machine Learning (feature "
    "agreement)",
}
_CORRELATIONS = {"spearman": spearman, "kendall": kendall}


@forceable
@documented
def agreement(
    items: Mapping[str, Any] | Sequence[Any],
    measure: Measure = "spearman",
    *,
    names: Sequence[str] | None = None,
    k: int | None = None,
    by: By = "value",
    over: Literal["rows", "all"] = "rows",
    special: bool = True,
) -> Agreement:
    """Return how alike explanations of a text rank its elements, for every pair of explanations.

    Args:
        items: Attributions, or maps of a single layer and head (`.select(layer=3).mean()`), all of the same
            elements; a mapping names them.
        measure: "spearman" (rank correlation, equal values sharing their mean rank), "kendall" (tau-b) or
            "top_k" (the share of the k highest elements in common; ties for the last of these count in part).
        names: Names of the items; by default their titles.
        k: For "top_k": number of elements; by default a quarter of all, at least one.
        by: Rank by "value", which puts the most negative last, or by "magnitude", as is common for signed
            attributions.
        over: For maps: the mean over "rows" (how every query ranks its keys), or a single ranking of "all"
            entries, in which rows of a causal map differ by their length alone. Rows too short to rank are
            left out: those of fewer than two keys, or for "top_k" of at most k keys.
        special: Count special elements ([CLS], [SEP]); a sink at such an element makes methods agree.
        force: {force}

    Returns:
        Agreement [item, item], symmetric, with 1 on the diagonal, never NaN: a constant vector ranks
        nothing, correlates 0 with others, and is named in `.warning`. Causal maps are compared in the entries
        that all of them can see. `.caveat` says which conclusions it does not allow.

    Raises:
        TypeError: If an item is neither Attributions nor a map, or both kinds are mixed.
        ValueError: If there are fewer than two items, units or elements differ (the message names the first),
            a map has several layers or heads, or an option is out of range.

    Source: Krishna et al. 2024 for the overlap of the highest; Neely et al. 2021 (Order in the Court) and
    Jain and Wallace 2019 (Attention is not Explanation) for the conclusions drawn from such correlations.

    Example:
        >>> trace = aw.trace(*aw.demo_model("classifier"), "A fine film.")
        >>> alike = aw.evaluate.agreement({"gradient": aw.saliency(trace), "lrp": aw.lrp(trace)})
        >>> alike.names, alike.shape
        (('gradient', 'lrp'), (2, 2))
    """
    require_choice("measure", measure, MEASURES)
    require_choice("by", by, BY)
    require_choice("over", over, ("rows", "all"))
    if k is not None and measure != "top_k":
        raise ValueError(f"k={k!r} is for measure='top_k', not {measure!r}.")
    labels, explanations = _named(items, names)
    _require_alike(labels, explanations)
    rows = _rows(explanations, labels, over=over, special=special)
    if by == "magnitude":
        rows = [[np.abs(vector) for vector in row] for row in rows]
    longest = max(len(row[0]) for row in rows)
    if measure == "top_k":
        k = max(1, longest // _QUARTER) if k is None else k
        if not 1 <= k < longest:
            raise ValueError(f"k must be 1 to {longest - 1} of these {longest} elements, not {k!r}.")
    least = _TWO if k is None else k + 1
    counted = [row for row in rows if len(row[0]) >= least]
    if not counted:
        raise ValueError(f"there is nothing to rank: {longest} elements, and {least} are needed.")
    score = partial(top_k_overlap, k=k or 1) if measure == "top_k" else _CORRELATIONS[measure]
    constant = [name for item, name in enumerate(labels) if all(is_constant(row[item]) for row in counted)]
    first = explanations[0]
    return Agreement(
        _matrix(counted, score),
        names=labels,
        measure=measure,
        k=k,
        n_elements=max(len(row[0]) for row in counted),
        n_rows=len(counted),
        unit=first.unit,
        stack=first.stack,
        trace_id=first.trace_id,
        warning="; ".join(f"{name!r} is constant: it ranks nothing" for name in constant),
        provenance={
            "options": {"measure": measure, "k": k, "by": by, "over": over, "special": special},
            "paper": PAPERS[measure],
            "text": first.provenance.get("text", ""),
            "model": first.provenance.get("model", ""),
            "of": [dict(item.provenance) for item in explanations],
        },
    )


def _matrix(rows: list[list[Float]], score: Callable[[Float, Float], float]) -> Float:
    n = len(rows[0])
    matrix = np.eye(n)
    for first in range(n):
        for second in range(first):
            mean = float(np.mean([score(row[first], row[second]) for row in rows]))
            matrix[first, second] = matrix[second, first] = mean
    return matrix


def _named(
    items: Mapping[str, Any] | Sequence[Any], names: Sequence[str] | None
) -> tuple[list[str], list[Any]]:
    """Return names and items; titles that repeat are numbered."""
    if isinstance(items, (MixingMap, Attributions, str)):
        raise TypeError(
            "items is a single explanation: give a list of two or more, or a mapping from names to them."
        )
    if isinstance(items, Mapping):
        names = list(items) if names is None else names
        items = list(items.values())
    explanations = list(items)
    for number, item in enumerate(explanations):
        if not isinstance(item, (MixingMap, Attributions)):
            raise TypeError(
                f"items[{number}] is a {type(item).__name__}, neither Attributions nor a MixingMap."
            )
    if len(explanations) < _TWO:
        raise ValueError(f"items has {len(explanations)}: agreement is between two or more.")
    labels = [item.title for item in explanations] if names is None else [str(name) for name in names]
    if len(labels) != len(explanations):
        raise ValueError(f"names has {len(labels)} entries for {len(explanations)} items.")
    if names is not None and len(set(labels)) < len(labels):
        raise ValueError(f"names has one twice: {listed(labels)}.")
    counts = [labels[: number + 1].count(label) for number, label in enumerate(labels)]
    return [
        f"{label} ({count})" if count > 1 else label for label, count in zip(labels, counts, strict=True)
    ], explanations


def _require_alike(names: list[str], explanations: list[Any]) -> None:
    """Raise an error if two items are not about the same elements."""
    first = explanations[0]
    for name, item in zip(names, explanations, strict=True):
        if isinstance(item, MixingMap) is not isinstance(first, MixingMap):
            raise TypeError(
                f"{names[0]!r} and {name!r} are a map and attributions: make vectors of maps first, "
                ".to_attributions('column_mean') or another scheme."
            )
        if item.unit != first.unit:
            raise ValueError(
                f"{name!r} is by {item.unit}, {names[0]!r} by {first.unit}: read both in one unit, "
                f".to({first.unit!r})."
            )
        for side, labels in _labels(item).items():
            others = _labels(first)[side]
            differ = next((i for i, (a, b) in enumerate(zip(labels, others, strict=False)) if a != b), None)
            if differ is not None or len(labels) != len(others):
                where = (
                    f"{len(labels)} {side} elements, {names[0]!r} {len(others)}"
                    if differ is None
                    else f"{labels[differ]!r} as {side} element {differ}, {names[0]!r} {others[differ]!r}"
                )
                raise ValueError(
                    f"{name!r} has {where}: agreement needs the same elements. Models with different tokens "
                    "can be compared by word: .to('word')."
                )
        if isinstance(item, MixingMap):
            for axis, numbers in (("layer", item.layers), ("head", item.heads or ())):
                if len(numbers) > 1:
                    raise ValueError(
                        f"{name!r} has {axis}s {spoken_range(numbers)}: use one, .select({axis}=...), or "
                        f".mean({axis!r})."
                    )
        elif len(item.targets) != len(first.targets):
            raise ValueError(
                f"{name!r} has {len(item.targets)} targets, {names[0]!r} {len(first.targets)}: "
                "use one of each, .select(target)."
            )


def _labels(item: Any) -> dict[str, tuple[str, ...]]:
    if isinstance(item, MixingMap):
        return {"query": item.query_labels, "key": item.key_labels}
    return {"source": item.labels}


def _rows(explanations: list[Any], names: list[str], *, over: str, special: bool) -> list[list[Float]]:
    """Return the vectors that are ranked: for every row (query, or target) the vector of every item."""
    first = explanations[0]
    if isinstance(first, Attributions):
        keys = np.array(first.source_unit.special, dtype=bool)
        tables = [np.atleast_2d(np.asarray(item.values, dtype=np.float64)) for item in explanations]
        visible = np.ones(tables[0].shape, dtype=bool)
        over = "rows"
    else:
        keys = np.array(first.key_unit.special, dtype=bool)
        tables = [
            np.asarray(item.matrix(), dtype=np.float64).reshape(item.shape[-2:]) for item in explanations
        ]
        visible = np.ones(tables[0].shape, dtype=bool)
        if all(item.causal for item in explanations):
            visible = np.tril(visible)
        if not special:
            visible[np.array(first.query_unit.special, dtype=bool)] = False
    if not special:
        visible[:, keys] = False
    if not visible.any():
        raise ValueError(f"special=False leaves no element of {names[0]!r} to rank.")
    if over == "all":
        return [[table[visible] for table in tables]]
    return [
        [table[row][visible[row]] for table in tables] for row in range(len(visible)) if visible[row].any()
    ]
