"""Pages under a content policy of the site that serves them, and two copies of the code on a page."""

from __future__ import annotations

import re

import numpy as np
import pytest

import attnwidgets as aw

from . import stage
from .checks import BLANK
from .settling import settle

SITE = "http://127.0.0.1:9/page.html"
STYLED = "getComputedStyle(document.querySelector('.aw-framed')).display"


@pytest.fixture(scope="module")
def trace():
    numbers = np.random.default_rng(0).dirichlet(np.ones(5), (2, 3, 5)).astype(np.float32)
    return aw.from_attentions(numbers, list("abcde"))


@pytest.fixture
def served(open_page, trace, tmp_path):
    """Open a page of an Explorer as a site serves it under a policy."""
    path = aw.to_html(aw.Explorer(trace), tmp_path / "page.html")
    html = path.read_text(encoding="utf-8")
    # The page allows only its script: a site may do the same.
    script = re.search(r"'sha256-[^']+'", html)[0]

    def serve(policy):
        page = open_page()
        headers = {"Content-Security-Policy": policy.replace("SCRIPT", script), "Content-Type": "text/html"}
        page.route(SITE, lambda route: route.fulfill(body=html, headers=headers))
        page.goto(SITE)
        return page

    return serve


@pytest.mark.parametrize(
    "policy", ["default-src 'none'", "default-src 'self'", "script-src 'self'; style-src 'unsafe-inline'"]
)
def test_where_the_script_may_not_run_a_sentence_says_what_to_do(served, policy):
    page = served(policy)
    page.locator(".aw-unable").wait_for()  # it has no height at first
    assert "Save the page" in page.locator(".aw-unable").inner_text()
    assert page.locator(".aw-root").count() == 0


def test_where_style_elements_and_images_are_refused_views_are_as_always(served):
    page = served("default-src 'none'; script-src SCRIPT; style-src 'self'; img-src 'self'")
    page.locator(".aw-heatmap canvas").first.wait_for()
    page.wait_for_function(f"() => ({BLANK})().length === 0")
    assert page.evaluate(STYLED) == "flex"
    assert page.locator(".aw-unable").count() == 0
    page.get_by_role("combobox", name="method").or_(page.locator(".aw-tools > button")).first.click()
    settle(page)
    assert page.locator(".aw-menu:popover-open").bounding_box()["width"] > 100


def test_a_frame_in_a_site_that_refuses_scripts_says_so(open_page, trace):
    page = open_page()
    html = f"<!doctype html><main>{aw.Heatmap(trace).frame()._repr_html_()}</main>"
    headers = {"Content-Security-Policy": "script-src 'self'", "Content-Type": "text/html"}
    page.route(SITE, lambda route: route.fulfill(body=html, headers=headers))
    page.goto(SITE)
    said = page.frame_locator("iframe").locator(".aw-unable")
    said.wait_for()
    assert "Content-Security-Policy" in said.inner_text()


def test_two_copies_of_the_code_on_a_page_keep_their_styles_and_menus(open_page, trace):
    """Two kernels behind one JupyterLab: their notebooks have other views, and a kernel is restarted."""
    page = open_page()
    first = stage.play(page, aw.HeadView(trace), "works", cold=False)
    first.locator("canvas").first.wait_for()
    settle(page)
    look = """() => [...document.querySelectorAll(".aw-headview > .aw-body *")].map((el) => {
      const { display, position, gridTemplateColumns, overflow } = getComputedStyle(el);
      return [el.className, display, position, gridTemplateColumns, overflow].join();
    })"""
    alone = page.evaluate(look)
    assert len(alone) > 20
    for _ in range(2):
        stage.play(page, aw.Heatmap(trace), "works", cold=False, beside=True)
        page.locator(".aw-heatmap canvas").first.wait_for()
        settle(page)
        assert page.evaluate("document.adoptedStyleSheets.length") == 4
        assert page.evaluate(look) == alone
        for nth in (0, 1):
            page.locator(".aw-tools > button").nth(nth).click()
            settle(page)
            assert page.locator(".aw-menu:popover-open").count() == 1
        page.keyboard.press("Escape")
        page.evaluate("document.body.lastElementChild.remove()")
