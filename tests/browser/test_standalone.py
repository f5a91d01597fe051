"""Pages without kernel and network: they draw, they answer, they stay linked, and nothing foreign runs."""

from __future__ import annotations

import re

import numpy as np
import pytest

import attnwidgets as aw

from .lab import choose, number, offset_of
from .settling import settle

NASTY = [
    "</script><script>window.hacked=1</script>",
    "<script>window.hacked=2</script>",
    "<img src=x onerror='window.hacked=3'>",
    "a\0b",
    "\u202egnp.exe",
    "\"'><svg onload=window.hacked=4>",
    "plain",
]


@pytest.fixture(scope="module")
def explorer(minilm, sentence):
    trace = aw.trace(*minilm, sentence)
    return aw.Explorer(trace, layer=2, head=1)


@pytest.fixture(scope="module")
def address(explorer, tmp_path_factory):
    """Where the page of the Explorer is."""
    return aw.to_html(explorer, tmp_path_factory.mktemp("standalone") / "page.html").as_uri()


def drawn(page):
    """Wait until the first map is drawn and the page is at rest."""
    page.locator(".aw-heatmap .aw-plot[aria-busy=false]").first.wait_for()
    settle(page)
    return page


def cell(heatmap, query, key, shown):
    """Page position of a cell of a heatmap of these elements."""
    box = heatmap.locator(".aw-plot").first.bounding_box()
    at = offset_of(box, query, key, shown)
    return box["x"] + at["x"], box["y"] + at["y"]


def test_a_regression_shows_its_numbers_before_and_after_a_change(page_of):
    import transformers as hf

    from tests.tracing import tiny

    names = {0: "valence", 1: "arousal"}
    config = hf.BertConfig(vocab_size=27, id2label=names, problem_type="regression", **tiny.SMALL)
    model = tiny.build(lambda: hf.BertForSequenceClassification(config))
    trace = aw.trace(model, tiny.wordpiece(), "the cat sat.")
    view = aw.Explorer(trace)
    labels = [item["label"] for item in view.store.header["predictions"]["items"]]
    chips = drawn(page_of(view)).locator(".aw-chips .aw-chip")
    assert chips.all_inner_texts() == labels
    assert chips.first.locator(".aw-chip-is").bounding_box()["width"] == 0
    view.selection.interventions = [{"kind": "ablate", "layer": 0, "head": 0}]
    chips = drawn(page_of(view)).locator(".aw-chips .aw-chip")
    assert [text.split(" → ")[0] for text in chips.all_inner_texts()] == labels
    assert all(" → " in text for text in chips.all_inner_texts())


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_an_explorer_opens_from_a_file(address, open_page, screenshot, scheme):
    page = drawn(open_page(address, color_scheme=scheme))
    assert (
        page.locator(".aw-heatmap .aw-plot canvas").first.evaluate(
            "c => new Set(c.getContext('2d').getImageData(0, 0, c.width, c.height).data).size"
        )
        > 20
    )  # it is painted
    text = page.locator("main").inner_text()
    assert "electro" in text
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    screenshot(page, f"standalone-{scheme}.png", full_page=True)


def test_hover_reads_click_pins_escape_unpins(explorer, address, open_page):
    page = drawn(open_page(address))
    heatmap = page.locator(".aw-heatmap")
    # [CLS] and [SEP] stand apart.
    shown = range(1, len(explorer.store.header["axes"]["token"]["labels"]) - 1)
    page.mouse.move(*cell(heatmap, 9, 10, shown))
    readout = page.locator(".aw-footer .aw-readout")
    said = readout.inner_text()
    exact = explorer.content.explanations[0].matrix(2, 1)[9, 10]
    assert number(said) == pytest.approx(exact, abs=0.005)
    assert "≈" in said
    page.mouse.click(*cell(heatmap, 9, 10, shown))
    page.mouse.move(2, 2)
    assert number(readout.inner_text()) == pytest.approx(exact, abs=0.005)
    heatmap.locator(".aw-plot").first.focus()
    page.keyboard.press("Escape")
    assert "click to pin" in readout.inner_text()


def test_keys_move_through_layers_and_the_other_views_follow(address, open_page):
    page = drawn(open_page(address))
    plot = page.locator(".aw-heatmap .aw-plot").first
    slider = page.locator("input[aria-label=layer]").first
    assert slider.input_value() == "2"
    plot.focus()
    page.keyboard.press("End")
    page.wait_for_function("() => document.querySelector('input[aria-label=layer]').value === '5'")
    slider.focus()
    page.keyboard.press("Home")
    assert slider.input_value() == "0"
    page.locator(".aw-heatmap .aw-title").filter(has_text="head 0.").wait_for()


def test_units_and_methods_change_in_the_page(address, open_page):
    page = drawn(open_page(address))
    heatmap = page.locator(".aw-heatmap")
    page.get_by_text("words", exact=True).first.click()
    heatmap.get_by_text("electroencephalographer").first.wait_for()
    choose(page, "method", "rollout")
    heatmap.get_by_text("rollout").first.wait_for()
    assert "sum over key pieces" in heatmap.inner_text()
    assert "head" not in heatmap.locator(".aw-caption").inner_text()  # a rollout has none


def test_linked_views_share_a_pin_and_others_do_not(page_of):
    numbers = np.random.default_rng(0).dirichlet(np.ones(6), (2, 2, 6))
    first, second = (aw.from_attentions(numbers, list("abcdef")) for _ in range(2))
    page = drawn(page_of(aw.Heatmap(first), aw.Heatmap(aw.rollout(first)), aw.Heatmap(second)))
    plots = [page.locator(".aw-heatmap").nth(i) for i in range(3)]
    plots[0].scroll_into_view_if_needed()
    page.mouse.click(*cell(plots[0], 2, 4, range(6)))
    settle(page)
    said = [plot.locator(".aw-readout").inner_text() for plot in plots]
    assert "click to pin" not in said[1]
    assert "click to pin" in said[2]


@pytest.mark.parametrize("view", ["Explorer", "Heatmap", "HeadGrid", "TokenStrip", "LayerSlider"])
def test_nothing_in_a_token_runs(page_of, view):
    numbers = np.full((1, 2, len(NASTY), len(NASTY)), 1 / len(NASTY), dtype=np.float32)
    page = page_of(getattr(aw, view)(aw.from_attentions(numbers, NASTY), title=NASTY[0]))
    settle(page)
    for plot in page.locator(".aw-plot:visible, .aw-tok:visible").all()[:8]:
        plot.hover(force=True)
    settle(page)
    assert page.evaluate("window.hacked") is None
    assert page.locator("main img, main script, main svg[onload]").count() == 0
    if view in {"Explorer", "TokenStrip"}:
        text = page.locator("main").inner_text()
        assert "window.hacked=3" in text  # shown, as text
        assert "\u202e" not in text
        assert "␀" in text


def test_what_is_not_in_the_file_says_so(page_of, open_page, tmp_path):
    numbers = np.random.default_rng(0).dirichlet(np.ones(160), (4, 12, 160)).astype(np.float32)
    trace = aw.from_attentions(numbers, [f"t{i}" for i in range(160)])
    view = aw.Heatmap(trace, layer=0, head=0, units=["token"])
    path = view.to_html(tmp_path / "small.html", layers=[0])
    page = open_page(path.as_uri())
    plot = page.locator(".aw-heatmap .aw-plot").first
    plot.focus()
    page.keyboard.press("End")
    page.locator(".aw-heatmap").get_by_text(re.compile("not in this file")).first.wait_for()
    page.keyboard.press("Home")  # and the loaded maps still work
    drawn(page)
    page.mouse.move(*cell(page.locator(".aw-heatmap"), 5, 5, range(160)))
    assert "≈" in page.locator(".aw-readout").inner_text()


def heatmap_of(tokens=160):
    numbers = np.random.default_rng(0).dirichlet(np.ones(tokens), (4, 12, tokens)).astype(np.float32)
    trace = aw.from_attentions(numbers, [f"t{i}" for i in range(tokens)])
    return aw.Heatmap(trace, layer=0, head=0, units=["token"])


def element_of(text, name):
    """The start of an element's data, and its end."""
    start = re.search(rf'id="{name}">', text).end()
    return start, text.index("<", start)


def test_the_first_picture_needs_only_what_comes_before_the_script(open_page, tmp_path):
    path = heatmap_of().to_html(tmp_path / "cut.html")
    text = path.read_text(encoding="utf-8")
    path.write_text(text[: element_of(text, "aw-tiles-store0")[0]], encoding="utf-8")
    page = open_page(path.as_uri())
    plot = page.locator(".aw-heatmap .aw-plot[aria-busy=false]").first
    assert (
        plot.locator("canvas").first.evaluate(
            "c => new Set(c.getContext('2d').getImageData(0, 0, c.width, c.height).data).size"
        )
        > 20
    )
    plot.focus()
    page.keyboard.press("End")  # another layer was cut off
    page.locator(".aw-heatmap").get_by_text("this could not be read from the file").first.wait_for()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("aw-data-store0", "This file is damaged and cannot be read."),
        ("aw-tiles-store0", "this could not be read from the file"),
    ],
)
def test_a_damaged_page_says_so(open_page, tmp_path, name, message):
    path = heatmap_of().to_html(tmp_path / "damaged.html")
    text = path.read_text(encoding="utf-8")
    start, end = element_of(text, name)
    path.write_text(text[:start] + "A" * (end - start) + text[end:], encoding="utf-8")
    page = open_page(path.as_uri())
    if name == "aw-tiles-store0":
        page.locator(".aw-heatmap .aw-plot").first.focus()
        page.keyboard.press("End")
    page.get_by_text(message).first.wait_for()
    is_drawn = page.locator(".aw-heatmap canvas").count() > 0
    assert is_drawn == (name == "aw-tiles-store0"), "readable maps are drawn"


@pytest.mark.parametrize("width", [1100, 420])
def test_all_views_stand_on_one_page(explorer, page_of, screenshot, width):
    attention = explorer.content.explanations[0]
    scores = aw.results.Attributions([1.0, -0.5, 0.2, 0.0], axis=list("abcd"), target="yes")
    page = page_of(
        aw.LayerSlider(attention),
        aw.Heatmap(attention, marks=[(2, 3)]),
        aw.HeadGrid(attention),
        aw.TokenStrip(aw.rollout(attention).to("word"), marks=[2]),
        aw.TokenStrip(scores),
        viewport={"width": width, "height": 800},
    )
    page.locator(".aw-root").nth(4).wait_for()
    drawn(page)
    assert page.locator(".aw-root").count() == 5
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    screenshot(page, f"all-{width}.png", full_page=True)


def test_thumbnails_that_did_not_come_first_are_fetched(page_of):
    numbers = np.random.default_rng(0).dirichlet(np.ones(80), (3, 4, 80)).astype(np.float32)
    view = aw.Explorer(aw.from_attentions(numbers, [f"t{i}" for i in range(80)]), units=["token"])
    assert [t["source"] for t in view.store.header["thumbs"]] == ["attention/token/self"]
    page = page_of(view)
    choose(page, "method", "rollout")
    grid = page.locator(".aw-headgrid")
    grid.get_by_text("3 layers", exact=True).wait_for()
    grid.get_by_title(re.compile("max-pooled")).wait_for(state="attached")
    plot = grid.locator(".aw-plot[aria-busy=false]")
    box = plot.bounding_box()
    assert box["height"] == pytest.approx(3 * box["width"], abs=2)
    assert (
        plot.locator("canvas").evaluate(
            "c => new Set(c.getContext('2d').getImageData(0, 0, c.width, c.height).data).size"
        )
        > 20
    )


UNITS = ("token", "word")
# How many streams were inflated, and the bytes that came out.
COUNTED = """window.inflated = [];
const Stream = window.DecompressionStream;
window.DecompressionStream = function (format) {
  const stream = new Stream(format);
  const at = inflated.push(0) - 1;
  const counted = new TransformStream({
    transform(bytes, out) { inflated[at] += bytes.length; out.enqueue(bytes); },
  });
  return {writable: stream.writable, readable: stream.readable.pipeThrough(counted)};
};"""


def test_nothing_is_unpacked_before_it_is_looked_at(minilm, sentence, open_page, tmp_path):
    explorer = aw.Explorer(aw.trace(*minilm, f"{sentence} " * 3))
    address = explorer.to_html(tmp_path / "page.html").as_uri()
    page = open_page()
    page.add_init_script(COUNTED)
    page.goto(address)
    plot = page.locator(".aw-headgrid .aw-plot[aria-busy=false]")
    plot.wait_for()
    drawn(page)
    first = page.evaluate("inflated")
    cells = {unit: 72 * (len(explorer.store.header["axes"][unit]["labels"]) - 2) ** 2 for unit in UNITS}
    assert cells["token"] < first[0] < cells["token"] + cells["word"]  # thumbnails without [CLS] and [SEP]
    assert cells["word"] not in first
    page.get_by_text("words", exact=True).first.click()
    page.wait_for_function("length => inflated.includes(length)", arg=cells["word"])
    plot.wait_for()
