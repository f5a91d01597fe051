"""Claims on a stage and on pages: opening a text takes time and can be stopped; views write claims."""

from __future__ import annotations

import pytest

import attnwidgets as aw

from .checks import CLIPPED, OVERLAPS
from .stage import play

TEXTS = ["fadebcfadeb", "cgaehdcgaeh", "hbdfaghbdfa"]
SAID = ["head 1.1 attends from last to early", "head 1.0 is induction"]


@pytest.fixture(scope="module")
def model():
    return aw.zoo.induction(letters="abcdefgh", length=16)


@pytest.fixture(scope="module")
def report(model):
    return aw.circuits.check_claims(*model, SAID, TEXTS, roles={"early": "^."})


def staged(page, view, kernel):
    view._send_along()
    play(page, view, kernel, cold=False)


def readout(page):
    return page.locator(".aw-claims .aw-readout").text_content()


def test_opening_shows_its_progress_and_is_cancelled(report, open_page):
    view, page = report.view(), open_page()
    staged(page, view, "works")
    page.locator(".aw-claim-chip").nth(1).click()
    page.locator(".aw-claim-row button").nth(2).click()
    work = page.locator(".aw-footer .aw-work")
    work.get_by_text("3 of 6").wait_for()
    asked = page.evaluate("() => sent.find(({topic}) => topic === 'open')")
    assert asked["args"] == {"claim": 1, "at": 2}
    work.get_by_role("button", name="Cancel").click()
    assert page.evaluate("() => sent.find(({kind}) => kind === 'cancel').job") == asked["id"]


def test_what_cannot_be_opened_says_why(report, open_page):
    page = open_page()
    staged(page, report.view(), "refuses")
    page.locator(".aw-claim-row button").first.click()
    page.wait_for_function("() => /Not opened: no memory is left/.test(document.body.textContent)")
    assert page.locator(".aw-footer .aw-work").is_hidden()


def test_a_report_that_was_read_copies_code_and_says_what_is_missing(report, open_page, tmp_path):
    page = open_page()
    loaded = aw.load(report.save(tmp_path / "claims.safetensors"))
    staged(page, loaded.view(), "works")
    button = page.locator(".aw-claim-row button").first
    assert button.get_attribute("title").startswith("Copy the Python")
    button.click()
    page.wait_for_function("() => /aw\\.Heatmap/.test(document.querySelector('.aw-readout').textContent)")
    assert "which holds no model; linked=aw.Explorer(trace) opens texts" in readout(page)


def test_a_page_copies_code_and_holds_what_was_opened(report, page_of):
    view = report.view()
    view.open_text(1)
    page = page_of(view)
    page.locator(".aw-heatmap .aw-readout").wait_for()
    assert (
        page.locator(".aw-claim-row[aria-current]").inner_text()
        == page.locator(".aw-claim-row").nth(1).inner_text()
    )
    assert "pinned" in page.locator(".aw-heatmap .aw-readout").text_content()
    page.locator(".aw-claim-row button").first.click()
    page.wait_for_function(
        "() => /no kernel runs here/.test(document.querySelector('.aw-readout').textContent)"
    )
    assert "aw.Heatmap(aw.trace(model, tokenizer, " in readout(page)
    assert page.get_by_role("button", name="Claim", exact=True).count() == 0


@pytest.mark.parametrize("width", [480, 760, 1200])
@pytest.mark.parametrize("made", [aw.Heatmap, aw.HeadView, aw.HeadGrid, aw.Explorer])
def test_views_of_heads_offer_to_write_a_claim(made, width, model, open_page):
    view = made(aw.trace(*model, TEXTS[0])).at(layer=1, head=0, pins=[(11, 6)])
    page = open_page(viewport={"width": width, "height": 900})
    staged(page, view, "works")
    button = page.get_by_role("button", name="Claim", exact=True)
    button.wait_for()
    assert page.evaluate(OVERLAPS) == []
    assert "Claim" not in str(page.evaluate(CLIPPED))
    button.click()
    page.wait_for_function(
        "() => sent.some(({topic, args}) => topic === 'expression' && args.of === 'claim')"
    )
    args = page.evaluate("() => sent.find(({args}) => args?.of === 'claim').args")
    assert (args["layer"], args["head"], args["cells"]) == (1, 0, [[11, 6]])


def test_no_claim_is_about_a_mean_of_heads(model, open_page):
    page = open_page()
    view = aw.Heatmap(aw.trace(*model, TEXTS[0])).at(layer=1, head="mean")
    staged(page, view, "works")
    button = page.get_by_role("button", name="Claim", exact=True)
    button.wait_for()
    assert button.is_disabled()
