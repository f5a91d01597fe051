"""TwoTexts: two traces side by side; requests of its browser side, copied code, and construction."""

from __future__ import annotations

import types
from typing import Any

import numpy as np
import pytest

import attnwidgets as aw
from attnwidgets.views.base import expressions
from tests.tracing import tiny


@pytest.fixture(scope="module")
def films() -> tuple[Any, Any]:
    """Traces of a sentence and of its negation."""
    model = aw.demo_model("classifier")
    good, bad = (aw.trace(*model, f"The film was {word}.") for word in ("good", "not good"))
    return good, bad


def rows(view: aw.TwoTexts, **args: Any) -> tuple[dict[str, Any], np.ndarray]:
    """The numbers of the browser by row: [A, B, A less B; column]."""
    at = {"stack": "self", "unit": "token", "layer": 0, "head": "-", "query": None} | args
    meta, (data,) = view.requests.answer("rows", at)
    return meta, np.frombuffer(data, "<f4").reshape(3, -1)


@pytest.mark.slow
def test_two_texts_are_shown_side_by_side_and_one_text_is_not(films, smollm2):
    good, bad = films
    assert isinstance(aw.compare([good, bad], methods=["attention"]), aw.TwoTexts)
    assert isinstance(aw.compare(good, methods=["attention", "rollout"]), aw.views.CompareView)
    again = aw.trace(*aw.demo_model("encoder"), good.text)
    assert isinstance(aw.compare([good, again], methods=["attention"]), aw.views.CompareView)
    other = aw.trace(*smollm2, good.text)
    assert isinstance(aw.compare([good, other], methods=["attention"]), aw.views.CompareView), (
        "one text, two tokenizers"
    )
    with pytest.raises(ValueError, match=r"layers=.0, 1. is for one text"):
        aw.compare([good, bad], layers=[0, 1])


def test_a_mapping_names_the_texts(films):
    good, bad = films
    view = aw.compare({"praise": good, "blame": bad}, methods=["attention"])
    assert isinstance(view, aw.TwoTexts)
    assert view.traces == (good, bad)
    assert view.options["names"] == ["praise", "blame"]
    named = aw.compare({"praise": good, "blame": bad}, methods=["attention"], names=("x", "y"))
    assert named.options["names"] == ["x", "y"]


def test_what_it_is_given_is_checked(films):
    good, bad = films
    with pytest.raises(TypeError, match=r"two traces, \[trace_a, trace_b\], not Trace"):
        aw.TwoTexts(good)
    with pytest.raises(ValueError, match="two different names"):
        aw.TwoTexts([good, bad], names=("x", "x"))
    with pytest.raises(ValueError, match="Did you mean 'rollout'"):
        aw.TwoTexts([good, bad], methods=["rolout"])
    with pytest.raises(ValueError, match="target"):
        aw.TwoTexts([good, bad], target="funny")


@pytest.mark.slow
def test_it_opens_with_one_prediction_rather_than_the_other(films):
    good, bad = (aw.trace(trace.model, trace.tokenizer, trace.text) for trace in films)
    view = aw.TwoTexts([good, bad], methods=["lrp", "attention"])
    assert view.selection.method == "lrp@1-0"
    assert (view.selection.target.label, view.selection.foil.label) == ("positive", "negative")
    assert view.traces == (good, bad)
    chosen = aw.TwoTexts([good, bad], methods=["lrp"], target="negative")
    assert chosen.selection.target.label == "negative"


@pytest.mark.slow
def test_tokens_and_no_token_are_the_whole(films):
    view = aw.TwoTexts(films, methods=["lrp", "attention"], target=1, foil=0)
    meta, values = rows(view, method="lrp@1-0")
    assert meta["about"] == ["positive", "negative"]
    logits = [float(trace.logits[1] - trace.logits[0]) for trace in films]
    for side in (0, 1):
        assert values[side].sum() + meta["rests"][side] == pytest.approx(logits[side], abs=1e-4)
    np.testing.assert_allclose(values[2], values[0] - values[1], atol=1e-6)
    relevance = [aw.lrp(trace, target=1, foil=0).values for trace in films]
    np.testing.assert_allclose(values[0], np.insert(relevance[0], 4, 0), rtol=1e-6)
    np.testing.assert_allclose(values[1], relevance[1], rtol=1e-6)
    # Without a target both explain the prediction of the first text.
    meta, _ = rows(view, method="lrp")
    assert meta["about"] == ["positive", None]


def test_rows_and_maps_are_those_of_both_traces(films):
    view = aw.TwoTexts(films, methods=["attention", "rollout"])
    texts, _ = view.requests.answer("texts", {"stack": "self", "unit": "token"})
    assert texts["keys"]["labels"][0][4] == ""
    assert texts["keys"]["labels"][1][4] == "not"
    assert texts["keys"]["elements"][4] == [-1, 4]
    assert texts["keys"]["same"] == [1, 1, 1, 1, 0, 1, 1, 1]
    meta, values = rows(view, method="attention", layer=2, head=3)
    assert meta == {"query": 5, "shares": True}
    first, second = (trace.attention_layer(2)[3].numpy() for trace in films)
    np.testing.assert_allclose(values[0], np.insert(first[4], 4, 0), atol=1e-7)
    np.testing.assert_allclose(values[1], second[5], atol=1e-7)
    args = {
        "method": "attention",
        "stack": "self",
        "unit": "token",
        "layer": 2,
        "head": "max",
        "first": [2, 1],
    }
    meta, (data,) = view.requests.answer("maps", args)
    assert meta["shape"] == [6, 7]
    maps = np.frombuffer(data, "<f4").reshape(3, 6, 7)
    np.testing.assert_allclose(maps[1], films[1].attention_layer(2).numpy().max(0)[2:, 1:], atol=1e-7)
    np.testing.assert_allclose(maps[2], maps[0] - maps[1], atol=1e-6)
    for bad, error in (({"layer": 9}, "layer 9"), ({"head": 40}, "head 40"), ({"query": 99}, "query 99")):
        with pytest.raises(IndexError, match=error):
            rows(view, **({"method": "attention", "head": 0} | bad))


def test_a_text_beside_itself_differs_nowhere(films):
    good, _ = films
    view = aw.TwoTexts([good, aw.trace(good.model, good.tokenizer, good.text)], methods=["lrp", "attention"])
    for method in ("lrp", "attention"):
        _, values = rows(view, method=method, head=0)
        np.testing.assert_array_equal(values[2], 0)
    told, _ = view.requests.answer("predictions", {"target": None, "foil": None})
    assert all(item == two for _, _, item, two in told["rows"])


@pytest.mark.slow
def test_both_predictions_are_named_and_compared(films, smollm2):
    view = aw.TwoTexts(films, methods=["attention"])
    told, _ = view.requests.answer("predictions", {"target": 0, "foil": 1})
    probabilities = [trace.logits.double().softmax(-1) for trace in films]
    for number, label, item, two in told["rows"]:
        assert label == ["negative", "positive"][number]
        assert (item, two) == pytest.approx([float(p[number]) for p in probabilities])
    assert told["reason"] == ""
    with pytest.raises(IndexError, match="outcome 7"):
        view.requests.answer("predictions", {"target": 7, "foil": None})
    encoder = aw.demo_model("encoder")
    plain = aw.TwoTexts([aw.trace(*encoder, text) for text in ("He ran.", "She ran.")])
    assert (
        "predicts nothing"
        in plain.requests.answer("predictions", {"target": None, "foil": None})[0]["reason"]
    )
    mixed = aw.TwoTexts([aw.trace(*smollm2, "He ran."), films[0]])
    reason = mixed.requests.answer("predictions", {"target": None, "foil": None})[0]["reason"]
    assert reason == "their outputs are not the same: 49152 tokens and 2 classes"


@pytest.mark.slow
@pytest.mark.parametrize(
    "place",
    [
        {"method": "lrp@1-0", "column": 4},
        {"method": "lrp", "unit": "word", "column": 5},
        {"method": "attention", "layer": 3, "head": 7, "query": 5, "column": 4},
        {"method": "attention", "layer": 3, "head": "max", "query": None, "column": 2},
        {"method": "rollout", "layer": 4, "head": "-", "query": 2, "unit": "word", "column": 3},
    ],
)
@pytest.mark.parametrize("named", ["everything", "functions", "view"])
def test_the_copied_line_returns_the_number_that_is_shown(films, place, named, monkeypatch):
    view = aw.TwoTexts(films, methods=["lrp", "attention", "rollout"], target=1, foil=0)
    good, bad = films
    namespace = {
        "everything": {"aw": aw, "good": good, "bad": bad},
        "functions": {
            "lrp": aw.lrp,
            "attention": aw.attention,
            "rollout": aw.rollout,
            "good": good,
            "bad": bad,
        },
        "view": {"view": view},
    }[named]
    monkeypatch.setattr(expressions, "running_shell", lambda: types.SimpleNamespace(user_ns=namespace))
    at = {"stack": "self", "unit": "token", "layer": 0, "head": "-", "query": None} | place
    told, _ = view.requests.answer("expression", {"of": "difference", **at})
    assert told["note"] == ""
    _, values = rows(view, **{name: value for name, value in at.items() if name != "column"})
    if named == "view" and place.get("head") == "max":
        assert ".difference('attention', unit='token', head='max')" in told["code"]
    assert eval(told["code"], {}, dict(namespace)) == pytest.approx(values[2][place["column"]], abs=1e-6)


def test_a_pin_is_passed_on_to_views_of_the_second_text(films):
    good, bad = (aw.trace(trace.model, trace.tokenizer, trace.text) for trace in films)
    view, other = aw.TwoTexts([good, bad], methods=["attention"]), aw.Heatmap(bad)
    view.selection.pinned = (5, 4)
    assert other.selection.pinned == (6, 5)
    view.selection.pinned = None
    assert other.selection.pinned is None
    view.close()
    other.selection.pinned = (1, 1)
    assert other.selection.pinned == (1, 1)


@pytest.mark.slow
def test_two_tokenizers_stand_in_common_columns(smollm2):
    encoder, decoder = aw.demo_model("encoder"), smollm2
    plural, singular = aw.trace(*encoder, "Unbelievable keys."), aw.trace(*decoder, "Unbelievable key.")
    view = aw.TwoTexts([plural, singular])
    texts, _ = view.requests.answer("texts", {"stack": "self", "unit": "token"})
    keys = texts["keys"]
    assert [
        pair for pair, same in zip(zip(*keys["labels"], strict=True), keys["same"], strict=True) if not same
    ] == [
        ("[CLS]", ""),
        ("keys", "␣key"),
        ("[SEP]", ""),
    ]
    with pytest.raises(ValueError, match="other has the layer"):
        rows(view, method="attention", head=0)


def test_stacks_of_an_encoder_decoder_are_aligned_by_their_own_axes():
    model, tokenizer = tiny.build(tiny.SEQ2SEQ["T5"]), tiny.wordpiece()
    traces = [aw.trace(model, tokenizer, text, target_text="cat cat") for text in ("unbelievable cat", "cat")]
    view = aw.TwoTexts(traces)
    texts, _ = view.requests.answer("texts", {"stack": "cross", "unit": "token"})
    assert len(texts["queries"]["same"]) == len(traces[0].axes("cross")[0])
    assert not all(texts["keys"]["same"])
    _, values = rows(view, method="attention", stack="cross", head=0)
    assert values.shape[1] == len(texts["keys"]["same"])


@pytest.mark.slow
def test_a_page_holds_what_was_named(films, tmp_path):
    view = aw.TwoTexts(films, methods=["lrp", "attention"], target=1, foil=0)
    in_page = [(topic, args) for topic, args, _ in view.requests.for_page()]
    assert ("texts", {"stack": "self", "unit": "word"}) in in_page
    assert any(topic == "computed_rows" and args["method"] == "lrp@1-0" for topic, args in in_page)
    maps = [args for topic, args in in_page if topic == "maps"]
    assert len({(args["layer"], args["head"]) for args in maps if args["unit"] == "token"}) == 6 * 14
    assert view.to_html(tmp_path / "page.html").stat().st_size > 1e5


@pytest.mark.slow
def test_a_figure_and_words(films, tmp_path):
    view = aw.TwoTexts(films, methods=["lrp", "attention"], target=1, foil=0)
    text = view.save(tmp_path / "two.svg").read_text()
    for word in ("not", "positive", "tokens +1.98, no token +3.67, total +5.66"):
        assert word in text
    assert view.describe().startswith(
        "Two texts, 'The film was good.' and 'The film was not good.': “nothing” for “not”"
    )
    view.selection.method = "attention"
    assert "the row of" in view.save(tmp_path / "row.svg").read_text()
