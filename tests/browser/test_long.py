"""Views of long texts on the page: they open, move and name omissions, with and without a kernel."""

from __future__ import annotations

import re

import pytest

import attnwidgets as aw
from tests.browser.lab import choose, number, switch
from tests.views.long import HEADS, LAYERS, traced

INK = """plot => {
  const canvas = plot.querySelector('canvas');
  const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
  let sum = 0;
  for (let i = 0; i < data.length; i += 13) sum = (sum * 31 + data[i]) | 0;
  return sum;
}"""
# Frames from a key until another picture is there.
STEP = f"""async ([plot, key]) => {{
  const ink = {INK};
  const before = ink(plot);
  plot.dispatchEvent(new KeyboardEvent('keydown', {{ key, bubbles: true }}));
  for (let frames = 1; frames <= 60; frames += 1) {{
    await new Promise(requestAnimationFrame);
    if (ink(plot) !== before) return frames;
  }}
  return 0;
}}"""


@pytest.fixture(scope="module")
def page_path(tmp_path_factory):
    view = aw.Explorer(aw.attention(traced(2000)), methods=["attention"], layer=0, head=0)
    return view.to_html(tmp_path_factory.mktemp("long") / "page.html", budget=2_500_000)


def test_a_page_of_a_long_text_opens_moves_and_says_what_it_lacks(open_page, page_path, screenshot):
    page = open_page(page_path.as_uri())
    root = page.locator(".aw-explorer")
    words = "2,102 tokens: shown by sentences; choose tokens for single ones"
    page.get_by_text(words).filter(visible=True).first.wait_for()
    assert "left out for its size" in page.locator("footer").inner_text()
    plot = root.locator(".aw-heatmap .aw-plot")
    grid = root.locator(".aw-grid-plot[aria-busy=false]")
    grid.wait_for()
    plot.and_(page.locator("[aria-busy=false]")).wait_for()

    def moves(*keys):
        for key in keys:
            frames = plot.evaluate(f"(plot, key) => ({STEP})([plot, key])", key)
            assert 1 <= frames <= 2, key

    moves("ArrowDown", "ArrowUp", "ArrowDown")
    # Every thumbnail is there, also those that the page scrolls to.
    grid.scroll_into_view_if_needed()
    box = grid.bounding_box()
    for line in range(LAYERS):
        for col in range(HEADS):
            page.mouse.move(
                box["x"] + (col + 0.5) * box["width"] / HEADS,
                box["y"] + (line + 0.5) * box["height"] / LAYERS,
            )
            assert "largest value" in root.locator(".aw-footer .aw-readout").inner_text()
    root.locator(".aw-segment", has_text="tokens").first.click()
    words = "2,102 tokens: each cell drawn is the largest of 3 × 3"
    page.get_by_text(words).filter(visible=True).first.wait_for()
    plot.and_(page.locator("[aria-busy=false]")).wait_for()
    for key in ("ArrowUp", "ArrowDown"):  # read from the file
        plot.evaluate("(plot, key) => plot.dispatchEvent(new KeyboardEvent('keydown', { key }))", key)
        plot.and_(page.locator("[aria-busy=false]")).wait_for()
    moves("ArrowUp", "ArrowDown", "ArrowUp")
    screenshot(page, "long-page.png")


CELLS = (
    """from attnwidgets.views.wire import header as eager, thumbnails
import attnwidgets as aw, torch
from transformers import LlamaConfig, LlamaForCausalLM
torch.manual_seed(0)
model = LlamaForCausalLM(LlamaConfig(vocab_size=40, hidden_size=16, intermediate_size=32, num_hidden_layers=2,
    num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=4096, initializer_range=0.5)).eval()
trace = aw.trace(model, None, input_ids=torch.randint(3, 40, (2000,)))
eager.OPENING_VALUES = thumbnails.PART_VALUES = 2 * 2000**2
for _ in range(40): print("a line that keeps the grid off the page")""",
    "heat = aw.Heatmap(trace)\nheat",
    "grid = aw.HeadGrid(trace)\ngrid",
)


def test_thumbnails_come_as_they_are_seen_and_a_pinned_row_is_exact(lab, screenshot):
    lab.write("long.ipynb", *CELLS)
    page = lab.open("long.ipynb")
    lab.run_all()
    page.locator(".aw-heatmap .aw-plot[aria-busy=false]").wait_for(timeout=90_000)
    grid = page.locator(".aw-headgrid")
    grid.scroll_into_view_if_needed()
    grid.get_by_title("max-pooled, × each thumbnail's own maximum", exact=True).wait_for()  # all are here
    screenshot(page, "long-grid.png")
    lab.do("heat.selection.layer, heat.selection.head, heat.selection.pinned = 1, 2, (1500, 700)")
    exact = lab.ask("float(trace.attention_rows(1, [2], [1500])[0, 0, 700])")
    heat = page.locator(".aw-heatmap")
    heat.scroll_into_view_if_needed()
    heat.get_by_text(f"= {exact:.4g}"[:6]).wait_for()
    assert "each cell drawn is the largest of" in heat.inner_text()
    screenshot(page, "long-heatmap.png")


def test_a_page_computes_heads_means_words_and_rollout(minilm, open_page, tmp_path):
    text = " ".join(f"Film number {at} was uninspiringly predictable, the critics wrote." for at in range(16))
    trace = aw.trace(*minilm, text)
    attention, rollout = aw.attention(trace), aw.rollout(trace)
    layer, head = divmod(int(attention.values[:, :, -2, -2].argmax()), 12)
    other = (head + 1) % 12  # the opening matrix is in the page itself
    view = aw.Explorer(
        trace, methods=["attention", "rollout"], layer=layer, head=other, units=["token", "word"]
    )
    page = open_page(view.to_html(tmp_path / "page.html").as_uri())
    assert re.search(r"All \d+ matrices", page.locator("footer").last.inner_text())
    plot = page.locator(".aw-heatmap .aw-plot").first
    heads = page.get_by_role("combobox", name="head", exact=True)

    def shows(matrix, title):
        """The last cell of the map, before [SEP], has the number of this matrix."""
        page.locator(".aw-heatmap .aw-title", has_text=title).wait_for()
        plot.and_(page.locator("[aria-busy=false]")).wait_for()
        box = plot.bounding_box()
        page.mouse.move(2, 2)
        page.mouse.move(box["x"] + box["width"] - 4, box["y"] + box["height"] - 4)
        readout = page.locator(".aw-footer .aw-readout").inner_text()
        assert number(readout) == pytest.approx(matrix[-2, -2], abs=0.011), readout
        assert matrix[-2, -2] > 0.05

    heads.select_option(label=f"head {head} / 11")
    shows(attention.matrix(layer, head), f"head {layer}.{head}")
    heads.select_option(label="heads: max")
    shows(attention.matrix(layer, "max"), "attention")
    switch(page, page.locator(".aw-explorer"), "unit", "words")
    shows(attention.to("word").matrix(layer, "max"), "attention")
    choose(page, "method", "rollout")
    shows(rollout.to("word").matrix(layer), "rollout")
    switch(page, page.locator(".aw-explorer"), "unit", "tokens")
    shows(rollout.matrix(layer), "rollout")
