"""Axes of pictures and sound as they travel: which element is which patch, and when a frame is."""

from __future__ import annotations

import pytest
import torch

import attnwidgets as aw
from attnwidgets.views.wire.axes import axis
from tests.tracing import tiny
from tests.tracing.pictures import PICTURES


def sent(family, unit, stack=None):
    entry = PICTURES[family]
    result = entry.trace_of(tiny.build(entry.make), entry.picture())
    return axis(result.axes(stack or entry.stack)[0], unit)


def test_patches_in_order_need_their_grid_only():
    for family in ("ViT", "YOLOS", "SigLIP 2"):  # also with tokens before and after them
        result = sent(family, "patch")
        assert (result["grid"], result["cells"], result["times"]) == ([2, 3], None, None)
        assert result["special"].count(0) == 6


def test_patches_in_windows_name_their_cells():
    result = sent("Qwen2-VL", "patch")
    assert result["grid"] == [4, 6]
    assert result["cells"][:8] == [0, 1, 6, 7, 2, 3, 8, 9]
    assert result["labels"][2] == "1,0"


def test_a_picture_inside_a_text_names_its_cells():
    result = sent("LLaVA", "word", "text")
    assert result["grid"] == [2, 2]
    assert result["cells"] == [-1, 0, 1, 2, 3, -1]


def test_times_travel_as_three_numbers():
    result = aw.trace(tiny.wav2vec2(), None, audio=torch.zeros(400))
    times = axis(result.axes()[0], "frame")["times"]
    assert times == {"start": 0.0, "step": pytest.approx(10 / 16_000), "width": pytest.approx(20 / 16_000)}
    for index, (begin, end) in enumerate(result.units["frame"].times):
        assert times["start"] + index * times["step"] == pytest.approx(begin)
        assert times["width"] == pytest.approx(end - begin)


def test_a_text_has_neither():
    result = axis(aw.trace(tiny.build(tiny.TEXT["BERT"]), None, [5, 6, 7]).axes()[0], "token")
    assert (result["grid"], result["cells"], result["times"]) == (None, None, None)
