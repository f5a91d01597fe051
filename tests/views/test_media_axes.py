"""Axes of pictures and sound as they travel: which element is which patch, and when a frame is."""

from __future__ import annotations

import pytest
import torch

import attnwidgets as aw
from attnwidgets.views.wire.axes import axis
from tests.tracing import tiny
from tests.tracing.pictures import PICTURES


def sent(family, unit, stack=None):
    one = PICTURES[family]
    found = one.trace_of(tiny.build(one.make), one.picture())
    return axis(found.axes(stack or one.stack)[0], unit)


def test_patches_in_order_need_their_grid_only():
    for family in ("ViT", "YOLOS", "SigLIP 2"):  # also with tokens before and after them
        found = sent(family, "patch")
        assert (found["grid"], found["cells"], found["times"]) == ([2, 3], None, None)
        assert found["special"].count(0) == 6


def test_patches_in_windows_name_their_cells():
    found = sent("Qwen2-VL", "patch")
    assert found["grid"] == [4, 6]
    assert found["cells"][:8] == [0, 1, 6, 7, 2, 3, 8, 9]
    assert found["labels"][2] == "1,0"


def test_a_picture_inside_a_text_names_its_cells():
    found = sent("LLaVA", "word", "text")
    assert found["grid"] == [2, 2]
    assert found["cells"] == [-1, 0, 1, 2, 3, -1]


def test_times_travel_as_three_numbers():
    found = aw.trace(tiny.wav2vec2(), None, audio=torch.zeros(400))
    times = axis(found.axes()[0], "frame")["times"]
    assert times == {"start": 0.0, "step": pytest.approx(10 / 16_000), "width": pytest.approx(20 / 16_000)}
    for place, (begin, end) in enumerate(found.units["frame"].times):
        assert times["start"] + place * times["step"] == pytest.approx(begin)
        assert times["width"] == pytest.approx(end - begin)


def test_a_text_has_neither():
    found = axis(aw.trace(tiny.build(tiny.TEXT["BERT"]), None, [5, 6, 7]).axes()[0], "token")
    assert (found["grid"], found["cells"], found["times"]) == (None, None, None)
