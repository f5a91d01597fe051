"""A notebook in JupyterLab without a kernel: a small model answers. The kernel dies in the second test."""

from __future__ import annotations

import re

import pytest

import attnwidgets as aw

from .lab import offset_of, shares
from .settling import settle

TEXT, OTHER = "fadebcfadeb", "gabhgab"
CELLS = (
    f"""import attnwidgets as aw
model, tokenizer = aw.zoo.induction()
trace = aw.trace(model, tokenizer, {TEXT!r})
explorer = aw.Explorer(trace)
explorer""",
    "linked = aw.Heatmap(trace)\nlinked",
)
WAITS = 20_000
HERE = "No kernel: computed here"


@pytest.fixture(scope="module")
def trace():
    return aw.trace(*aw.zoo.induction(), TEXT)


@pytest.fixture(scope="module")
def live(lab):
    lab.write("stand_in.ipynb", *CELLS)
    page = lab.open("stand_in.ipynb", viewport={"width": 1200, "height": 1000})
    lab.run_all()
    page.locator(".aw-root.aw-heatmap .aw-plot[aria-busy=false]").last.wait_for(timeout=60_000)
    return page


def explorer(live):
    return live.locator(".aw-root.aw-explorer")


def reads(live, text):
    """Wait until the text of the Explorer is this."""
    said = "document.querySelector('.aw-explorer .aw-reading')?.textContent.replace(/\\s/g, '')"
    live.wait_for_function(f"text => {said}.includes(text)", arg=text)


def value_at(live, tokens, query, key):
    """The linked map's readout of a cell; the first token stands apart."""
    view = live.locator(".aw-root.aw-heatmap").last
    plot = view.locator(".aw-plot[aria-busy=false]")
    plot.wait_for()
    shown = list(range(1, len(tokens)))
    box = plot.bounding_box()
    live.mouse.move(0, 0)
    plot.hover(position=offset_of(box, query, key, shown))
    settle(live)  # before that, the readout may still be that of the pin
    # The exact row is computed where the pointer rests; a pin is read before it.
    exact = re.compile(r" = ([\d.e-]+)\s*$")
    return float(exact.search(view.locator(".aw-readout").filter(has_text=exact).inner_text())[1])


def test_the_browser_asks_for_the_model_once_views_are_drawn(live, lab, trace):
    lab.until("bool(explorer.store.stand_in)", wanted=True)
    assert lab.ask("explorer.store.stand_in == linked.store.stand_in")
    assert lab.ask("len(explorer.store.stand_in['ids'])") == len(trace.tokens)


def test_what_was_never_loaded_is_computed_when_the_kernel_is_gone(live, trace, screenshot):
    live.evaluate("() => window.jupyterapp.shell.currentWidget.sessionContext.shutdown()")
    live.locator(".aw-root.aw-heatmap .aw-plot").last.click(position={"x": 60, "y": 60})
    live.get_by_text(HERE).first.wait_for(timeout=WAITS)
    live.locator(".aw-root.aw-heatmap").last.get_by_role("slider", name="layer").press("End")
    exact = aw.attention(trace).value(11, 6, layer=1, head=0)
    assert value_at(live, trace.tokens, 11, 6) == pytest.approx(exact, abs=2e-3)
    screenshot(live, "stand-in.png")


def test_a_head_is_knocked_out_without_a_kernel(live, trace, screenshot):
    explorer(live).locator(".aw-grid-plot").focus()
    live.keyboard.press("k")
    compared = explorer(live).locator(".aw-chips[data-compared]")
    compared.wait_for()
    screenshot(live, "stand-in-knocked.png")
    result = shares(compared.locator(".aw-chip"))
    after = trace.rerun(aw.ablate_heads(trace, (1, 0)))
    wanted = [{item.label: item.probability for item in entry.predictions(20)} for entry in (trace, after)]
    assert "c" in result
    # All that is shown: which of equally probable tokens are among the first is not the same in both.
    for label, shares_of in result.items():
        assert shares_of == pytest.approx([100 * label_shares[label] for label_shares in wanted], abs=0.1)
    live.keyboard.press("k")


def test_another_text_is_typed_without_a_kernel(live, screenshot):
    live.get_by_role("button", name="type another text").click()
    live.locator(".aw-text-field").fill(OTHER)
    live.keyboard.press("Enter")
    reads(live, OTHER)
    other = aw.trace(*aw.zoo.induction(), OTHER)
    exact = aw.attention(other).value(7, 4, layer=1, head=0)
    assert value_at(live, other.tokens, 7, 4) == pytest.approx(exact, abs=2e-3)
    best = other.predictions()[0].label
    explorer(live).locator(".aw-chips .aw-chip").first.filter(
        has_text=re.compile(rf"^\s*{best}\b")
    ).wait_for()
    screenshot(live, "stand-in-text.png")
    live.get_by_role("button", name="back to").click()
    reads(live, TEXT)
