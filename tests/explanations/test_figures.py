from __future__ import annotations

import io
import subprocess
import sys
import warnings

import numpy as np
import pytest
from matplotlib.figure import Figure
from PIL import Image

from attnwidgets.explanations import Attributions, MixingMap
from attnwidgets.explanations.mixing.rollout import rollout
from attnwidgets.explanations.results.pictures import png
from attnwidgets.figures.theme import printable
from tests.explanations.made import attention_map, axis, shares

HOSTILE = (
    "$\\frac{",
    "nul\0",
    "\u202eevil",
    "a\ud800b",
    "<script>",
    "日本語",
    "שלום",
    "two\nlines",
    "$x$",
    "",
)


def texts(figure: Figure) -> list[str]:
    import matplotlib.text

    return [text.get_text() for text in figure.findobj(matplotlib.text.Text) if text.get_text()]


def test_heatmap_has_queries_left_and_keys_on_top():
    figure = attention_map().figure(layer=1, head=0)
    axes = figure.axes[0]
    assert [tick.get_text() for tick in axes.get_yticklabels()] == list(attention_map().query_labels)
    assert axes.xaxis.get_ticks_position() == "top"
    np.testing.assert_array_equal(axes.images[0].get_array(), attention_map().values[1, 0])
    assert figure.get_suptitle() == "attention, layer 1, head 0"
    assert len(figure.axes) == 2  # the second is the colour scale


def test_signed_values_are_centred_on_zero():
    image = MixingMap(shares(1, 3, 3) - 0.2, query=list("abc")).figure().axes[0].images[0]
    low, high = image.get_clim()
    assert low == -high
    low, _ = attention_map().figure(layer=0, head=0).axes[0].images[0].get_clim()
    assert low == 0


def test_all_heads_become_a_grid():
    figure = attention_map().figure()
    assert [tick.get_text() for tick in figure.axes[0].get_xticklabels()] == ["0", "1"]
    assert [tick.get_text() for tick in figure.axes[0].get_yticklabels()] == ["0", "1", "2"]
    assert "each scaled to its largest value" in texts(figure)


def test_a_peak_survives_in_a_thumbnail():
    values = np.full((1, 2, 300, 300), 1e-4, dtype=np.float32)
    values[0, 1, 123, 45] = 1.0
    grid = MixingMap(values, query=[str(i) for i in range(300)]).figure().axes[0].images[0].get_array()
    right = grid[:, -48:]
    assert grid.shape[0] == 48
    assert np.nanmax(right) == 1.0
    assert (right > 0.5).sum() == 1


def test_rows_and_attributions_become_strips():
    shown = texts(attention_map().figure(layer=0, head="mean", query=1))
    assert "un:" in shown
    assert "news" in shown
    several = Attributions([[1.0, -2.0], [0.5, 0.0]], axis=["red", "blue"], target=["is", "are"])
    assert [texts(several.figure()).count(word) for word in ("is:", "are:", "red")] == [1, 1, 2]
    assert texts(several.figure(target="are")).count("red") == 1


@pytest.mark.slow
@pytest.mark.parametrize("suffix", ["png", "svg", "pdf"])
def test_hostile_labels_are_text(suffix):
    hostile = MixingMap(shares(1, 10, 10), query=list(HOSTILE), method="$a$</svg>")
    scores = Attributions(np.linspace(-1, 1, 10), axis=list(HOSTILE), target="$\\bad{")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for figure in (hostile.figure(), hostile.figure(query=3), scores.figure()):
            target = io.BytesIO()
            figure.savefig(target, format=suffix)
            if suffix == "svg":
                assert b"<script>" not in target.getvalue()
    shown = texts(hostile.figure())
    assert "$\\frac{" in shown
    assert "nul<U+0000>" in shown
    assert "<U+202E>evil" in shown


def test_labels_for_the_line():
    assert printable("a\nb\tc") == "a↵b→c"
    assert printable("x" * 50) == "x" * 23 + "…"
    assert printable("e\u0301\U0001f600") == "e\u0301\U0001f600"


def test_many_tokens_become_numbers():
    n = 120
    figure = MixingMap(shares(1, n, n), query=["word"] * n).figure()
    assert "word" not in texts(figure)
    assert "100" in texts(figure)


@pytest.mark.slow
def test_a_long_text_is_cut_and_says_so():
    scores = Attributions(np.ones(5000), axis=["word"] * 5000)
    figure = scores.figure()
    assert "the first 1,200 of 5,000" in figure.get_suptitle().replace("\n", " ")
    assert texts(figure).count("word") == 1200


def test_drawn_into_axes_of_ones_own():
    figure = Figure()
    left, right = figure.subplots(1, 2)
    assert attention_map().figure(layer=0, head=0, ax=left, title="mine") is figure
    assert left.get_title(loc="left") == "mine"
    assert not right.images


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"layer": 7}, "layer 7 is out of range"),
        ({"layer": 0, "head": 9}, "head 9 is out of range"),
        ({"layer": 0, "head": 0, "query": 7}, "query 7 is out of range: there are queries 0 to 6"),
    ],
)
def test_out_of_range_is_named(options, message):
    with pytest.raises(IndexError, match=message):
        attention_map().figure(**options)


@pytest.mark.parametrize(
    "make",
    [
        attention_map,
        lambda: rollout(attention_map()),
        lambda: Attributions([1.0, -1.0], axis=["a", "b"], target="x"),
        lambda: MixingMap(np.zeros((1, 1, 1)), query=["a"]),
        lambda: Attributions([], axis=[], target="x"),
    ],
)
def test_the_fallback_is_a_small_picture(make):
    data = png(make())
    assert Image.open(io.BytesIO(data)).format == "PNG"
    assert len(data) < 40_000


def test_a_large_map_falls_back_to_one_layer():
    asked: list[int] = []

    def compute(number: int) -> np.ndarray:
        asked.append(number)
        return shares(8, 300, 300)

    large = MixingMap.lazy(
        compute,
        query=axis(["x"] * 300, None, None),
        layers=range(12),
        heads=range(8),
        method="made",
        stochastic=True,
    )
    png(large)
    assert asked == [11]


@pytest.mark.slow
def test_pyplot_is_not_touched(tmp_path):
    program = (
        "import sys\n"
        "from attnwidgets.explanations import Attributions\n"
        "Attributions([1.0], axis=['a']).figure().savefig(sys.argv[1])\n"
        "print('matplotlib.pyplot' in sys.modules)"
    )
    picture = tmp_path / "strip.svg"
    done = subprocess.run(
        [sys.executable, "-c", program, picture], capture_output=True, text=True, check=False
    )
    assert done.stdout.strip() == "False", done.stderr
    assert picture.stat().st_size > 0
