"""CompareView: its strips, how maps are read, models with other tokens, and how methods agree."""

from __future__ import annotations

import numpy as np
import pytest

import attnwidgets as aw
from attnwidgets.views.compare.compared import SHARED


def strips(view, layer=0, query=None, unit="token"):
    meta, (data,) = view.requests.answer("strips", {"layer": layer, "query": query, "unit": unit})
    return meta, np.frombuffer(data, "<f4").reshape(len(meta["names"]), -1)


def agreement_of(view, layer=0, query=None, unit="token", *, special=True, by="value"):
    args = {"layer": layer, "query": query, "unit": unit, "special": special, "by": by}
    return view.requests.answer("agreement", args)[0]


def test_maps_are_read_as_the_row_of_a_query_in_the_selected_layer(given):
    trace = given()
    view = aw.compare(trace, methods=["attention", "rollout"])
    maps = aw.attention(trace).mean(), aw.rollout(trace)
    meta, values = strips(view, layer=1, query=5)
    assert meta["names"] == ["attention", "rollout"]
    assert meta["remarks"] == ["layer 1, mean over heads", "layer 1"]
    for row, item in zip(values, maps, strict=True):
        np.testing.assert_allclose(row, item.matrix(1)[5], rtol=1e-6)
    assert (meta["query"], meta["how"], meta["follows"]) == (5, "row", True)
    assert view.store.sources()[0].layers == (0, 1, 2)


def test_without_a_pin_it_is_the_row_of_the_last_token_that_is_not_special(given, causal, minilm):
    assert strips(aw.compare(given()))[0]["query"] == 7
    later = aw.from_attentions(causal((2, 2, 6, 6)), list("abcdef"))
    assert strips(aw.compare(later))[0]["query"] == 5
    read = aw.trace(*minilm, "The cat sat")
    assert read.tokens[strips(aw.compare(read))[0]["query"]] == "sat"


def test_the_value_of_an_element_is_the_one_that_its_row_shows(given):
    trace = given()
    view = aw.compare(trace, methods=["attention", "rollout"])
    _, values = strips(view, layer=1, query=5)
    for row, name in enumerate(view.names):
        assert np.float32(view.value(name, 3, layer=1, query=5)) == values[row, 3]
        assert view.value(row, 3, layer=1, query=5) == view.value(name, 3, layer=1, query=5)
    with pytest.raises(ValueError, match="'rolout' is not one of"):
        view.value("rolout", 3)
    with pytest.raises(IndexError, match="token 8 is out of range"):
        view.value(0, 8)


def test_rows_of_shares_are_told_from_what_has_no_row_to_rescale(given):
    trace = given()
    signed = aw.results.Attributions(np.linspace(-1, 1, 8), axis=aw.attention(trace).key, trace_id=trace.id)
    items = {"attention": aw.attention(trace), "signed": signed}
    assert strips(aw.views.CompareView(items), query=2)[0]["shares"] == [True, False]
    assert strips(aw.compare(trace, how="column_sum"))[0]["shares"] == [False, False]


@pytest.mark.parametrize("name", ["CompareView", "LayerProfile"])
def test_filters_are_options_of_rows_too(given, name):
    view = getattr(aw, name)(given(), hide_special="renormalise", scale="log")
    assert view.options["filters"] == {"special": "renormalise", "scale": "log"}
    with pytest.raises(ValueError, match="at most 1"):
        getattr(aw, name)(given(), keep_mass=2)


def test_other_schemes_are_those_of_to_attributions(given):
    trace = given()
    view = aw.compare(trace, how="column_mean")
    _, values = strips(view, layer=2)
    expected = aw.rollout(trace).select(layer=2).to_attributions("column_mean")
    np.testing.assert_allclose(values[1], expected.values, rtol=1e-6)
    with pytest.raises(ValueError, match="column_mean"):
        aw.compare(trace, how="column_men")


def test_a_query_by_name_is_read_in_every_unit(minilm_trace):
    label = minilm_trace.tokens[4]
    view = aw.compare(minilm_trace, query=label)
    word = next(i for i, span in enumerate(aw.attention(minilm_trace).key.units["word"].spans) if 4 in span)
    meta, values = strips(view, layer=3, unit="word")
    expected = aw.attention(minilm_trace).mean().to("word").matrix(3)[word]
    assert (meta["query"], meta["follows"]) == (word, False)
    np.testing.assert_allclose(values[0], expected, rtol=1e-5)


def test_layers_and_heads_as_strips(given):
    trace = given()
    view = aw.compare(aw.attention(trace), layers=[0, 2], heads=[1, 3])
    assert [name.rsplit(", ", 1)[1] for name in view.names] == [
        "head 0.1",
        "head 0.3",
        "head 2.1",
        "head 2.3",
    ]
    meta, values = strips(view, query=2)
    np.testing.assert_allclose(values[3], aw.attention(trace).matrix(2, 3)[2], rtol=1e-6)
    assert meta["alike"]  # one method: one scale


def test_agreement_is_that_of_aw_agreement(given):
    trace = given()
    view = aw.compare(trace)
    rows = [m.matrix(1)[3] for m in (aw.attention(trace).mean(), aw.rollout(trace))]
    labels = aw.attention(trace).key_labels
    result = agreement_of(view, layer=1, query=3)
    for measure in ("spearman", "kendall", "top_k"):
        expected = aw.evaluate.agreement(
            [aw.results.Attributions(row, axis=labels) for row in rows], measure, names=list("ab")
        )
        np.testing.assert_allclose(result["measures"][measure]["values"], expected.matrix, atol=1e-4)
    assert "may be wrong together" in result["caveat"]


def test_special_tokens_may_be_left_out_of_the_ranking(minilm_trace):
    view = aw.compare(minilm_trace, methods=["attention", "value_zeroing"])
    with_, without = (agreement_of(view, layer=2, query=3, special=special) for special in (True, False))
    assert with_["measures"]["kendall"]["values"] != without["measures"]["kendall"]["values"]


def test_models_with_other_tokens_are_compared_by_the_words_they_share():
    axis = aw.results.TokenAxis.plain(["[CLS]", "un", "##likely", "Cats", "purr.", "[SEP]"])
    unit = special(axis.units["token"], (0, 5))
    first = aw.results.Attributions(
        [9, 1, 2, 3, 4, 9], axis=aw.results.TokenAxis(axis.tokens, {"token": unit})
    )
    second = aw.results.Attributions([1, 2, 4, 8], axis=["Unlikely", " cats", " purr", "."])
    view = aw.views.CompareView([first, second], names=["one", "other"])
    meta, values = strips(view, unit=SHARED)
    assert view.store.header["axes"][SHARED]["labels"] == ["un##likely", "Cats", "purr."]
    assert values.tolist() == [[3, 3, 4], [1, 2, 12]]
    assert view.store.header["axes"][SHARED]["spans"] == [[1, 2], [3], [4]]
    assert meta["remarks"] == ["", ""]


def special(unit, positions):
    return aw.results.Unit(
        unit.name, unit.labels, unit.spans, tuple(i in positions for i in range(len(unit)))
    )


def test_two_models_share_their_words(minilm_trace, sentence, softmax):
    pieces = [f" {word}" for word in sentence.removesuffix(".").split()]
    tokens = ["<s>", *pieces, "."]
    other = aw.from_attentions(softmax((2, 3, len(tokens), len(tokens))), tokens)
    view = aw.compare([minilm_trace, other], methods=["attention"], query=2)
    header = view.store.header
    labels = header["axes"][header["sources"][0]["key"]]["labels"]
    assert "".join(labels).replace(" ", "") == sentence.replace(" ", "")
    _, values = strips(view, layer=1, unit=SHARED)
    word = aw.attention(minilm_trace).mean().to("word")
    np.testing.assert_allclose(values[0], word.matrix(1)[3][1:-1], rtol=1e-4)  # without [CLS] and [SEP]
    assert view.names[0] != view.names[1]


def test_other_texts_are_refused_with_the_first_word_that_differs():
    british, american = (
        aw.results.Attributions([1.0, 2.0], axis=axis) for axis in (["the", "colour"], ["the", "color"])
    )
    with pytest.raises(ValueError, match="word 1 is 'colour' in the one, 'color' in the other"):
        aw.views.CompareView([british, american])


@pytest.mark.parametrize(
    ("shown", "options", "words"),
    [
        ([aw.results.Attributions([1.0], axis=["a"])], {}, "2 to 24"),
        ([aw.results.Attributions([1.0], axis=["a"])] * 25, {}, "given 25"),
        ([aw.results.Attributions([1.0], axis=["a"])] * 2, {"names": ["x"]}, "1 entries for 2"),
        ([aw.results.Attributions([1.0], axis=["a"])] * 2, {"names": ["x", "x"]}, "twice"),
    ],
)
def test_what_cannot_be_compared_is_refused(shown, options, words):
    with pytest.raises(ValueError, match=words):
        aw.compare(shown, **options)
    with pytest.raises(TypeError, match="compares MixingMaps and Attributions"):
        aw.compare([1, 2])


def test_a_page_holds_every_layer_and_every_query_of_a_short_text(given):
    view = aw.compare(given(n=5))
    told = [(topic, args) for topic, args, _ in view.requests.for_page()]
    strips = [args for topic, args in told if topic == "strips"]
    assert {args["layer"] for args in strips} == {0, 1, 2}
    assert {args["query"] for args in strips if args["layer"] == 0} == {None, 0, 1, 2, 3, 4}
    assert len({str(args) for args in strips}) == len(strips)


def test_attributions_of_several_targets_are_several_strips():
    many = aw.results.Attributions([[1.0, -2.0], [0.0, 3.0]], axis=["a", "b"], target=["yes", "no"])
    view = aw.views.CompareView([many])
    assert [name.rsplit(": ", 1)[1] for name in view.names] == ["yes", "no"]
    meta, values = strips(view)
    assert meta["signed"] == [True, False]
    assert values.tolist() == [[1, -2], [0, 3]]


def test_tokens_can_be_pinned_though_rows_are_explanations(given):
    view = aw.compare(given(), units=["token"])
    view.selection.pinned = (6, -1)
    assert view.selection.pinned == (6, -1)
    with pytest.raises(IndexError, match="there are 8 tokens"):
        view.selection.pinned = (8, -1)
