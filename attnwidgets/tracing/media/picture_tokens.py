"""The tokens of a picture in a language model: their order, and where they lie on the picture.

`INSIDE` and `CROSS` say for each family, by `model_type`, how many tokens there are for each view of the
picture, and in which order. Where a view lies on the picture is not in the table: the processor says so (see
`picture.seen_by`). Every line is tested by painting (tests/tracing/test_picture_tokens.py).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from attnwidgets.tracing.media.patches import CLASS, PADDING, given_grid, layout_of, pixel_grid
from attnwidgets.tracing.media.picture import views_in
from attnwidgets.tracing.text.axes import media_axis
from attnwidgets.tracing.text.units import TokenAxis, Unit

if TYPE_CHECKING:
    from attnwidgets.tracing.media.patches import Grid, Inputs
    from attnwidgets.tracing.media.picture import Picture
    from attnwidgets.tracing.text.axes import Text
    from attnwidgets.tracing.text.units import Box

NEW_LINE = "[NEWLINE]"

# The areas of the views on the given picture; None where that is not known, or there is nothing of it.
Areas = Sequence["Box | None"]


class View(NamedTuple):
    """A view of the picture, cut into rows and columns of tokens: of one size, or where `boxes` says."""

    rows: int
    columns: int
    area: Box | None
    boxes: tuple[Box | None, ...] = ()

    def cells(self, number: int) -> list[Token]:
        """Return the tokens of this view, the `number`-th, row by row."""
        return [(number, row, column) for row in range(self.rows) for column in range(self.columns)]

    def box(self, row: int, column: int) -> Box | None:
        """Return where a token lies; None if that is not known."""
        if self.boxes:
            return self.boxes[row * self.columns + column]
        if self.area is None:
            return None
        top, left, bottom, right = self.area
        high, wide = (bottom - top) / self.rows, (right - left) / self.columns
        return top + row * high, left + column * wide, top + (row + 1) * high, left + (column + 1) * wide


# The number of a view with row and column; or the label of a token without a place.
Token = tuple[int, int, int] | str
Order = tuple[list[View], list[Token]]
Family = Callable[[Any, "Inputs", Areas], Order | None]


class Tokens(NamedTuple):
    """A picture's tokens, in order.

    Attributes:
        labels: "row,column", after the number of the view if there are several; or "[NEWLINE]" and the like.
        special: Whether a token has no place on the picture.
        boxes: Where each lies on the given picture, in pixels, as far as it is in it; None where unknown.
        grid: Rows and columns, if there is a single view.
        cells: With a grid, the number of each token's patch.
    """

    labels: tuple[str, ...]
    special: tuple[bool, ...]
    boxes: tuple[Box | None, ...] | None
    grid: Grid | None
    cells: tuple[int | None, ...] | None


def _merged(config: Any, name: str, grid: Grid | None) -> Grid | None:
    """Return the grid of tokens of a grid of patches; `name` in the config says how many a token stands for.

    It is a number of patches of a side, or its inverse.
    """
    if grid is None or not name:
        return grid
    owner = config if hasattr(config, name) else config.vision_config
    merge = float(getattr(owner, name, 1))
    side = round(merge if merge >= 1 else 1 / merge)
    return grid[0] // side, grid[1] // side


def _square(config: Any, inputs: Inputs) -> Grid:
    """Return the grid of families that average a view to so many tokens."""
    del inputs
    side = math.isqrt(config.mm_tokens_per_image)
    return side, side


def view_by_view(merge: str = "", grid: Callable[[Any, Inputs], Grid | None] = pixel_grid) -> Family:
    """Return the order of families that list view after view, each row by row.

    Args:
        merge: Name in the config of the number of patches of a side that a token stands for; "" for one.
        grid: Returns rows and columns of patches of a view from the tower's config and the inputs.
    """

    def order(config: Any, inputs: Inputs, areas: Areas) -> Order | None:
        owner = config if grid is _square else config.vision_config
        cut = _merged(config, merge, grid(owner, inputs))
        if cut is None:
            return None
        views = [View(*cut, area) for area in areas]
        # "full" keeps the class token of towers that have one.
        layout = layout_of(config.vision_config, "vision")
        full = getattr(config, "vision_feature_select_strategy", "") == "full"
        before: list[Token] = [CLASS] if full and layout is not None and CLASS in layout.before else []
        return views, [token for number, view in enumerate(views) for token in [*before, *view.cells(number)]]

    return order


def mosaic(config: Any, inputs: Inputs, areas: Areas) -> Order | None:
    """Return the order of families whose tiles are put together again, row by row across tiles.

    First comes the whole picture, then the mosaic without its padding, each row with a token for a new line.
    """
    from transformers.models.llava_next.modeling_llava_next import get_anyres_image_grid_shape

    cut, sizes = pixel_grid(config.vision_config, inputs), inputs.get("image_sizes")
    if cut is None or sizes is None or len(sizes) != 1:
        return None
    whole, tiles = View(*cut, areas[0]), areas[1:]
    if not tiles:
        return [whole], [*whole.cells(0), NEW_LINE]
    shape = get_anyres_image_grid_shape(
        sizes[0].tolist(), config.image_grid_pinpoints, config.vision_config.image_size
    )
    high, wide = shape[0] * cut[0], shape[1] * cut[1]
    top, left, bottom, right = _without_padding(high, wide, sizes[0].tolist())
    size = (bottom - top, right - left)
    most = getattr(config, "vision_aspect_ratio", "").removeprefix("anyres_max_")
    if most.isdecimal() and (ratio := math.sqrt(size[0] * size[1] / (int(most) * cut[0] ** 2))) > 1.1:  # noqa: PLR2004
        size = (int(size[0] // ratio), int(size[1] // ratio))
    area = _area_of(tiles, shape)
    if area is not None:
        padded = View(high, wide, area)
        first, last = padded.box(top, left), padded.box(bottom - 1, right - 1)
        area = None if first is None or last is None else (*first[:2], *last[2:])
    below = View(*size, area)
    cells = below.cells(1)
    rows = [[*cells[row * size[1] : (row + 1) * size[1]], NEW_LINE] for row in range(size[0])]
    return [whole, below], [*whole.cells(0), *(token for row in rows for token in row)]


def _without_padding(high: int, wide: int, size: Sequence[int]) -> tuple[int, int, int, int]:
    """Return the rows and columns of a padded mosaic that a picture of this size fills."""
    import torch
    from transformers.models.llava_next.modeling_llava_next import unpad_image

    numbers = unpad_image(torch.arange(high * wide).reshape(1, high, wide), list(size))[0]
    top, left = divmod(int(numbers[0, 0]), wide)
    return top, left, top + numbers.shape[0], left + numbers.shape[1]


def _area_of(tiles: Areas, shape: Sequence[int]) -> Box | None:
    """Return the area of all tiles from the upper left corners of the first and last whose area is known."""
    located = [(*divmod(number, shape[1]), tile) for number, tile in enumerate(tiles) if tile is not None]
    if not located:
        return None
    (row, column, first), (last_row, last_column, last) = located[0], located[-1]
    high = (last[0] - first[0]) / (last_row - row) if last_row > row else first[2] - first[0]
    wide = (last[1] - first[1]) / (last_column - column) if last_column > column else first[3] - first[1]
    top, left = first[0] - row * high, first[1] - column * wide
    return top, left, top + shape[0] * high, left + shape[1] * wide


def _areas_of_all(tiles: Areas, shape: Grid) -> list[Box | None]:
    """Return the areas of all tiles of a canvas, row by row, also of those with little of the picture."""
    canvas = View(*shape, _area_of(tiles, shape))
    return [canvas.box(row, column) for row in range(shape[0]) for column in range(shape[1])]


def tiles_of_canvas(config: Any, inputs: Inputs, areas: Areas) -> Order | None:
    """Return the order of families that list the tiles of a padded canvas, and tiles that are not used.

    Each has a class token before its patches.
    """
    cut, ratio = pixel_grid(config.vision_config, inputs), inputs.get("aspect_ratio_ids")
    if cut is None or ratio is None:
        return None
    shape = config.vision_config.supported_aspect_ratios[int(ratio.reshape(-1)[0]) - 1]
    used = _areas_of_all(areas, shape)
    views = [View(*cut, area) for area in used + [None] * (len(areas) - len(used))]
    return views, [token for number, view in enumerate(views) for token in (CLASS, *view.cells(number))]


def tiles_then_whole(config: Any, inputs: Inputs, areas: Areas) -> Order | None:
    """Return the order of families that list the tiles of a padded canvas, then the whole picture.

    The token that follows a tile in the text tells whether it is the last of its row. A picture that fits
    into one tile has no other view.
    """
    cut = _merged(config, "pixel_shuffle_ratio", pixel_grid(config.vision_config, inputs))
    if cut is None or inputs.get("input_ids") is None:
        return None
    ids, size = inputs["input_ids"][0].tolist(), cut[0] * cut[1]
    ends = _positions(ids, config)[size - 1 :: size]  # the last token of each view
    *tiles, whole = areas
    if len(ends) != len(areas):
        return None
    if tiles:
        separators = [ids[end + 1] for end in ends[:-1]]
        columns = separators.index(separators[-1]) + 1
        tiles = _areas_of_all(tiles, (len(tiles) // columns, columns))
        if whole is not None and None in tiles:
            return None  # The picture is so narrow that no tile shows enough of it to be located.
    views = [View(*cut, area) for area in (*tiles, whole)]
    return views, [token for number, view in enumerate(views) for token in view.cells(number)]


def pooled_patches(config: Any, inputs: Inputs, areas: Areas) -> Order | None:
    """Return the order of families whose processor lists the patches of every token, by number.

    First comes the whole picture, then crops that overlap, of which a patch that several show is listed once.
    """
    del config
    patches, grids = inputs.get("image_token_pooling"), inputs.get("image_grids")
    if patches is None or grids is None or len(grids) != 1:
        return None
    side = math.isqrt(inputs["pixel_values"].shape[-2])
    crops = [View(side, side, area) for area in areas]
    boxes = [
        _around([crops[n // side**2].box(*divmod(n % side**2, side)) for n in numbers if n >= 0])
        for numbers in patches.tolist()
    ]
    high, wide, rows, columns = grids[0].tolist()
    whole = View(high, wide, areas[0], tuple(boxes[: high * wide]))
    views = [whole, View(rows, columns, None, tuple(boxes[high * wide :]))]
    return views, [token for number, view in enumerate(views) for token in view.cells(number)]


def _around(boxes: Sequence[Box | None]) -> Box | None:
    """Return the smallest box around others; None if any is not known."""
    inner = [box for box in boxes if box is not None]
    if not inner or len(inner) < len(boxes):
        return None
    tops, lefts, bottoms, rights = zip(*inner, strict=True)
    return min(tops), min(lefts), max(bottoms), max(rights)


_QWEN = "qwen2_vl qwen2_5_vl qwen3_vl"
INSIDE: dict[str, Family] = {
    "llava": view_by_view(),
    "paligemma": view_by_view(),
    "gemma3": view_by_view(grid=_square),
    "idefics3": view_by_view("scale_factor"),
    "smolvlm": view_by_view("scale_factor"),
    "internvl": view_by_view("downsample_ratio"),
    "mistral3": view_by_view("spatial_merge_size"),
    **dict.fromkeys(_QWEN.split(), view_by_view("spatial_merge_size", given_grid)),
    "llava_next": mosaic,
    "llava_onevision": mosaic,
    "llama4": tiles_then_whole,
    "molmo2": pooled_patches,
}
"""Families that put the tokens of a picture among those of the text, in the place of a token of their own."""

CROSS: dict[str, Family] = {"mllama": tiles_of_canvas}
"""Families whose text reads the picture by cross-attention."""


def _arranged(family: Family | None, config: Any, inputs: Inputs, picture: Picture | None) -> Tokens | None:
    """Return a picture's tokens; None for other families, or inputs that are not theirs."""
    count = len(views_in(inputs))
    if family is None or not count:
        return None
    areas = picture.areas if picture is not None and len(picture.areas) == count else (None,) * count
    ordered = family(config, inputs, areas)
    if ordered is None:
        return None
    views, tokens = ordered
    size = None if picture is None or picture.given is None else picture.given.shape[:2]
    located = size is not None and any(area is not None for area in areas)
    labels, boxes = [], []
    for token in tokens:
        box = None if isinstance(token, str) else _inside(views[token[0]].box(*token[1:]), size)
        boxes.append(box)
        if isinstance(token, str):
            labels.append(token)
        elif located and box is None:
            labels.append(PADDING)
        else:
            number, row, column = token
            labels.append(f"{number}:{row},{column}" if len(views) > 1 else f"{row},{column}")
    special = tuple(
        isinstance(token, str) or label == PADDING for token, label in zip(tokens, labels, strict=True)
    )
    grid = cells = None
    if len(views) == 1 and PADDING not in labels:
        grid = views[0][:2]
        cells = tuple(None if isinstance(t, str) else t[1] * grid[1] + t[2] for t in tokens)
    return Tokens(tuple(labels), special, tuple(boxes) if located else None, grid, cells)


def _inside(box: Box | None, size: Sequence[int] | None) -> Box | None:
    """Return the part of a box that is in a picture of this size; None if there is none."""
    if box is None or size is None:
        return None
    top, left = max(box[0], 0.0), max(box[1], 0.0)
    bottom, right = min(box[2], float(size[0])), min(box[3], float(size[1]))
    return (top, left, bottom, right) if top < bottom and left < right else None


def _positions(ids: Sequence[int], config: Any) -> list[int]:
    """Return where the token that stands for a part of a picture is in a text."""
    names = ("image_token_id", "image_token_index")
    token = next((i for name in names if isinstance(i := getattr(config, name, None), int)), None)
    return [index for index, i in enumerate(ids) if i == token]


def holds_picture(ids: Sequence[int], config: Any, inputs: Inputs) -> bool:
    """Return whether tokens of a text stand for a picture that the model reads, other than across."""
    across = str(getattr(config, "model_type", "")) in CROSS
    return not across and bool(_positions(ids, config)) and inputs.get("pixel_values") is not None


def picture_in(
    text: Text, ids: Sequence[int], config: Any, inputs: Inputs, picture: Picture | None
) -> tuple[Text, Tokens, list[int]] | None:
    """Return a text whose tokens for a picture are named by their places, these tokens, and their positions.

    None if the model puts no picture into its text, or not in the way of its family.

    Args:
        text: The text as its tokenizer spells it, where every patch is the same special token.
        ids: Token ids.
        config: The model's config.
        inputs: The model's inputs.
        picture: The picture.
    """
    family = INSIDE.get(str(getattr(config, "model_type", "")))
    positions = _positions(ids, config)
    arranged = _arranged(family, config, inputs, picture) if positions else None
    if arranged is None or len(arranged.labels) != len(positions):
        return None
    tokens, special = list(text.tokens), list(text.special)
    for position, label, without in zip(positions, arranged.labels, arranged.special, strict=True):
        tokens[position], special[position] = label, without
    return replace(text, tokens=tuple(tokens), special=tuple(special)), arranged, positions


def on_picture(axis: TokenAxis, arranged: Tokens, positions: Sequence[int]) -> TokenAxis:
    """Return the axis of a text in which the tokens at `positions` are those of a picture."""
    order = {position: number for number, position in enumerate(positions)}
    units = {}
    for name, unit in axis.units.items():
        numbers = [order.get(span[0]) if len(span) == 1 else None for span in unit.spans]
        if sum(number is not None for number in numbers) < len(positions):
            units[name] = unit
            continue
        cells, boxes = arranged.cells, arranged.boxes
        units[name] = replace(
            unit,
            grid=arranged.grid,
            cells=None if cells is None else tuple(None if n is None else cells[n] for n in numbers),
            boxes=None if boxes is None else tuple(None if n is None else boxes[n] for n in numbers),
        )
    return replace(axis, units=units)


def read_across(config: Any, inputs: Inputs, picture: Picture | None, n: int) -> TokenAxis | None:
    """Return the axis of `n` keys of a picture that a text reads by cross-attention; None if unknown."""
    family = CROSS.get(str(getattr(config, "model_type", "")))
    arranged = _arranged(family, config, inputs, picture)
    if arranged is None or len(arranged.labels) != n:
        return None
    spans = tuple((index,) for index in range(n))
    unit = Unit("patch", arranged.labels, spans, arranged.special, grid=arranged.grid, cells=arranged.cells)
    return media_axis(replace(unit, boxes=arranged.boxes))
