"""RunView on a page: the slider, the curves, the keys, the claims, and the maps that a page does not hold."""

from __future__ import annotations

import attnwidgets as aw
from tests.training import made

from .checks import BLANK, CLIPPED, OVERLAPS
from .settling import settle


def shown():
    """A run of twelve models between an untrained and the shipped model."""
    start, end = made.model(), aw.zoo.trained("induction")[0]
    run = aw.checkpoints({10 * at: made.between(start, end, at / 11) for at in range(12)}, made.tokenizer())
    texts = ["abcdefghabcdefgh", "hgfedcbahgfedcba"] * 4
    return run, run.view(claims=run.claims("head 1.1 is induction", texts))


def test_the_slider_the_curves_and_the_claims_move_the_step(page_of):  # noqa: PLR0915 - one page serves all
    run, view = shown()
    page = page_of(view, viewport={"width": 1248, "height": 900})
    page.locator(".aw-run .aw-cells").wait_for()
    root = page.locator(".aw-run")
    tall = root.bounding_box()["height"]
    assert tall <= 560
    step = root.locator("output").first
    assert step.inner_text() == f"step {view.step} / 110"
    readout = root.locator(".aw-footer > .aw-readout")
    behaviour = run.curve("behaviour").values
    # Steppers, keys, a click in the curves and a square of a claim go to steps that there are.
    slider = page.get_by_role("slider", name="step")
    slider.press("End")
    assert step.inner_text() == "step 110 / 110"
    page.mouse.move(5, 5)
    assert f"step 110: behaviour {behaviour[-1]:.2f}" in readout.inner_text()
    root.locator("button[aria-label='previous step']").click()
    assert step.inner_text() == "step 100 / 110"
    plot = root.locator(".aw-profile-plot")
    plot.press("Home")
    assert step.inner_text() == "step 0 / 110"
    plot.press("ArrowRight")
    plot.press("ArrowUp")
    assert root.locator("output").all_inner_texts() == ["step 10 / 110", "layer 1 / 1", "head 0 / 1"]
    plot.press("Shift+ArrowUp")
    plot.press("ArrowDown")
    assert root.locator("output").all_inner_texts() == ["step 10 / 110", "layer 0 / 1", "head 1 / 1"]
    box = plot.locator("svg").bounding_box()
    plot.click(position={"x": 54, "y": box["height"] / 2})
    assert step.inner_text() == "step 0 / 110"
    squares = root.locator(".aw-run-square")
    assert squares.count() == 12
    last = squares.nth(11)
    assert last.get_attribute("data-verdict") == "holds"
    last.click()
    assert step.inner_text() == "step 110 / 110"
    # Focus stays with the square of the step, and arrows go on from there.
    page.keyboard.press("ArrowLeft")
    assert step.inner_text() == "step 100 / 110"
    assert page.evaluate("document.activeElement.dataset.step") == "10"
    # A page says which maps it lacks; the curves are there for all steps.
    notes = root.locator(".aw-run-notes")
    assert "This page holds all curves, and maps of 10 of 12 steps." in notes.inner_text()
    in_page = [args["step"] for topic, args, _ in view.requests.for_page() if topic == "map"]
    lacking = next(at for at in range(12) if at not in in_page)
    squares.nth(lacking).click()
    assert root.locator(".aw-run-lack").inner_text().startswith("This page holds the maps of steps 0, ")
    squares.nth(11).click()
    assert root.locator(".aw-run-lack").is_hidden()
    assert root.bounding_box()["height"] == tall
    # Nothing is cut or covered at any width, in both themes.
    for width, scheme in ((1200, "light"), (760, "dark"), (480, "light")):
        page.emulate_media(color_scheme=scheme)
        page.set_viewport_size({"width": width + 48, "height": 900})
        settle(page)
        for check in (OVERLAPS, BLANK, CLIPPED):
            assert page.evaluate(check) == [], (width, scheme)
        assert root.evaluate("(el) => el.scrollWidth <= el.clientWidth + 1")
        assert root.bounding_box()["height"] <= 560
