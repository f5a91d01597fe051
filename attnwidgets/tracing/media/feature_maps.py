"""Feature maps of a model that reads a picture: which modules return one, and of how many rows and columns.

Nothing is assumed about a model's code. A map is a tensor [batch, channel, row, column] (or with channels
last) of the picture's proportions. In families that list the positions of a map row by row (`ROW_BY_ROW`), it
is also [batch, position, channel].
"""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from attnwidgets.tracing.anatomy.block_names import is_attention
from attnwidgets.tracing.model_state import named_modules
from attnwidgets.tracing.text.axes import media_axis
from attnwidgets.tracing.text.units import Unit

if TYPE_CHECKING:
    from collections.abc import Iterator

    from attnwidgets.tracing.media.patches import Grid
    from attnwidgets.tracing.text.units import TokenAxis

# Families whose states [batch, position, channel] are the positions of a map, row by row, of this picture's
# proportions (tests/tracing/test_feature_maps.py paints one position of each).
ROW_BY_ROW = "swin swinv2 donut-swin segformer pvt_v2"
_MAP, _TOKENS = 4, 3  # dimensions


@dataclass(frozen=True)
class FeatureMap:
    """The output of a module that is a map of the picture.

    Args:
        name: The module's path in the model.
        grid: Rows and columns.
    """

    name: str
    grid: Grid


def lists_places(model: Any) -> bool:
    """Return whether states [batch, position, channel] of a model are the positions of a map, row by row."""
    return str(getattr(getattr(model, "config", None), "model_type", "")) in ROW_BY_ROW.split()


def as_map(states: Tensor, size: Grid, *, places: bool) -> Tensor | None:
    """Return states as a map [batch, channel, row, column]; None if they are not a map.

    Args:
        states: The output of a module.
        size: Rows and columns of pixels of the picture.
        places: Whether [batch, position, channel] may be a map's positions, row by row.
    """
    if states.dim() == _MAP:
        # With channels first or last, whichever is closer to the picture's proportions.
        maps = [
            candidate
            for candidate in (states, states.permute(0, 3, 1, 2))
            if _fits(candidate.shape[2], candidate.shape[3], size)
        ]
        return min(
            maps, key=lambda candidate: _off(candidate.shape[2], candidate.shape[3], size), default=None
        )
    # Pooling returns [batch, channel, 1].
    if states.dim() == _TOKENS and places and states.shape[2] > 1:
        grid = _grid_of(states.shape[1], size)
        if grid is not None:
            return states.transpose(1, 2).unflatten(2, grid)
    return None


def _fits(rows: int, columns: int, size: Grid) -> bool:
    """Return whether a map has the picture's proportions, to one row or column, and several positions."""
    high, wide = size
    if rows * columns < 2 or rows > high or columns > wide:  # noqa: PLR2004 - a single position is not a map
        return False
    return _off(rows, columns, size) <= max(high, wide)


def _off(rows: int, columns: int, size: Grid) -> int:
    """Return how far a map is from the picture's proportions, in pixels times rows or columns."""
    return abs(rows * size[1] - columns * size[0])


def _grid_of(count: int, size: Grid) -> Grid | None:
    """Return rows and columns of so many positions of a picture; None if none fit its proportions."""
    side = (size[0] * size[1] / count) ** 0.5
    for rows in {int(size[0] / side), round(size[0] / side), int(size[0] / side) + 1}:
        if rows > 0 and count % rows == 0 and _fits(rows, count // rows, size):
            return rows, count // rows
    return None


@contextmanager
def watching_maps(model: nn.Module, size: Grid) -> Iterator[list[FeatureMap]]:
    """Yield a list that fills with the maps of a borrowed model's pass, in the order of their computation."""
    result: list[FeatureMap] = []
    row_by_row = lists_places(model)

    def note(name: str) -> Any:
        def hook(_: nn.Module, __: tuple[Any, ...], output: Any) -> None:
            if isinstance(output, Tensor) and output.is_floating_point() and len(output) == 1:
                seen = as_map(output, size, places=row_by_row)
                if seen is not None:
                    result.append(FeatureMap(name, (seen.shape[2], seen.shape[3])))

        return hook

    with ExitStack() as undo:
        modules = named_modules(model)
        inside = [f"{name}." for name, module in modules.items() if is_attention(module)]
        for name, module in modules.items():
            # Weights [batch, head, query, key] have the proportions of a square picture.
            if name and not any(name.startswith(attention) for attention in inside):
                undo.callback(module.register_forward_hook(note(name)).remove)
        yield result


def last_of_each_size(maps: list[FeatureMap]) -> list[FeatureMap]:
    """Return the last map of every size, in order: the stages of a convolutional model."""
    by_grid = {feature_map.grid: feature_map for feature_map in maps}
    order = {feature_map.grid: number for number, feature_map in enumerate(maps)}
    return [by_grid[grid] for grid in sorted(by_grid, key=order.__getitem__)]


def blocks_that_attend(model: nn.Module) -> list[str]:
    """Return the paths of the blocks of a model with attention of any kind, in order.

    A block is the innermost element of a module list around an attention, other than the attention itself.
    """
    modules = named_modules(model)
    attentions: list[str] = []
    for name, module in modules.items():
        if is_attention(module) and not any(name.startswith(f"{outer}.") for outer in attentions):
            attentions.append(name)
    elements = {
        f"{name}.{child}" if name else child
        for name, module in modules.items()
        if isinstance(module, (nn.ModuleList, nn.Sequential))
        for child, _ in module.named_children()
    }
    blocks: dict[str, None] = {}
    for attention in attentions:
        parts = attention.split(".")
        around = (".".join(parts[:end]) for end in range(len(parts) - 1, 0, -1))
        block = next((name for name in around if name in elements), None)
        if block is not None:
            blocks[block] = None
    return list(blocks)


def grid_axis(grid: Grid) -> TokenAxis:
    """Return the axis of the positions of a map, row by row, which are its patches of the picture."""
    count = grid[0] * grid[1]
    labels = tuple("{},{}".format(*divmod(cell, grid[1])) for cell in range(count))
    spans = tuple((cell,) for cell in range(count))
    return media_axis(Unit("patch", labels, spans, (False,) * count, grid=grid, cells=tuple(range(count))))


def size_of(inputs: Any) -> Grid | None:
    """Return rows and columns of pixels that a model reads; None if it reads no single picture."""
    pixels = inputs.get("pixel_values")
    if not isinstance(pixels, torch.Tensor) or pixels.dim() != _MAP or len(pixels) != 1:
        return None
    return pixels.shape[2], pixels.shape[3]
