"""Every token of a picture in a text lies on the picture where painting changes it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import attnwidgets as aw
from attnwidgets.tracing.media.picture_tokens import INSIDE
from tests.tracing.picture_families import FAMILIES, IMAGE, Family, read_by_text, traced

BLOCK = 4
# Other sizes than the reference's, tall where it is wide.
SECOND = {"LLaVA": (56, 40), "LLaVA-NeXT": (72, 40), "Gemma 3, pan and scan": (96, 32), "Mllama": (72, 40)}


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
@pytest.mark.parametrize("name", FAMILIES)
def test_a_token_lies_where_painting_changes_it(name: str) -> None:
    family = FAMILIES[name]
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
