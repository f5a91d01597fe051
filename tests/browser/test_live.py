"""A page that computes: the reader types, knocks heads out and edits rows, and every view follows."""

from __future__ import annotations

import re

import pytest

import attnwidgets as aw

from .settling import settle

NASTY = "<img src=x onerror='window.hacked=1'>"


def live_page(open_page, path, views, **options):
    """A live page in the browser; every request that it makes beyond itself is collected."""
    aw.to_html(views, path, live=True)
    page = open_page(path.as_uri(), **options)
    page.locator(".aw-live-about").get_by_text("Computed in this page").wait_for()
    return page


@pytest.fixture(scope="module")
def traced():
    model, tokenizer = aw.zoo.induction()
    return aw.trace(model, tokenizer, "fadebcfadeb")


@pytest.fixture
def page(open_page, tmp_path, traced):
    views = [aw.Explorer(traced, layer=0, head=0), aw.Predictions(traced), aw.TokenStrip(traced)]
    return live_page(open_page, tmp_path / "live.html", views)


# All tokens of the page, without the space around them.
WRITTEN = "[...document.querySelectorAll('.aw-tok')].map(el => el.innerText.trim()).join('')"


def write(page, text):
    """Type a text and show it."""
    field = page.get_by_label("your own text")
    field.fill(text)
    field.press("Enter")


def chips(page):
    return page.locator(".aw-explorer .aw-chips").first


def test_a_typed_text_is_shown_in_all_views(page, traced):
    write(page, "abcdabcdab")
    page.get_by_label("back to “fadebcfadeb”").wait_for()
    expected = aw.trace(traced.model, traced.tokenizer, "abcdabcdab").predictions(1)[0]
    assert expected.label == "c"
    for part in (".aw-live-said", ".aw-explorer .aw-chips", ".aw-view > .aw-predicts"):
        result = page.locator(part).get_by_text(re.compile(r"^c\b"))
        result.filter(visible=True).first.wait_for()
    page.wait_for_function(
        f"() => {WRITTEN}.split('abcdabcdab').length === 3"
    )  # in the Explorer and in the strip
    page.get_by_label("back to “fadebcfadeb”").click()
    page.locator(".aw-tok", has_text="f").first.wait_for()


def test_while_typing_the_page_says_what_comes_next_or_what_is_wrong(page):
    field, said = page.get_by_label("your own text"), page.locator(".aw-live-said")
    field.fill("abcab")
    said.get_by_text(re.compile("c.*> 99.9", re.DOTALL)).first.wait_for()
    field.fill("abc!")
    said.get_by_text("does not know “!”").wait_for()
    assert page.get_by_role("button", name="Show", exact=True).is_disabled()
    field.fill("a" * 40)
    said.get_by_text("has 40 characters, and this model reads at most 32").wait_for()
    field.fill(NASTY)
    said.get_by_text("does not know “<”").wait_for()
    assert page.evaluate("window.hacked") is None
    assert page.locator("main img, main script").count() == 0


def knock(page, head):
    """Choose a head of layer 0 in the grid, and knock it out."""
    page.locator(".aw-explorer input[aria-label=layer]").first.evaluate(
        "el => { el.value = 0; el.dispatchEvent(new Event('input', {bubbles: true})); }"
    )
    plot = page.locator(".aw-explorer .aw-grid-plot").first
    plot.focus()
    page.keyboard.press("ArrowUp")
    page.keyboard.press("ArrowRight" if head else "ArrowLeft")
    page.keyboard.press("k")


def shares_of(page):
    text = page.locator(".aw-explorer .aw-chips[data-compared]").first.inner_text()
    return [float(item) for item in re.findall(r"([\d.]+)\s*%", text)]


def test_without_the_decoy_nothing_changes_and_without_the_first_head_all_are_equal(page):
    write(page, "abcdabcdab")
    page.get_by_label("back to “fadebcfadeb”").wait_for()
    knock(page, 1)
    compared = page.locator(".aw-explorer .aw-chips[data-compared]")
    compared.wait_for()
    page.locator(".aw-explorer .aw-active", has_text=re.compile(r"^\s*head 0\.1")).wait_for()
    settle(page)
    assert max(shares_of(page)) > 99
    page.keyboard.press("k")  # and back
    knock(page, 0)
    page.locator(".aw-explorer .aw-active", has_text="0.0").wait_for()
    compared.get_by_text(re.compile("5.9")).first.wait_for()
    # The map follows the change, too.
    page.get_by_role("button", name="follow the change").click()
    page.get_by_text("after the change").wait_for()


def test_a_row_is_edited_as_by_rerun(open_page, tmp_path, traced):
    view = aw.InterventionView(traced, layer=1, head=0)
    page = live_page(open_page, tmp_path / "live.html", [view])
    text = "abcdabcdab"
    write(page, text)
    page.wait_for_function("() => document.querySelector('.aw-row-editor b').innerText.includes('b')")
    page.get_by_role("radio", name="uniform").or_(page.get_by_text("uniform", exact=True)).first.click()
    page.locator(".aw-change-words", has_text="Total variation").wait_for()
    trace = aw.trace(traced.model, traced.tokenizer, text)
    edit = aw.edit_attention(trace, (1, 0), "uniform", query=len(text))
    share = trace.rerun(edit).predictions(1)[0].probability
    assert f"{100 * share:.1f}" in page.locator(".aw-change").inner_text()


def test_the_page_asks_nobody_and_writes_no_errors(open_page, tmp_path, traced):
    asked = []
    page = live_page(open_page, tmp_path / "live.html", [aw.Explorer(traced)])
    page.on("request", lambda request: asked.append(request.url))
    write(page, "abcab")
    page.get_by_label("back to “fadebcfadeb”").wait_for()
    assert [url for url in asked if not url.startswith(("file:", "blob:", "data:"))] == []
    policy = page.locator("meta[http-equiv=Content-Security-Policy]").get_attribute("content")
    assert policy.startswith("default-src 'none'; script-src 'sha256-")


def test_a_generating_model_continues_and_stops(open_page, tmp_path):
    model, tokenizer = aw.zoo.trained("alice")
    trace = aw.trace(model, tokenizer, "Alice was")
    page = live_page(open_page, tmp_path / "live.html", [aw.TokenStrip(trace)])
    page.get_by_role("button", name="Continue").click()
    field = page.get_by_label("your own text")
    page.get_by_role("button", name="Stop").wait_for()
    # Pressed in the page itself, while it writes.
    page.wait_for_function(
        """() => {
          const isWriting = document.querySelector('.aw-live-text').value.length > 13;
          const stop = [...document.querySelectorAll('button')].find((el) => el.innerText === 'Stop');
          if (isWriting) stop?.click();
          return isWriting;
        }"""
    )
    page.get_by_role("button", name="Continue").wait_for()
    settle(page)
    written = field.input_value()
    assert written.startswith("Alice was")
    assert len(written) < len("Alice was") + 48
    # The views show it after the pause in which the next tokens would be written.
    page.wait_for_function(
        f"text => {WRITTEN}.replace(/\\W/g, '').toLowerCase().includes(text)",
        arg=re.sub(r"\W", "", written).lower(),
    )
    settle(page)
    assert field.input_value() == written


@pytest.mark.parametrize("width", [480, 760, 1200])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits_the_window(open_page, tmp_path, screenshot, width, scheme):
    model, tokenizer = aw.zoo.trained("alice")
    trace = aw.trace(model, tokenizer, "Alice was beginning to get very tired.")
    path, views = tmp_path / "live.html", [aw.Explorer(trace), aw.Predictions(trace)]
    page = live_page(open_page, path, views, viewport={"width": width, "height": 900}, color_scheme=scheme)
    settle(page)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    screenshot(page, f"live-{width}-{scheme}.png", full_page=True)


def test_an_answer_about_a_typed_text_says_which_text_it_is_about(open_page, tmp_path, traced, monkeypatch):
    monkeypatch.chdir(tmp_path)
    question = aw.ask.head(
        "Which head?", view=aw.Explorer(traced, layer=0, head=0, methods=["attention"]), id="typed"
    )
    page = live_page(open_page, tmp_path / "live.html", [question])
    write(page, "abcdabcdab")
    # The recorded text ends in a b as well: only its letters tell whether the typed text is drawn.
    page.wait_for_function(f"() => {WRITTEN}.includes('abcdabcdab')")
    # The line under the text and its colours are about the same row: that of the last letter.
    page.get_by_text(re.compile("what .*b.*reads")).first.wait_for()
    page.locator(".aw-tok.aw-query", has_text="b").wait_for()
    settle(page)
    plot = page.locator(".aw-grid-plot")
    box = plot.bounding_box()
    plot.click(position={"x": box["width"] / 3, "y": box["height"] * 3 / 4})
    page.get_by_role("button", name="Submit").click()
    receipt = page.locator(".aw-question-receipt").get_attribute("title")
    typed = aw.ask.head("Again?", view=aw.trace(traced.model, traced.tokenizer, "abcdabcdab"), id="again")
    record = aw.course.decode(receipt)
    assert record["subject"] == typed.record["subject"] != question.record["subject"]
    assert record["value"] == [1, 0]
