"""CircuitsVis' calls, with its arguments, onto our views."""

from __future__ import annotations

import inspect

import numpy as np
import pytest

import attnwidgets.compat.circuitsvis as cv
from attnwidgets import HeadGrid, Heatmap, TokenStrip

TOKENS = ["<|endoftext|>", "The", " cat", " sat"]


@pytest.fixture(autouse=True)
def _nothing_left_open():
    from ipywidgets import Widget

    Widget.close_all()
    yield
    Widget.close_all()


def rows(*shape, causal=False):
    values = np.random.default_rng(0).random((*shape, 4, 4)).astype(np.float32)
    values = np.tril(values) if causal else values
    return values / values.sum(-1, keepdims=True)


def shown(view, layer=0):
    source = view.sources()[0]
    return source, source.layer(layer)


def test_the_arguments_are_circuitsvis_own():
    bounds = ["max_value", "min_value", "negative_color", "positive_color"]
    wanted = {
        cv.attention.attention_heads: [
            "attention", "tokens", "attention_head_names", *bounds, "mask_upper_tri",
        ],
        cv.attention.attention_pattern: [
            "tokens", "attention", "max_value", "min_value", "negative_color", "show_axis_labels",
            "positive_color", "mask_upper_tri",
        ],
        cv.attention.attention_patterns: ["tokens", "attention"],
        cv.tokens.colored_tokens: [
            "tokens", "values", "min_value", "max_value", "negative_color", "positive_color",
        ],
        cv.tokens.colored_tokens_multi: ["tokens", "values", "labels"],
    }  # fmt: skip
    for function, names in wanted.items():
        assert list(inspect.signature(function).parameters) == names


def test_heads_are_thumbnails_of_one_layer():
    torch = pytest.importorskip("torch")
    given = torch.tensor(rows(3, causal=True))
    view = cv.attention_heads(given, TOKENS, attention_head_names=["L0H3", "L1H2", "L2H5"])
    source, values = shown(view)
    assert isinstance(view, HeadGrid)
    np.testing.assert_array_equal(values, given.numpy())
    assert source.causal
    assert source.axes()[0]["special"] == [1, 0, 0, 0]
    assert view.options["title"] == "0: L0H3, 1: L1H2, 2: L2H5"
    assert isinstance(cv.attention_patterns(TOKENS, given), HeadGrid)
    with pytest.raises(ValueError, match="2 names for 3 heads"):
        cv.attention_heads(given, TOKENS, ["a", "b"])
    with pytest.raises(ValueError, match=r"shape \(3, 4, 4\); for 3 tokens"):
        cv.attention_heads(given, TOKENS[:3])


def test_the_upper_triangle_is_hidden_where_it_is_empty_or_where_that_is_asked_for():
    given = rows()
    seen, values = shown(cv.attention_pattern(TOKENS, given))
    np.testing.assert_array_equal(values[0], given)
    assert not seen.causal
    masked = cv.attention_pattern(TOKENS, given, mask_upper_tri=True)
    source, values = shown(masked)
    np.testing.assert_array_equal(values[0], np.tril(given))
    assert source.causal
    hidden = 1 - np.tril(given).sum() / given.sum()
    assert f"hides {hidden:.1%}" in source.explanation.warning
    source, _ = shown(cv.attention_pattern(TOKENS, rows(causal=True), mask_upper_tri=False))
    assert not source.causal
    assert isinstance(masked, Heatmap)


def test_tokens_are_coloured_by_one_series_or_several():
    strip = cv.colored_tokens(TOKENS, [0.5, -1.0, 2.0, 0.0])
    assert isinstance(strip, TokenStrip)
    source, values = shown(strip)
    np.testing.assert_array_equal(values[0], [[0.5, -1.0, 2.0, 0.0]])
    assert source.signed
    many = np.arange(8.0).reshape(4, 2)
    source, values = shown(cv.colored_tokens_multi(TOKENS, many, labels=["a", "b"]))
    np.testing.assert_array_equal(values[0], many.T)
    assert source.axes()[0]["labels"] == ["a", "b"]
    assert shown(cv.colored_tokens_multi(TOKENS, many))[0].axes()[0]["labels"] == ["0", "1"]
    with pytest.raises(ValueError, match="4 tokens"):
        cv.colored_tokens_multi(TOKENS, many.T)
    with pytest.raises(ValueError, match="1 names for 2 series"):
        cv.colored_tokens_multi(TOKENS, many, ["a"])
    with pytest.raises(ValueError, match="4 sources"):
        cv.colored_tokens(TOKENS, [1, 2, 3])


def test_options_without_a_counterpart_are_said_to_be_unused():
    with pytest.warns(UserWarning, match="max_value, negative_color") as caught:
        cv.colored_tokens(TOKENS, [0, 1, 2, 3], max_value=1, negative_color="red")
    assert caught[0].filename == __file__
    with pytest.warns(UserWarning, match="show_axis_labels"):
        cv.attention_pattern(TOKENS, rows(), show_axis_labels=False)
