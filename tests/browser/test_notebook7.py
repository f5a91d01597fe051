"""Notebook 7: unlike JupyterLab it takes keys before a view sees them."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.extended

CELLS = (
    "import attnwidgets as aw, numpy as np\nrows = np.random.default_rng(0).dirichlet(np.ones(6), (4, 3, 6))",
    "explorer = aw.Explorer(aw.from_attentions(rows, list('abcdef')))\nexplorer",
    "'a cell to go to'",
)


def test_a_click_and_the_arrows_belong_to_the_view(notebook7):
    notebook7.write("keys.ipynb", *CELLS)
    page = notebook7.open("keys.ipynb")
    notebook7.run_all()
    plot = page.locator(".aw-heatmap .aw-plot")
    plot.wait_for(timeout=60_000)
    notebook7.until("explorer.selection.layer", 0)
    plot.click(position={"x": 5, "y": 5})
    notebook7.until("list(explorer.selection.pinned or ())", [0, 0])
    active = "window.jupyterapp.shell.currentWidget.content.activeCellIndex"
    before = page.evaluate(active)
    for key in ("ArrowDown", "ArrowDown", "ArrowRight"):
        page.keyboard.press(key)
    notebook7.until("[explorer.selection.layer, explorer.selection.head]", [2, 1])
    assert page.evaluate(active) == before
