"""aw.agreement: how alike methods rank tokens, with what that does and does not show."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from attnwidgets._errors import suggest
from attnwidgets._selecting import listed, spoken_range
from attnwidgets.evaluate.metrics.agreement_matrix import Agreement
from attnwidgets.evaluate.metrics.rank_measures import is_constant, kendall, spearman, top_k_overlap
from attnwidgets.explanations.results.attributions import Attributions
from attnwidgets.explanations.results.mixing_map import MixingMap
from attnwidgets.tracing.free_memory import forceable

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    Float = NDArray[np.float64]

Measure = Literal["spearman", "kendall", "top_k"]
MEASURES: tuple[Measure, ...] = ("spearman", "kendall", "top_k")
OVER = ("rows", "all")
_BY = ("value", "magnitude")
_QUARTER = 4
_TWO = 2
PAPERS = {
    "spearman": "Spearman 1904",
    "kendall": "Kendall 1945 (tau-b)",
    "top_k": "Krishna et al. 2024, The Disagreement Problem in Explainable Machine Learning (feature "
    "agreement)",
}


@forceable
def agreement(
    items: Mapping[str, Any] | Sequence[Any],
    measure: Measure = "spearman",
    *,
    names: Sequence[str] | None = None,
    k: int | None = None,
    by: Literal["value", "magnitude"] = "value",
    over: Literal["rows", "all"] = "rows",
    special: bool = True,
) -> Agreement:
    """Return how alike explanations of one text rank its elements, every one against every other.

    Args:
        items: Attributions, or maps of one layer and one head (`.select(layer=3).mean()`), all of the same
            elements; a mapping names them.
        measure: "spearman" (rank correlation, equal values sharing their mean rank), "kendall" (tau-b) or
            "top_k" (the share of the k highest elements in common; ties at the last place count in part).
        names: What the items are called; by default their titles.
        k: For "top_k": how many; by default a quarter of the elements, at least one.
        by: Rank by "value", so that the most negative comes last, or by "magnitude", as is often done with
            signed attributions.
        over: For maps: the mean over "rows" (how every query ranks its keys), or one ranking of "all"
            entries, in which rows of a causal map differ by their length alone. Rows that leave nothing to
            rank are left out: those of fewer than two keys, or for "top_k" of k keys and less.
        special: Whether special elements ([CLS], [SEP]) take part; a sink in one makes methods agree.

    Returns:
        Agreement [item, item], symmetric, ones on its diagonal, never NaN: a constant vector, which ranks
        nothing, scores 0 with others in correlation, and is named in `.warning`. Of causal maps the entries
        that every one of them can see are compared. Read `.caveat` with it: what agreement does not show.

    Raises:
        TypeError: Where an item is neither Attributions nor a map, or both kinds are mixed.
        ValueError: Where there are fewer than two, units or elements differ (the first is named), a map has
            several layers or heads, or an option is out of its range.

    Source: Krishna et al. 2024 for the overlap of the highest; Neely et al. 2021 (Order in the Court) and
    Jain and Wallace 2019 (Attention is not Explanation) for what such correlations were taken to show.
    """
    for what, value, choices in (("measure", measure, MEASURES), ("by", by, _BY), ("over", over, OVER)):
        if value not in choices:
            near = suggest(str(value), choices)
            raise ValueError(f"{what} {value!r} is not one of {listed(choices)}.{near}")
    if k is not None and measure != "top_k":
        raise ValueError(f"k={k!r} is for measure='top_k', not {measure!r}.")
    called, given = _named(items, names)
    _require_alike(called, given)
    rows = _rows(given, called, over=over, special=special)
    if by == "magnitude":
        rows = [[np.abs(vector) for vector in row] for row in rows]
    longest = max(len(row[0]) for row in rows)
    if measure == "top_k":
        k = max(1, longest // _QUARTER) if k is None else k
        if not 1 <= k < longest:
            raise ValueError(f"k must be 1 to {longest - 1} of these {longest} elements, not {k!r}.")
    least = _TWO if k is None else k + 1
    kept = [row for row in rows if len(row[0]) >= least]
    if not kept:
        raise ValueError(f"there is nothing to rank: {longest} elements where {least} are needed.")
    matrix = _matrix(kept, _measure(measure, k))
    constant = [name for place, name in enumerate(called) if all(is_constant(row[place]) for row in kept)]
    first = given[0]
    return Agreement(
        matrix,
        names=called,
        measure=measure,
        k=k,
        n_elements=max(len(row[0]) for row in kept),
        n_rows=len(kept),
        unit=first.unit,
        stack=first.stack,
        trace_id=first.trace_id,
        warning="; ".join(f"{name!r} is constant: it ranks nothing" for name in constant),
        provenance={
            "options": {"measure": measure, "k": k, "by": by, "over": over, "special": special},
            "paper": PAPERS[measure],
            "text": first.provenance.get("text", ""),
            "model": first.provenance.get("model", ""),
            "of": [dict(item.provenance) for item in given],
        },
    )


def _measure(measure: Measure, k: int | None) -> Callable[[Float, Float], float]:
    if measure == "top_k":
        return partial(top_k_overlap, k=k or 1)
    return spearman if measure == "spearman" else kendall


def _matrix(rows: list[list[Float]], score: Callable[[Float, Float], float]) -> Float:
    n = len(rows[0])
    found = np.eye(n)
    for first in range(n):
        for second in range(first):
            mean = float(np.mean([score(row[first], row[second]) for row in rows]))
            found[first, second] = found[second, first] = mean
    return found


def _named(
    items: Mapping[str, Any] | Sequence[Any], names: Sequence[str] | None
) -> tuple[list[str], list[Any]]:
    """Return names and items; titles that repeat are numbered."""
    if isinstance(items, (MixingMap, Attributions, str)):
        raise TypeError("items is one thing: give a list of two or more, or a mapping from names to them.")
    if isinstance(items, Mapping):
        names = list(items) if names is None else names
        items = list(items.values())
    given = list(items)
    for place, item in enumerate(given):
        if not isinstance(item, (MixingMap, Attributions)):
            raise TypeError(
                f"items[{place}] is a {type(item).__name__}, neither Attributions nor a MixingMap."
            )
    if len(given) < _TWO:
        raise ValueError(f"items has {len(given)}: agreement is between two or more.")
    called = [item.title for item in given] if names is None else [str(name) for name in names]
    if len(called) != len(given):
        raise ValueError(f"names has {len(called)} entries for {len(given)} items.")
    if names is not None and len(set(called)) < len(called):
        raise ValueError(f"names has one twice: {listed(called)}.")
    seen: dict[str, int] = {}
    for place, name in enumerate(called):
        seen[name] = seen.get(name, 0) + 1
        if seen[name] > 1:
            called[place] = f"{name} ({seen[name]})"
    return called, given


def _require_alike(names: list[str], given: list[Any]) -> None:
    """Raise where two items are not about the same elements."""
    first = given[0]
    for name, item in zip(names, given, strict=True):
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
        for side, own, other in zip(_sides(item), _labels(item), _labels(first), strict=True):
            differ = next((i for i, (a, b) in enumerate(zip(own, other, strict=False)) if a != b), None)
            if differ is not None or len(own) != len(other):
                where = (
                    f"{len(own)} {side} elements, {names[0]!r} {len(other)}"
                    if differ is None
                    else f"{own[differ]!r} as {side} element {differ}, {names[0]!r} {other[differ]!r}"
                )
                raise ValueError(
                    f"{name!r} has {where}: agreement is about the same elements. Models with different "
                    "tokens can be compared by word: .to('word')."
                )
        if isinstance(item, MixingMap):
            _require_one_matrix(name, item)
        elif len(item.targets) != len(first.targets):
            raise ValueError(
                f"{name!r} has {len(item.targets)} targets, {names[0]!r} {len(first.targets)}: "
                "take one of each, .select(target)."
            )


def _require_one_matrix(name: str, item: MixingMap) -> None:
    if len(item.layers) > 1:
        said = spoken_range(item.layers)
        raise ValueError(f"{name!r} has layers {said}: take one, .select(layer=...), or .mean('layer').")
    if item.heads is not None and len(item.heads) > 1:
        said = spoken_range(item.heads)
        raise ValueError(f"{name!r} has heads {said}: take one, .select(head=...), or .mean('head').")


def _sides(item: Any) -> tuple[str, ...]:
    return ("query", "key") if isinstance(item, MixingMap) else ("source",)


def _labels(item: Any) -> tuple[tuple[str, ...], ...]:
    return (item.query_labels, item.key_labels) if isinstance(item, MixingMap) else (item.labels,)


def _rows(given: list[Any], names: list[str], *, over: str, special: bool) -> list[list[Float]]:
    """Return what is ranked: for every row (query, or target) the vector of every item."""
    first = given[0]
    if isinstance(first, Attributions):
        keys = np.array(first.source_unit.special, dtype=bool)
        tables = [np.atleast_2d(np.asarray(item.values, dtype=np.float64)) for item in given]
        seen = np.ones(tables[0].shape, dtype=bool)
        over = "rows"
    else:
        keys = np.array(first.key_unit.special, dtype=bool)
        tables = [np.asarray(item.matrix(), dtype=np.float64).reshape(item.shape[-2:]) for item in given]
        seen = np.ones(tables[0].shape, dtype=bool)
        if all(item.causal for item in given):
            seen = np.tril(seen)
        if not special:
            seen[np.array(first.query_unit.special, dtype=bool)] = False
    if not special:
        seen[:, keys] = False
    if not seen.any():
        raise ValueError(f"special=False leaves no element of {names[0]!r} to rank.")
    if over == "all":
        return [[table[seen] for table in tables]]
    return [[table[row][seen[row]] for table in tables] for row in range(len(seen)) if seen[row].any()]
