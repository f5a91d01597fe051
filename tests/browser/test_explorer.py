"""The Explorer fits on a screen with any text and model, and after every action of a reader."""

from __future__ import annotations

from itertools import pairwise

import pytest

import attnwidgets as aw
from tests.sae import made
from tests.tracing import tiny

from .bad_input import BAD, OUTSIDE
from .conftest import drawn
from .lab import switch
from .settling import settle

TALLEST = 560
MOST_GROUPS = 10
WORD = "the electronic music that nobody understood was unlikeable and long"

GROUPS = """root => {
  const parts = [...root.querySelectorAll(':scope > .aw-toolbar, :scope > .aw-footer')];
  const seen = new Set();
  const CONTROLS = "button, select, input, summary, [role=slider]";
  for (const el of parts.flatMap(p => [...p.querySelectorAll(CONTROLS)])) {
    if (!el.checkVisibility() || el.closest('.aw-menu')) continue;
    seen.add(el.closest('.aw-group, fieldset, .aw-choice') ?? el);
  }
  return seen.size;
}"""


def height(page):
    return page.locator(".aw-explorer").evaluate("e => e.getBoundingClientRect().height")


def text_of(n):
    words = WORD.split()
    return " ".join(words[i % len(words)] for i in range(n - 2))


@pytest.fixture(scope="module")
def classifier():
    return aw.demo_model("classifier")


def write(views, folder, **options):
    """Write a page that several tests open; return its address."""
    return aw.to_html(views, folder / "page.html", **options).as_uri()


@pytest.fixture(scope="module", params=[5, 64, 256])
def address_of_text(minilm, request, tmp_path_factory):
    return write(aw.Explorer(aw.trace(*minilm, text_of(request.param))), tmp_path_factory.mktemp("text"))


@pytest.mark.parametrize("width", [480, 760, 1200])
def test_texts_of_any_length_fit_one_screen(address_of_text, open_page, width):
    page = open_page(address_of_text, viewport={"width": width, "height": 900})
    drawn(page)
    assert height(page) <= TALLEST
    assert page.locator(".aw-explorer").evaluate(GROUPS) <= MOST_GROUPS
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


@pytest.fixture(scope="module")
def address_of_review(classifier, tmp_path_factory):
    trace = aw.trace(*classifier, "a wonderful film with a dull ending.")
    return write(aw.Explorer(trace, layer=2), tmp_path_factory.mktemp("review"))


@pytest.mark.parametrize("width", [760, 1200])
def test_nothing_a_reader_does_changes_the_height(address_of_review, open_page, width):
    page = open_page(address_of_review, viewport={"width": width, "height": 900})
    drawn(page)
    explorer = page.locator(".aw-explorer")
    before = height(page)

    def same(change):
        settle(page)
        assert height(page) == before, change

    plot = explorer.locator(".aw-map .aw-plot").first
    plot.hover(position={"x": 60, "y": 60})
    same("hover")
    plot.click(position={"x": 60, "y": 60})
    same("pin")
    page.keyboard.press("Escape")
    same("unpin")
    switch(page, explorer, "unit", "words")
    same("unit")
    explorer.get_by_role("button", name="next layer").click()
    same("layer")
    explorer.locator(".aw-chip").first.click()
    same("a prediction explained")
    explorer.locator(".aw-chip").first.click()
    same("no longer")
    explorer.locator(".aw-tok").nth(3).click()
    same("a token pinned")
    page.keyboard.press("k")
    same("knock-out")


# Whether all controls of a toolbar stand in a single row.
ONE_ROW = """bar => {
  const boxes = [...bar.children].map(el => el.getBoundingClientRect()).filter(box => box.height > 0);
  const lowest = Math.max(...boxes.map(box => box.top));
  return boxes.every(box => box.bottom > lowest) && bar.scrollWidth <= bar.clientWidth;
}"""


@pytest.fixture(scope="module")
def address_of_decoder(smollm2, tmp_path_factory):
    explorer = aw.Explorer(aw.trace(*smollm2, "The capital of France is"))
    return write(explorer, tmp_path_factory.mktemp("decoder"), budget=2_000_000)


@pytest.mark.parametrize("width", [640, 700, 760, 1200])
def test_the_toolbar_is_one_row_and_leaves_room_for_ranked_heads(address_of_decoder, open_page, width):
    page = open_page(address_of_decoder, viewport={"width": width, "height": 900})
    page.add_style_tag(content="main { padding: 0 !important; max-width: none !important }")
    drawn(page)
    root = page.locator(".aw-explorer")
    toolbar = root.locator(":scope > .aw-toolbar")
    assert toolbar.evaluate(ONE_ROW)
    before = height(page)
    switch(page, root, "unit", "words")
    settle(page)
    assert root.locator(".aw-toolbar .aw-segment", has_text="words").locator("input").is_checked()
    assert height(page) == before
    assert toolbar.evaluate(ONE_ROW)
    heads = root.get_by_role("tab", name="Heads")
    if heads.is_visible():
        heads.click()
        settle(page)
    seen = root.locator(".aw-ranked").evaluate("""list => {
      const room = list.getBoundingClientRect();
      const rows = [...list.querySelectorAll('.aw-pattern')].map(row => row.getBoundingClientRect());
      return rows.filter(row => row.bottom <= room.bottom + 1).length;
    }""")
    assert seen >= 3


@pytest.mark.parametrize("make", ["decoder", "encoder-decoder", "features", "intervention"])
def test_every_kind_of_model_fits_one_screen(make, minilm, page_of, classifier):
    if make == "decoder":
        explorer = aw.Explorer(aw.trace(tiny.build(tiny.TEXT["Llama"]), None, input_ids=list(range(3, 27))))
    elif make == "encoder-decoder":
        explorer = aw.Explorer(
            aw.trace(tiny.build(tiny.SEQ2SEQ["T5"]), tiny.wordpiece(), "the new cat sat.", target_text="cat")
        )
    elif make == "features":
        sae = made.sae(d_in=384, site="blocks.3.hook_resid_post")
        explorer = aw.Explorer(aw.trace(*minilm, "the keys to the cabinet"), features=sae)
    else:
        explorer = aw.Explorer(aw.trace(*classifier, "a dull film."))
        explorer.selection.interventions = ({"kind": "ablate", "stack": "self", "layer": 1, "head": 2},)
    page = page_of(explorer, viewport={"width": 760, "height": 900})
    assert height(page) <= TALLEST
    assert page.locator(".aw-explorer").evaluate(GROUPS) <= MOST_GROUPS


def test_a_prediction_is_explained_by_one_click_and_let_go_by_another(classifier, page_of):
    trace = aw.trace(*classifier, "a wonderful film with a dull ending.")
    explorer = aw.Explorer(trace, methods=["attention", "lrp"])
    explorer.selection.method = f"lrp@{trace.predictions()[0].id}"  # computed, and so in the page
    explorer.selection.method = "attention"
    page = page_of(explorer)
    chips = page.locator(".aw-chip")
    assert chips.count() == 2
    share = [100 * prediction.probability for prediction in trace.predictions()]
    assert f"{share[0]:.1f}\N{NO-BREAK SPACE}%" in chips.first.inner_text()
    chips.first.click()
    page.locator(".aw-answer b", has_text="What speaks for").first.wait_for()
    settle(page)
    assert "explained" in chips.first.inner_text()
    chips.first.click()
    page.locator(".aw-answer b", has_text="Where does").first.wait_for()


def test_the_answer_accounts_for_the_whole_row(minilm, page_of):
    trace = aw.trace(*minilm, "the electronic music that nobody understood")
    explorer = aw.Explorer(trace, layer=1, head=8)
    explorer.selection.pinned = (6, 7)
    page = page_of(explorer)
    rows = page.locator(".aw-answer .aw-meter:visible")
    values = [float(text.replace("< ", "")) for text in rows.locator(".aw-meter-value").all_inner_texts()]
    assert sum(values) == pytest.approx(1, abs=0.06)  # two decimals each
    names = rows.locator(".aw-meter-name").all_inner_texts()
    assert any("[CLS]" in name for name in names)


def test_filling_the_window_and_coming_back(minilm, page_of):
    page = page_of(aw.Explorer(aw.trace(*minilm, "the cat sat")), viewport={"width": 1000, "height": 800})
    before = height(page)
    page.get_by_role("button", name="fill the window").click()
    settle(page)
    assert height(page) == 800
    page.keyboard.press("Escape")
    settle(page)
    assert height(page) == before


FOCUS = """() => {
  const el = document.activeElement;
  const parts = ['aw-toolbar', 'aw-lead', 'aw-tabs', 'aw-heads', 'aw-main', 'aw-side', 'aw-footer'];
  const at = (up) => parts.find((name) => up.classList.contains(name));
  for (let up = el; up && !up.matches('.aw-explorer'); up = up.parentElement)
    if (at(up) && !parts.some((name) => up.parentElement.closest(`.${name}`))) return at(up);
  return 'else';
}"""
WIDE = ["aw-toolbar", "aw-lead", "aw-heads", "aw-main", "aw-tabs", "aw-side"]
NARROW = ["aw-toolbar", "aw-lead", "aw-tabs", "aw-heads", "aw-main"]


@pytest.mark.parametrize(("width", "order"), [(1200, WIDE), (900, NARROW)])
def test_tab_goes_through_an_explorer_as_it_is_read(address_of_review, open_page, width, order):
    page = open_page(address_of_review, viewport={"width": width, "height": 900})
    drawn(page)
    parts, first = [], None
    for _ in range(40):
        page.keyboard.press("Tab")
        if not page.evaluate("Boolean(document.activeElement.closest('.aw-root'))"):
            break
        if parts and page.evaluate("first => document.activeElement === first", first):
            break
        first = first or page.evaluate_handle("document.activeElement")
        parts.append(page.evaluate(FOCUS))
    visited = list(dict.fromkeys(parts))
    assert visited in (order, [*order, "aw-footer"])
    changes = sum(item != two for item, two in pairwise(parts))
    assert changes == len(visited) - 1, parts  # no part is visited twice


@pytest.mark.parametrize("name", BAD)
def test_bad_input_neither_overflows_nor_grows(page_of, name):
    page = page_of(aw.Explorer(BAD[name]()), viewport={"width": 760, "height": 900})
    for width in (1200, 760, 380, 200):
        page.set_viewport_size({"width": width, "height": 900})
        settle(page)
        root = page.locator(".aw-explorer")
        assert height(page) <= TALLEST, width
        assert root.evaluate(OUTSIDE) == [], width
        assert page.evaluate("document.documentElement.scrollWidth") <= width, width


def test_a_hint_goes_after_the_first_click(minilm, page_of):
    trace = aw.trace(*minilm, "the cat sat on the mat")
    page = page_of(aw.Explorer(trace), aw.Explorer(trace, layer=1))
    hints = page.locator(".aw-explorer > .aw-footer > .aw-hint:visible")
    page.mouse.move(0, 0)
    settle(page)
    assert hints.all_inner_texts() == ["Click a token to see what it reads."] * 2
    before = height_of_all(page)
    page.locator(".aw-explorer .aw-tok").nth(2).click()
    page.keyboard.press("Escape")
    page.mouse.move(0, 0)
    page.locator("body").click(position={"x": 2, "y": 2})
    settle(page)
    assert hints.count() == 0
    assert height_of_all(page) == before


def height_of_all(page):
    return page.locator(".aw-explorer").evaluate_all("all => all.map(e => e.getBoundingClientRect().height)")
