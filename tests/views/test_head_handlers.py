"""Requests of a grid of heads: its statistics, and why some are not defined."""

from __future__ import annotations

import itertools
import json
import re

import numpy as np
import pytest

import attnwidgets as aw
from attnwidgets.statistics.table import HeadStatistics
from attnwidgets.views.heads import handlers
from attnwidgets.views.wire.sources import Source
from attnwidgets.views.wire.thumbnails import THUMB_BUDGET, thumbnails

TOKENS = ["[CLS]", "the", "cat", "sat", "on", "mats", ".", "[SEP]"]


def asked(view, topic, source):
    return view.requests.answer(topic, {"source": source})


def test_the_values_are_those_of_head_statistics(given):
    trace = given(tokens=TOKENS)
    view = aw.HeadGrid(trace)
    for unit in ("token", "word"):
        meta, (data,) = asked(view, "head_statistics", f"attention/{unit}/self")
        expected = aw.statistics.head_statistics(trace, unit=unit)
        assert tuple(meta["names"]) == expected.names
        assert meta["heads"] == 4
        np.testing.assert_array_equal(np.frombuffer(data, "<f4").reshape(expected.shape), expected.values)


def test_statistics_are_listed_with_what_stands_against_them(given):
    listed, _ = asked(aw.HeadGrid(given()), "statistics", "attention/token/self")
    refusals = {item["name"]: item["refusal"] for item in listed}
    assert {"mean_distance", "entropy", "diagonal", "previous_token", "first_token"} <= set(refusals)
    assert refusals["entropy"] == ""
    assert "special" in refusals["special_tokens"]
    with_them, _ = asked(aw.HeadGrid(given(tokens=TOKENS)), "statistics", "attention/token/self")
    assert {item["name"]: item["refusal"] for item in with_them}["special_tokens"] == ""
    assert all(item["definition"] and item["title"] and item["high"] for item in with_them)


def test_what_is_no_share_has_none(given):
    trace = given()
    numbers = aw.attention(trace).layer(0)[None] - 0.5
    signed = aw.results.MixingMap(
        numbers,
        query=trace.axes()[0],
        key=trace.axes()[1],
        layers=[0],
        heads=range(4),
        method="mine",
        signed=True,
    )
    view = aw.HeadGrid(signed)
    source = view.sources()[0].id
    assert asked(view, "statistics", source) == ([], [])


def test_another_view_s_map_is_refused(given):
    with pytest.raises(LookupError, match="this view shows no 'rollout/token/self'"):
        asked(aw.HeadGrid(given()), "statistics", "rollout/token/self")


def answers_of(page):
    state = json.loads(re.search(r'id="aw-state">(.*?)</script>', page.read_text(encoding="utf-8"))[1])
    return [
        (item["topic"], item["args"]["source"])
        for told in state["answers"].values()
        for item in told
        if "source" in item["args"]
    ]


def test_a_page_holds_them_unless_that_takes_long(given, tmp_path, monkeypatch):
    view = aw.Explorer(given(), methods=["attention", "rollout"], units=["token"])
    topics = ("statistics", "head_statistics", "patterns")
    sources = ["attention/token/self", "rollout/token/self"]
    page = tmp_path / "page.html"
    assert sorted(answers_of(view.to_html(page))) == sorted(itertools.product(topics, sources))
    monkeypatch.setattr(handlers, "PAGE_CELLS", 3 * 8 * 8 - 1)
    assert answers_of(view.to_html(page)) == [(topic, sources[0]) for topic in topics]
    monkeypatch.setattr(handlers, "OPENING_CELLS", 3 * 4 * 8 * 8 - 1)
    assert answers_of(view.to_html(page)) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("layers", "heads", "side"), [(30, 9, 64), (32, 32, 34), (48, 64, 19), (200, 128, 6)]
)
def test_thumbnails_of_many_heads_are_small_rather_than_none(layers, heads, side):
    few = aw.attention(aw.from_attentions(np.full((1, 1, 70, 70), 1 / 70, dtype=np.float32)))
    layer = np.broadcast_to(few.layer(0), (heads, 70, 70))

    class Many(Source):
        ready = property(lambda self: self.layers)

        def layer(self, number):
            return layer

    source = Many(few, "attention", "token")
    source.layers, source.heads = tuple(range(layers)), tuple(range(heads))
    made = thumbnails(source)
    assert made is not None
    assert (made.rows, made.cols) == (side, side)
    assert len(made.data) == layers * heads * side**2 <= THUMB_BUDGET


def test_the_order_of_heads_can_be_given_from_python(given):
    view = aw.HeadGrid(given(), sort="entropy", order="groups", lowest_first=True, only=0.5, heads="1, *.0")
    assert view.options["grid"] == {
        "sort": "entropy",
        "order": "groups",
        "lowest": True,
        "only": 0.5,
        "heads": "1, *.0",
    }
    assert aw.HeadGrid(given()).options["grid"]["order"] == "layers"
    assert aw.HeadGrid(given(), palette="cividis", scale="log").options["filters"]["palette"] == "cividis"


@pytest.mark.parametrize("view", [aw.HeadGrid, aw.Explorer])
def test_a_table_over_many_texts_orders_the_heads(given, view):
    trace = given()
    layers, heads = trace.layers(), range(trace.n_heads())
    values = np.arange(2.0 * len(layers) * len(heads)).reshape(2, len(layers), len(heads))
    provenance = {"text": "200 texts"}
    table = HeadStatistics(
        values, names=["removal", "entropy"], layers=layers, heads=heads, provenance=provenance
    )
    shown = view(trace, sort=table)
    assert shown.options["grid"]["sort"] == "table removal"
    listed, _ = asked(shown, "statistics", "attention/token/self")
    assert [entry["title"] for entry in listed[:2]] == ["loss without it (200 texts)", "entropy (200 texts)"]
    assert "entropy" in {entry["name"] for entry in listed[2:]}
    meta, (data,) = asked(shown, "head_statistics", "attention/token/self")
    assert meta["names"][:2] == ["table removal", "table entropy"]
    numbers = np.frombuffer(data, "<f4").reshape(len(meta["names"]), len(layers), len(heads))
    np.testing.assert_array_equal(numbers[:2], values)
    np.testing.assert_array_equal(numbers[2:], aw.statistics.head_statistics(trace).values)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"layers": [0, 1, 7]}, "in the table there are layers 0, 1, 7, in the view there are layers 0 to 2"),
        (
            {"heads": None, "values": np.ones((1, 3))},
            "in the table are no heads, in the view there are heads",
        ),
        ({"stack": "cross"}, "the table is of stack 'cross', which is not shown"),
        ({"provenance": {"model": "gpt2"}}, "the table is of gpt2, and the view of bert"),
    ],
)
def test_a_table_of_other_heads_or_of_another_model_is_refused(given, changes, words):
    numbers = given()
    shown = aw.results.MixingMap(
        aw.attention(numbers).values, query=numbers.axes()[0], heads=range(4), provenance={"model": "bert"}
    )
    fitting = {"values": np.ones((1, 3, 4)), "names": ["entropy"], "layers": range(3), "heads": range(4)}
    aw.HeadGrid(shown, sort=HeadStatistics(**fitting))
    with pytest.raises(ValueError, match=words):
        aw.HeadGrid(shown, sort=HeadStatistics(**fitting | changes))


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"sort": "entropie"}, ValueError, "Did you mean 'entropy'"),
        ({"sort": "entropy", "order": "group"}, ValueError, "Did you mean 'groups'"),
        ({"heads": "3:7"}, ValueError, "'3.7' for a head"),
        ({"sort": "entropy", "only": "half"}, TypeError, "not a number"),
        ({"only": 0.5}, ValueError, "name it with sort="),
        ({"sorted": "entropy"}, TypeError, "Did you mean 'sort'"),
        ({"keep_mass": 0.5}, TypeError, "takes no keyword 'keep_mass'"),
        ({"sort": "special_mass"}, ValueError, "special"),
        (
            {"sort": "removal"},
            ValueError,
            r"measured by aw.statistics.head_importance\(traces\); .* sort=table",
        ),
        ({"sort": 3}, TypeError, "the name of a statistic or a table of heads, .* not int"),
    ],
)
def test_what_a_grid_cannot_sort_by_is_said(given, options, error, words):
    with pytest.raises(error, match=words):
        aw.HeadGrid(given(), **options)


def test_patterns_come_with_their_names_and_the_strongest_of_every_head(given):
    view = aw.HeadGrid(given(tokens=TOKENS))
    source = "attention/token/self"
    meta, (data,) = asked(view, "patterns", source)
    result = aw.statistics.head_patterns(view.content.explanations[0])
    offered = [item["name"] for item in meta["patterns"] if not item["refusal"] and not item["run"]]
    assert tuple(offered) == result.names
    assert meta["own"] == result.own
    np.testing.assert_array_equal(
        np.frombuffer(data, "<f4").reshape(result.values.shape), result.values.astype("<f4")
    )
    runs = {item["name"]: item["refusal"] for item in meta["patterns"] if item["run"]}
    assert set(runs) == {"induction", "retrieval"}
    assert all("model" in why for why in runs.values())
    with pytest.raises(ValueError, match="model"):
        view.requests.answer("pattern_scores", {"source": source, "name": "induction"})


@pytest.mark.slow
def test_induction_runs_the_model_when_it_is_chosen(minilm):
    trace = aw.trace(*minilm, "The cat sat on the mat.")
    view = aw.HeadGrid(trace)
    source = {"source": "attention/token/self"}
    meta, (data,) = view.requests.answer("pattern_scores", {**source, "name": "induction"})
    expected = aw.statistics.induction_score(*minilm)["induction"]
    assert np.frombuffer(data, "<f4").reshape(-1, meta["heads"]) == pytest.approx(expected, abs=1e-6)
    result = view.requests.answer("similar_heads", {**source, "layer": 0, "head": 2})[0]["found"]
    assert [tuple(item[:2]) for item in result[:3]] == [
        similar_head[:2] for similar_head in aw.statistics.similar_heads(trace, 0, 2, k=3)
    ]
