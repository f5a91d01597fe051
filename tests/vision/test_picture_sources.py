"""On which part of a picture a word of an answer rests, on scenes with given evidence."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import attnwidgets as aw
from attnwidgets.tracing.unsupported import UnsupportedModelError
from attnwidgets.vision import picture_answer
from attnwidgets.vision.picture_sources import METHODS
from tests.tracing import picture_families
from tests.tracing.picture_families import FAMILIES, entry_of, traced

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


def of_cells(values: Any) -> np.ndarray:
    """Return the columns of the picture's tokens, which follow the first."""
    return np.asarray(values, dtype=float)[..., 1:10]


def direct(trace: Any, by: str) -> np.ndarray:
    """Return what the method's own function gives for the answer's words [word, cell]."""
    ids = [int(index) for index in trace.input_ids]
    targets = [aw.targets.token(ids[at], position=at - 1) for at in range(*ANSWER)]
    if by == "lrp":
        return of_cells(aw.lrp(trace, target=targets).values)
    if by == "lrp_pixels":
        pixels = np.asarray(aw.lrp(trace, target=targets, at="input", unit="pixel").values)
        return pixels.reshape(-1, 3, 8, 3, 8).sum((2, 4)).reshape(-1, 9)
    if by == "input_x_gradient":
        return of_cells(aw.input_x_gradient(trace, target=targets).values)
    if by == "integrated_gradients":
        entry, _ = entry_of(trace.model, trace.inputs)
        baseline = entry[0].detach().clone()
        baseline[1:10] = baseline[1:10].mean(0)
        return of_cells(aw.integrated_gradients(trace, target=targets, baseline=baseline, steps=20).values)
    if by == "chefer":
        rows = np.array([aw.chefer(trace, target=target, stack="text").values for target in targets])
        return of_cells(rows / rows.sum(1, keepdims=True))
    return of_cells(aw.rollout(trace, stack="text").layer(-1))[ANSWER[0] - 1 : ANSWER[1] - 1]


@pytest.mark.parametrize("by", [by for by, method in METHODS.items() if method.unit != "nats"])
def test_a_method_by_name_is_its_function_for_each_word(scenes: Any, by: Any) -> None:
    _, trace = trace_of(scenes, 7)
    result = aw.vision.sources(trace, ANSWER, by=by)
    # The same passes in float32, with targets that are summed in another order.
    assert result.scores.values == pytest.approx(direct(trace, by), abs=1e-4)
    assert result.scores.source_unit.grid == (3, 3)
    assert result.scores.provenance["options"]["by"] == by
    assert result.scores.provenance["unit"] == result.unit
    assert [*result.to_rows()[0]] == ["word", "part", "box", result.unit]
    logits = [float(trace.logits[at - 1, trace.input_ids[at]]) for at in range(*ANSWER)]
    if result.unit == "share":
        assert np.add(result.picture, result.text) == pytest.approx(1.0)
        assert result.picture == pytest.approx(result.scores.values.sum(1))
        assert "39% of the picture, 61% of the text" in repr(result)
    elif result.residual is not None:
        total = np.add(result.picture, result.text) + result.residual
        assert total == pytest.approx(logits, abs=1e-4)
        assert "logits of the picture" in repr(result)
    assert (result.residual is None) == (by in ("input_x_gradient", "chefer", "rollout"))


def test_the_text_of_integrated_gradients_is_the_logit_without_the_pictures_content(scenes: Any) -> None:
    _, trace = trace_of(scenes, 7)
    result = aw.vision.sources(trace, ANSWER, by="integrated_gradients")

    def hook(_: Any, args: Any, options: dict[str, Any]) -> Any:
        states = options["inputs_embeds"].clone()
        states[:, 1:10] = states[:, 1:10].mean(1, keepdim=True)
        return args, options | {"inputs_embeds": states}

    handle = trace.model.model.language_model.register_forward_pre_hook(hook, with_kwargs=True)
    with torch.no_grad():
        logits = trace.model(**trace.inputs).logits[0]
    handle.remove()
    expected = [float(logits[at - 1, trace.input_ids[at]]) for at in range(*ANSWER)]
    assert result.text == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize(("by", "empty"), [("lrp", 11), ("integrated_gradients", 15)])
def test_words_that_need_no_picture_stay_below_the_limit(scenes: Any, by: Any, empty: int) -> None:
    unneeded = [0, 1, 2, 4, 7]  # "the", the shape, "is", "at" and "."
    count = 0
    for number in range(20, 23):
        result = aw.vision.sources(trace_of(scenes, number)[1], ANSWER, by=by)
        largest = result.scores.values.max(1)
        assert result.least == pytest.approx(largest.max() / 4)
        assert largest[[3, 5, 6]].mean() > 2 * largest[unneeded].mean()
        count += sum(result.strongest()[at] is None for at in unneeded)
    assert count >= empty  # of 15


def test_a_word_of_several_tokens_has_their_sum_or_the_mean_of_their_shares(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    family = FAMILIES["LLaVA"]
    monkeypatch.setattr(picture_families, "AFTER", (9, 8))
    trace = traced(family.model(), family.processor(), np.zeros((48, 80, 3), np.uint8) + 90)
    n, ids = len(trace.tokens), [int(index) for index in trace.input_ids]
    targets = [aw.targets.token(ids[at], position=at - 1) for at in (n - 2, n - 1)]
    relevance = np.asarray(aw.lrp(trace, target=targets).values)
    rows = np.array([aw.chefer(trace, target=target).values for target in targets])
    shares = rows / rows.sum(1, keepdims=True)
    lost = _lost_without(trace, 5, n - 2) + _lost_without(trace, 5, n - 1)
    by = {each: aw.vision.sources(trace, (n - 2, n), by=each) for each in ("lrp", "chefer", "hide")}
    assert by["lrp"].spans == ((n - 2, n - 1),)
    assert by["lrp"].scores.values[0] == pytest.approx(relevance.sum(0)[2:18], abs=1e-5)
    assert by["chefer"].scores.values[0] == pytest.approx(shares.mean(0)[2:18], abs=1e-5)
    assert by["hide"].scores.values[0, 3] == pytest.approx(lost, abs=1e-5)


def _lost_without(trace: Any, hidden: int, at: int) -> float:
    with aw.suppress(trace, [hidden], range(hidden + 1, len(trace.tokens)), stack="text"):
        logits = trace.rerun().logits
    word = int(trace.input_ids[at])
    return float(trace.logits[at - 1].log_softmax(-1)[word] - logits[at - 1].log_softmax(-1)[word])


def test_new_lines_of_several_views_count_as_the_picture_and_pixels_are_refused() -> None:
    family = FAMILIES["LLaVA-NeXT"]
    picture = np.random.default_rng(0).integers(0, 255, (40, 72, 3)).astype(np.uint8)
    trace = traced(family.model(), family.processor(), picture)
    answer = (len(trace.tokens) - 1, len(trace.tokens))
    result = aw.vision.sources(trace, answer, by="lrp")
    target = aw.targets.token(int(trace.input_ids[-1]), position=answer[0] - 1)
    values = np.asarray(aw.lrp(trace, target).values)
    of_picture = np.array(trace.input_ids.tolist()) == picture_families.IMAGE
    assert of_picture.sum() > result.scores.shape[1] == 48
    assert result.picture[0] == pytest.approx(values[of_picture].sum(), abs=1e-5)
    assert result.text[0] == pytest.approx(values[~of_picture].sum(), abs=1e-5)
    hidden = np.flatnonzero(of_picture).tolist()
    with aw.suppress(trace, hidden, [at for at in range(len(of_picture)) if at not in hidden]):
        logits = trace.rerun().logits
    log_p = [float(each[-2].log_softmax(-1)[int(trace.input_ids[-1])]) for each in (trace.logits, logits)]
    lost = aw.vision.sources(trace, answer, by="hide").picture[0]
    assert lost == pytest.approx(log_p[0] - log_p[1], abs=1e-5)
    refusal = r"LlavaNextForConditionalGeneration, which reads \(1, 5, 3, 32, 32\)"
    with pytest.raises(UnsupportedModelError, match=refusal):
        aw.vision.sources(trace, answer, by="lrp_pixels")
    view = result.view()
    number, unit = view.shown.amount(view.shown.top).split()  # small numbers have more decimal places
    assert (float(number), unit) == (pytest.approx(view.shown.top, rel=0.05), "logits")
    boxes = np.array(view.shown.boxes)
    for _, parts in view.shown.views:  # each pixel is drawn by one token of a view, or none
        covered = np.zeros((400, 720), dtype=int)
        for top, left, bottom, right in np.round(boxes[parts] * 10).astype(int):
            covered[top:bottom, left:right] += 1
        assert covered.max() == 1
        assert covered.mean() > 0.8
    names = [name for name, _ in view.shown.views]
    assert names == ["whole picture", "tiles"]
    assert all(name in view.shown.balance(0) for name in [*names, "new lines and class tokens"])


JOINED = {"LLaVA-NeXT", "LLaVA-OneVision"}


@pytest.mark.parametrize("name", [name for name in FAMILIES if name not in {*JOINED, "Mllama"}])
def test_the_relevance_of_pixels_lies_on_tokens_that_read_them(name: str) -> None:
    family = FAMILIES[name]
    processor = family.processor()
    reader = processor.image_reader

    def read(**options: Any) -> dict[str, Any]:
        inputs = dict(reader(**options))
        pixels = inputs["pixel_values"]
        # A number of 0 has no relevance; Idefics leaves out tiles of zeros.
        ground = 1e-6 if "pixel_attention_mask" in inputs else 0.0
        inputs["pixel_values"] = torch.where(pixels.abs() < 0.5, ground, pixels)
        return inputs

    processor.image_reader = read
    rows, columns = family.size
    mean = np.round(255 * np.array(reader.image_mean)).astype(np.uint8)
    picture = np.broadcast_to(mean, (rows, columns, 3)).copy()
    top, left = rows // 2, columns // 2
    bottom, right = top + rows // 4, left + columns // 4
    picture[top:bottom, left:right] = 255
    trace = traced(family.model(), processor, picture)
    result = aw.vision.sources(trace, (len(trace.tokens) - 1, len(trace.tokens)), by="lrp_pixels")
    values, boxes = result.scores.values[0], np.array(result.scores.source_unit.boxes)
    reads = (boxes[:, 0] < bottom) & (boxes[:, 2] > top) & (boxes[:, 1] < right) & (boxes[:, 3] > left)
    assert reads.mean() < 0.6
    assert np.abs(values[reads]).sum() > 0.999 * np.abs(values).sum() > 0
    total = result.picture[0] + result.text[0] + result.residual[0]
    assert result.picture[0] == pytest.approx(values.sum(), abs=1e-6)
    assert total == pytest.approx(float(trace.logits[-2, trace.input_ids[-1]]), abs=1e-5)


def test_what_the_tower_writes_into_later_layers_is_said_to_be_missing() -> None:
    family = FAMILIES["Qwen3-VL"]
    picture = np.random.default_rng(0).integers(0, 255, (48, 80, 3)).astype(np.uint8)
    trace = traced(family.model(), family.processor(), picture)
    answer = (len(trace.tokens) - 1, len(trace.tokens))
    for by, is_missing in (("lrp", True), ("input_x_gradient", True), ("rollout", False)):
        warning = aw.vision.sources(trace, answer, by=by).scores.warning
        assert ("later layers" in warning) == is_missing


def test_long_work_is_announced_to_the_caller(scenes: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    _, trace = trace_of(scenes, 7)
    monkeypatch.setattr(picture_answer, "LONG_WORK", 1)
    with pytest.warns(UserWarning, match='10 passes of 24 tokens; by="lrp" takes one') as caught:
        aw.vision.sources(trace, ANSWER, by="hide")
    assert caught[0].filename == __file__


def test_what_cannot_be_answered_is_refused(scenes: Any) -> None:
    _, trace = trace_of(scenes, 7)
    with pytest.raises(ValueError, match=r"is not one of .paint., .hide."):
        aw.vision.sources(trace, ANSWER, by="paints")
    with pytest.raises(ValueError, match="the answer has no tokens"):
        aw.vision.sources(trace)
    text = aw.trace(*aw.zoo.trained("alice"), "the cat")
    with pytest.raises(ValueError, match="trace the picture with its processor"):
        aw.vision.sources(text, (2, 4))
