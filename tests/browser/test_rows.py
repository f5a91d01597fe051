"""Views side by side: in ipywidgets' boxes in JupyterLab, and in flex rows of a page."""

from __future__ import annotations

import numpy as np
import pytest

import attnwidgets as aw

from .settling import settle

START = """import attnwidgets as aw, ipywidgets as w, numpy as np
weights = np.random.default_rng(0).dirichlet(np.ones(5), (2, 3, 5)).astype("float32")
trace = aw.from_attentions(weights, ["the", "cat", "sat", "on", "mats"])
make = lambda **layout: aw.Heatmap(trace, layout=w.Layout(**layout))"""
# Each with the smallest and the largest share of the row that its views may take together.
BOXES = {
    "w.HBox([make(), make()])": (0.95, 1),
    "w.HBox([aw.Explorer(trace)])": (0.95, 1),
    "w.HBox([w.HTML('notes'), aw.HeadView(trace)])": (0.8, 1),
    "w.Box([aw.TokenStrip(trace)])": (0.95, 1),
    "w.HBox([make(width='45%'), make(width='45%')])": (0.85, 0.92),
    "w.VBox([make()])": (0.95, 1),
}
SHARES = """() => [...document.querySelectorAll('.jp-Cell .jp-OutputArea-output')].map(row =>
  [...row.querySelectorAll('.aw-root')].reduce((sum, root) => sum + root.offsetWidth, 0) / row.clientWidth)"""
WIDTHS = "() => [...document.querySelectorAll('.aw-root')].map(root => root.offsetWidth)"


def test_views_share_the_width_of_a_box(lab, screenshot):
    lab.write("rows.ipynb", START, *BOXES)
    page = lab.open("rows.ipynb")
    lab.run_all()
    page.wait_for_function("document.querySelectorAll('.aw-root:has(> *)').length === 8")
    lab.rest()
    screenshot(page, "rows.png")
    shares = dict(zip(BOXES, page.evaluate(SHARES), strict=True))
    outside = {box: share for box, share in shares.items() if not BOXES[box][0] < share <= BOXES[box][1]}
    assert outside == {}


@pytest.mark.parametrize("around", ["flex", "inline-flex", "grid; grid-auto-flow: column"])
def test_views_in_a_row_of_a_page_have_a_width(page_of, around):
    weights = np.random.default_rng(0).dirichlet(np.ones(5), (2, 3, 5)).astype("float32")
    trace = aw.from_attentions(weights, ["the", "cat", "sat", "on", "mats"])
    page = page_of(aw.Heatmap(trace), aw.HeadView(trace))
    # As marimo does: boxes between the row and its views.
    page.evaluate(
        """(around) => {
          const row = document.createElement("div");
          row.style = `display: ${around}`;
          document.querySelector("main").append(row);
          for (const view of document.querySelectorAll(".aw-view[data-model]")) {
            const item = document.createElement("div");
            item.append(view);
            row.append(item);
          }
        }""",
        around,
    )
    settle(page)
    widths = page.evaluate(WIDTHS)
    assert min(widths) > 320
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


@pytest.mark.parametrize("motion", ["reduce", "no-preference"])
def test_play_is_offered_where_motion_is_wanted(page_of, motion):
    weights = np.random.default_rng(0).dirichlet(np.ones(5), (2, 3, 5)).astype("float32")
    trace = aw.from_attentions(weights, ["the", "cat", "sat", "on", "mats"])
    page = page_of(aw.Heatmap(trace, layer=0), reduced_motion=motion)
    assert page.get_by_role("button", name="play through layers").is_visible() == (motion != "reduce")
    assert page.get_by_role("button", name="next layer").is_enabled()
