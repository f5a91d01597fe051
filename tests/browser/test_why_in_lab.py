"""In a live JupyterLab, "Why?" next to a pinned weight opens the view below, which follows the pin."""

from __future__ import annotations

import pytest

CELLS = (
    """import attnwidgets as aw
model, tokenizer = aw.zoo.induction(letters="abcdefgh", length=16)
trace = aw.trace(model, tokenizer, "fadebcfadeb")
heatmap = aw.Heatmap(trace, layer=1, head=0)
explorer = aw.Explorer(aw.trace(model, tokenizer, "bhgacdbhgac"))""",
    "heatmap",
    "explorer",
    "neuron = aw.NeuronView(trace)\nneuron",
    "grid = aw.HeadGrid(trace)\ngrid",
    "aw.why(trace, 11, 6, layer=1, head=0)",
)
OUTPUT = ".jp-OutputArea"


@pytest.fixture(scope="module")
def notebook(lab):
    lab.write("why.ipynb", *CELLS)
    page = lab.open("why.ipynb")
    lab.run_all()
    page.locator(f"{OUTPUT} .aw-why").wait_for(timeout=90_000)
    return page


def output_of(notebook, name):
    notebook.locator(f"{OUTPUT} .aw-root.aw-{name}").first.scroll_into_view_if_needed()
    return notebook.locator(OUTPUT, has=notebook.locator(f".aw-root.aw-{name}")).first


def test_a_result_is_shown_as_its_view(notebook):
    output = notebook.locator(OUTPUT, has=notebook.locator(".aw-why")).last
    assert (
        output.locator(".aw-why-said").inner_text().startswith("“b” asks with its token; “c” offers head 0.0")
    )
    output.locator(".aw-segment", has_text="tokens").click()
    output.locator(".aw-why-row", has_text="b [5]").wait_for()
    output.locator(".aw-menu-button", has_text="rather than").click()
    output.get_by_role("option", name="the mean of the row").click()
    output.locator(".aw-why-note", has_text="less the mean log of the row").wait_for()


def test_why_opens_below_the_heatmap_and_follows_the_pin(lab, notebook):
    lab.ask("bool(heatmap.at(layer=1, head=0))")
    output = output_of(notebook, "heatmap")
    assert output.get_by_role("button", name="Why?").count() == 0, "nothing is pinned"
    lab.ask("setattr(heatmap.selection, 'pinned', (11, 6))")
    output.get_by_role("button", name="Why?").click()
    output.locator(".aw-why-said", has_text="which read “b”").wait_for()
    lab.ask("setattr(heatmap.selection, 'pinned', (11, 3))")
    output.locator(".aw-why-said", has_text="looks past “d”").wait_for()
    assert lab.ask("len(heatmap.inner)") == 1
    assert output.locator(".aw-why").count() == 1


def test_how_opens_below_why(lab, notebook):
    output = output_of(notebook, "heatmap")
    output.get_by_role("button", name="How?").click()
    output.locator(".aw-neuron .aw-readout", has_text="of its attention to").wait_for()
    assert lab.ask("heatmap.inner[0].inner[0].selection is heatmap.selection")
    assert output.get_by_role("button", name="Why?").count() == 1, "the view that says why stands above"
    lab.ask("heatmap.inner[0]._close_below() or heatmap.inner[0].add_options(inner=[])")
    output.locator(".aw-neuron").wait_for(state="detached")


@pytest.mark.parametrize("name", ["neuron", "headgrid"])
def test_the_letter_w_opens_it_below_other_views_of_heads(lab, notebook, name):
    lab.ask("setattr(heatmap.selection, 'pinned', (11, 6))")
    output = output_of(notebook, name)
    output.get_by_role("button", name="Why?").wait_for()
    output.locator("[role=application]").first.focus()
    notebook.keyboard.press("w")
    output.locator(".aw-why-said", has_text="which read “b”").wait_for()
    assert output.get_by_role("button", name="How?").count() == (name == "headgrid")


def test_the_letter_w_opens_it_below_an_explorer_and_another_text_closes_it(lab, notebook):
    lab.ask("bool(explorer.at(layer=1, head=0, pins=[(11, 6)]))")
    output = output_of(notebook, "explorer")
    output.get_by_role("button", name="Why?").wait_for()
    output.locator(".aw-heatmap .aw-plot").focus()
    notebook.keyboard.press("w")
    output.locator(".aw-why-said", has_text="offers head 0.0").wait_for()
    lab.ask("explorer.show_text('fadebcfadeb')")
    output.locator(".aw-why").wait_for(state="detached")
    assert lab.ask("len(explorer.inner)") == 0


def test_a_cell_that_cannot_be_split_says_why(lab, notebook):
    lab.ask("heatmap.inner[0].close() if heatmap.inner else None")
    lab.ask("heatmap._close_below() or heatmap.add_options(inner=[])")
    output = output_of(notebook, "heatmap")
    lab.ask("bool(heatmap.at(layer=1, head=0, pins=[(0, 0)]))")
    output.get_by_role("button", name="Why?").click()
    output.locator(".aw-below-refused", has_text="nothing to choose between").wait_for()
