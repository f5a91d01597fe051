"""Patches of a picture: their order among a model's tokens, family by family, and their axes.

A family is identified by the `model_type` of the config that its attention modules hold. The positions of
families that are not in `LAYOUTS` are numbered, and the trace says so. Every line is tested by painting one
patch and finding its index (tests/tracing/test_patches.py).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from attnwidgets.tracing.text.axes import media_axis
from attnwidgets.tracing.text.units import TokenAxis, Unit

if TYPE_CHECKING:
    from collections.abc import Sequence

PADDING = "[PAD]"

Grid = tuple[int, int]
Inputs = Mapping[str, Any]
CLASS = "[CLS]"
# Tokens whose number is in a config: their label, and the name of the number.
_REGISTERS = ("[REG{}]", "num_register_tokens")
_DETECTORS = ("[DET{}]", "num_detection_tokens")


def patch_axis(layout: Layout, config: Any, inputs: Inputs, n: int) -> TokenAxis | None:
    """Return the axis of `n` positions of a picture's tower; None if the layout does not fit them.

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
    result: list[str] = []
    for extra in extras:
        if isinstance(extra, str):
            result.append(extra)
        else:
            label, count = extra
            result += [label.format(i) for i in range(int(getattr(config, count, 0) or 0))]
    return tuple(result)


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


def pixel_grid(config: Any, inputs: Inputs) -> Grid | None:
    """Return rows and columns of a picture [..., height, width] that is cut into patches."""
    shape = tuple(getattr(inputs.get("pixel_values"), "shape", ()))
    size = getattr(config, "patch_size", None)
    if len(shape) < 3 or size is None:  # noqa: PLR2004 - channel, height, width
        return None
    high, wide = (size, size) if isinstance(size, int) else tuple(size)[-2:]
    return shape[-2] // high, shape[-1] // wide


def given_grid(config: Any, inputs: Inputs) -> Grid | None:
    """Return the rows and columns that the processor reports with patches of a picture (not of a video)."""
    del config
    shapes = [inputs[name] for name in ("image_grid_thw", "spatial_shapes") if inputs.get(name) is not None]
    if not shapes or len(shapes[0]) != 1:
        return None
    *times, rows, columns = map(int, shapes[0][0])
    return None if times not in ([], [1]) else (rows, columns)


def map_grid(config: Any, inputs: Inputs) -> Grid | None:
    """Return rows and columns of the last feature map of a convolutional backbone."""
    stride = 16 if getattr(config, "dilation", False) else 32
    shape = tuple(getattr(inputs.get("pixel_values"), "shape", (0, 0)))
    return math.ceil(shape[-2] / stride), math.ceil(shape[-1] / stride)


@dataclass(frozen=True)
class Layout:
    """The order of a family's patches among its tokens.

    Args:
        before: Labels of the tokens before the patches; a pair is a label to format with a number, and the
            name of their count in the config.
        after: Labels of the tokens after them.
        grid: Computes rows and columns from the config and the model's inputs.
        window: Name in the config of the side of square windows, one after the other, in which the patches
            are listed; "" if they are listed row by row.
        padded: Whether patches may be followed by padding.
        queries: The label of learned tokens that attend to a picture, without patches; "" for patches.
    """

    before: tuple[str | tuple[str, str], ...] = ()
    after: tuple[str | tuple[str, str], ...] = ()
    grid: Callable[[Any, Inputs], Grid | None] = pixel_grid
    window: str = ""
    padded: bool = False
    queries: str = ""


_CLASS_FIRST = (
    "vit vit_msn beit dinov2 dpt mlcd_vision_model blip_vision_model blip_2_vision_model git_vision_model "
    "clip_vision_model chinese_clip_vision_model altclip_vision_model clipseg_vision_model "
    "owlvit_vision_model internvl_vision flava_image_model"
)
_PATCHES_ONLY = "siglip_vision_model ijepa aimv2_vision_model vitpose_backbone idefics3_vision pixtral"
_FEATURE_MAPS = "detr conditional_detr table-transformer"
LAYOUTS: dict[str, Layout] = {
    **dict.fromkeys(_CLASS_FIRST.split(), Layout((CLASS,))),
    **dict.fromkeys(_PATCHES_ONLY.split(), Layout()),
    **dict.fromkeys(_FEATURE_MAPS.split(), Layout(grid=map_grid)),
    **{f"{family}/decoder": Layout(queries="[DET{}]") for family in _FEATURE_MAPS.split()},
    "deit": Layout((CLASS, "[DIST]")),
    "llama4_vision_model": Layout(after=(CLASS,)),
    "dinov2_with_registers": Layout((CLASS, _REGISTERS)),
    "dinov3_vit": Layout((CLASS, _REGISTERS)),
    "yolos": Layout((CLASS,), (_DETECTORS,)),
    "siglip2_vision_model": Layout(grid=given_grid, padded=True),
    "qwen2_vl_vision": Layout(grid=given_grid, window="spatial_merge_size"),
    "blip_2_qformer": Layout(queries="[Q{}]"),
}
"""By `model_type`; with "/decoder" for the decoder of a model whose two sides share a config."""


def layout_of(config: Any, side: str) -> Layout | None:
    """Return the layout of a stack by its config; None for a family that is not in the table."""
    family = str(getattr(config, "model_type", "") or "")
    return LAYOUTS.get(f"{family}/decoder" if side == "decoder" else family)
