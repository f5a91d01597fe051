"""SourcesView of a picture: the sources of each word, views of a picture, and answers without a part."""

from __future__ import annotations

import dataclasses
import types

import numpy as np
import pytest
import torch
from PIL import Image

import attnwidgets as aw
from attnwidgets.explanations import viewable
from attnwidgets.figures.parts.media import boxed
from attnwidgets.figures.theme import LIGHT
from attnwidgets.tracing.text.axes import media_axis
from attnwidgets.tracing.text.units import Unit
from attnwidgets.views.base import expressions

EVIDENCE = 5


@pytest.fixture(scope="module")
def result():
    model, processor = aw.zoo.trained("scenes")
    scene = model.truth.scene(7)
    trace = aw.trace(model, processor, f"{scene.text} {scene.answer}", image=scene.image)
    return aw.vision.sources(trace, (16, 24))


def in_views(result, boxes, tiles=range(0)):
    """Return the result with other boxes, whose nats are 0, 1, 2 and so on for each word.

    `tiles` are those of tiles, each with a single token; the other boxes are of the whole picture.
    """
    n = len(boxes)
    names = tuple(f"{at if at in tiles else n}:0,0" for at in range(n))
    unit = Unit("patch", names, tuple((at,) for at in range(n)), (False,) * n, boxes=tuple(boxes))
    values = np.tile(np.arange(n, dtype=float), (len(result.words), 1))
    scores = aw.results.Attributions(values, axis=media_axis(unit), unit="patch", target=result.words)
    return dataclasses.replace(result, scores=scores)


def test_it_opens_on_the_word_that_loses_most(result):
    view = result.view()
    data = view.requests.answer("sources", {})[0]
    (answer,) = data["answer"]
    assert data["picture"]["prompt"] == "what color is the circle ?"
    assert answer["text"] == "the circle is red at middle right ."
    assert [answer["words"][at] for at in data["picture"]["strong"]] == ["red", "middle", "right"]
    assert view.options["word"] == 3
    words = view.requests.answer("words", {"sentence": 0})[0]
    np.testing.assert_allclose(words, result.scores.values, rtol=1e-5)
    np.testing.assert_allclose(np.sum(words, 0), answer["values"], atol=1e-3)
    assert data["top"] == np.abs(result.scores.values).max()  # one scale for all words
    assert data["picture"]["boxes"][EVIDENCE] == pytest.approx([1 / 3, 2 / 3, 2 / 3, 1], abs=1e-5)
    said = view.describe()
    assert "“red” rests most on patch 1,2: +15.55 nats. “middle” rests most on patch 1,2" in said
    assert "The other words rest on no part of the picture: all are below 0.6 nats." in said


def test_its_python_gives_the_number_that_is_shown(result, monkeypatch):
    view, namespace = result.view(), {"rests": result}
    monkeypatch.setattr(expressions, "running_shell", lambda: types.SimpleNamespace(user_ns=namespace))
    args = {"of": "source", "sentence": 0, "part": EVIDENCE, "word": 3}
    code = view.requests.answer("expression", args)[0]["code"]
    assert code == "rests.scores.value(5, target=3)"
    assert eval(code, {}, namespace) == view.score(0, EVIDENCE, word=3)
    namespace["view"] = view
    code = view.requests.answer("expression", args | {"word": None})[0]["code"]
    assert eval(code, {}, namespace) == view.score(0, EVIDENCE)
    assert view.score(0, EVIDENCE) == pytest.approx(result.scores.values[:, EVIDENCE].sum())


def test_the_model_reads_the_painted_picture_and_writes(result):
    model, processor = aw.zoo.trained("scenes")
    scene, view = model.truth.scene(7), result.view()
    top, left, bottom, right = scene.evidence
    image = scene.image.copy()
    image[top:bottom, left:right] = np.round(scene.image.reshape(-1, 3).mean(0))
    inputs = processor(text=[scene.text], images=Image.fromarray(image), return_tensors="pt")
    with torch.no_grad():
        ids = model.generate(**inputs, do_sample=False, max_new_tokens=9)[0, inputs["input_ids"].shape[1] :]
    assert view.written_without(EVIDENCE) == processor.decode(ids, skip_special_tokens=True).strip()
    assert view.written_without(EVIDENCE) != scene.answer
    assert view.written_without(0) == view.written_without(None) == scene.answer
    assert view.options["written"] == [EVIDENCE, 0]
    assert ("written_without", {"part": 0}) in [(topic, args) for topic, args, _ in view.requests.for_page()]
    with pytest.raises(IndexError, match="part 9 is out of range: parts 0 to 8 can be taken away"):
        view.written_without(9)


def test_a_hidden_token_is_not_read_while_the_model_writes(result):
    hidden = aw.vision.sources(result.trace, (16, 24), by="hide").view()
    assert hidden.options["measures"] == "nats lost with a token of the picture hidden"
    token = result.trace.tokens.index("1,2")
    before = aw.trace(result.trace.model, result.trace.tokenizer, "<image> what color is the circle ?",
                      image=result.trace.picture.given)  # fmt: skip
    with aw.suppress(before, [token]):
        assert hidden.written_without(EVIDENCE) == aw.continuations(before, max_new_tokens=24)[0].text.strip()


def test_parts_that_overlap_are_in_different_views_of_the_picture(result):
    tiles = [(0.0, 0.0, 12.0, 12.0), (0.0, 12.0, 12.0, 24.0), (12.0, 0.0, 24.0, 12.0)]
    whole = [(0.0, 0.0, 24.0, 12.0), (0.0, 12.0, 24.0, 24.0)]
    view = in_views(result, [*tiles, *whole], range(3)).view()
    assert view.shown.views == [("tiles", [0, 1, 2]), ("whole picture", [3, 4])]
    assert view.options["view"] == 1  # of the part that matters most
    first = in_views(result, [*whole, *tiles], range(2, 5)).view()
    assert first.shown.views == [("whole picture", [0, 1]), ("tiles", [2, 3, 4])]
    mosaic = in_views(result, [*tiles, *whole]).view()  # fewer and larger tokens than the whole has
    assert [name for name, _ in mosaic.shown.views] == ["whole picture", "tiles"]
    assert result.view().options["views"] == ["whole picture"]


def test_numbers_have_the_unit_of_the_method(result):
    by = {name: aw.vision.sources(result.trace, (16, 24), by=name) for name in ("lrp", "rollout")}
    relevance, shares = by["lrp"].view(), by["rollout"].view()
    assert relevance.options["measures"] == "relevance of the picture's tokens, in logits"
    said = relevance.describe()
    assert "“red” rests most on token 1,2: +10.18 logits." in said
    assert said.endswith("all are below 2.5 logits, a quarter of the largest of all words.")
    assert relevance.shown.balance(3) == (
        "The picture has +9.04 logits, the text +1.49 logits; biases and the softmax keep +6.87 logits."
    )
    assert "“red” rests most on token 1,2: 12.9%." in shares.describe()
    assert shares.shown.balance(3) == "The picture has 38.6%, the text 61.4%."
    # Together, relevance is summed; of shares, which sum to 1 for each word, the mean is a share.
    assert relevance.score(0, EVIDENCE) == pytest.approx(by["lrp"].scores.values[:, EVIDENCE].sum())
    assert shares.score(0, EVIDENCE) == pytest.approx(by["rollout"].scores.values[:, EVIDENCE].mean())
    for view, name in ((relevance, "lrp"), (shares, "rollout")):
        data = view.requests.answer("sources", {})[0]
        assert data["top"] == pytest.approx(by[name].scores.values.max())
        assert data["measure"] == by[name].unit
        assert (data["relation"], data["cover"]) == ("from", "")


def test_tokens_are_hidden_and_pixels_painted_over_while_the_model_writes(result):
    relevance, hidden, pixels = (
        aw.vision.sources(result.trace, (16, 24), by=by).view() for by in ("lrp", "hide", "lrp_pixels")
    )
    assert relevance.written_without(EVIDENCE) == hidden.written_without(EVIDENCE)
    assert pixels.written_without(EVIDENCE) == result.view().written_without(EVIDENCE)


def test_where_nothing_matters_much_it_says_so(result):
    scores = dataclasses.replace(in_views(result, result.scores.source_unit.boxes)).scores
    weak = aw.results.Attributions(
        scores.values * 0.05, axis=scores.axis, unit="patch", target=scores.targets
    )
    view = dataclasses.replace(result, scores=weak).view()
    assert "middle right .” rests on no part of the picture: all are below 0.6 nats." in view.describe()
    assert view.shown.top == 0.6


def test_a_kernel_shows_the_view_of_a_result(result, monkeypatch):
    assert result._repr_mimebundle_() == {"text/plain": repr(result)}
    monkeypatch.setattr(viewable, "running_shell", lambda: types.SimpleNamespace(kernel=True))
    data = result._repr_mimebundle_()
    assert "application/vnd.jupyter.widget-view+json" in (data[0] if isinstance(data, tuple) else data)


def test_a_figure_lifts_the_veil_where_a_word_rests():
    pixels = np.full((4, 4, 3), 100, np.uint8)
    boxes = [(0, 0, 1, 0.5), (0, 0.5, 1, 1)]
    image = boxed(pixels, boxes, np.array([1.0, 0.0]), LIGHT)
    assert (image[240, 400] == round(100 + (255 - 100) * 0.5)).all()  # veiled: half of the page
    assert abs(image[240, 120].astype(float) - 100).max() < 60  # not veiled, and filled
    edge, inside = image[240, 2].astype(float), image[240, 120].astype(float)
    assert abs(edge - inside).max() > 30
