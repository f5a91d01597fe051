"""The corner of every view: pictures of the view, values, and the list of keys."""

from __future__ import annotations

import csv
import re
import struct

import numpy as np
import pytest

import attnwidgets as aw


@pytest.fixture
def page(open_page, tmp_path):
    weights = np.random.default_rng(0).dirichlet(np.ones(6), (2, 3, 6))
    trace = aw.from_attentions(weights, ["<b>", "cat", "sat", "שלום", "=x()", "."])
    page = open_page(aw.to_html(aw.Heatmap(trace), tmp_path / "page.html").as_uri())
    page.locator(".aw-tools > button").wait_for()
    return page


def saved(page, item, path):
    page.locator(".aw-tools > button").click()
    with page.expect_download() as download:
        page.get_by_role("button", name=item).click()
    download.value.save_as(path)
    return download.value.suggested_filename


def test_a_picture_is_of_what_is_shown(page, tmp_path):
    assert saved(page, "Picture (PNG)", tmp_path / "view.png") == "attention.png"
    data = (tmp_path / "view.png").read_bytes()
    assert data.startswith(b"\x89PNG")
    width = struct.unpack(">I", data[16:20])[0]
    assert width >= 2 * page.locator(".aw-root").bounding_box()["width"]
    assert saved(page, "Picture (SVG)", tmp_path / "view.svg") == "attention.svg"
    svg = (tmp_path / "view.svg").read_text(encoding="utf-8")
    assert "data:image/png" in svg
    assert "&lt;b&gt;" in svg
    for control in ("Picture (PNG)", "<select", "<input", 'type="range"'):
        assert control not in svg  # controls are no part of the picture


def test_without_a_kernel_values_are_what_the_picture_supports(page, tmp_path):
    assert saved(page, "Values (CSV)", tmp_path / "values.csv") == "attention-approximate.csv"
    head, *lines = csv.reader((tmp_path / "values.csv").open(encoding="utf-8"))
    assert head == ["", "<b>", "cat", "sat", "שלום", "'=x()", "."]
    sums = np.float64([line[1:] for line in lines]).sum(axis=1)
    np.testing.assert_allclose(sums, 1, atol=0.03)


def test_a_question_mark_lists_the_keys_and_escape_goes_back(page):
    page.locator(".aw-heatmap .aw-plot").focus()
    page.keyboard.press("?")
    keys = page.locator(".aw-tools-keys")
    assert "move the pinned cell" in keys.inner_text()
    page.wait_for_function("document.activeElement.textContent === 'Keys'")
    page.keyboard.press("Escape")
    assert not keys.is_visible()
    assert page.evaluate("document.activeElement.classList.contains('aw-plot')")


def inside(page, panel):
    """Whether a panel lies in the visible part of a page."""
    box, seen = panel.bounding_box(), page.viewport_size
    return (
        box["x"] >= 0
        and box["y"] >= 0
        and box["x"] + box["width"] <= seen["width"]
        and box["y"] + box["height"] <= seen["height"]
    )


LAYOUTS = {
    "as it is": "body { margin-top: 4px }",
    "at the end": "body { padding-top: 480px }",
    "cut off": "body > * { overflow: hidden; height: 90px; contain: content; transform: translateX(0) }",
}


@pytest.mark.parametrize("width", [200, 480, 760])
def test_menus_stay_inside_the_page_wherever_the_view_is(open_page, tmp_path, width, screenshot):
    weights = np.random.default_rng(0).dirichlet(np.ones(6), (2, 3, 6))
    trace = aw.from_attentions(weights, ["The", "cat", "sat", "on", "it", "."])
    address = aw.to_html(aw.Explorer(trace), tmp_path / "page.html").as_uri()
    page = open_page(viewport={"width": width, "height": 640})
    for layout, style in LAYOUTS.items():
        page.goto(address)
        page.locator(".aw-tools > button").wait_for()
        page.add_style_tag(content=style)
        wide = page.evaluate("document.documentElement.scrollWidth")
        for name, button in (("method", page.get_by_role("combobox", name="method")), ("tools", None)):
            (button or page.locator(".aw-tools > button")).click()
            panel = page.locator(".aw-menu:popover-open")
            panel.wait_for()
            assert inside(page, panel), (layout, name, panel.bounding_box())
            box, view = panel.bounding_box(), page.locator(".aw-root").bounding_box()
            if box["width"] <= view["width"] and view["x"] >= 0:
                assert box["x"] + box["width"] <= view["x"] + view["width"] + 1, (layout, name)
            assert panel.bounding_box()["height"] <= 0.7 * 640 + 1
            screenshot(page, f"place-{layout.replace(' ', '-')}-{name}-{width}.png")
            assert page.evaluate("document.documentElement.scrollWidth") == wide
            page.keyboard.press("Escape")
            panel.wait_for(state="hidden")


HOSTILE = """dt, dd, button, label, select, input, summary, output, span {
  float: left; display: flex !important; font-size: 40px !important; padding: 30px !important;
  margin: 20px !important; width: 300px !important; text-transform: uppercase !important }"""


@pytest.mark.parametrize("style", [HOSTILE, HOSTILE.replace(", span", "").replace(" !important", "")])
def test_what_a_page_says_of_its_own_buttons_does_not_break_a_menu(page, style, screenshot):
    def lines():
        page.locator(".aw-plot").focus()
        page.keyboard.press("?")
        result = [el.bounding_box() for el in page.locator(".aw-tools-menu :is(button, select, label)").all()]
        key = page.locator(".aw-tools-key").first.bounding_box()
        screenshot(page, "tools-hostile.png")
        page.keyboard.press("Escape")
        return [(round(box["width"]), round(box["height"])) for box in result if box], round(key["height"])

    before = lines()
    page.add_style_tag(content=style.replace(", span", ""))
    assert lines() == before


def test_the_menu_closes_where_it_should_and_leaves_the_view_alone(page):
    tools, menu = page.locator(".aw-tools > button"), page.locator(".aw-tools-menu")
    tools.click()
    assert tools.get_attribute("aria-expanded") == "true"
    page.keyboard.press("k")  # keys of the menu are no keys of the view
    page.mouse.click(5, 5)
    assert not menu.is_visible()
    assert tools.get_attribute("aria-expanded") == "false"
    tools.click()
    page.keyboard.press("Escape")
    assert not menu.is_visible()
    assert page.evaluate("document.activeElement === document.querySelector('.aw-tools > button')")


def test_a_tip_tells_what_a_sign_means_by_keyboard_as_well(page):
    tip = page.locator(".aw-tip:popover-open")
    page.locator(".aw-plot").focus()
    for _ in range(20):
        if page.evaluate("document.activeElement.matches('.aw-tools > button')"):
            break
        page.keyboard.press("Tab")
    tip.wait_for()
    assert "filters" in tip.inner_text()
    assert inside(page, tip)
    page.keyboard.press("Tab")
    assert tip.count() == 0


def test_a_right_click_that_a_view_uses_opens_no_menu_of_the_page(open_page, tmp_path):
    weights = np.random.default_rng(0).dirichlet(np.ones(6), (2, 3, 6))
    grid = aw.HeadGrid(aw.from_attentions(weights, list("abcdef")))
    page = open_page(aw.to_html(grid, tmp_path / "page.html").as_uri())
    page.evaluate("""() => {
      window.opened = 0;
      document.addEventListener('contextmenu', event => { window.opened += 1; event.preventDefault(); });
    }""")
    page.locator(".aw-grid-plot").click(button="right")
    assert page.evaluate("window.opened") == 0
    page.locator(".aw-title").first.click(button="right")
    assert page.evaluate("window.opened") == 1


def test_a_method_is_found_by_heading_letters_and_arrows(open_page, tmp_path, minilm):
    trace = aw.trace(*minilm, "The keys to the cabinet are here.")
    page = open_page(aw.to_html(aw.Explorer(trace), tmp_path / "page.html").as_uri())
    button = page.get_by_role("combobox", name="method")
    button.focus()
    page.keyboard.press("ArrowDown")
    menu = page.get_by_role("listbox", name="method")
    groups = menu.get_by_role("group")
    assert groups.first.get_attribute("aria-label") == "Attention"
    active = menu.locator("[data-active]")
    assert active.get_attribute("aria-label") == "attention"
    assert active.locator(".aw-badge").inner_text() == "instant"
    page.keyboard.type("va")
    assert active.get_attribute("aria-label") == "value zeroing"
    page.keyboard.press("Home")
    assert active.get_attribute("aria-label") == "attention"
    page.keyboard.type("k")  # a letter does not reach the view, where it would knock out a head
    assert page.locator(".aw-active").count() == 0
    page.keyboard.press("End")
    assert active.get_attribute("aria-disabled") == "true"
    page.keyboard.press("Enter")
    assert menu.is_visible()
    page.keyboard.press("Escape")
    assert not menu.is_visible()
    assert button.evaluate("el => el === document.activeElement")


def test_a_view_says_in_words_what_it_shows_as_python_does(minilm, open_page, tmp_path):
    trace = aw.trace(*minilm, "The keys to the cabinet are here.")
    rng = np.random.default_rng(1)
    made = aw.results.Attributions(
        rng.normal(size=(2, 10)),
        axis=aw.attention(trace).key,
        target=["positive", "negative"],
        method="made",
        trace_id=trace.id,
    )
    views = [
        aw.Heatmap(trace, layer=2, head=4),
        aw.Heatmap(trace, layer=2, head=4, hide_special="renormalise"),
        aw.HeadGrid(trace, layer=2, head=4),
        aw.TokenStrip(made),
    ]
    page = open_page(aw.to_html(views, tmp_path / "page.html").as_uri())
    page.wait_for_function(
        "() => [...document.querySelectorAll('.aw-tools > .aw-sr')].every((el) => el.textContent)"
    )
    said = page.locator(".aw-tools > .aw-sr").all_text_contents()
    for view, text in zip(views, said, strict=True):
        numbers = r"\d+(?=%)"
        assert re.sub(numbers, "n", text) == re.sub(numbers, "n", view.describe())
        result, expected = (list(map(int, re.findall(numbers, item))) for item in (text, view.describe()))
        np.testing.assert_allclose(result, expected, atol=1)  # a byte a value
    plot = page.locator(".aw-heatmap [role=application]").first
    described = plot.get_attribute("aria-describedby")
    assert page.locator(f"#{described}").text_content() == said[0]
    plot.focus()
    page.keyboard.press("ArrowDown")
    page.wait_for_function(
        "id => document.getElementById(id).textContent.startsWith('Attention in layer 3')", arg=described
    )
