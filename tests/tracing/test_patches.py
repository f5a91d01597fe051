"""Every position of a picture's tower is named after its patch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
import transformers as hf

import attnwidgets as aw
from tests.tracing import tiny
from tests.tracing.pictures import CLASS, PICTURES, SIDE, Pictures

if TYPE_CHECKING:
    from pathlib import Path


def traced(family: str) -> Any:
    entry = PICTURES[family]
    return entry.trace_of(tiny.build(entry.make), entry.picture())


@pytest.mark.parametrize("family", PICTURES)
def test_the_place_that_is_named_after_a_patch_changes_when_it_is_painted(family: str) -> None:
    entry = PICTURES[family]
    model = tiny.build(entry.make)
    result = entry.trace_of(model, entry.picture())
    for axis in result.axes(entry.stack):
        patches = axis.units["patch"]
        assert patches.grid == entry.grid
        assert patches.labels[: len(entry.before)] == entry.before
        assert patches.labels[len(patches) - len(entry.after) :] == entry.after
        assert patches.special == tuple(cell is None for cell in patches.cells)
    rows, columns = entry.grid
    for row in range(rows):
        for column in range(columns):
            position = entry.changed(model, result, row, column)
            assert patches.labels[position] == f"{row},{column}"
            assert patches.cells[position] == row * columns + column


@pytest.mark.parametrize(
    ("family", "merged"), [("LLaVA", 1), ("PaliGemma", 1), ("Idefics 3", 2), ("Qwen2-VL", 2)]
)
def test_a_picture_inside_a_text_is_named_by_patches(family: str, merged: int) -> None:
    entry = PICTURES[family]
    model = tiny.build(entry.make)
    result = entry.trace_of(model, entry.picture())
    for name in ("token", "word"):
        unit = result.units[name]
        assert unit.grid == (entry.grid[0] // merged, entry.grid[1] // merged)
        inside = [index for index, cell in enumerate(unit.cells) if cell is not None]
        assert [unit.cells[position] for position in inside] == list(range(len(inside)))
        assert not any(unit.special[position] for position in inside)
    for row in range(unit.grid[0]):
        for column in range(unit.grid[1]):
            position = entry.changed(model, result, row * merged, column * merged, "text")
            assert result.tokens[position] == f"{row},{column}"


def test_detection_tokens_of_a_decoder_and_queries_of_a_bridge_are_named() -> None:
    detector = traced("DETR")
    assert detector.axes("decoder")[0].tokens == tuple(f"[DET{i}]" for i in range(5))
    assert [axis.tokens[-1] for axis in detector.axes("cross")] == ["[DET4]", "1,2"]
    bridge = traced("BLIP-2")
    assert bridge.stacks == ("text", "vision", "qformer.encoder.layer", "cross")
    assert [axis.tokens[0] for axis in bridge.axes("cross")] == ["[Q0]", "[CLS]"]
    assert bridge.axes("text")[0].tokens != bridge.axes("vision")[0].tokens
    assert not detector.warning + bridge.warning


def test_texts_that_are_read_with_a_picture_outside_the_interface_are_recorded() -> None:
    blip = traced("BLIP")
    assert blip.stacks == ("text", "vision", "cross")
    assert [axis.tokens[-1] for axis in blip.axes("cross")] == ["##able", "1,1"]
    assert aw.hidden_token_attribution(blip, scope="local").values.any()
    git = traced("GIT")
    assert git.stacks == ("text", "vision")
    assert git.warning.endswith("which of them are patches of the picture, and where, is not known for 'git'")


def _video() -> Pictures:
    options = {**tiny.SMALL, "image_size": 16, "patch_size": SIDE, "num_frames": 2}
    return Pictures(
        lambda: hf.VideoMAEModel(hf.VideoMAEConfig(**options)),
        read=lambda p: {"pixel_values": p[None, None].expand(1, 2, -1, -1, -1)[..., :16]},
    )


def _joint() -> Pictures:
    options = {"vocab_size": tiny.VOCAB, **tiny.SMALL, "image_size": 2 * SIDE, "patch_size": SIDE}
    mask = {"pixel_mask": torch.ones(1, 2 * SIDE, 2 * SIDE, dtype=torch.long)}
    return Pictures(
        lambda: hf.ViltForQuestionAnswering(hf.ViltConfig(**options)),
        (2, 2),
        ids=(5, 6, 7, 8),
        read=lambda p: {"pixel_values": p[None], **mask},
    )


@pytest.mark.parametrize(
    ("entry", "family"), [(_video(), "videomae"), (_joint(), "vilt")], ids=["video", "joint"]
)
def test_an_unknown_layout_gives_numbers_and_says_so(entry: Pictures, family: str) -> None:
    result = entry.trace_of(tiny.build(entry.make), entry.picture())
    count = len(result.tokens)
    assert result.tokens == tuple(str(i) for i in range(count))
    said = f"the {count} places of stack 'self' are numbered: which of them are patches of the picture"
    assert f"{said}, and where, is not known for {family!r}" in result.warning


def test_a_picture_that_does_not_fit_its_family_gives_numbers() -> None:
    entry = PICTURES["ViT"]
    model = tiny.build(entry.make)
    model.config.patch_size = SIDE // 2  # four times as many patches as there are positions
    result = entry.trace_of(model, entry.picture())
    assert result.tokens == tuple("0123456")
    assert "are numbered" in result.warning


def test_a_saved_map_keeps_its_patches(tmp_path: Path) -> None:
    aw.attention(traced("YOLOS")).save(tmp_path / "map.safetensors")
    unit = aw.load(tmp_path / "map.safetensors").key.units["patch"]
    assert unit.grid == (2, 3)
    assert unit.labels[0] == CLASS[0]
    assert unit.cells == (None, *range(6), None, None, None)


def test_relevance_of_pixels_is_summed_over_the_patch_that_holds_them() -> None:
    entry = PICTURES["YOLOS"]
    model = tiny.build(entry.make)
    outcome = entry.trace_of(model, entry.picture())
    result = aw.lrp(outcome, lambda out: out.pred_boxes[:, 0, 0], at="input", unit="patch", force=True)
    assert result.source_unit.labels[-1] == "[DET2]"
    values = np.asarray(result.values)
    assert not values[list(np.flatnonzero(result.source_unit.special))].any()
    assert values[1:7].all()
