"""The sides of a matrix, described for the browser: elements, targets, and numbers in words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from attnwidgets.tracing.text.units import TokenAxis, Unit


def span(numbers: tuple[int, ...]) -> str:
    """Return "0 to 5", or the numbers where they have gaps."""
    if len(numbers) > 1 and list(numbers) == list(range(numbers[0], numbers[-1] + 1)):
        return f"{numbers[0]} to {numbers[-1]}"
    return ", ".join(str(n) for n in numbers)


def elements_of(tokens: TokenAxis, unit: str) -> Unit:
    """Return the elements of a side in a unit; where it has no such unit, in its own."""
    return tokens.units.get(unit) or next(iter(tokens.units.values()))


def axis(tokens: TokenAxis, unit: str) -> dict[str, Any]:
    """Return the Axis of wire.ts: the display elements of a side, with the tokens behind each."""
    elements = elements_of(tokens, unit)
    spans = [list(span) for span in elements.spans]
    plain = spans == [[i] for i in range(len(spans))]
    boundary = None
    if tokens.boundary is not None:
        after = [i for i, members in enumerate(spans) if members and min(members) >= tokens.boundary]
        boundary = after[0] if after else None
    return {
        "unit": unit,
        "labels": [str(label) for label in elements.labels],
        "spans": None if plain and len(spans) == len(tokens) else spans,
        "special": [int(flag) for flag in elements.special],
        "segment": [int(tokens.segment[members[0]]) if members else 0 for members in spans],
        "boundary": boundary,
        "grid": None if elements.grid is None else list(elements.grid),
    }


def target_labels(attributions: Any) -> list[str]:
    """Return the name of every row of attributions: its target, less its foil."""
    rows = np.atleast_2d(np.asarray(attributions.values)).shape[0]
    target = attributions.target
    names = list(target) if isinstance(target, (list, tuple)) and len(target) == rows else [target] * rows
    foil = getattr(attributions, "foil", None)
    return [str(name or "") if foil is None else f"{name} − {foil}" for name in names]


def target_axis(attributions: Any) -> dict[str, Any]:
    """Return the Axis of wire.ts: the targets of attributions."""
    labels = target_labels(attributions)
    return {
        "unit": "target",
        "labels": labels,
        "spans": None,
        "special": [0] * len(labels),
        "segment": [0] * len(labels),
        "boundary": None,
        "grid": None,
    }
