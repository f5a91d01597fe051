"""Views of features: their requests and answers, the contents of pages, and links."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest

import attnwidgets as aw
from attnwidgets.views.features import features
from attnwidgets.views.features.payloads import PAGE, activations_of, columns_of, page_of, size_of

from . import made

pytestmark = pytest.mark.usefixtures("closed_widgets")


@pytest.fixture(scope="module")
def trace(bert):
    return aw.trace(*bert, "the unbelievable cat sat.")


@pytest.fixture
def activations(trace, sae):
    return aw.sae_features(trace, sae)


def told(view, topic, **args):
    """A view's answers to its browser side, buffers as arrays of bytes."""
    return view.requests.answer(topic, args)


def contexts(answer):
    """Examples of a page as (group, tokens, activations, at, activation)."""
    meta, (pieces, codes) = answer
    numbers, shares = np.frombuffer(pieces, "<u2"), np.frombuffer(codes, np.uint8)
    out, start = [], 0
    for group, at, length, activation, *_ in meta["examples"]:
        here = slice(start, start + length)
        tokens = tuple(meta["pieces"][i] for i in numbers[here])
        out.append((group, tokens, shares[here] / 255 * meta["maximum"], at, activation))
        start += length
    assert start == len(numbers) == len(shares)
    return out


# A feature per message.


def test_a_page_holds_what_is_known_of_a_feature(stats):
    feature = stats.feature(19)
    meta, buffers = page_of(stats, 19)
    assert (meta["count"], meta["maximum"], meta["left"]) == (feature.count, feature.maximum, 0)
    assert sum(meta["histogram"]) == feature.count
    assert [row[0] for row in meta["near"]] == [neighbour.feature for neighbour in feature.neighbours]
    shown = contexts((meta, buffers))
    top = [item for item in shown if item[0] == -1]
    assert [item[1] for item in top] == [item.tokens for item in feature.top]
    for (_, _, near, at, activation), example in zip(top, feature.top, strict=True):
        assert np.abs(near - np.array(example.activations)).max() <= feature.maximum / 255
        assert (at, activation) == (example.at, pytest.approx(example.activation, rel=1e-3))
    for number, part in enumerate(feature.intervals):
        assert {item[1] for item in shown if item[0] == number} == {entry.tokens for entry in part.examples}


def test_what_fires_at_all_is_seen(stats):
    for *_, near, _, _ in contexts(page_of(stats, 19)):
        assert (near > 0).any()
    weak = [
        context for context in contexts(page_of(stats, 19)) if context[4] < stats.feature(19).maximum / 500
    ]
    assert all(near[at] > 0 for _, _, near, at, _ in weak)


def test_a_page_never_exceeds_its_budget(bert, sae):
    texts = [" ".join(f"{word}{i % 97}" for i in range(60)) for word in ("cat", "the", "un", "new")] * 6
    wide = aw.feature_stats(
        *bert,
        sae,
        texts,
        dashboard=aw.FeatureDashboard(window=(40, 40), examples=60, per_interval=20),
        context=90,
    )
    pages = [page_of(wide, j) for j in range(20)]
    assert max(map(size_of, pages)) <= PAGE
    crowded = [page for page in pages if page[0]["left"]]
    assert crowded
    for meta, buffers in crowded:
        groups = {item[0] for item in contexts((meta, buffers))}
        assert groups == {-1, *range(len(meta["intervals"]))}, "some of every interval"


def test_a_dead_feature_has_a_page(stats):
    dead = stats.dead[0]
    meta, _ = page_of(stats, dead)
    assert (meta["count"], meta["examples"], meta["intervals"]) == (0, [], [])
    assert aw.FeaturePanel(stats, feature=dead).selection.feature == dead


def test_a_table_comes_as_columns(stats):
    meta, (features, densities, maxima, pieces) = columns_of(stats)
    assert np.frombuffer(features, "<i4").tolist() == list(range(20))
    np.testing.assert_array_equal(np.frombuffer(densities, "<f4"), stats.density)
    np.testing.assert_array_equal(np.frombuffer(maxima, "<f4"), stats.maxima)
    tokens = [None if i < 0 else meta["pieces"][i] for i in np.frombuffer(pieces, "<i4")]
    assert tokens == stats.strongest_tokens()


@pytest.mark.parametrize("unit", ["token", "word"])
def test_activations_come_by_unit_the_strongest_first(activations, unit):
    meta, (ends, features, values) = activations_of(activations, unit)
    dense = activations.to(unit).values
    ends = np.frombuffer(ends, "<u4")
    rows = np.split(np.arange(ends[-1]), ends[:-1])
    features, values = np.frombuffer(features, "<u4"), np.frombuffer(values, "<f4")
    assert meta["unit"] == unit
    assert len(rows) == len(dense)
    for row, all_of_it in zip(rows, dense, strict=True):
        assert sorted(values[row], reverse=True) == list(values[row])
        np.testing.assert_array_equal(all_of_it[features[row]], values[row])
        assert len(row) == (all_of_it > 0).sum()


# Display and refusals.


def test_views_of_one_thing_share_a_selection_and_python_moves_them(stats, activations):
    panel, table = aw.FeaturePanel(stats, feature=4), aw.FeatureTable(stats)
    assert table.selection is panel.selection
    assert table.selection.feature == 4
    strip = aw.FeatureStrip(activations, stats=stats)
    assert strip.selection is not panel.selection
    aw.link(strip, panel)
    strip.selection.feature = 7
    assert panel.selection.feature == 7
    with pytest.raises(IndexError, match="feature=20 is out of range: the features are 0 to 19"):
        panel.selection.feature = 20


def test_a_text_opens_with_the_feature_that_fires_most(activations):
    assert aw.FeatureStrip(activations).selection.feature == activations.ranked(1)[0].feature


def test_the_browser_is_told_of_the_saes(stats):
    view = aw.FeatureTable(stats)
    assert view.get_state()["options"]["saes"]
    changed = []
    view.observe(lambda change: changed.append(change.name))
    told(view, "name", of=0, feature=3, name="cats")
    assert changed == ["options"]


def test_names_reach_every_view_and_the_statistics(stats, activations):
    table, strip = aw.FeatureTable(stats), aw.FeatureStrip(activations, stats=stats)
    other = aw.FeaturePanel(stats.named({}))
    told(table, "name", of=0, feature=3, name="cats")
    assert stats.names == {3: "cats"}
    assert [view.options["saes"][0]["names"] for view in (table, strip, other)] == [
        {"3": "cats"},
        {"3": "cats"},
        {},
    ]
    told(strip, "name", of=0, feature=3, name="")
    assert table.options["saes"][0]["names"] == stats.names == {}
    with pytest.raises(IndexError, match="out of range"):
        told(table, "name", of=0, feature=99, name="x")


def test_saes_of_several_layers_stand_in_one_view(bert, trace, sae, stats):
    below = aw.sae_features(trace, sae.replaced(site="blocks.0.hook_resid_post"))
    above = aw.sae_features(trace, sae)
    view = aw.FeatureStrip([below, above])
    assert [(option["layer"], option["site"]) for option in view.options["saes"]] == [
        (0, "blocks.0.hook_resid_post"),
        (1, made.SITE),
    ]
    assert told(view, "activations", of=0, unit="token") != told(view, "activations", of=1, unit="token")


def test_the_explorer_shows_features_where_it_is_given_them(trace, sae, stats, activations):
    plain = aw.Explorer(trace)
    assert "saes" not in plain.options
    assert "features" not in plain.needs.scripts
    for given in (activations, sae, [activations]):
        view = aw.Explorer(trace, features=given, stats=stats)
        assert "features" in view.needs.scripts
        assert view.options["saes"][0]["onText"]
        assert told(view, "activations", of=0, unit="token") == activations_of(activations, "token")
        assert told(view, "feature", of=0, feature=5) == page_of(stats, 5)
    elsewhere = aw.sae_features(aw.trace(trace.model, trace.tokenizer, "a b"), sae)
    with pytest.raises(ValueError, match="of another text"):
        aw.Explorer(trace, features=elsewhere)


def test_an_explorer_after_a_strip_of_features_opens_with_a_method_of_its_own(bert, sae):
    trace = aw.trace(*bert, "the new cat sat.")
    strip = aw.FeatureStrip(aw.sae_features(trace, sae))
    explorer = aw.Explorer(trace)
    assert explorer.selection is strip.selection
    assert explorer.selection.method == "attention"
    explorer.selection.method = "rollout"
    assert aw.Explorer(trace, features=sae).selection.method == "rollout"  # the chosen method stays


def test_explore_shows_features_as_well(bert, sae, stats):
    view = aw.explore(*bert, "the unbelievable cat sat.", features=sae, stats=stats)
    result = aw.sae_features(aw.trace(*bert, "the unbelievable cat sat."), sae)
    assert told(view, "activations", of=0, unit="token") == activations_of(result, "token")
    assert told(view, "feature", of=0, feature=5) == page_of(stats, 5)
    with pytest.raises(ValueError, match="states of width 8, but"):
        aw.explore(*bert, "the cat", features=made.sae(site=made.SITE))


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda s, f: aw.FeaturePanel("text"), TypeError, r"aw\.feature_stats, not str"),
        (lambda s, f: aw.FeaturePanel([]), TypeError, r"aw\.feature_stats, not list"),
        (lambda s, f: aw.FeaturePanel(s, feature=20), IndexError, "0 to 19"),
        (
            lambda s, f: aw.FeaturePanel(s, page=[3, 20]),
            IndexError,
            "feature 20 is out of range: the features are 0 to 19",
        ),
        (lambda s, f: aw.FeatureStrip(s), TypeError, r"aw\.FeatureTable or aw\.FeaturePanel"),
        (lambda s, f: aw.FeatureStrip(f, tabs=[20]), IndexError, "feature 20 is out of range"),
        (lambda s, f: aw.FeatureTable(f, stats=f), TypeError, "not FeatureActivations"),
        (lambda s, f: aw.FeatureTable(f, stats=[s, s]), ValueError, "2 statistics for 1 SAEs"),
        (lambda s, f: aw.FeatureTable(s, featur=3), TypeError, "'featur'.*'feature'"),
        (lambda s, f: aw.FeatureStrip(f, tab=[3]), TypeError, "'tab'.*'tabs'"),
        (lambda s, f: aw.FeatureStrip(f, index_bas=1), TypeError, "'index_bas'.*'index_base'"),
    ],
)
def test_what_cannot_be_shown_is_refused_in_words(stats, activations, make, error, message):
    with pytest.raises(error, match=message):
        make(stats, activations)


def test_statistics_of_another_sae_are_refused(stats, trace, sae):
    other = aw.sae_features(trace, made.sae(d_in=32, d_sae=30, site=made.SITE))
    with pytest.raises(ValueError, match="20 features, and the activations of one with 30"):
        aw.FeatureStrip(other, stats=stats)


# Pages.


def answers(view, tmp_path, **options):
    page = aw.to_html(view, tmp_path / "page.html", **options).read_text(encoding="utf-8")
    return json.loads(re.search(r'id="aw-state">(.*?)</script>', page)[1])["answers"].get("view0", [])


def test_a_page_holds_the_features_that_are_named_for_it(stats, tmp_path):
    in_page = answers(aw.FeaturePanel(stats, page=[3, 19]), tmp_path)
    opened = stats.loudest(1)[0]
    assert [item["topic"] for item in in_page] == ["feature"] * len(in_page)
    assert [item["args"] for item in in_page] == [
        {"of": 0, "feature": j} for j in dict.fromkeys([opened, 3, 19])
    ]
    stats.rename({8: "cats"})
    first, second, *rest = answers(aw.FeaturePanel(stats, feature=3), tmp_path)
    assert [item["args"]["feature"] for item in (first, second)] == [3, 8], "those with names first"
    assert {3, 8, *(item["args"]["feature"] for item in rest)} == {3, 8, *stats.loudest(50)}


def test_the_feature_that_is_selected_is_always_in_its_page(
    stats, activations, trace, sae, tmp_path, monkeypatch
):
    monkeypatch.setattr(features, "_HELD", 3)
    quiet = next(j for j in range(20) if j not in stats.loudest(3))
    panel = aw.FeaturePanel(stats, feature=quiet)
    strip = aw.FeatureStrip(activations, stats=stats, feature=quiet, page=[2])
    explorer = aw.Explorer(trace, features=sae, stats=stats)
    explorer.selection.feature = quiet
    for view in (panel, strip, explorer):
        told_of = [
            answer["args"]["feature"] for answer in answers(view, tmp_path) if answer["topic"] == "feature"
        ]
        assert told_of[0] == quiet, "first, where the budget is"
    panel.selection.feature = 5
    assert answers(panel, tmp_path)[0]["args"]["feature"] == 5, "the selection when the page is written"
    stats.rename({8: "cats"})
    assert b'"feature":5' in panel.requests.opening(10**6)  # as the notebook opens it


def test_a_selected_feature_is_shown_where_others_fire_more(activations, monkeypatch):
    monkeypatch.setattr("attnwidgets.views.features.payloads.MOST", 1)
    weak = next(
        j
        for j in activations.features
        if j not in {item.feature for row in activations.rows(1) for item in row}
    )
    view = aw.FeatureStrip(activations, feature=weak)
    _, (ends, features, values) = told(view, "activations", of=0, unit="token")
    ends, features = np.frombuffer(ends, "<u4"), np.frombuffer(features, "<u4")
    rows = np.repeat(np.arange(len(ends)), np.diff(ends, prepend=0))
    shown = np.zeros(len(ends), dtype=np.float32)
    shown[rows[features == weak]] = np.frombuffer(values, "<f4")[features == weak]
    np.testing.assert_array_equal(shown, activations.feature(weak).values)


def test_a_page_of_a_text_holds_every_unit(stats, activations, tmp_path):
    in_page = answers(aw.FeatureStrip(activations), tmp_path)
    assert [item["args"]["unit"] for item in in_page] == list(activations.available_units())
    topics = [answer["topic"] for answer in answers(aw.FeatureTable(stats), tmp_path)]
    assert topics == ["columns"]


def test_a_page_keeps_to_its_budget(stats, tmp_path, monkeypatch):
    view = aw.FeaturePanel(stats, feature=19, page=[18, *range(18)])
    whole = (aw.to_html(view, tmp_path / "whole.html")).stat().st_size
    assert len(answers(view, tmp_path)) == 20
    made = []
    monkeypatch.setattr(features, "page_of", lambda *args: made.append(args) or page_of(*args))
    in_page = answers(view, tmp_path, budget=whole - 8_000)
    assert len(made) == len(in_page) + 1, "answers without room are not computed either"
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert (tmp_path / "page.html").stat().st_size < whole - 2_000  # the script counts by its characters
    assert 1 <= len(in_page) < 20
    assert [item["args"]["feature"] for item in in_page][:2] == [19, 18], "the selected feature first"
    assert f"{20 - len(in_page)} answers were left out for its size" in page
