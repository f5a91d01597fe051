"""Where the patches of a picture stand among the elements of an axis."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from attnwidgets.explanations.results.trace_protocol import is_trace
from attnwidgets.tracing.media.known import with_media
from attnwidgets.tracing.media.patches import PADDING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from attnwidgets.tracing.text.units import Unit
    from attnwidgets.views.base.accepts import Content
    from attnwidgets.views.wire.sources import Source


@dataclass(frozen=True)
class Places:
    """The elements of an axis, those that are patches apart from the others.

    Attributes:
        grid: Rows and columns of patches; (0, 0) where there are none.
        patches: The element of every patch, row by row.
        others: The other elements: class and register tokens, words.
        labels: Names of all elements.
    """

    grid: tuple[int, int]
    patches: tuple[int, ...]
    others: tuple[int, ...]
    labels: tuple[str, ...]

    def name(self, element: int) -> str:
        """Return the name of an element: "[CLS]", or "patch 6,9", row and column."""
        label = self.labels[element]
        return f"patch {label}" if element in self.patches else label


def places_of(unit: Unit) -> Places:
    """Return where the patches of a unit stand."""
    count = len(unit.labels)
    if unit.grid is None or unit.cells is None:
        return Places((0, 0), (), tuple(range(count)), tuple(unit.labels))
    found = {cell: element for element, cell in enumerate(unit.cells) if cell is not None}
    patches = tuple(found[cell] for cell in sorted(found))
    others = tuple(element for element, cell in enumerate(unit.cells) if cell is None)
    return Places(unit.grid, patches, others, tuple(unit.labels))


def units_on_grid(explanation: Any) -> list[str]:
    """Return the units in which the keys of an explanation hold the patches of a picture."""
    axis = getattr(explanation, "axis", None) or explanation.key
    return [name for name, unit in axis.units.items() if unit.grid is not None and unit.cells is not None]


def pictured_of(shown: Any) -> Any:
    """Return the trace of a picture behind a trace, map or attributions; None if there is none in memory."""
    trace = shown if is_trace(shown) else with_media(str(getattr(shown, "trace_id", "")))
    if trace is None or trace.picture is None:
        return None
    axes = (trace.axes(stack)[1] for stack in trace.stacks)
    return trace if any(unit.grid is not None for axis in axes for unit in axis.units.values()) else None


def is_only_a_picture(trace: Any) -> bool:
    """Return whether all that a trace attends to are the patches of pictures."""
    axes = [axis for stack in trace.stacks for axis in trace.axes(stack)]
    units = [[unit for unit in axis.units.values() if unit.grid is not None] for axis in axes]
    return all(
        any(all(is_special or cell is not None for is_special, cell in _members(unit)) for unit in on_grid)
        for on_grid in units
    )


def on_grid_first(content: Content) -> Content:
    """Return a view's content with its maps over patches first, before those of a text."""
    on_grid = [item for item in content.explanations if units_on_grid(item)]
    others = [item for item in content.explanations if item not in on_grid]
    return replace(content, explanations=(*on_grid, *others))


def _members(unit: Unit) -> Iterable[tuple[bool, int | None]]:
    return zip(unit.special, unit.cells or (), strict=True)


def sides_of(source: Source) -> tuple[Places, Places]:
    """Return where the patches stand among the queries and among the keys of a source.

    Targets of attributions are not elements: their places are those of the keys.
    """
    explanation, unit = source.explanation, source.unit
    if source.of_targets:
        axis = getattr(explanation, "axis", None) or explanation.key
        return places_of(axis.units[unit]), places_of(axis.units[unit])
    query, key = (
        axis.units.get(unit) or next(iter(axis.units.values()))
        for axis in (explanation.query, explanation.key)
    )
    return places_of(query), places_of(key)


def opening_element(places: Places, special: Sequence[bool]) -> int:
    """Return the element whose map a picture opens with.

    It is the last word, where a text holds the picture or reads it; else the class token; else, as padding is
    not looked at, the patch in the middle.
    """
    words = [element for element in places.others if not special[element]]
    apart = [element for element in places.others if places.labels[element] != PADDING]
    if words or apart:
        return words[-1] if words else apart[0]
    rows, columns = places.grid
    return places.patches[rows // 2 * columns + columns // 2]
