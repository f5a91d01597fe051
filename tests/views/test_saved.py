"""`view.save`: a figure holds the numbers and the colours of the page, whatever the filters."""

from __future__ import annotations

import base64
import re

import numpy as np
import pytest
from PIL import Image

import attnwidgets as aw
from attnwidgets.figures import palettes


def figure_of(view):
    return view.figure()


def browser_map(root, name):
    """The 256 colours of `mapTable` in js/src/colour.ts, from its baked colours."""
    source = (root / "js" / "src" / "colormaps.ts").read_text()
    knots = base64.b64decode(re.search(rf'\b{name}: "([^"]+)"', source)[1])
    colours = np.frombuffer(knots, np.uint8).reshape(-1, 3).astype(float)
    at = np.linspace(0, len(colours) - 1, 256)
    return np.stack([np.interp(at, range(len(colours)), colours[:, i]) for i in range(3)], axis=1)


def scaled(value, top, scale):
    t = min(1.0, abs(value) / top)
    if scale == "sqrt":
        return t**0.5
    if scale == "log":
        return 0.0 if t <= 0 else max(0.0, 1 + np.log10(t) / 4)
    return t


def pixels(figure, path, points, axes):
    """Colours in a saved figure at points of its axes."""
    figure.savefig(path, dpi=figure.dpi)
    image = np.asarray(Image.open(path).convert("RGB"))
    pixels = axes.transData.transform(points)
    return [image[len(image) - 1 - int(y), int(x)] for x, y in pixels]


VALUES = np.array(
    [[0.5, 0.25, 0.2, 0.05], [0.1, 0.6, 0.29, 0.01], [0.4, 0.3, 0.2, 0.1], [0.7, 0.1, 0.1, 0.1]]
)


def trace_of(values=VALUES):
    return aw.from_attentions(values[None, None], list("abcd"))


@pytest.mark.parametrize(
    ("palette", "name"),
    [("paper", "paper"), ("viridis", "viridis"), ("cividis", "cividis"), ("greys", "greys")],
)
@pytest.mark.parametrize("scale", ["linear", "sqrt", "log"])
def test_pixels_of_a_saved_heatmap_are_those_of_the_page(tmp_path, root, palette, name, scale):
    view = aw.Heatmap(trace_of(), scale=scale, palette=palette, threshold=0.09, color_range="map")
    figure = figure_of(view)
    cells = [(r, c) for r in range(4) for c in range(4)]
    result = pixels(figure, tmp_path / "a.png", [(c, r) for r, c in cells], figure.axes[0])
    table = browser_map(root, name)
    for (r, c), colour in zip(cells, result, strict=True):
        value = VALUES[r, c]
        # 0.7 is the largest and a round number: the end of the scale.
        expected = table[round(255 * scaled(value, 0.7, scale))] if value >= 0.09 else [237] * 3
        np.testing.assert_allclose(colour, expected, atol=9)  # the page's maps have fewer knots


def test_signed_colours_and_one_range_for_all(tmp_path, root):
    values = np.array([[0.5, -0.25, 0.0], [-2.0, 1.0, 0.1], [0.3, 0.3, 0.3]])
    both = aw.results.MixingMap(
        np.stack([values, 2 * values])[:, None], query=list("abc"), key=list("abc"), method="made"
    )
    view = aw.Heatmap(both, scale="linear", palette="orange-purple", color_range="all", layer=0)
    figure = figure_of(view)
    result = pixels(figure, tmp_path / "a.png", [(1, 0), (0, 1), (0, 0)], figure.axes[0])
    table = browser_map(root, "puor")
    for value, colour in zip((-0.25, -2.0, 0.5), result, strict=True):
        sign = np.sign(value)
        expected = table[round(255 * (0.5 + sign * scaled(value, 5.0, "linear") / 2))]  # 4 rounds up to 5
        np.testing.assert_allclose(colour, expected, atol=9)  # the page's maps have fewer knots


@pytest.mark.parametrize(
    ("options", "name"), [({}, "paper"), ({"palette": "cividis", "scale": "sqrt"}, "cividis")]
)
def test_a_strip_has_the_colours_of_the_map(root, options, name):
    view = aw.TokenStrip(trace_of(), keep_mass=0.9, **options)
    view.selection.pinned = (1, -1)
    figure = figure_of(view)
    figure.canvas.draw()
    shades = 255 * np.array([box.get_facecolor()[:3] for box in figure.axes[0].patches if box.get_fill()])
    table = browser_map(root, name)
    # 0.6 + 0.29 are less than 0.9 of the row, so 0.1 is drawn and 0.01 is not.
    for value, colour in zip((0.1, 0.6, 0.29), shades, strict=False):
        expected = table[round(255 * scaled(value, 0.7, options.get("scale")))]  # the map's largest
        np.testing.assert_allclose(colour, expected, atol=9)  # the page's maps have fewer knots
    np.testing.assert_allclose(shades[3], 0.9 * 255, atol=1)


def test_what_tokens_receive_is_the_mean_of_all_queries_then_filtered(causal):
    trace = aw.from_attentions(causal((1, 1, 5, 5)), list("abcde"))
    values = aw.attention(trace).matrix(0, 0)
    mean = values.mean(axis=0)  # unreadable weights count as 0, as on the page
    result = aw.TokenStrip(trace).presentation.received()
    np.testing.assert_allclose(result, mean, rtol=1e-6)
    cut = 0.99 * np.sort(mean)[-2]
    left = aw.TokenStrip(trace, threshold=float(cut)).presentation.received()
    np.testing.assert_allclose(left, np.where(mean >= cut, mean, np.nan), rtol=1e-6)


def test_left_out_special_tokens_are_rows_and_columns_and_the_rest_is_divided(minilm_trace):
    view = aw.Heatmap(minilm_trace, layer=2, head=3, hide_special="renormalise")
    special = np.asarray(aw.attention(minilm_trace).key.units["token"].special, dtype=bool)
    shown = view.presentation.filtered(view.sources()[0].matrix(2, 3))
    np.testing.assert_array_equal(np.isnan(shown), special[:, None] | special[None])
    np.testing.assert_allclose(np.nansum(shown[~special], axis=1), 1)
    assert "divided by its sum" in view.presentation.title()


def test_ties_stay_together_as_on_the_page(given):
    view = aw.Heatmap(trace_of(), keep_mass=0.75)
    shown = view.presentation.filtered(VALUES)
    assert np.isfinite(shown).sum(axis=1).tolist() == [2, 2, 3, 4]


def test_a_grid_keeps_its_scale_and_leaves_masked_cells_empty(causal):
    trace = aw.from_attentions(causal((2, 2, 4, 4)), list("abcd"))
    image = figure_of(aw.HeadGrid(trace)).axes[0].images[0]
    shown = np.ma.filled(image.get_array(), np.nan)
    values = aw.attention(trace).matrix(1, 1)
    np.testing.assert_allclose(shown[5:, 5:], np.where(np.tri(4, dtype=bool), values / values.max(), np.nan))
    np.testing.assert_allclose(image.norm(0.25), 0.25)


def test_heads_are_as_strong_as_the_filters_leave_them(given):
    trace = given()
    plain, left = (
        figure_of(aw.HeadView(trace, layer=0, heads=[0], **o))
        for o in ({}, {"threshold": 0.3, "scale": "linear"})
    )
    lines = [figure.axes[0].collections[0] for figure in (plain, left)]
    values = aw.attention(trace).layer(0)[0]
    assert len(lines[1].get_paths()) == int((values >= 0.3).sum()) < len(lines[0].get_paths())
    np.testing.assert_allclose(max(lines[1].get_linewidths()), 0.3 + 1.5 * values.max(), rtol=1e-5)


def test_ranges_end_at_the_numbers_of_the_page():
    assert [palettes.round_up(v) for v in (0, 0.012, 0.7, 0.71, 1.2, 9.5)] == [0, 0.015, 0.7, 1, 1.5, 10]


def test_a_view_says_what_it_shows_and_not_what_is_left_out(minilm_trace):
    view = aw.Heatmap(minilm_trace, layer=3, head=5)
    assert view.describe() == aw.attention(minilm_trace).select(layer=3, head=5).describe()
    left = aw.Heatmap(minilm_trace, layer=3, head=5, hide_special=True)
    assert not any(f"“{token}”" in left.describe() for token in ("[CLS]", "[SEP]"))
    assert "mean over heads" in aw.TokenStrip(minilm_trace, head="mean").describe()


@pytest.mark.slow
def test_the_words_are_the_alternative_text_of_pictures(minilm_trace, tmp_path):
    view = aw.Heatmap(minilm_trace, layer=3, head=5)
    words = view.describe()
    _, metadata = view._repr_mimebundle_()
    assert metadata["image/png"]["alt"] == words
    svg = view.save(tmp_path / "a.svg").read_text(encoding="utf-8")
    assert f">{words}</desc>" in svg
    assert Image.open(view.save(tmp_path / "a.png")).text["Description"] == words


@pytest.mark.slow
def test_views_of_numbers_describe_the_numbers_that_they_draw():
    trace = aw.trace(*aw.demo_model("classifier"), "A wonderful film, and not too melodramatic.")
    first = trace.predictions()[0]
    for view in (aw.Predictions(trace), aw.InterventionView(trace)):
        assert f"“{first.label}” {first.probability:.1%}" in view.describe()
    removal = aw.RemovalView(trace)
    assert f"is at {removal.left(0):.1%}, {removal.left(1):.1%} without" in removal.describe()
    profile = aw.views.LayerProfile(trace, methods=["attention", "rollout"])
    reader, word = re.match("“(.+)” reads “(.+)”, largest: attention", profile.describe()).groups()
    values = [
        profile.value("attention", trace.tokens.index(word), layer=layer, query=trace.tokens.index(reader))
        for layer in aw.attention(trace).layers
    ]
    assert f"attention {max(values):.3g} in layer {int(np.argmax(values))}," in profile.describe()
    compared = aw.views.CompareView(trace, methods=["attention", "lrp"]).describe()
    assert "lrp at “wonderful”" in compared
