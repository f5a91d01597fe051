"""Axes of a picture's patches, by the layout of their family."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from attnwidgets.tracing.media.layouts import INSIDE, layout_of
from attnwidgets.tracing.text.axes import media_axis
from attnwidgets.tracing.text.units import TokenAxis, Unit

if TYPE_CHECKING:
    from collections.abc import Sequence

    from attnwidgets.tracing.media.layouts import Grid, Inputs, Layout
    from attnwidgets.tracing.text.axes import Text

PADDING = "[PAD]"


def patch_axis(layout: Layout, config: Any, inputs: Inputs, n: int) -> TokenAxis | None:
    """Return the axis of `n` places of a picture's tower; None if the layout does not fit them.

    Args:
        layout: Of the tower's family.
        config: Of the tower.
        inputs: The model's inputs.
        n: Length of the axis.
    """
    if layout.queries:
        labels = tuple(layout.queries.format(i) for i in range(n))
        return media_axis(Unit("query", labels, _each(n), (False,) * n))
    grid = layout.grid(config, inputs)
    if grid is None:
        return None
    order = _order(grid, int(getattr(config, layout.window, 1)) if layout.window else 1)
    before, after = _labels(layout.before, config), _labels(layout.after, config)
    if layout.padded:
        after += (PADDING,) * (n - len(before) - len(order) - len(after))
    if len(before) + len(order) + len(after) != n or not order:
        return None
    cells = (*(None for _ in before), *order, *(None for _ in after))
    labels = (*before, *(_name(cell, grid) for cell in order), *after)
    special = tuple(cell is None for cell in cells)
    return media_axis(Unit("patch", labels, _each(n), special, grid=grid, cells=cells))


def _each(n: int) -> tuple[tuple[int, ...], ...]:
    return tuple((i,) for i in range(n))


def _name(cell: int, grid: Grid) -> str:
    return "{},{}".format(*divmod(cell, grid[1]))


def _labels(extras: Sequence[str | tuple[str, str]], config: Any) -> tuple[str, ...]:
    """Return the labels of tokens that are not patches."""
    found: list[str] = []
    for extra in extras:
        if isinstance(extra, str):
            found.append(extra)
        else:
            label, count = extra
            found += [label.format(i) for i in range(int(getattr(config, count, 0) or 0))]
    return tuple(found)


def _order(grid: Grid, side: int) -> list[int]:
    """Return the cells of a grid, numbered row by row, in windows of `side` x `side` one after the other."""
    rows, columns = grid
    if rows % side or columns % side:
        return []
    return [
        (top + down) * columns + left + across
        for top in range(0, rows, side)
        for left in range(0, columns, side)
        for down in range(side)
        for across in range(side)
    ]


def picture_in(
    text: Text, ids: Sequence[int], config: Any, inputs: Inputs
) -> tuple[Text, Grid, list[int]] | None:
    """Return a text whose tokens for a picture are named as its patches, their grid and their places.

    None if the model puts no picture into its text, or not in the way of its family.

    Args:
        text: The text as its tokenizer spells it, where every patch is the same special token.
        ids: Token ids.
        config: The model's config.
        inputs: The model's inputs.
    """
    merge = INSIDE.get(str(getattr(config, "model_type", "")))
    tower = getattr(config, "vision_config", None)
    layout = layout_of(tower, "vision")
    grid = None if layout is None else layout.grid(tower, inputs)
    if grid is None or merge is None:
        return None
    own = (getattr(config, name, None) for name in ("image_token_id", "image_token_index"))
    token = next((i for i in own if isinstance(i, int)), None)
    places = [place for place, i in enumerate(ids) if i == token]
    if isinstance(merge, str):
        owner: Any = config if hasattr(config, merge) else tower
        merge = int(getattr(owner, merge, 1))
    grid = (grid[0] // merge, grid[1] // merge)
    if not places or len(places) != grid[0] * grid[1]:
        return None
    tokens, special = list(text.tokens), list(text.special)
    for cell, place in enumerate(places):
        tokens[place], special[place] = _name(cell, grid), False
    return replace(text, tokens=tuple(tokens), special=tuple(special)), grid, places


def on_grid(axis: TokenAxis, grid: Grid, places: Sequence[int]) -> TokenAxis:
    """Return the axis of a text in which tokens at `places` are the patches of a picture, row by row."""
    cell = {place: number for number, place in enumerate(places)}
    units = {}
    for name, unit in axis.units.items():
        cells = tuple(cell.get(span[0]) if len(span) == 1 else None for span in unit.spans)
        whole = sum(one is not None for one in cells) == len(places)
        units[name] = replace(unit, grid=grid, cells=cells) if whole else unit
    return replace(axis, units=units)
