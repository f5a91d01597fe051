"""ConceptView, InfluenceView and ShapeView on a page: pointer, keys, linking, widths, and hostile text."""

from __future__ import annotations

import csv

import pytest

import attnwidgets as aw
from tests.concepts.made import HOSTILE, concept_scores, distilled, gradients, influence, sampled
from tests.explanations.made import random_classifier
from tests.tracing import tiny

from .checks import BLANK, CLIPPED, OVERLAPS
from .stage import play

TEXTS = ["The film has no heart, no style and an irritating score.", "The soup was fine.", "", "עברית"]


def readout(page, view):
    return page.locator(f".aw-{view} > .aw-footer > .aw-readout").inner_text()


def height(page, view):
    return page.locator(f".aw-{view}").bounding_box()["height"]


def test_layers_and_concepts_are_chosen_by_pointer_and_keys(page_of):
    result = concept_scores()
    page = page_of(result.view())
    page.locator(".aw-concept-row").first.wait_for()
    tall = height(page, "concepts")
    assert readout(page, "concepts").startswith("negation at layer 3: raises")
    assert "; significant, p 0.010" in readout(page, "concepts")
    assert page.locator(".aw-concept-sure").count() == 1, "other points are hollow"
    plot = page.locator(".aw-concepts .aw-profile-plot")
    box = plot.bounding_box()
    plot.click(position={"x": 55, "y": box["height"] / 2})
    assert page.locator(".aw-concepts output").inner_text() == "layer 1 / 3"
    page.mouse.move(5, 5)
    assert f"raises {result.scores[0, 0]:.2f}" in readout(page, "concepts")
    assert "not significant: p 0.400 is above 0.05" in readout(page, "concepts")
    plot.focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowDown")
    assert readout(page, "concepts").startswith("food at layer 2")
    assert page.locator(".aw-concept-row .aw-concept-text").all_inner_texts() == [
        item.text for item in result.sort("food", 2)
    ]
    page.locator(".aw-concept-name", has_text="negation").click()
    page.get_by_role("slider", name="layer").press("End")
    assert readout(page, "concepts").startswith("negation at layer 3")
    page.locator(".aw-concept-row").nth(1).click()
    page.wait_for_function(
        "() => /aw.explore/.test(document.querySelector('.aw-concepts .aw-readout').textContent)"
    )
    assert result.sort("negation", 3)[1].text in readout(page, "concepts")
    assert height(page, "concepts") == tall <= 560


def test_the_layer_is_that_of_linked_views(page_of):
    explorer = aw.Heatmap(aw.trace(random_classifier(), tiny.wordpiece(), "the new cat sat."))
    layers = [0, 1, 9]
    page = page_of(explorer, concept_scores(layers=layers).view(linked=explorer))
    page.locator(".aw-concept-row").first.wait_for()
    layer, linked = (
        page.locator(".aw-concepts output"),
        page.locator(".aw-root:not(.aw-concepts) output").first,
    )
    page.locator(".aw-concepts button[aria-label='next layer']").click()
    first = layer.inner_text()
    assert linked.inner_text().split(" / ")[0] == first.split(" / ")[0]
    page.locator(".aw-concepts .aw-profile-plot").press("End")
    assert layer.inner_text() == "layer 9 / 9"
    assert linked.inner_text().split(" / ")[0] == first.split(" / ")[0], "it has no such layer"


def test_a_training_text_is_chosen_and_left_out(page_of):
    taught = influence()
    page = page_of(taught.view())
    page.locator(".aw-taught-row").first.wait_for()
    tall = height(page, "taught")
    refit = page.get_by_role("button", name="Leave it out and refit")
    assert refit.is_disabled()
    best = taught.helpful(0, 1)[0]
    assert page.locator(".aw-taught-side").first.locator(".aw-concept-text").first.inner_text() == best.text
    page.locator(".aw-taught-choice").first.click()
    page.mouse.move(5, 5)
    assert f"“{best.text}”\u2069 helps" in readout(page, "taught")
    refit.click()
    page.wait_for_function("() => /→/.test(document.querySelector('.aw-taught-outcome').textContent)")
    change = taught.leave_one_out([best.number])[0, 0]
    after = f"{taught.measured[0] + change:.4g}"
    assert page.locator(".aw-taught-outcome b").nth(1).inner_text() == after
    plot = page.locator(".aw-taught-plot")
    plot.focus()
    page.keyboard.press("End")
    assert "leaving one out raises the loss" in page.locator(".aw-taught-side").first.inner_text()
    worst = taught.harmful(0, 1)[0]
    assert f"“{worst.text}”\u2069 harms" in readout(page, "taught")
    assert page.locator(".aw-point-chosen").count() == 1
    page.keyboard.press("Escape")
    assert page.locator(".aw-point-chosen").count() == 0
    page.get_by_text("loss", exact=True).first.click()
    assert "loss of the text" in plot.inner_text()
    page.get_by_role("combobox", name="test").click()
    page.get_by_role("option").nth(1).click()
    assert page.locator(".aw-taught-test").inner_text() == taught.tests[1]
    page.locator(".aw-taught-row .aw-taught-choice").first.click()
    page.get_by_role("button", name="Leave it out and refit").click()
    page.wait_for_function("() => /kernel/.test(document.querySelector('.aw-taught-outcome').textContent)")
    page.locator(".aw-taught-lead .aw-open-text").click()
    page.wait_for_function(
        "() => /explore/.test(document.querySelector('.aw-taught .aw-readout').textContent)"
    )
    assert taught.tests[1] in readout(page, "taught")
    assert height(page, "taught") == tall <= 560


def test_the_table_is_of_the_shown_test(page_of, tmp_path):
    taught = influence()
    page = page_of(taught.view(test=1))
    page.locator(".aw-taught-row").first.wait_for()
    page.get_by_role("button", name="menu").click()
    with page.expect_download() as download:
        page.get_by_role("button", name="Values (CSV)").click()
    download.value.save_as(tmp_path / "values.csv")
    rows = list(csv.DictReader((tmp_path / "values.csv").open(encoding="utf-8")))
    assert {row["test_text"] for row in rows} == {taught.tests[1]}
    assert [float(row["influence"]) for row in rows] == taught.values[1].tolist()
    page.get_by_role("combobox", name="test").click()
    page.get_by_role("option").first.click()
    page.get_by_role("button", name="menu").click()
    page.get_by_role("button", name="Values (CSV)").click()
    page.wait_for_function("() => /kernel/.test(document.querySelector('.aw-tools-said').textContent)")


def test_gradients_have_neither_a_distance_nor_a_refit(page_of):
    page = page_of(gradients().view())
    page.locator(".aw-taught-row").first.wait_for()
    assert not page.locator(".aw-taught-detail").is_visible()
    assert not page.locator(".aw-taught-scatter .aw-segments").is_visible()
    assert page.locator(".aw-point").count() == 2, "NaN has no point"
    assert "leaving" not in page.locator(".aw-taught").inner_text(), "nothing is left out"
    assert not page.locator(".aw-taught-key").is_visible(), "these texts have no labels"


def test_levels_pairs_and_texts_are_chosen(page_of):
    student = distilled(levels=["good", "awful", "dull"])
    page = page_of(student.view())
    page.locator(".aw-shape-level").first.wait_for()
    tall = height(page, "shapes")
    assert page.locator(".aw-shape-lost").inner_text() == f"{100 * (1 - student.fidelity):.1f} %"
    assert not page.locator(".aw-shape-tag").is_visible()
    levels = page.locator(".aw-shape-level")
    assert levels.first.inner_text().split()[0] == "(nothing)"
    levels.nth(1).click()
    value = f"{student.shapes['how'][1]:+.4f}".replace("-", "−")
    assert f"“not”\u2069 adds {value}" in readout(page, "shapes")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    assert "“awful”" in readout(page, "shapes")
    page.locator(".aw-pair-cell").nth(3).click()
    cell = f"{student.pairs['how', 'adj'][1, 0]:+.4f}".replace("-", "−")
    assert f"adds {cell} beyond" in readout(page, "shapes")
    page.locator(".aw-shape-share", has_text="how × adj").click()
    assert "of the variance" in readout(page, "shapes")
    row = page.locator(".aw-shape-row").first
    assert row.locator(".aw-concept-text").inner_text() == student.worst(1)[0].text
    row.locator("button").click()
    page.wait_for_function(
        "() => /explore/.test(document.querySelector('.aw-shapes .aw-readout').textContent)"
    )
    assert height(page, "shapes") == tall <= 560


def test_estimates_and_constants_are_called_so(page_of):
    page = page_of(sampled().view(), distilled(constant=True).view(), distilled(order=1).view())
    page.locator(".aw-shape-level").first.wait_for()
    lost = page.locator(".aw-shape-lost").all_inner_texts()
    assert lost[0].startswith("about ")
    assert lost[1] == ""
    assert "nothing to explain" in page.locator(".aw-shape-rest").nth(1).inner_text()
    assert page.locator(".aw-shape-tag").nth(0).is_visible()
    assert "No pairs were fitted" in page.locator(".aw-shapes").nth(2).inner_text()


def test_a_text_opens_in_the_linked_views_by_the_kernel(open_page):
    linked = aw.Heatmap(aw.trace(random_classifier(), tiny.wordpiece(), "the new cat sat."))
    page, view = open_page(), concept_scores().view(linked=linked)
    view._send_along()
    play(page, view, "works", cold=False)
    page.locator(".aw-concept-row").first.wait_for()
    page.locator(".aw-concept-row .aw-open-text").first.click()
    page.wait_for_function("() => sent.some(({topic}) => topic === 'open')")
    number = concept_scores().sort("negation", 3)[0].number
    assert page.evaluate("() => sent.find(({topic}) => topic === 'open').args") == {"at": number}


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_words_are_coloured_and_say_their_number(scheme, page_of):
    sample = aw.trace(random_classifier(), tiny.wordpiece(), "the cat sat.")
    classes = tuple(sample.model.config.id2label.values())[:2]
    texts = ["the new cat sat.", "the cat <b>sat</b>", *HOSTILE[:3]]
    taught = influence(texts, texts[:2], classes, sample=sample)
    page = page_of(taught.view(), color_scheme=scheme)
    test = page.locator(".aw-taught-test")
    word = test.locator(".aw-concept-word", has_text="cat")
    word.wait_for()
    assert test.inner_text() == texts[0]
    read = aw.trace(sample.model, sample.tokenizer, texts[0])
    words = aw.lrp(read, target=taught.test_labels[0]).to("word")
    number = words.values[words.labels.index("cat")]
    word.hover()
    side = "against" if number < 0 else "for"
    said = readout(page, "taught")
    assert said.endswith(f", {side} {taught.test_labels[0]}")
    assert float(said.split(": ")[1].split(",")[0].replace("−", "-")) == pytest.approx(number, rel=0.006)
    assert page.locator(".aw-taught b b").count() == 0
    fills = page.locator(".aw-taught-row .aw-concept-word").evaluate_all(
        "(words) => words.map((word) => getComputedStyle(word).backgroundColor)"
    )
    assert len(set(fills)) > 3
    page.locator(".aw-taught-choice").first.hover()
    assert "helps: " in readout(page, "taught"), "a row says its influence"
    assert page.locator(".aw-point-chosen").count() == 1, "and is marked among the points"
    page.mouse.move(5, 5)
    assert "training texts" in readout(page, "taught")
    assert page.locator(".aw-point-chosen").count() == 0
    word.focus()
    page.keyboard.press("End")
    assert readout(page, "taught").startswith("\u2068“.”")
    page.keyboard.press("ArrowLeft")
    assert readout(page, "taught").startswith("\u2068“sat”")
    assert test.locator("[tabindex='0']").count() == 1, "the text is one stop of the tab key"
    legend = page.locator(".aw-taught .aw-legend")
    assert legend.inner_text().split("\n")[-1] == "for the text’s label"
    page.get_by_role("combobox", name="test").click()
    page.get_by_role("option").nth(1).click()
    page.wait_for_function(
        "(text) => document.querySelector('.aw-taught-test').innerText === text", arg=texts[1]
    )
    assert test.locator(".aw-concept-word").count() == 0, "a page holds the words of the test it opens with"
    assert "running kernel" in legend.inner_text()
    page.get_by_role("combobox", name="words by").click()
    assert page.locator(".aw-taught .aw-menu:popover-open .aw-menu-label").all_inner_texts() == [
        "none",
        "lrp",
    ]


def test_a_kernel_colours_the_words_by_the_method_that_is_chosen(open_page):
    sample = aw.trace(random_classifier(), tiny.wordpiece(), "the cat sat.")
    texts = ["the new cat sat.", "the cat sat"]
    page, view = open_page(), influence(texts, texts, sample=sample).view()
    view._send_along()
    play(page, view, "works", cold=False)
    page.locator(".aw-taught-row").first.wait_for()
    page.get_by_text("3 of 6").wait_for()
    assert page.locator(".aw-footer").get_by_role("button", name="Cancel").is_visible()
    assert page.locator(".aw-taught-test").inner_text() == texts[0], "texts can be read meanwhile"
    page.get_by_role("combobox", name="words by").click()
    page.get_by_role("option", name="lime", exact=True).click()
    page.get_by_role("combobox", name="words by").click()
    assert page.get_by_role("option", name="grad cam").get_attribute("aria-disabled") == "true"
    page.get_by_role("option", name="none").click()
    assert page.get_by_role("combobox", name="words by").inner_text().split()[-2:] == ["none", "▾"]
    asked = page.evaluate("() => sent.filter(({topic}) => topic === 'strips').map(({args}) => args)")
    assert asked == [{"test": 0, "method": "lrp"}]
    page.evaluate("() => { window.kernel = 'refuses'; }")
    page, view = open_page(), influence(texts, texts, sample=sample).view()
    view._send_along()
    play(page, view, "refuses", cold=False)
    page.locator(".aw-footer", has_text="no memory is left").wait_for()
    assert page.locator(".aw-taught-test").inner_text() == texts[0]


def test_two_lines_of_a_long_text_are_shown_and_all_of_it_when_it_is_chosen(page_of):
    sample = aw.trace(random_classifier(), tiny.wordpiece(), "the cat sat.")
    long = ["the new cat sat. " * 50 + word for word in ("mat", "cat", "new")]
    taught = influence(long, long, sample=sample)
    page = page_of(taught.view(), viewport={"width": 808, "height": 900})
    page.locator(".aw-concept-word").first.wait_for()
    tall = height(page, "taught")
    row = page.locator(".aw-taught-row").first
    text = row.locator(".aw-concept-text")
    assert text.bounding_box()["height"] <= 44
    row.locator(".aw-taught-choice").focus()
    page.keyboard.press("Enter")
    assert row.locator(".aw-taught-choice").evaluate("(el) => el === document.activeElement")
    assert text.evaluate("(el) => el.scrollHeight <= el.clientHeight + 1 && el.clientHeight > 100")
    assert text.inner_text() == taught.helpful(0, 1)[0].text
    test = page.locator(".aw-taught-test .aw-concept-text")
    assert test.bounding_box()["height"] <= 66
    test.locator("[tabindex='0']").focus()
    page.keyboard.press("End")
    assert test.evaluate("(el) => el.scrollTop > 0"), "the keys reach its end"
    assert height(page, "taught") == tall <= 560
    assert page.evaluate(OVERLAPS) == []


@pytest.mark.parametrize("width", [480, 760, 1200])
def test_nothing_overlaps_or_is_cut_at_any_width(width, page_of):
    views = [
        concept_scores([f"a concept {at}" for at in range(9)], range(13), TEXTS * 3).view(),
        concept_scores(["one"], [0], ["a text"], ()).view(),
        influence([f"{TEXTS[at % 2]} {at}" for at in range(40)], TEXTS).view(),
        distilled(levels=["good", "awful", "loud", "charming"]).view(),
    ]
    page = page_of(*views, viewport={"width": width + 48, "height": 900})
    page.locator(".aw-shape-level").first.wait_for()
    page.locator(".aw-concept-row").first.wait_for()
    assert page.evaluate(OVERLAPS) == []
    assert page.evaluate(BLANK) == []
    assert page.evaluate(CLIPPED) == []
    wide = "(roots) => roots.filter((el) => el.scrollWidth > el.clientWidth + 1).length"
    assert page.locator(".aw-root, .aw-body").evaluate_all(wide) == 0
    assert max(view.bounding_box()["height"] for view in page.locator(".aw-framed").all()) <= 560


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_hostile_texts_are_text(scheme, page_of):
    views = [
        concept_scores(HOSTILE[:5], (2,), HOSTILE, HOSTILE).view(),
        influence(HOSTILE, HOSTILE[:1], HOSTILE[:2], HOSTILE).view(),
        distilled(levels=HOSTILE).view(),
    ]
    page = page_of(*views, color_scheme=scheme, viewport={"width": 808, "height": 900})
    page.locator(".aw-shape-level").first.wait_for()
    assert page.locator(".aw-root img, .aw-root script, .aw-body b b").count() == 0
    texts = page.locator(".aw-concepts .aw-concept-text").all_inner_texts()
    assert "∅" in texts
    assert any("U+202E" in text for text in texts)
    assert page.evaluate(OVERLAPS) == []
    assert [view.bounding_box()["height"] for view in page.locator(".aw-framed").all()] == [540] * 3


def test_axe_finds_nothing(page_of, root):
    axe = root / "js" / "node_modules" / "axe-core" / "axe.min.js"
    if not axe.is_file():
        pytest.skip("axe-core is not installed (npm ci in js/; make test does it)")
    page = page_of(concept_scores().view(), influence().view(), distilled().view())
    page.locator(".aw-shape-level").first.wait_for()
    page.locator(".aw-taught-row").first.wait_for()
    page.evaluate(axe.read_text(encoding="utf-8"))
    violations = page.evaluate("axe.run(document.querySelector('main')).then((result) => result.violations)")
    assert [f"{v['id']}: {[node['html'][:200] for node in v['nodes']]}" for v in violations] == []
