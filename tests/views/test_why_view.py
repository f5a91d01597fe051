"""WhyView: rows and pairs that sum to the score, sentences that name the circuit, and the pairs of a page."""

from __future__ import annotations

import types

import numpy as np
import pytest

import attnwidgets as aw
from attnwidgets.views.base import expressions
from attnwidgets.views.circuits.why_view import WhyView
from attnwidgets.views.circuits.why_words import decimals
from tests.tracing.families import FAMILIES
from tests.zoo.made import made

from .every import kind_of


def answer(view, **changes):
    """Return the view's answer, for its pair or another."""
    request = next(view._expressions()) | changes
    del request["of"]
    return view.requests.answer("why", request)[0]


def said(shown):
    return "".join(piece for piece, _ in shown["said"])


@pytest.fixture(scope="module")
def induction():
    return aw.trace(*made("induction", letters="abcdefgh", length=16), "fadebcfadeb")


@pytest.mark.parametrize("family", ["Llama", "BERT", "Gemma 2", "T5"])
@pytest.mark.parametrize("by", ["component", "token"])
@pytest.mark.parametrize("foil", ["others", 1, None])
def test_rows_and_the_pairs_between_them_sum_to_the_score(family, by, foil):
    why = aw.why(FAMILIES[family].traced(), 6, 2, layer=1, head=1, by=by, foil=foil)
    shown = answer(WhyView(why))
    pairs = np.array(shown["pairs"])
    for axis, side in ((1, "asks"), (0, "offers")):
        values = [row["value"] for row in shown[side]]
        np.testing.assert_allclose(pairs.sum(axis), values, atol=1e-5)
        assert sum(values) == pytest.approx(why.total - sum(why.given.values()), abs=1e-5)
        assert [row["kind"] for row in shown[side]].count("rest") <= 1
        parts = [row["value"] for row in shown[side] if row["kind"] == "part"]
        assert parts == sorted(parts, reverse=True)
        assert len(parts) <= 7
    assert np.sum(shown["grid"]["values"]) == pytest.approx(why.total - sum(why.given.values()), abs=1e-5)
    assert shown["total"] == why.total
    assert all(name in shown["sums"] for name in why.given)
    assert ("leaves attention as it is" in shown["warning"]) == (foil is None)


def test_the_rest_says_what_of_it_cancels():
    why = aw.why(FAMILIES["GPT-2"].traced(), 6, 2, layer=1, head=1)
    [rest] = [row for row in answer(WhyView(why))["asks"] if row["kind"] == "rest"]
    others = np.sort(np.abs(why.asks[:-1]))[:-6]
    assert rest["name"] == f"{len(others)} others"
    assert sum(rest["cancels"]) == pytest.approx(rest["value"], abs=1e-6)
    assert rest["cancels"][0] - rest["cancels"][1] == pytest.approx(others.sum(), abs=1e-6)


def test_the_sentence_names_the_circuit(induction):
    shown = answer(WhyView(aw.why(induction, 11, 6, layer=1, head=0)))
    assert said(shown) == "“b” asks with its token; “c” offers head 0.0, which read “b”."
    assert shown["offers"][0]["head"] == (0, 0)
    assert "Most of it is what “c” is, not where it stands" in shown["more"]
    [key, query] = shown["removals"]
    assert (key["side"], key["parts"], query["side"]) == ("key", ["head 0.0"], "query")
    assert (key["before"], key["after"]) == (pytest.approx(1), pytest.approx(0, abs=1e-6))
    assert key["random"] > 0.99
    past = answer(WhyView(aw.why(induction, 11, 3, layer=1, head=0)))
    assert said(past).startswith("“b” looks past “d”: most against it are its token of “b”")


def test_a_small_weight_is_told_apart_from_what_is_left_of_it():
    assert [decimals(weight) for weight in (1, 0.9, 0.1, 0.05, 0.0005, 1e-17, 0)] == [2, 2, 2, 3, 5, 5, 2]
    trace = FAMILIES["BERT"].traced()
    weights = aw.attention(trace).layer(1)[0]
    query, key = np.unravel_index(weights.argmin(), weights.shape)
    shown = WhyView(aw.why(trace, int(query), int(key), layer=1, head=0)).shown()
    for removal, said in zip(shown.removals(), shown.removal_words(), strict=True):
        assert f" instead of {removal.before:.{decimals(removal.before)}f}; " in said


def test_words_are_marked_where_they_stand():
    trace = aw.trace(*aw.demo_model("encoder"), "A bewildering unputdownable thriller.")
    shown = answer(WhyView(aw.why(trace, 3, 2, layer=3, head=1, by="word")))
    tokens = {row["name"]: row["tokens"] for row in shown["asks"] if row["tokens"]}
    spans = dict(
        zip(
            trace.axes("self")[0].units["word"].labels, trace.axes("self")[0].units["word"].spans, strict=True
        )
    )
    assert len(tokens) >= 5
    assert all(tuple(range(*at)) == spans[name] for name, at in tokens.items())


def test_it_follows_the_pinned_cell_and_keeps_its_parts_and_its_foil(induction):
    view = WhyView(aw.why(induction, 11, 6, layer=1, head=0, foil="row"))
    heatmap = aw.Heatmap(induction)
    assert heatmap.selection is view.selection
    assert heatmap.selection.pinned == (11, 6)
    heatmap.selection.pinned = (5, 2)
    expected = aw.why(induction, 5, 2, layer=1, head=0, foil="row")
    assert view.why().total == expected.total
    assert answer(view)["total"] == expected.total
    heatmap.at(layer=0, head=0, pins=[(5, 4)])
    assert view.why("token").total == aw.why(induction, 5, 4, layer=0, head=0, foil="row").total


def test_a_cell_that_is_masked_is_refused_in_words(induction):
    view = WhyView(aw.why(induction, 11, 6, layer=1, head=0))
    with pytest.raises(ValueError, match=r"token 5 .* does not read token 7"):
        answer(view, query=5, key=7)


def test_only_a_result_of_why_is_shown(induction):
    with pytest.raises(TypeError, match=r"WhyView\(\) shows the result of aw.why"):
        WhyView(induction)


def test_a_result_shows_itself(induction):
    why = aw.why(induction, 11, 6, layer=1, head=0)
    view = why.view(title="why so")
    assert isinstance(view, WhyView)
    assert view.why() is why
    assert why.to("kind").view().why().pairs == pytest.approx(why.pairs)
    assert "text/plain" in why._repr_mimebundle_()


def test_the_answer_travels_with_the_view(induction):
    view = WhyView(aw.why(induction, 11, 6, layer=1, head=0))
    [args] = view._prefetched()
    assert list(args) == ["stack", "layer", "head", "query", "key", "by", "foil"]
    assert b"which read" in view.requests.opening()


def test_a_page_holds_the_pinned_cell_and_the_ten_largest_of_its_head(induction):
    view = WhyView(aw.why(induction, 11, 3, layer=1, head=0))
    args = [args for topic, args, _ in view.requests.for_page() if topic == "why"]
    weights = aw.attention(induction).layer(1)[0, 1:, 1:]
    least = np.sort(weights, axis=None)[-10]
    for by in ("component", "token"):
        cells = [(pair["query"], pair["key"]) for pair in args if pair["by"] == by]
        assert cells[0] == (11, 3)
        assert len(set(cells)) == len(cells) == 11
        assert all(weights[query - 1, key - 1] >= least for query, key in cells[1:])


def test_python_that_returns_the_total_is_copied(induction, monkeypatch):
    why = aw.why(induction, 11, 6, layer=1, head=0, foil=3)
    view = WhyView(why)
    names = {"aw": aw, "trace": induction}
    monkeypatch.setattr(expressions, "running_shell", lambda: types.SimpleNamespace(user_ns=names))
    args = next(view._expressions())
    code = view.requests.answer("expression", args)[0]["code"]
    assert code == "aw.why(trace, 11, 6, layer=1, head=0, foil=3).total"
    assert eval(code, {}, names) == pytest.approx(77.187, abs=1e-3)
    names["why"] = why
    assert view.requests.answer("expression", args)[0]["code"] == "why.total"
    other = args | {"key": 2, "by": "token"}
    code = view.requests.answer("expression", other)[0]["code"]
    assert code == "aw.why(trace, 11, 2, layer=1, head=0, by='token', foil=3).total"


def test_a_table_holds_every_pair(induction):
    view = WhyView(aw.why(induction, 11, 6, layer=1, head=0))
    lines = view.requests.answer("csv", {})[0].splitlines()
    assert lines[0] == "query_part,key_part,share"
    assert len(lines) == 1 + len(view.why().parts) ** 2


def test_the_figure_has_both_lists(induction, tmp_path):
    view = WhyView(aw.why(induction, 11, 6, layer=1, head=0))
    written = view.save(tmp_path / "why.svg").read_text()
    for words in ("asks", "offers", "head 0.0", "+77.19", "38.59", "log-odds"):
        assert words in written
    assert "Without head 0.0 in “c” attention is 0.00 instead of 1.00" in view.describe()


def test_a_head_of_the_first_layer_has_inputs_only():
    shown = answer(WhyView(aw.why(FAMILIES["GPT-2"].traced(), 6, 2, layer=0, head=1)))
    assert {row["name"] for row in shown["asks"]} <= {"token", "position", "same for every token"}
    assert shown["grid"]["names"][:2] == ["token", "position"]


def test_what_cannot_be_split_by_tokens_is_by_component():
    view = WhyView(aw.why(FAMILIES["Mixtral"].traced(), 6, 2, layer=1, head=0))
    assert answer(view)["asks"]
    with pytest.raises(ValueError, match="MixtralSparseMoeBlock is not described"):
        answer(view, by="token")


def test_a_view_of_attention_opens_it_below_once_and_closes_it(induction, models):
    heatmap = aw.Heatmap(induction, layer=1, head=0)
    assert heatmap.options["below"] == "WhyView"
    heatmap.selection.pins = [(10, 5), (11, 6)]
    args = {"stack": "self", "layer": 1, "head": 0, "query": 11, "key": 6}
    heatmap.requests.answer("below", args)
    [below] = heatmap.inner
    assert below.why().total == aw.why(induction, 11, 6, layer=1, head=0).total
    assert below.selection is heatmap.selection
    assert heatmap.selection.pins == ((10, 5), (11, 6)), "other pins stay"
    assert heatmap.options["inner"][0]["cells"][0] == ["self", 1, 0, 11, 6]
    heatmap.requests.answer("below", args)
    assert models()["WhyView"] == 1
    with pytest.raises(ValueError, match="nothing to choose between"):
        heatmap.requests.answer("below", args | {"query": 0, "key": 0})
    heatmap.close()
    assert "WhyView" not in models()
    heatmap.stand_ready()
    assert "inner" not in heatmap.options


OPENED = {"stack": "self", "layer": 1, "head": 0, "query": 11, "key": 6}


@pytest.mark.parametrize("name", ["HeadGrid", "HeadView", "NeuronView", "RelevanceMap", "TokenStrip"])
def test_all_views_of_the_attention_of_a_head_open_it_below(induction, name):
    shown = kind_of(name)(induction, layer=1, head=0)
    assert shown.options["below"] == "WhyView"
    shown.selection.pinned = (11, 6)
    shown.requests.answer("below", OPENED)
    [below] = shown.inner
    assert below.why().total == aw.why(induction, 11, 6, layer=1, head=0).total
    assert below.options["below"] == ("" if name == "NeuronView" else "NeuronView"), "that view stands above"
    shown.close()


def test_two_texts_open_it_for_the_first(induction):
    other = aw.trace(*made("induction", letters="abcdefgh", length=16), "fadebhfadeb")
    both = aw.TwoTexts([induction, other])
    both.requests.answer("below", OPENED)
    assert both.inner[0].why().total == aw.why(induction, 11, 6, layer=1, head=0).total
    both.close()


def test_a_word_of_one_token_keeps_its_pin():
    trace = aw.trace(*aw.demo_model("encoder"), "A bewildering thriller.")
    labels = trace.axes("self")[0].units["word"].labels
    heatmap = aw.Heatmap(trace, unit="word", layer=3, head=1)
    query, key = labels.index("A"), labels.index("thriller")
    heatmap.selection.pins = [(query, 1, "word"), (query, key, "word")]
    tokens = [trace.tokens.index(word) for word in ("a", "thriller")]
    pair = dict(zip(("query", "key"), tokens, strict=True))
    heatmap.requests.answer("below", {"stack": "self", "layer": 3, "head": 1, **pair})
    assert heatmap.inner[0].why().total == aw.why(trace, *tokens, layer=3, head=1).total
    assert len(heatmap.selection.pins) == 2
    heatmap.close()


def test_how_the_weight_is_computed_opens_below_and_closes_with_the_text(models):
    model, tokenizer = made("induction", letters="abcdefgh", length=16)
    explorer = aw.Explorer(aw.trace(model, tokenizer, "fadebcfadeb"), layer=1, head=0)
    explorer.selection.pinned = (11, 6)
    explorer.requests.answer("below", OPENED)
    [why] = explorer.inner
    why.requests.answer("below", OPENED)
    [how] = why.inner
    assert isinstance(how, aw.NeuronView)
    assert how.selection is explorer.selection
    assert how.selection.pinned == (11, 6)
    assert how.options["below"] == "", "the view that says why stands above"
    assert list(explorer.nested()) == [explorer, why, how]
    explorer.show_text("bhgacdbhgac")
    assert explorer.inner == ()
    assert not {"WhyView", "NeuronView"} & set(models())
    explorer.close()


def test_attention_without_a_model_is_asked_nothing(given):
    view = aw.Explorer(given())
    assert not view.options["below"]
    with pytest.raises(ValueError, match="no trace with one"):
        view.requests.answer("below", {"stack": "self", "layer": 0, "head": 0, "query": 1, "key": 0})


OTHER = ["hgbachgba", "cbdhcbdh", "ebfgebf"]


@pytest.fixture
def compared():
    """A view that opened after texts were compared."""
    trace = aw.trace(*made("induction", letters="abcdefgh", length=16), "fadebcfadeb")
    why = aw.why(trace, 11, 6, layer=1, head=0)
    why.in_other_texts(OTHER)
    return WhyView(why, texts=OTHER)


def test_other_texts_are_offered_and_shown_once_their_states_are_there(induction):
    texts = ["abcdefghabc", "hgfedcbah"]
    why = aw.why(induction, 11, 6, layer=1, head=0)
    assert WhyView(why).options["otherTexts"] == "", "its vocabulary is not that of the demo's texts"
    view = WhyView(why, texts=texts)
    assert view.options["otherTexts"] == "offered"
    assert "in_other_texts" not in {topic for topic, *_ in view.requests.for_page()}
    assert view.shown_others() is None
    assert "other texts" not in view.describe()
    request = next(view._expressions())
    args = {name: request[name] for name in ("stack", "layer", "head", "query", "key")}
    shown = view.requests.answer("in_other_texts", args)[0]
    assert [token["token"] for token in shown["lists"][0]["tokens"]] == [
        token.token for token in why.in_other_texts(texts).keys[:5]
    ]
    assert WhyView(why, texts=texts).options["otherTexts"] == "shown"
    trace = aw.trace(*aw.demo_model("encoder"), "The cat sat.")
    assert WhyView(aw.why(trace, 2, 1, layer=0, head=0)).options["otherTexts"] == "offered"
    without = FAMILIES["Llama"].traced()
    assert WhyView(aw.why(without, 6, 2, layer=1, head=1)).options["otherTexts"] == ""


def test_the_sentence_the_picture_and_the_answer_say_the_same_of_other_texts(compared, tmp_path):
    other = compared.in_other_texts()
    named = "“b” looks for words such as a, d, f; “c” is one of them."
    ranked = "Its score is higher than that of 73.3 % of 15 tokens of other texts put in its place"
    assert named in compared.describe()
    assert ranked in compared.describe()
    shown = compared.requests.answer("in_other_texts", next(iter(compared._others_prefetched())))[0]
    assert said(shown) == named
    assert shown["more"].startswith(ranked)
    assert [item["title"] for item in shown["lists"]] == ["“b” would look at", "would look at “c”"]
    assert shown["lists"][0]["cell"] == f"“c” has {other.score:+.2f}"
    assert shown["lists"][0]["tokens"][0]["value"] == pytest.approx(other.keys[0].score, rel=1e-6)
    written = compared.save(tmp_path / "why.svg").read_text()
    for words in (named, ranked, "would look at “c”"):
        assert words in written


def test_a_key_that_is_nothing_special_is_said_to_be(compared):
    compared.selection.pinned = (11, 3)
    assert "“b” would rather look at a, d, f; “d” is nothing special to it." in compared.describe()


def test_a_page_holds_other_texts_of_all_of_its_cells(compared):
    topics = [(topic, args) for topic, args, _ in compared.requests.for_page()]
    cells = {tuple(args.values()) for topic, args in topics if topic == "in_other_texts"}
    assert cells == {tuple(args.values())[:5] for topic, args in topics if topic == "why"}
    assert b"looks for words such as" in compared.requests.opening()


def test_python_that_compares_other_texts_is_copied(compared, monkeypatch):
    trace = compared.content.trace
    names = {"aw": aw, "trace": trace, "others": compared._other_texts}
    monkeypatch.setattr(expressions, "running_shell", lambda: types.SimpleNamespace(user_ns=names))
    [_, args] = compared._expressions()
    code = compared.requests.answer("expression", args)[0]["code"]
    assert code == "aw.why(trace, 11, 6, layer=1, head=0).in_other_texts(others).above_keys"
    assert eval(code, {}, names) == compared.in_other_texts().above_keys
    names["result"] = compared.why()
    code = compared.requests.answer("expression", args)[0]["code"]
    assert code == "result.in_other_texts(others).above_keys"
