"""On which part of a picture a word of an answer rests, on scenes with given evidence."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import attnwidgets as aw
from tests.tracing.picture_families import FAMILIES, traced

ANSWER = (16, 24)


@pytest.fixture(scope="module")
def scenes() -> Any:
    return aw.zoo.trained("scenes")


def trace_of(scenes: Any, number: int) -> tuple[Any, Any]:
    model, processor = scenes
    scene = model.truth.scene(number)
    return scene, aw.trace(model, processor, f"{scene.text} {scene.answer}", image=scene.image)


def log_p(scenes: Any, scene: Any, image: np.ndarray) -> np.ndarray:
    """Return log p of the answer's words with another picture, by the model alone."""
    model, processor = scenes
    inputs = processor(
        text=[f"{scene.text} {scene.answer}"], images=Image.fromarray(image), return_tensors="pt"
    )
    with torch.no_grad():
        rows = model(**inputs).logits[0].double().log_softmax(-1)
    ids = inputs["input_ids"][0]
    return np.array([float(rows[at - 1, ids[at]]) for at in range(*ANSWER)])


def test_painting_is_the_loss_of_a_pass_with_the_cell_painted(scenes: Any) -> None:
    scene, trace = trace_of(scenes, 7)
    result = aw.vision.sources(trace, ANSWER)
    colour = np.round(scene.image.reshape(-1, 3).mean(0)).astype(np.uint8)
    before = log_p(scenes, scene, scene.image)
    for part, (top, left, bottom, right) in enumerate(result.scores.source_unit.boxes):
        painted = scene.image.copy()
        painted[int(top) : int(bottom), int(left) : int(right)] = colour
        expected = before - log_p(scenes, scene, painted)
        assert result.scores.values[:, part] == pytest.approx(expected, abs=1e-4)
    gone = log_p(scenes, scene, np.broadcast_to(colour, scene.image.shape).copy())
    assert result.picture == pytest.approx(before - gone, abs=1e-4)
    assert np.add(result.picture, result.text) == pytest.approx(before + np.log(27), abs=1e-4)


def test_the_words_of_colour_and_place_rest_on_their_evidence_and_others_on_nothing(scenes: Any) -> None:
    right = 0
    for number in range(20, 30):
        scene, trace = trace_of(scenes, number)
        result = aw.vision.sources(trace, ANSWER)
        assert result.words == tuple(scene.answer.split())
        strongest = result.strongest()
        assert [strongest[at] for at in (0, 1, 2, 4, 7)] == [None] * 5
        right += sum(strongest[at] == scene.evidence for at in (3, 5, 6))
    assert right >= 20  # of 30; chance is 3
    assert result.scores.source_unit.grid == (3, 3)
    rows = result.to_dataframe()
    assert list(rows.columns) == ["word", "part", "box", "nats"]
    assert len(rows) == 8 * 9


def test_hiding_a_token_asks_the_language_model_and_not_the_tower(scenes: Any) -> None:
    _, trace = trace_of(scenes, 7)
    result = aw.vision.sources(trace, ANSWER, by="hide")
    assert result.scores.source_unit.labels == trace.tokens[1:10]
    assert not np.allclose(result.scores.values, aw.vision.sources(trace, ANSWER).scores.values, atol=0.1)
    with aw.suppress(trace, [6], range(7, 24), stack="text"):
        logits = trace.rerun().logits
    row = (ANSWER[0] + 3) - 1
    word = int(trace.input_ids[row + 1])
    lost = trace.logits[row].log_softmax(-1)[word] - logits[row].log_softmax(-1)[word]
    assert result.scores.values[3, 5] == pytest.approx(float(lost), abs=1e-4)


def test_what_is_generated_is_the_answer_and_a_map_is_shown(scenes: Any) -> None:
    model, processor = scenes
    scene = model.truth.scene(3)
    trace = aw.trace(model, processor, scene.text, image=scene.image, max_new_tokens=9)
    result = aw.vision.sources(trace)
    assert " ".join(result.words) == scene.answer
    assert "nats of the picture" in repr(result)
    assert aw.ImageView(result.scores)


def test_blocks_that_matter_are_divided_on_a_larger_picture_of_several_views() -> None:
    family = FAMILIES["Idefics 3"]
    picture = np.random.default_rng(0).integers(0, 255, (96, 192, 3)).astype(np.uint8)
    picture[:16, :16] = 255
    trace = traced(family.model(), family.processor(), picture)
    result = aw.vision.sources(trace, (len(trace.tokens) - 2, len(trace.tokens)))
    boxes = result.scores.source_unit.boxes
    areas = [(bottom - top) * (right - left) for top, left, bottom, right in boxes]
    assert sum(areas) == pytest.approx(96 * 192)


def test_what_cannot_be_answered_is_refused(scenes: Any) -> None:
    _, trace = trace_of(scenes, 7)
    with pytest.raises(ValueError, match=r"is not one of .paint., .hide."):
        aw.vision.sources(trace, ANSWER, by="paints")
    with pytest.raises(ValueError, match="the answer has no tokens"):
        aw.vision.sources(trace)
    text = aw.trace(*aw.zoo.trained("alice"), "the cat")
    with pytest.raises(ValueError, match="trace the picture with its processor"):
        aw.vision.sources(text, (2, 4))
