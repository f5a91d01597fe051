"""Attributions beside each other: a target, its foil and their contrast as rows of one picture."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np

from attnwidgets.views.wire.axes import target_labels
from attnwidgets.views.wire.reader import is_attributions

if TYPE_CHECKING:
    from collections.abc import Sequence

    from attnwidgets.explanations import Attributions


def are_attributions(shown: Any) -> bool:
    """Return whether something is a list of attributions."""
    many = isinstance(shown, (list, tuple)) and len(shown) > 0
    return many and all(hasattr(item, "axis") and is_attributions(item) for item in shown)


def beside(shown: Sequence[Attributions], title: str = "") -> Attributions:
    """Return attributions of one text as rows of one, each named by its target; on one scale in a view.

    Args:
        shown: Attributions by one unit of the same elements. Of several methods, the rows carry their names.
        title: Heading; by default the method's.

    Raises:
        ValueError: Where they are of different elements.
    """
    from attnwidgets.explanations import Attributions

    first = shown[0]
    for other in shown[1:]:
        if other.unit != first.unit or other.labels != first.labels:
            raise ValueError(
                f"attributions can be laid beside each other over the same elements; {other.title!r} has "
                f"{len(other.labels)} {other.unit}s and {first.title!r} {len(first.labels)} {first.unit}s."
            )
    one_method = len({item.method for item in shown}) == 1
    labels = [
        label if one_method else f"{item.provenance.get('title') or item.method}: {label}"
        for item in shown
        for label in target_labels(item)
    ]
    residuals = [np.atleast_1d(item.residual) for item in shown if item.residual is not None]
    about = dict(shown[-1].provenance)
    named = title or (str(about.get("title") or first.method) if one_method else "several methods")
    return Attributions(
        np.concatenate([np.atleast_2d(item.values) for item in shown]),
        axis=first.axis,
        unit=first.unit,
        target=labels,
        reach=_reaches(shown),
        residual=np.concatenate(residuals).tolist() if len(residuals) == len(shown) else None,
        map=_maps_beside([item.map for item in shown], labels, named),
        method=first.method,
        stack=first.stack,
        provenance={name: value for name, value in about.items() if name != "parts"} | {"title": named},
        trace_id=first.trace_id,
        warning="; ".join(dict.fromkeys(item.warning for item in shown if item.warning)),
        predictions=first.predictions,
    )


def _reaches(shown: Sequence[Attributions]) -> list[int] | None:
    """Return how many tokens each row was read from; None where that is all of every one."""
    if all(item.reach is None for item in shown):
        return None
    every = [(len(item.axis),) * len(item.targets) if item.reach is None else item.reach for item in shown]
    return [number for numbers in every for number in numbers]


def _maps_beside(maps: Sequence[Any], labels: Sequence[str], title: str) -> Any:
    """Return what attributions say of every layer, a row for each target; None where nothing alike."""
    if any(item is None for item in maps) or sum(len(item.query) for item in maps) != len(labels):
        return None
    first = maps[0]
    if any((item.layers, item.heads, item.key) != (first.layers, first.heads, first.key) for item in maps):
        return None
    from attnwidgets.explanations import MixingMap
    from attnwidgets.tracing.text.units import TokenAxis

    query = TokenAxis.plain(labels, name=first.unit)
    # The rows are targets, and stand beside any unit of the sources.
    units = {name: dataclasses.replace(query.units[first.unit], name=name) for name in first.query.units}
    return MixingMap.lazy(
        lambda number: np.concatenate([item.layer(number) for item in maps], axis=-2),
        query=dataclasses.replace(query, units=units),
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
