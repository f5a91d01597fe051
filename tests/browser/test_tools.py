"""The corner of every view: pictures of what is shown, values, and the list of keys."""

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
    assert page.evaluate("document.activeElement.textContent") == "Picture (PNG)"
    page.keyboard.press("Escape")
    assert not keys.is_visible()


def test_a_view_says_in_words_what_it_shows_as_python_does(minilm, open_page, tmp_path):
    trace = aw.trace(*minilm, "The keys to the cabinet are here.")
    rng = np.random.default_rng(1)
    made = aw.Attributions(
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
        found, expected = (list(map(int, re.findall(numbers, one))) for one in (text, view.describe()))
        np.testing.assert_allclose(found, expected, atol=1)  # a byte a value
    plot = page.locator(".aw-heatmap [role=application]").first
    described = plot.get_attribute("aria-describedby")
    assert page.locator(f"#{described}").text_content() == said[0]
    plot.focus()
    page.keyboard.press("ArrowDown")
    page.wait_for_function(
        "id => document.getElementById(id).textContent.startsWith('Attention in layer 3')", arg=described
    )
