"""Scorecards: means, intervals, baselines, and their figures."""

from __future__ import annotations

import pickle
import re

import numpy as np
import pytest

import attnwidgets as aw
from attnwidgets.evaluate import Scorecard, averaged, beside

LAYERS = (0, 1, 4)


def made(n: int = 40, seed: int = 0, **options) -> Scorecard:
    """Two metrics, two methods and two baselines over three layers."""
    samples = np.random.default_rng(seed).random((n, 2, 4, 3))
    samples[:, :, 2] = 0.25
    samples[:, :, 3] = 1.0
    arguments = {
        "metrics": ["dot_product", "average_precision"],
        "methods": ["alti", "value_zeroing", "random", "oracle"],
        "baselines": ["random", "oracle"],
        "x": LAYERS,
        "method": "cue_contribution",
        "provenance": {"title": "cue contribution", "model": "made"},
    }
    return Scorecard(samples, **(arguments | options))


def test_means_and_counts_leave_out_what_is_undefined():
    samples = np.arange(12.0).reshape(3, 1, 1, 4)
    samples[0, 0, 0, 1] = np.nan
    samples[:, 0, 0, 3] = np.nan
    card = Scorecard(samples, metrics=["m"], methods=["a"], x=range(4))
    np.testing.assert_array_equal(card.count[0, 0], [3, 2, 3, 0])
    np.testing.assert_array_equal(card.mean[0, 0], [4.0, 7.0, 6.0, np.nan])
    assert np.isnan(card.interval[0][0, 0, 3])
    assert card.interval[0][0, 0, 0] <= 4.0 <= card.interval[1][0, 0, 0]


def test_intervals_are_those_of_the_mean():
    samples = np.random.default_rng(1).normal(3.0, 2.0, size=(400, 1, 1, 1))
    card = Scorecard(samples, metrics=["m"], methods=["a"], x=[0], resamples=4000, level=0.9)
    low, high = (float(end[0, 0, 0]) for end in card.interval)
    error = samples.std() / np.sqrt(400)
    assert low == pytest.approx(samples.mean() - 1.645 * error, abs=0.1 * error)
    assert high == pytest.approx(samples.mean() + 1.645 * error, abs=0.1 * error)


def test_intervals_are_the_same_for_the_same_seed_only():
    first, again, other = (made(resamples=200, seed=0), made(resamples=200), made(resamples=200))
    np.testing.assert_array_equal(first.interval[0], again.interval[0])
    moved = Scorecard(other.samples, **(other._labels() | {"seed": 1}))
    assert (moved.interval[0] != first.interval[0]).any()


def test_a_single_example_has_no_interval():
    card = made(n=1)
    assert np.isnan(card.interval).all()
    assert "to" not in re.findall(r"title='([^']*)'", card._repr_html_())[0]


def test_values_are_the_means_and_cannot_be_written():
    card = made()
    np.testing.assert_allclose(card.values, card.samples.mean(axis=0), rtol=1e-6)
    assert card.values.dtype == np.float32
    for array in (card.values, card.samples):
        with pytest.raises(ValueError, match="read-only"):
            array[0, 0, 0] = 1
    with pytest.raises(AttributeError, match="immutable"):
        card.x = (1,)


def test_baselines_stay_beside_what_is_selected():
    card = made()
    chosen = card.select(metric="average_precision", method="alti", x=[4, 0])
    assert chosen.metrics == ("average_precision",)
    assert chosen.methods == ("alti", "random", "oracle")
    assert chosen.x == (0, 4)
    np.testing.assert_allclose(chosen.mean[0, 0], card.mean[1, 0, [0, 2]])


@pytest.mark.parametrize(
    ("choice", "told"),
    [
        ({"metric": "dot_prodct"}, "Did you mean 'dot_product'"),
        ({"method": "rollout"}, "'alti', 'value_zeroing'"),
        ({"x": 2}, "layer 2 is unknown; choose from 0, 1, 4"),
    ],
)
def test_what_is_not_there_is_refused(choice, told):
    with pytest.raises(ValueError, match=told):
        made().select(**choice)


def test_scorecards_stand_beside_each_other():
    trained, fresh = made(seed=0), made(seed=1)
    both = beside({"trained": trained, "random weights": fresh})
    assert list(zip(both.methods, both.groups, strict=True)) == [
        ("alti", "trained"),
        ("value_zeroing", "trained"),
        ("alti", "random weights"),
        ("value_zeroing", "random weights"),
        ("random", ""),
        ("oracle", ""),
    ]
    np.testing.assert_array_equal(both.select(group="random weights").samples, fresh.samples)
    assert both.row_name(2) == "alti, random weights"


def test_a_baseline_that_differs_is_kept_apart():
    samples = made().samples.copy()
    samples[:, :, 2] = 0.5
    other = Scorecard(samples, **made()._labels())
    both = beside({"a": made(), "b": other})
    named = list(zip(both.methods, both.groups, strict=True))
    assert [row for row in named if row[0] not in ("alti", "value_zeroing")] == [
        ("random", "a"),
        ("random", "b"),
        ("oracle", ""),
    ]
    assert both.baselines == ("random", "oracle")


def test_the_mean_of_draws_is_taken_example_by_example():
    draws = [made(seed=seed) for seed in range(3)]
    mean = averaged(draws)
    np.testing.assert_allclose(mean.samples, np.mean([card.samples for card in draws], axis=0))
    assert mean.steps[-1] == "mean of 3 draws"
    assert beside({"one": made(), "three": mean}).groups.count("") == 2  # the baselines are the same still
    with pytest.raises(ValueError, match=r"cards\[1\] has n_examples 30"):
        averaged([made(), made(n=30)])
    with pytest.raises(ValueError, match="empty"):
        averaged([])


def test_one_methods_samples_are_had_by_name():
    both = beside({"a": made(), "b": made(seed=1)})
    np.testing.assert_array_equal(both.of("alti", "b"), made(seed=1).samples[:, :, 0])
    np.testing.assert_array_equal(both.of("oracle"), made().samples[:, :, 3])
    with pytest.raises(ValueError, match="group '' is unknown; choose from 'a', 'b'"):
        both.of("alti")
    with pytest.raises(ValueError, match="Did you mean 'alti'"):
        both.of("allti")


def test_only_scores_of_the_same_examples_stand_beside_each_other():
    with pytest.raises(ValueError, match="n_examples 30, the first has 40"):
        beside({"a": made(), "b": made(n=30)})
    with pytest.raises(ValueError, match="empty"):
        beside({})


def test_the_table_has_a_row_for_every_number():
    card = made()
    table = card.to_dataframe()
    assert list(table.columns) == [
        "metric", "method", "group", "layer", "mean", "low", "high", "count", "baseline",
    ]  # fmt: skip
    assert len(table) == 2 * 4 * 3
    row = table[
        (table.metric == "average_precision") & (table.method == "value_zeroing") & (table.layer == 4)
    ]
    assert float(row["mean"].iloc[0]) == pytest.approx(card.mean[1, 1, 2])
    assert set(table[table.baseline].method) == {"random", "oracle"}


@pytest.mark.parametrize("stored", ["archive", "pickle"])
def test_what_is_opened_is_what_was_saved(stored, tmp_path):
    card = beside({"a": made(), "b": made(seed=3)})
    if stored == "archive":
        result = aw.load(card.save(tmp_path / "card.safetensors"))
    else:
        result = pickle.loads(pickle.dumps(card))
    assert isinstance(result, Scorecard)
    np.testing.assert_array_equal(result.samples, card.samples)
    assert result._labels() == card._labels()
    assert result.provenance == card.provenance
    assert repr(result) == repr(card)


def test_a_file_cannot_ask_for_more_resamples_than_memory_has(tmp_path):
    card = made()
    card = card.with_samples(card.samples, resamples=2**31)
    opened = aw.load(card.save(tmp_path / "card.safetensors"))
    assert opened.resamples == 100_000
    assert opened.warning == "The file asks for 2,147,483,648 resamples; intervals are from 100,000."
    np.testing.assert_array_equal(opened.samples, card.samples)


def test_intervals_that_are_given_are_kept_chosen_and_saved(tmp_path):
    whole = made(n=1)
    ends = np.stack([whole.mean - 0.1, whole.mean + 0.2])
    card = whole.with_samples(whole.samples, ends=ends)
    result = aw.load(card.save(tmp_path / "card.safetensors"))
    np.testing.assert_array_equal(result.interval, ends)
    np.testing.assert_array_equal(result.select(method="alti").interval[1], result.interval[1][:, [0, 2, 3]])
    assert "interval" in result._repr_html_()
    assert "interval" not in whole._repr_html_()
    with pytest.raises(ValueError, match="low and high"):
        whole.with_samples(whole.samples, ends=ends[0])


def test_the_html_is_readable_without_colours_and_on_any_background():
    page = made()._repr_html_()
    assert page.count("<tr>") == 2 * (1 + 4)
    assert ">0.25<" in page
    assert ">1.00<" in page
    # Ink and ground are the notebook's; tints are translucent and stop half way.
    assert set(re.findall(r"[^-]color:(\w+)", page)) == {"inherit"}
    tints = [float(alpha) for alpha in re.findall(r"rgba\([\d,]+,([\d.]+)\)", page)]
    assert max(tints) == 0.5


def test_labels_are_text_in_html():
    card = made(x=["<img src=x onerror=alert(1)>", "\u202eevil", "b"], x_name="<b>token")
    page = card._repr_html_()
    assert "<img" not in page
    assert "\u202e" not in page
    assert "<b>token" not in page


def test_undefined_scores_are_dashes():
    samples = made().samples.copy()
    samples[:, 0, 0, 0] = np.nan
    card = Scorecard(samples, **made()._labels())
    assert card._repr_html_().count("title='undefined'>–<") == 1
    assert card.figure("table").axes


@pytest.mark.parametrize("kind", ["lines", "table"])
def test_figures_name_every_method_and_metric(kind):
    figure = beside({"trained": made(), "random weights": made(seed=1)}).figure(kind)
    assert len([axes for axes in figure.axes if axes.get_xlabel()]) == 2
    shown = " ".join(text.get_text() for text in figure.findobj(lambda artist: hasattr(artist, "get_text")))
    words = ["alti", "value zeroing", "oracle", "dot product", "average precision"]
    words += ["random weights"] if kind == "lines" else ["value zeroing, random weights"]
    for word in words:
        assert word in shown
    assert len(figure._repr_png_()) > 5_000


def test_many_metrics_stand_in_two_columns():
    whole = made()
    labels = whole._labels() | {"metrics": ["one", "two", "three", "four", "five"]}
    card = Scorecard(np.repeat(whole.samples[:, :1], 5, axis=1), **labels)
    figure = card.figure("lines")
    assert [axes.get_ylabel() for axes in figure.axes] == ["one", "two", "three", "four", "five"]
    assert {axes.get_subplotspec().colspan.start for axes in figure.axes} == {0, 1}


def test_an_oracle_far_above_is_named_instead_of_flattening_the_curves():
    samples = made().samples * [[[0.1], [0.1], [0.4], [1.0]]]
    axes = Scorecard(samples, **made()._labels()).figure("lines").axes[0]
    assert axes.get_ylim()[1] < 0.3
    assert any("oracle 1.00" in text.get_text() for text in axes.texts)
    near = made().samples * [[[1.7], [1.7], [1.0], [1.0]]]
    assert not Scorecard(near, **made()._labels()).figure("lines").axes[0].texts


def test_shares_are_read_as_percent():
    figure = made(x=[0.01, 0.1, 0.5], x_name="share").figure()
    figure.canvas.draw()
    ticks = [label.get_text() for label in figure.axes[0].get_xticklabels()]
    assert {"0%", "20%", "40%"} <= set(ticks)


def test_a_figure_of_tokens_marks_them():
    card = made(n=1, x=["[CLS]", "girls", "[MASK]"], x_name="token", x_notes=["", "cue", "target"])
    for kind in ("lines", "table"):
        card.figure(kind)
    shown = [text.get_text() for text in card.figure("table").axes[0].texts]
    assert {"cue", "target"} <= set(shown)


def test_there_is_no_other_kind():
    with pytest.raises(ValueError, match="Did you mean 'table'"):
        made().figure("tabel")


def test_lines_have_no_options_of_tables():
    with pytest.raises(TypeError, match="cmap is an option of kind='table'"):
        made().figure(cmap="viridis")


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"x": (0, 1)}, r"sizes \[1 or more, 2, 4, 2\]"),
        ({"methods": ["alti", "alti", "random", "oracle"]}, "names one twice"),
        ({"baselines": ["chance"]}, "'chance', which is not one of methods"),
        ({"level": 95}, "level"),
    ],
)
def test_labels_that_do_not_fit_are_refused(changes, told):
    with pytest.raises(ValueError, match=told):
        made(**changes)
