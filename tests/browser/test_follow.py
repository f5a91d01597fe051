"""While a head is knocked out, the map names its content, and follows the changed model if asked."""

from __future__ import annotations

import pytest

CELL = """import attnwidgets as aw
trace = aw.trace(*aw.demo_model("classifier"), "A wonderful film with a dull ending.")
explorer = aw.Explorer(trace, layer=1, head=8)
explorer"""


@pytest.fixture(scope="module")
def explorer(lab):
    lab.write("follow.ipynb", CELL)
    page = lab.open("follow.ipynb")
    lab.run_all()
    view = page.locator(".aw-explorer")
    view.locator(".aw-map .aw-plot[aria-busy=false]").first.wait_for(timeout=90_000)
    return view


def test_the_map_follows_the_changed_model_and_returns_with_it(explorer, lab):
    before = explorer.bounding_box()["height"]
    assert not explorer.locator(".aw-follow").is_visible()
    panel = explorer.get_by_role("tab", name="in words")
    if panel.is_visible():
        panel.click()
    explorer.get_by_role("button", name="Knock out 1.8").click()
    state = explorer.locator(".aw-follow")
    state.get_by_text("as recorded").wait_for()
    explorer.locator(".aw-chips[data-compared]").wait_for(timeout=60_000)
    assert "→" in explorer.locator(".aw-chip").first.inner_text()
    explorer.get_by_role("button", name="follow the change").click()
    state.get_by_text("after the change").wait_for(timeout=60_000)
    changed = lab.ask("explorer.selection.method")
    assert changed != "attention"
    wanted = "trace.rerun(*explorer.interventions()).attention_layer(4)[2, 5, 3].item()"
    source = "next(s for s in explorer.sources() if s.method == explorer.selection.method)"
    shown = f"{source}.row(4, 2, 5)[3].item()"
    assert lab.ask(shown) == pytest.approx(lab.ask(wanted), abs=1e-6)
    assert lab.ask(shown) != pytest.approx(lab.ask("trace.attention_layer(4)[2, 5, 3].item()"), abs=1e-6)
    assert explorer.bounding_box()["height"] == before
    explorer.get_by_role("button", name="Restore 1.8").click()
    lab.until("explorer.selection.method", "attention")
    assert not state.is_visible()
    assert explorer.bounding_box()["height"] == before
