"""How a weight comes about, on the page: its steps by keyboard and button, previewed, pinned and linked."""

from __future__ import annotations

import numpy as np
import pytest

import attnwidgets as aw
from attnwidgets.explanations.mixing.attention import attention_row
from attnwidgets.views.base.opening import last_content

from .settling import settle

TOKENS = ["the", "cat", "<b>sat</b>", "\u202eon", "מחצלת", "."]


@pytest.fixture(scope="module")
def trace():
    draw = np.random.default_rng(0).normal
    states = [draw(size=shape) for shape in ((6, 8), (8, 12), (8, 12))]
    return aw.from_qkv(*states, heads=2, mask="causal", tokens=TOKENS)


@pytest.fixture
def neuron(trace, open_page, tmp_path):
    """A page with NeuronView and a linked Heatmap; returns both and the page."""
    view = aw.NeuronView(trace, head=1)
    view.selection.pinned = (4, 2)
    path = aw.to_html([view, aw.Heatmap(trace)], tmp_path / "page.html")

    def make(**options):
        page = open_page(path.as_uri(), **options)
        page.locator(".aw-neuron-key").first.wait_for()
        return page, page.locator(".aw-neuron"), page.locator(".aw-heatmap")

    return make


def number(text):
    return float(text.replace("−", "-").removeprefix("< "))


def values(root):
    """The pair's number at every step with a number."""
    return {
        step.locator("input").get_attribute("value"): number(step.locator("b").inner_text())
        for step in root.locator(".aw-segment").all()
        if step.locator("b").inner_text()
    }


def test_every_step_shows_the_number_that_python_has(neuron, trace):
    _, root, _ = neuron()
    row = attention_row(trace, 0, 1, 4)
    shown = values(root)
    assert list(shown) == ["dot", "scaled", "masked", "softmax"]
    expected = [row.dot[2], row.scaled[2], row.scores[2], trace.attention_layer(0)[1, 4, 2]]
    assert list(shown.values()) == pytest.approx([float(x) for x in expected], rel=1e-3)
    keys = root.locator(".aw-neuron-key:visible .aw-neuron-value").all_inner_texts()
    # A masked key has no weight, which is not a weight of zero.
    assert [text == "masked" for text in keys] == row.masked.tolist()
    weights = [number(text) for text in keys if text != "masked"]
    assert weights == pytest.approx(row.weights[~row.masked].tolist(), abs=1e-4)
    decimals = {len(text.split(".")[1]) for text in keys if text != "masked"}
    assert len(decimals) == 1  # they stand below each other
    assert "as recorded" in root.locator(".aw-neuron-formula").inner_text()
    assert "⟨U+202E⟩on" in root.locator(".aw-neuron-keys").inner_text()


def test_additive_scores_are_shown_number_by_number(open_page, tmp_path):
    draw = np.random.default_rng(0).normal
    states = [draw(size=shape) for shape in ((6, 8), (8, 12), (8, 12))]
    weights = draw(size=12)
    trace = aw.from_qkv(*states, heads=2, score="additive", v_a=weights, tokens=TOKENS)
    view = aw.NeuronView(trace, head=1)
    view.selection.pinned = (4, 2)
    page = open_page(view.to_html(tmp_path / "additive.html").as_uri(), reduced_motion="reduce")
    page.locator(".aw-neuron-key").first.wait_for()
    root = page.locator(".aw-neuron")
    query, keys = (side[1].numpy() for side in trace.query_key(0))
    products = weights[6:] * np.tanh(query[4] + keys[2])
    assert values(root)["dot"] == pytest.approx(products.sum(), rel=1e-3)
    pair = root.locator(".aw-neuron-pair")
    pair.focus()
    page.keyboard.press("Home")
    page.keyboard.press("ArrowRight")
    said = root.locator(".aw-neuron-formula").inner_text()
    assert said.startswith(f"v × tanh(q + k), number by number: {(products > 0).sum()} of 6 products")
    box = pair.bounding_box()
    page.mouse.move(box["x"] + box["width"] - 4, box["y"] + 20)  # the last number
    readout = root.locator(".aw-readout").inner_text()
    assert readout.startswith("number 5 of 6: v ")
    assert number(readout.rsplit("= ", 1)[1]) == pytest.approx(products[-1], rel=1e-3)


@pytest.mark.parametrize("motion", ["reduce", "no-preference"])
def test_steps_are_walked_with_keys_and_buttons(neuron, motion):
    page, root, _ = neuron(reduced_motion=motion)
    pair = root.locator(".aw-neuron-pair")
    chosen = root.locator(".aw-segment:has(:checked)")
    pair.focus()
    page.keyboard.press("Home")
    assert "q and k" in chosen.inner_text()
    assert pair.locator("[data-later]").all_inner_texts() == ["q × k", "sum"]
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    assert chosen.inner_text().startswith("q · k")
    assert pair.locator("[data-later]").count() == 0
    root.get_by_role("button", name="next step").click()
    assert chosen.inner_text().startswith("scaled")
    root.locator(".aw-segment", has_text="masked").click()
    settle(page)
    assert root.locator(".aw-neuron-key:visible").last.inner_text().split() == [".", "masked"]
    assert "5 of 6 keys" in root.locator(".aw-neuron-formula").inner_text()
    colours = "c => new Set(c.getContext('2d').getImageData(0, 0, c.width, c.height).data).size"
    assert all(canvas.evaluate(colours) > 3 for canvas in root.locator("canvas").all())


def test_a_key_is_previewed_pinned_and_linked(neuron, trace):
    page, root, heatmap = neuron()
    exact = trace.attention_layer(0)[1]
    rows = root.locator(".aw-neuron-key:visible")
    rows.nth(1).hover()
    assert values(root)["softmax"] == pytest.approx(float(exact[4, 1]), rel=1e-3)
    rows.nth(1).click()
    page.mouse.move(2, 2)
    assert "pinned" in heatmap.locator(".aw-readout").inner_text()
    assert "“cat”" in heatmap.locator(".aw-readout").inner_text()
    root.locator(".aw-neuron-keys").focus()
    page.keyboard.press("ArrowUp")
    assert "→ \u2068“the”" in root.locator(".aw-neuron-where").inner_text()
    page.keyboard.press("Shift+ArrowUp")
    assert values(root)["softmax"] == pytest.approx(float(exact[3, 0]), rel=1e-3)
    page.keyboard.press("Escape")  # the row on which Python lets it open
    query, key = aw.NeuronView(trace, head=1).options["opens"]["pair"]
    assert values(root)["softmax"] == pytest.approx(float(exact[query, key]), rel=1e-3)
    root.get_by_role("button", name="largest first").click()
    texts = root.locator(".aw-neuron-key:visible .aw-neuron-value").all_inner_texts()
    shares = [0 if text == "masked" else number(text) for text in texts]
    assert shares == sorted(shares, reverse=True)
    root.get_by_role("combobox", name="head").select_option("0")
    words = trace.units["token"]
    last = last_content(words.labels, words.special)
    largest = float(trace.attention_layer(0)[0, last].max())
    page.wait_for_function(
        "want => Math.abs(document.querySelector('.aw-neuron-value').textContent - want) < 1e-3", arg=largest
    )


@pytest.mark.parametrize(("width", "scheme"), [(340, "dark"), (1100, "light")])
def test_it_fits_and_few_nodes_draw_many_keys(open_page, tmp_path, screenshot, width, scheme):
    draw = np.random.default_rng(0).normal
    count = 512
    labels = ["a" * 300 if i % 9 == 0 else f"t{i}" for i in range(count)]
    trace = aw.from_qkv(draw(size=(count, 16)), draw(size=(16, 64)), draw(size=(16, 64)), tokens=labels)
    path = aw.NeuronView(trace).to_html(tmp_path / "page.html")
    page = open_page(path.as_uri(), color_scheme=scheme, viewport={"width": width, "height": 900})
    page.locator(".aw-neuron-key").first.wait_for()
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert page.evaluate("document.querySelectorAll('.aw-neuron *').length") < 250
    keys = page.locator(".aw-neuron-keys")
    keys.evaluate("e => { e.scrollTop = e.scrollHeight }")
    page.locator(".aw-neuron-key", has_text="t511").wait_for()
    screenshot(page, f"neuron-{scheme}-{width}.png", full_page=True)


def test_the_height_is_constant(trace, open_page, tmp_path):
    page = open_page(aw.NeuronView(trace).to_html(tmp_path / "page.html").as_uri())
    page.locator(".aw-neuron-key").first.wait_for()
    root = page.locator(".aw-neuron")
    box = "view => [view, view.querySelector('.aw-neuron-body')].map(el => el.getBoundingClientRect().height)"
    before = root.evaluate(box)
    assert before[0] <= 560
    for step in root.locator(".aw-segment").all():
        step.click()
        assert root.evaluate(box) == before
    root.locator(".aw-neuron-key:visible").first.click()
    assert root.evaluate(box) == before
