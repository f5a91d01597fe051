"""Every token of a picture in a text lies on the picture where painting changes it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import attnwidgets as aw
from attnwidgets.tracing.media.picture_tokens import INSIDE
from tests.tracing.picture_families import FAMILIES, IMAGE, Family, read_by_text, traced
from tests.tracing.torchvision_families import BETWEEN, TORCHVISION_FAMILIES

BLOCK = 4
ALL = FAMILIES | TORCHVISION_FAMILIES
# Other sizes than the reference's, tall where it is wide.
SECOND = {"LLaVA": (56, 40), "LLaVA-NeXT": (72, 40), "Gemma 3, pan and scan": (96, 32), "Mllama": (72, 40)}
SECOND |= {
    "Llama 4": (36, 68),
    "Molmo 2": (72, 40),
}  # of Llama 4, strips of four pixels in the tiles below and at right


def noise(size: tuple[int, int]) -> np.ndarray:
    return np.random.default_rng(0).integers(90, 160, (*size, 3)).astype(np.uint8)


def boxes_of(result: Any) -> tuple[list[str], list[Any]]:
    """Return labels and boxes of the picture's tokens in a trace, in their order."""
    if "cross" in result.stacks:
        unit = result.axes("cross")[1].units["patch"]
        return list(unit.labels), list(unit.boxes)
    unit = result.axes(result.default_stack)[0].units["token"]
    positions = [i for i, number in enumerate(result.input_ids.tolist()) if number == IMAGE]
    return [unit.labels[i] for i in positions], [unit.boxes[i] for i in positions]


def changes(family: Family, model: Any, picture: np.ndarray) -> np.ndarray:
    """Return how much every token changes when a block of the picture is painted [token, row, column]."""
    processor = family.processor()
    before = read_by_text(model, processor, picture)
    rows, columns = (length // BLOCK for length in picture.shape[:2])
    result = np.zeros((len(before), rows, columns))
    for row, column in np.ndindex(rows, columns):
        painted = picture.copy()
        painted[row * BLOCK : (row + 1) * BLOCK, column * BLOCK : (column + 1) * BLOCK] = 255
        result[:, row, column] = (read_by_text(model, processor, painted) - before).norm(dim=1)
    return result


@pytest.mark.slow
@pytest.mark.parametrize("name", ALL)
def test_a_token_lies_where_painting_changes_it(name: str) -> None:
    family = ALL[name]
    model = family.model()
    picture = noise(SECOND.get(name, family.size))
    labels, boxes = boxes_of(traced(model, family.processor(), picture))
    changed = changes(family, model, picture)
    assert len(boxes) == len(changed)
    assert sum(box is not None for box in boxes) > len(boxes) // 3
    down, across = np.mgrid[: changed.shape[1], : changed.shape[2]] * BLOCK + BLOCK / 2
    for label, box, change in zip(labels, boxes, changed, strict=True):
        if box is None:
            assert change.max() < 1e-5, label
            continue
        top, left, bottom, right = box
        strong = np.where(change > 0.3 * change.max(), change, 0)
        centre = [(strong * axis).sum() / strong.sum() for axis in (down, across)]
        assert abs(centre[0] - (top + bottom) / 2) < max(bottom - top, BLOCK) / 2, label
        assert abs(centre[1] - (left + right) / 2) < max(right - left, BLOCK) / 2, label
        at = np.unravel_index(change.argmax(), change.shape)
        assert top - BLOCK / 2 <= down[at] <= bottom + BLOCK / 2, label
        assert left - BLOCK / 2 <= across[at] <= right + BLOCK / 2, label


@pytest.mark.parametrize("name", [name for name, family in FAMILIES.items() if family.reference])
def test_boxes_are_those_of_the_reference(name: str, shared: Any) -> None:
    family = FAMILIES[name]
    rows, columns = family.size
    expected = np.load(shared / "reference" / "chats" / "geometry.npz")[
        f"{family.reference}_{rows}x{columns}"
    ]
    labels, boxes = boxes_of(traced(family.model(), family.processor(), noise(family.size)))
    assert [box is None for box in boxes] == np.isnan(expected).any(1).tolist()
    for label, box, reference in zip(labels, boxes, expected, strict=True):
        if box is None:
            continue
        size = np.tile(reference[2:] - reference[:2], 2)
        clipped = np.clip(reference, 0, [rows, columns, rows, columns])
        # The reference does not round CLIP's cut to whole pixels, of 12 to a cell.
        assert (np.abs(np.array(box) - clipped) < 0.1 * size).all(), label


def test_tokens_of_several_views_share_pixels_and_what_has_no_place_is_named() -> None:
    family = FAMILIES["LLaVA-NeXT"]
    result = traced(family.model(), family.processor(), noise(family.size))
    unit = result.units["token"]
    assert unit.grid is None
    assert unit.labels[2:4] == ("0:0,0", "0:0,1")
    breaks = [i for i, label in enumerate(unit.labels) if label == "[NEWLINE]"]
    assert len(breaks) == 4
    assert all(unit.special[i] and unit.boxes[i] is None for i in breaks)
    middle = (20, 36)
    over = [
        i
        for i, box in enumerate(unit.boxes)
        if box is not None and box[0] <= middle[0] < box[2] and box[1] <= middle[1] < box[3]
    ]
    assert {unit.labels[i][0] for i in over} == {"0", "1"}
    assert (
        "the attention of stack 'vision' is not recorded: it reads parts of its input apart" in result.warning
    )
    assert result.stacks == ("text",)
    assert result.rerun().stacks == ("text",)


def test_separators_stand_between_tiles_and_after_a_row_of_them() -> None:
    family = ALL["Llama 4"]
    result = traced(family.model(), family.processor(), noise(family.size))
    unit, ids = result.units["token"], result.input_ids.tolist()
    corners = [box[:2] for label, box in zip(unit.labels, unit.boxes, strict=True) if label.endswith(":0,0")]
    beside, below = BETWEEN["<|tile_x_separator|>"], BETWEEN["<|tile_y_separator|>"]
    separators = [i for i, number in enumerate(ids) if number in {beside, below}]
    assert len(separators) == len(corners) - 1
    assert all(unit.boxes[i] is None for i in separators)
    for i, first, second in zip(separators, corners, corners[1:], strict=False):
        assert (second[1] > first[1]) == (ids[i] == beside)


def test_a_picture_too_narrow_to_locate_its_tiles_says_so() -> None:
    family = ALL["Llama 4"]
    result = traced(family.model(), family.processor(), noise((4, 90)))
    assert result.units["token"].boxes is None
    assert "where the picture's tokens lie on it is not known for 'llama4'" in result.warning


def test_a_token_after_each_row_follows_the_patch_at_the_right_edge() -> None:
    family = ALL["Molmo 2"]
    result = traced(family.model(), family.processor(), noise(family.size))
    unit = result.units["token"]
    ends = [i for i, number in enumerate(result.input_ids.tolist()) if number == BETWEEN["<im_col>"]]
    assert len(ends) == 8
    assert all(unit.boxes[i] is None for i in ends)
    assert [unit.boxes[i - 1][3] for i in ends] == pytest.approx([family.size[1]] * 8, abs=0.1)


def test_a_family_whose_places_are_unknown_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(INSIDE, "llava")
    family = FAMILIES["LLaVA"]
    result = traced(family.model(), family.processor(), noise(family.size))
    assert result.units["token"].boxes is None
    assert "where the picture's tokens lie on it is not known for 'llava'" in result.warning


def test_a_saved_map_keeps_its_boxes(tmp_path: Any) -> None:
    family = FAMILIES["InternVL"]
    result = aw.attention(traced(family.model(), family.processor(), noise(family.size)))
    result.save(tmp_path / "map.safetensors")
    boxes = aw.load(tmp_path / "map.safetensors").key.units["token"].boxes
    assert boxes == result.key.units["token"].boxes
    assert sum(box is not None for box in boxes) == 28
