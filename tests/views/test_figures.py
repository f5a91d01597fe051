"""Figures of every view: three formats, two widths, two pages, whatever the labels and the numbers are."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree as ET

import matplotlib as mpl
import numpy as np
import pytest
from fontTools.subset import Subsetter
from PIL import Image

import attnwidgets as aw
from attnwidgets.figures.maps import strip
from attnwidgets.figures.parts.text import Text
from attnwidgets.figures.sheet import Sheet
from attnwidgets.figures.theme import LIGHT, THEMES
from tests.views.every import every_view, make

SVG = "{http://www.w3.org/2000/svg}"
WIDTHS = {1: 3.3, 2: 6.9}
WITHOUT = "LayerSlider"  # controls only
DRAWN = [name for name in every_view() if name != WITHOUT]
HOSTILE = ["<b>&", "$x_1$", "nul\0", "\u202eevil", "a\ud800b", "\ufffe", "x" * 500, "שלום", "日本", ""]


@pytest.fixture(autouse=True)
def _fonts_without_layout(monkeypatch):
    """Embed fonts without their tables of ligatures and kerning, which no page uses but which take long."""
    subset = Subsetter.subset

    def without_layout(self, font):
        self.options.drop_tables += ["GDEF", "GPOS", "GSUB"]
        return subset(self, font)

    monkeypatch.setattr(Subsetter, "subset", without_layout)


def texts(path):
    return [el.text or "" for el in ET.parse(path).getroot().iter(f"{SVG}text")]


def test_a_figure_marks_and_measures_in_the_colours_of_the_browser():
    style = Path(__file__).parents[2] / "js" / "src" / "styles" / "tokens.css"
    light, dark, *_ = style.read_text(encoding="utf-8").split("}")
    tokens = {"accent": "accent", "amount": "amount", "for": "speaks_for", "against": "against"}
    for name, block in (("light", light), ("dark", dark)):
        for token, field in (tokens | {"apart": "apart"}).items():
            assert f"--aw-{token}: {getattr(THEMES[name], field)};" in block, (name, token)


@pytest.mark.slow
@pytest.mark.parametrize("columns", [1, 2])
@pytest.mark.parametrize("name", DRAWN)
def test_every_view_is_saved_at_the_width_of_columns(given, tmp_path, name, columns):
    view = make(name, given)
    points = 72 * WIDTHS[columns]
    svg = view.save(tmp_path / "a.svg", columns=columns)
    root = ET.parse(svg).getroot()
    assert float(root.get("width").removesuffix("pt")) == pytest.approx(points, abs=0.1)
    assert root.find(f"{SVG}title").text
    assert root.find(f"{SVG}desc").text
    assert texts(svg)
    picture = Image.open(view.save(tmp_path / "a.png", columns=columns, dpi=100))
    assert picture.width == pytest.approx(100 * WIDTHS[columns], abs=1)
    assert picture.text["Description"]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "columns"), [*((name, 1) for name in DRAWN), ("Explorer", 2)])
def test_every_view_is_saved_as_a_page_with_its_words(given, tmp_path, name, columns):
    pdf = make(name, given).save(tmp_path / "a.pdf", columns=columns).read_bytes()
    assert pdf.startswith(b"%PDF")
    box = re.search(rb"/MediaBox \[\s*0 0 ([\d.]+) ([\d.]+)\s*\]", pdf)
    assert float(box[1]) == pytest.approx(72 * WIDTHS[columns], abs=0.1)
    assert b"/Title" in pdf
    assert b"/Subject" in pdf
    assert b"/FontFile2" in pdf  # letters, not outlines


@pytest.mark.parametrize(
    "name", ["Heatmap", "HeadView", "TokenStrip", "Explorer", "FlowView", "RelevanceMap"]
)
def test_labels_are_text_that_can_be_searched(given, tmp_path, name):
    tokens = ["one", "two", "three", "four", "five", "six", "seven", "eight"]
    result = texts(make(name, lambda: given(tokens=tokens)).save(tmp_path / "a.svg"))
    assert set(tokens) <= {text.strip() for text in result}


@pytest.mark.slow
@pytest.mark.parametrize("ending", ["svg", "pdf", "png"])
@pytest.mark.parametrize("name", ["Heatmap", "HeadGrid", "HeadView", "TokenStrip", "Explorer", "FlowView"])
def test_hostile_labels_are_visible_and_harmless(name, ending, tmp_path):
    weights = np.random.default_rng(0).dirichlet(np.ones(len(HOSTILE)), (1, 2, len(HOSTILE)))
    view = getattr(aw, name)(aw.from_attentions(weights, HOSTILE), title="<script>alert(1)</script>\n$")
    path = view.save(tmp_path / f"a.{ending}", columns=1)
    if ending == "svg":
        root = ET.parse(path).getroot()
        assert not root.findall(".//{*}script")
        assert root.find(f"{SVG}title").text.startswith("<script>")
        if name == "Heatmap":
            shown = " ".join(texts(path))
            assert "<U+202E>evil" in shown
            assert "<U+FFFE>" in shown
            assert "x" * 40 not in shown


@pytest.mark.slow
@pytest.mark.parametrize("columns", [1, 2])
def test_one_token_and_no_number_are_drawn(columns, tmp_path):
    trace = aw.from_attentions(np.ones((1, 1, 1, 1)), ["a"])
    for name in ("Heatmap", "HeadGrid", "HeadView", "TokenStrip", "Explorer", "FlowView", "RelevanceMap"):
        assert "a" in " ".join(texts(getattr(aw, name)(trace).save(tmp_path / "a.svg", columns=columns)))
    for name in ("Heatmap", "HeadView", "TokenStrip", "Explorer"):  # nothing is left to see
        view = getattr(aw, name)(trace, threshold=2.0)
        assert view.save(tmp_path / "b.png", columns=columns, dpi=50).exists()


@pytest.mark.slow
def test_a_long_text_fits_on_a_page(tmp_path):
    n = 300
    weights = np.random.default_rng(0).dirichlet(np.ones(n), (1, 1, n)).astype(np.float32)
    trace = aw.from_attentions(weights, [f"word{i}" for i in range(n)])
    for name in ("Heatmap", "HeadView", "TokenStrip"):
        picture = Image.open(getattr(aw, name)(trace).save(tmp_path / "a.png", columns=1, dpi=50))
        assert picture.width == pytest.approx(50 * WIDTHS[1], abs=1)
    assert "100" in texts(aw.Heatmap(trace).save(tmp_path / "a.svg", columns=1))  # numbers where no name fits


def test_settings_of_the_reader_neither_change_nor_decide(given, tmp_path):
    view = aw.Explorer(given())
    usual = view.save(tmp_path / "a.svg").read_bytes()
    settings = {
        "savefig.bbox": "tight",
        "axes.grid": True,
        "font.size": 30,
        "text.usetex": True,
        "svg.fonttype": "path",
        "figure.constrained_layout.use": True,
        "figure.facecolor": "red",
    }
    with mpl.rc_context(settings):
        before = dict(mpl.rcParams)
        assert view.save(tmp_path / "b.svg").read_bytes() == usual
        assert dict(mpl.rcParams) == before


def test_the_page_is_light_or_dark(given, tmp_path):
    view = aw.Heatmap(given())
    corners = [
        Image.open(view.save(tmp_path / "a.png", theme=theme, dpi=50)).convert("RGB").getpixel((0, 0))
        for theme in ("light", "dark")
    ]
    assert corners == [(255, 255, 255), (17, 20, 24)]


def test_what_cannot_be_drawn_is_refused_by_name(given, tmp_path):
    view = aw.Heatmap(given())
    with pytest.raises(ValueError, match="columns=3 is not 1 or 2"):
        view.save(tmp_path / "a.png", columns=3)
    with pytest.raises(ValueError, match=r"theme='drak' is not .* Did you mean 'dark'"):
        view.save(tmp_path / "a.png", theme="drak")
    with pytest.raises(ValueError, match=r"must end in .*Did you mean '\.png'"):
        view.save(tmp_path / "a.pgn")
    with pytest.raises(TypeError, match=r"LayerSlider draws nothing of its own.*aw\.Heatmap"):
        aw.LayerSlider(given()).save(tmp_path / "a.png")


def test_the_button_gets_the_same_figure(given, tmp_path):
    view = aw.TokenStrip(given())
    meta, (data,) = view.requests.answer("figure", {"format": "svg", "columns": 1, "theme": "dark"})
    assert meta == {"format": "svg"}
    assert data == view.save(tmp_path / "a.svg", columns=1, theme="dark").read_bytes()
    assert "figure" not in {topic for topic, _, _ in view.requests.for_page()}


@pytest.mark.slow
def test_an_explorer_is_its_predictions_its_text_and_its_map(tmp_path):
    trace = aw.trace(*aw.demo_model("classifier"), "A wonderful film.")
    view = aw.Explorer(trace)
    view.selection.pinned = (2, 3)
    shown = texts(view.save(tmp_path / "a.svg"))
    label, share = trace.predictions()[0][:2]
    assert any(text.startswith(f"{label} {100 * share:.1f}\u00a0%") for text in shown)
    assert sum(text.strip() == "wonderful" for text in shown) >= 3  # the text, a row and a column
    assert "“wonderful” reads" in shown
    view.selection.interventions = [{"kind": "ablate", "layer": 0, "head": 0}]
    assert any("→" in text for text in texts(view.save(tmp_path / "b.svg")))


def test_a_text_from_right_to_left_is_drawn_so():
    words = ["[CLS]", "הסרט", "הזה", "היה", "נפלא", "[SEP]"]
    colours, norm = mpl.colormaps["Blues"], mpl.colors.Normalize(0, 1)
    figures = [
        Sheet("“נפלא” reads", [Text(np.ones((1, 6)), words, colours, norm)]).figure(),
        strip(np.ones((1, 6)), words),
    ]
    for figure in figures:
        positions = {}
        for text in figure.findobj(mpl.text.Text):
            positions.setdefault(text.get_text(), text.get_position()[0])
        across = [positions[word] for word in words]
        assert across == sorted(across, reverse=True)
    # A sentence about a word runs as the sentence does.
    assert any(text.get_text().startswith("\u200e“נפלא”") for text in figures[0].findobj(mpl.text.Text))


def test_a_profile_is_drawn_at_the_numbers_of_its_pair(given):
    trace = given()
    view = aw.views.LayerProfile(trace, methods=["attention"])
    view.selection.pinned = (3, 1)
    (axes, *_) = [axes for axes in view.figure().axes if axes.lines]
    drawn = [
        line.get_ydata() for line in axes.lines if len(line.get_ydata()) == len(aw.attention(trace).layers)
    ]
    np.testing.assert_allclose(drawn[-1], aw.attention(trace).mean("head").values[:, 3, 1], rtol=1e-6)


def test_a_comparison_is_drawn_as_rows_of_cells_on_the_scale_of_the_page(given):
    trace = given()
    view = aw.views.CompareView(trace, methods=["attention", "rollout"], query=3)

    def ends():
        images = [image for axes in view.figure().axes for image in axes.images]
        rows = [image for image in images if image.get_array().shape == (1, len(trace.tokens))]
        values = [aw.attention(trace).mean("head").values[0, 3], aw.rollout(trace).values[0, 3]]
        for row, value in zip(rows, values, strict=True):
            finite = ~np.ma.getmaskarray(row.get_array())[0]
            assert finite.any()
            np.testing.assert_allclose(row.get_array()[0][finite], value[finite], rtol=1e-5)
        return [row.norm.vmax for row in rows]

    together = ends()
    view.add_options(filters={"extent": "map"})
    assert together == [max(ends())] * 2
    assert len(set(ends())) == 2


def test_a_flow_follows_the_pinned_token_down_to_the_input(given):
    trace = given()
    view = aw.FlowView(trace)
    view.selection.pinned = (3, -1)
    part = view._still(LIGHT).parts[0]
    whole = aw.rollout(trace)
    np.testing.assert_allclose(part.dots[0], whole.matrix(whole.layers[-1])[3], rtol=1e-5)


@pytest.mark.slow
def test_a_narrow_figure_holds_the_name_of_what_stands_apart():
    view = aw.Heatmap(
        aw.trace(*aw.demo_model("encoder"), "The cat sat on the mat while the dog slept there.")
    )
    figure = view.figure(1)
    figure.canvas.draw()
    edge = figure.get_window_extent().x1
    words = [text for axes in figure.axes for text in axes.texts if text.get_text()]
    assert {"share", "[CLS]"} <= {word for text in words for word in text.get_text().split()}
    assert all(text.get_window_extent().x1 <= edge for text in words)
