"""ScorecardView: all of a scorecard's numbers travel with it, without a trace."""

from __future__ import annotations

import csv
import io
import json

import numpy as np
import pytest

import attnwidgets as aw
from attnwidgets.evaluate import Scorecard, aopc
from attnwidgets.evaluate.comparing.compare import EVERY
from attnwidgets.evaluate.comparing.comparison import Comparison
from attnwidgets.evaluate.scorecards.table import DIRECTIONS, direction_of


def made(n=12, metrics=("comprehensiveness", "sufficiency"), x=(0.1, 0.2, 0.5), **options):
    samples = np.random.default_rng(len(metrics)).normal(size=(n, len(metrics), 4, len(x)))
    samples[:, 0, 1, 0] = np.nan
    arguments = {"methods": ["random", "lrp", "alti", "oracle"], "baselines": ["random", "oracle"]}
    return Scorecard(
        samples,
        metrics=metrics,
        x=x,
        x_name="share",
        **(arguments | {"method": "faithfulness", "warning": "lrp ranks nothing"} | options),
    )


@pytest.fixture
def comparison():
    cards = {"removal": made(), "complexity": made(metrics=("gini",), x=("score",))}
    return Comparison(cards, ("a", "b"))


def test_means_intervals_and_counts_are_those_of_the_scorecard():
    card = made()
    (told,) = aw.views.ScorecardView(card).options["cards"]
    assert [name for name, _ in told["rows"]] == ["lrp", "alti", "random", "oracle"]  # baselines last
    assert [baseline for _, baseline in told["rows"]] == [False, False, True, True]
    rows = [1, 2, 0, 3]
    low, high = card.interval
    for name, expected in (("mean", card.mean), ("low", low), ("high", high), ("count", card.count)):
        np.testing.assert_allclose(np.array(told[name], dtype=float), expected[:, rows], rtol=1e-6)
    whole = aopc(card)
    expected = [whole.mean[..., 0], *(end[..., 0] for end in whole.interval)]
    np.testing.assert_allclose(
        np.array(told["whole"], dtype=float), np.array(expected)[:, :, rows], rtol=1e-6
    )
    assert told["mean"][0][0][0] is None  # undefined, never a zero
    assert told["warning"] == "lrp ranks nothing"
    json.dumps(told, allow_nan=False)


def test_intervals_that_were_given_have_no_interval_of_their_mean():
    card = made()
    ends = np.stack([card.mean - 1, card.mean + 1])
    (told,) = aw.views.ScorecardView(card.with_samples(card.samples, ends=ends)).options["cards"]
    np.testing.assert_allclose(
        np.array(told["low"], dtype=float)[1], card.mean[1][[1, 2, 0, 3]] - 1, rtol=1e-6
    )
    assert {value for row in told["whole"][1] for value in row} == {None}


def test_every_metric_that_can_be_compared_says_which_way_it_is_read():
    flat = {"sparsity", "entropy", "gini", "features_above"}
    for name in EVERY:
        assert ("is better:" in direction_of(name)) == (name not in flat), name
    assert direction_of("accuracy", "probe").startswith("higher: more can be read")
    assert direction_of("accuracy", "remove_and_retrain").startswith("lower is better")
    assert "wrong labels" in direction_of("recall", "mislabelled")
    assert "people" in direction_of("recall", "agreement")
    assert direction_of("sufficiency").startswith("lower is better")
    assert {way for way, _ in DIRECTIONS.values()} == {"higher", "lower"}


def test_a_comparison_has_all_families_and_opens_where_it_is_asked(comparison):
    view = comparison.view(metric="gini")
    assert [card["name"] for card in view.options["cards"]] == ["removal", "complexity"]
    assert view.options["metric"] == "gini"
    with pytest.raises(ValueError, match="Did you mean 'gini'"):
        comparison.view(metric="gin")
    with pytest.raises(TypeError, match="Did you mean 'metric'"):
        comparison.view(metrik="gini")
    with pytest.raises(TypeError, match="shows a Scorecard"):
        aw.views.ScorecardView([1, 2])


def test_the_table_holds_every_number(comparison):
    text, _ = aw.views.ScorecardView(comparison).requests.answer("csv", {})
    rows = list(csv.DictReader(io.StringIO(text)))
    assert len(rows) == 2 * 4 * 3 + 4
    card = comparison["removal"]
    row = next(r for r in rows if (r["metric"], r["method"], r["x"]) == ("sufficiency", "alti", "0.2"))
    assert float(row["mean"]) == card.mean[1, 2, 1]
    assert float(row["low"]) == card.interval[0][1, 2, 1]
    assert next(r for r in rows if r["method"] == "lrp")["mean"] == ""


def test_it_is_saved_as_a_figure_of_what_is_looked_at(tmp_path):
    view = made().view(metric="sufficiency")
    view.options = view.options | {"hidden": ["alti"]}
    assert view._shown().metrics == ("sufficiency",)
    assert view._shown().methods == ("random", "lrp", "oracle")
    assert view.save(tmp_path / "scores.svg").read_text().startswith("<?xml")
    with pytest.raises(ValueError, match="must end in"):
        view.save(tmp_path / "scores.txt")
    assert view._repr_mimebundle_()[0]["image/png"]


def test_it_needs_no_trace_and_ends_like_other_views(models):
    before = models()
    first, second = made().view(), made().view()
    assert first.store is not second.store
    assert first.store.header["sources"] == []
    for view in (first, second):
        view.close()
    left = models() - before
    assert not {name for name in left if name in {"ScorecardView", "TileStore", "Selection"}}
    assert first._repr_mimebundle_()[0]["text/plain"]  # shown again
    assert first.options["metric"] == "comprehensiveness"
