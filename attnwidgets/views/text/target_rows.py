"""Several attributions as rows of one: a target, its foil and their contrast, or several methods."""

from __future__ import annotations

import dataclasses
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np

from attnwidgets.explanations.results.attributions import Attributions
from attnwidgets.tracing.text.units import TokenAxis
from attnwidgets.views.wire.axes import target_labels

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from attnwidgets.explanations import Attributions


def target_rows(shown: Sequence[Attributions], title: str = "") -> Attributions:
    """Return attributions of one text as rows of one, each named by its target; a view draws one scale.

    Args:
        shown: Attributions by one unit of the same elements. With several methods, row names begin with the
            method's title.
        title: Heading; by default the method's.

    Raises:
        ValueError: They cover different elements.
    """
    from attnwidgets.explanations import Attributions

    first = shown[0]
    for other in shown[1:]:
        if other.unit != first.unit or other.labels != first.labels:
            raise ValueError(
                f"attributions can only be shown together over the same elements; {other.title!r} has "
                f"{len(other.labels)} {other.unit}s and {first.title!r} {len(first.labels)} {first.unit}s."
            )
    one_method = len({item.method for item in shown}) == 1
    labels = [
        label if one_method else f"{item.provenance.get('title') or item.method}: {label}"
        for item in shown
        for label in target_labels(item)
    ]
    residuals = [np.atleast_1d(item.residual) for item in shown if item.residual is not None]
    provenance = {name: value for name, value in shown[-1].provenance.items() if name != "parts"}
    title = title or (str(provenance.get("title") or first.method) if one_method else "several methods")
    return Attributions(
        np.concatenate([np.atleast_2d(item.values) for item in shown]),
        axis=first.axis,
        unit=first.unit,
        target=labels,
        reach=_reaches(shown),
        residual=np.concatenate(residuals).tolist() if len(residuals) == len(shown) else None,
        map=_layer_rows([item.map for item in shown], labels, title),
        method=first.method,
        stack=first.stack,
        provenance=provenance | {"title": title},
        trace_id=first.trace_id,
        warning="; ".join(dict.fromkeys(item.warning for item in shown if item.warning)),
        predictions=first.predictions,
    )


def row_axis(labels: Sequence[str], unit: str, units: Iterable[str]) -> TokenAxis:
    """Return the axis of rows that are not tokens; they are the same rows in every unit of the columns.

    Args:
        labels: Names of the rows.
        unit: Unit of the columns.
        units: Every unit that the columns can be read in.
    """
    axis = TokenAxis.plain(labels, name=unit)
    return dataclasses.replace(
        axis, units={name: dataclasses.replace(axis.units[unit], name=name) for name in units}
    )


def _reaches(shown: Sequence[Attributions]) -> list[int] | None:
    """Return how many tokens each row was read from; None if every row was read from all of them."""
    if all(item.reach is None for item in shown):
        return None
    return list(chain.from_iterable(item.reach or (len(item.axis),) * len(item.targets) for item in shown))


def _layer_rows(maps: Sequence[Any], labels: Sequence[str], title: str) -> Any:
    """Return what attributions say of every layer, a row for each target; None if they do not match."""
    if any(item is None for item in maps) or sum(len(item.query) for item in maps) != len(labels):
        return None
    first = maps[0]
    if any((item.layers, item.heads, item.key) != (first.layers, first.heads, first.key) for item in maps):
        return None
    from attnwidgets.explanations import MixingMap

    return MixingMap.lazy(
        lambda number: np.concatenate([item.layer(number) for item in maps], axis=-2),
        query=row_axis(labels, first.unit, first.query.units),
        key=first.key,
        layers=first.layers,
        heads=first.heads,
        unit=first.unit,
        causal=False,
        stochastic=False,
        signed=True,
        method=first.method,
        stack=first.stack,
        provenance={**first.provenance, "title": title},
        trace_id=first.trace_id,
    )
