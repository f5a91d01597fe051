"""Axes and keys, described for the browser: elements, units, ranges in words, methods and their targets.

Keys by which the browser selects a method, its target, and its values by layer.

`lrp` explains the model's prediction, `lrp@1` the class or token 1, `lrp@1-0` 1 rather than 0; `lrp:layers`
holds its values in every layer.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from attnwidgets.tracing.text.units import TokenAxis, Unit

_SAME_TIME = 1e-4  # seconds

_BY_LAYER = ":layers"
_TARGET = re.compile(r"@(\d+)(?:-(\d+))?")


def span(numbers: tuple[int, ...]) -> str:
    """Return "0 to 5", or the numbers where they have gaps."""
    if len(numbers) > 1 and list(numbers) == list(range(numbers[0], numbers[-1] + 1)):
        return f"{numbers[0]} to {numbers[-1]}"
    return ", ".join(str(n) for n in numbers)


def elements_of(tokens: TokenAxis, unit: str) -> Unit:
    """Return the elements of an axis in a unit; in the axis's unit, if it lacks this one."""
    return tokens.units.get(unit) or next(iter(tokens.units.values()))


def axis(tokens: TokenAxis, unit: str) -> dict[str, Any]:
    """Return the Axis of wire.ts: the elements of a matrix axis, with the tokens behind each."""
    elements = elements_of(tokens, unit)
    spans = elements.spans
    are_tokens = len(spans) == len(tokens) and all(members == (i,) for i, members in enumerate(spans))
    boundary = None
    if tokens.boundary is not None:
        after = (i for i, members in enumerate(spans) if members and min(members) >= tokens.boundary)
        boundary = next(after, None)
    return {
        "unit": unit,
        "labels": [str(label) for label in elements.labels],
        "spans": None if are_tokens else list(map(list, spans)),
        "special": [int(flag) for flag in elements.special],
        "segment": [int(tokens.segment[members[0]]) if members else 0 for members in spans],
        "boundary": boundary,
        "grid": None if elements.grid is None else list(elements.grid),
        "cells": _cells(elements),
        "times": _times(elements),
    }


def _cells(unit: Unit) -> list[int] | None:
    """Return each element's patch, -1 for none; None if all but special ones are the patches in order."""
    if unit.grid is None or unit.cells is None:
        return None
    patches = [cell for cell, special in zip(unit.cells, unit.special, strict=True) if not special]
    plain = patches == list(range(unit.grid[0] * unit.grid[1]))
    return None if plain else [-1 if cell is None else cell for cell in unit.cells]


def _times(unit: Unit) -> dict[str, float] | None:
    """Return when an element begins, in seconds: at `start`, and every next one `step` later, for `width`.

    None if elements are not in a sound, or not at equal distances.
    """
    timed = [(index, *pair) for index, pair in enumerate(unit.times or ()) if pair is not None]
    if not timed:
        return None
    first, begin, end = timed[0]
    step = (timed[-1][1] - begin) / (len(timed) - 1) if len(timed) > 1 else end - begin
    start = begin - first * step
    even = all(abs(start + index * step - time) < _SAME_TIME for index, time, _ in timed)
    return {"start": start, "step": step, "width": end - begin} if even else None


def target_labels(attributions: Any) -> list[str]:
    """Return the name of every row of attributions: its target, or "target − foil"."""
    rows = np.atleast_2d(np.asarray(attributions.values)).shape[0]
    target, foil = attributions.target, attributions.foil
    names = list(target) if isinstance(target, (list, tuple)) and len(target) == rows else [target] * rows
    return [str(name or "") if foil is None else f"{name} − {foil}" for name in names]


def target_axis(attributions: Any) -> dict[str, Any]:
    """Return the Axis of wire.ts: the targets of attributions."""
    labels = target_labels(attributions)
    zeros = [0] * len(labels)
    without = dict.fromkeys(("spans", "boundary", "grid", "cells", "times"))
    return {"unit": "target", "labels": labels, "special": zeros, "segment": zeros, **without}


def by_layer(key: str) -> str:
    """Return the key of the layers of attributions (`.map`)."""
    return key + _BY_LAYER


def is_by_layer(key: str) -> bool:
    """Return whether a key was made by `by_layer`."""
    return key.endswith(_BY_LAYER)


def key_for_target(key: str, target: int | None, foil: int | None) -> str:
    """Return the key of a method for a target, rather than a foil; without a target, for the prediction."""
    base = base_of(key).removesuffix(_BY_LAYER)
    if target is None:
        return base
    return f"{base}@{target}" if foil is None else f"{base}@{target}-{foil}"


def base_of(key: str) -> str:
    """Return a key without target and foil."""
    return _TARGET.sub("", key)


def target_of(key: str) -> dict[str, int]:
    """Return the target and the foil of a key, as options of a method."""
    match = _TARGET.search(key)
    pairs = zip(("target", "foil"), match.groups(), strict=True) if match else ()
    return {name: int(number) for name, number in pairs if number}


def method_of(key: str) -> str:
    """Return the method's name in a key."""
    return base_of(key).removesuffix(_BY_LAYER).split("#")[0]


def units_of(explanation: Any) -> list[str]:
    """Return the units an explanation can be read in, that of its values first."""
    available = getattr(explanation, "available_units", None)
    names = list(available()) if available is not None else []
    return list(dict.fromkeys([explanation.unit, *names]))


def divides(explanation: Any, unit: str) -> bool:
    """Return whether a unit divides the text: paragraphs of a text with a single one do not."""
    if unit != "paragraph":
        return True
    axes = [getattr(explanation, name, None) for name in ("query", "key", "axis")]
    units = [axis.units[unit] for axis in axes if axis is not None and unit in axis.units]
    return any(sum(not special for special in paragraphs.special) > 1 for paragraphs in units)


def in_unit(explanation: Any, unit: str) -> Any:
    """Return an explanation in another unit; None if it lacks the unit or is in it already."""
    if unit == explanation.unit or unit not in units_of(explanation):
        return None
    return explanation.to(unit)
