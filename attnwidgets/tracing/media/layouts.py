"""Where the patches of a picture stand among the tokens of a model, family by family.

A family is known by the `model_type` of the config that its attention modules hold. What is not in the
table is not guessed: its places are numbered, and the trace says so. Every line is tested by painting one
patch and finding its index (tests/tracing/test_patches.py).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

Grid = tuple[int, int]
Inputs = Mapping[str, Any]

CLASS = "[CLS]"
# Tokens of which a config says how many there are: their label, and the number's name there.
_REGISTERS = ("[REG{}]", "num_register_tokens")
_DETECTORS = ("[DET{}]", "num_detection_tokens")


def pixel_grid(config: Any, inputs: Inputs) -> Grid | None:
    """Return rows and columns of a picture [..., height, width] that is cut into patches."""
    shape = tuple(getattr(inputs.get("pixel_values"), "shape", ()))
    size = getattr(config, "patch_size", None)
    if len(shape) < 3 or size is None:  # noqa: PLR2004 - channel, height, width
        return None
    high, wide = (size, size) if isinstance(size, int) else tuple(size)[-2:]
    return shape[-2] // high, shape[-1] // wide


def given_grid(config: Any, inputs: Inputs) -> Grid | None:
    """Return the rows and columns that the processor reports with patches of one picture (not of a video)."""
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
    """Where the patches of one family stand.

    Args:
        before: Labels of the tokens before the patches; a pair is a label with a place for a number, and the
            name in the config of how many there are.
        after: Labels of the tokens after them.
        grid: Finds rows and columns from the config and the model's inputs.
        window: Name in the config of the side of square windows, one after the other, in which the patches
            are listed; "" if they are listed row by row.
        padded: Whether patches may be followed by padding.
        queries: The label of learned tokens that are all there is, which attend to a picture; "" for patches.
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
    "dinov2_with_registers": Layout((CLASS, _REGISTERS)),
    "dinov3_vit": Layout((CLASS, _REGISTERS)),
    "yolos": Layout((CLASS,), (_DETECTORS,)),
    "siglip2_vision_model": Layout(grid=given_grid, padded=True),
    "qwen2_vl_vision": Layout(grid=given_grid, window="spatial_merge_size"),
    "blip_2_qformer": Layout(queries="[Q{}]"),
}
"""By `model_type`; with "/decoder" for the decoder of a model whose two sides have one config."""

# Language models that replace a token by a picture, and how many adjacent patches, across and down, each of
# its tokens stands for: a name in the config of model or tower, or 1.
INSIDE: dict[str, str | int] = {
    "llava": 1,
    "paligemma": 1,
    "idefics3": "scale_factor",
    "qwen2_vl": "spatial_merge_size",
}


def layout_of(config: Any, side: str) -> Layout | None:
    """Return the layout of a stack by its config; None if it is not known."""
    family = str(getattr(config, "model_type", "") or "")
    return LAYOUTS.get(f"{family}/decoder" if side == "decoder" else family)
