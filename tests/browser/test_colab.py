"""A stand-in for Colab, made of the npm packages that Colab uses: every output is a page.

`AW_COLAB_PYTHON` names the Python of another kernel, such as one with Colab's versions of its packages.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.ports import free_port
from tests.views.every import every_view
from tests.warm_kernels import connection

from .conftest import await_server
from .lab import choose, number, shares
from .settling import settle

HERE = Path(__file__).parent / "colab"
PYTHON = os.environ.get("AW_COLAB_PYTHON") or sys.executable
SETUP = f"""import google.colab.output, json, sys, time, types
sys.modules["tests"] = types.ModuleType("tests")  # another package may be called so
sys.modules["tests"].__path__ = [{str(Path(__file__).parents[1])!r}]
import numpy as np, ipywidgets, attnwidgets as aw
from IPython.display import display
from tests.sae import made
from tests.views.every import make
import attnwidgets._progress
attnwidgets._progress._DELAY_SECONDS = float("inf")  # TQDM_DISABLE does not reach bars in a notebook
encoder = aw.demo_model("encoder")  # not in a cell, where a bar would show its progress
model, tokenizer = aw.demo_model("classifier")
trace = aw.trace(model, tokenizer, "A wonderful film with a dull ending.")
numbers = np.random.default_rng(0).dirichlet(np.ones(6), (2, 3, 6)).astype("float32")
given = lambda: aw.from_attentions(numbers, [f"t{{i}}" for i in range(6)])
def shown(name):
    if name != "SteerView":
        return make(name, given)
    sae = made.sae(d_in=384, site="blocks.3.hook_resid_post")
    return aw.SteerView(aw.trace(*encoder, "the cat sat"), sae, maximum=3)"""
HOSTILE = [
    "</script><script>top.hacked=hacked=1</script>",
    "<img src=x onerror='hacked=2'>",
    "a\0b",
    "\u202egnp",
]


# Resolves when this output has heard all that its page has sent it up to the mark.
MARK = """() => {
  window.marked = new Promise((done) => {
    addEventListener("message", ({data}) => data.op === "mark" && setTimeout(done));
  });
}"""

TEN_FRAMES = """() => new Promise((done) => {
  let left = 10;
  const next = () => left-- > 0 ? requestAnimationFrame(next) : done();
  next();
})"""


class Colab:
    """The open notebook, as its tests speak of it."""

    def __init__(self, page):
        self.page = page
        self.errors = []
        page.on("console", lambda said: self.errors.append(said.text) if said.type == "error" else None)

    def do(self, code, cell=-1):
        """Run code, in a cell or outside of cells; return its output."""
        status, out = self.page.evaluate("([code, cell]) => run(code, cell)", [code, cell])
        if status == "unanswered":
            self.page.evaluate("interrupt()")  # the tests after this are answered again
        assert status == "ok", out
        return out

    def ask(self, expression):
        return json.loads(self.do(f"print(json.dumps({expression}))"))

    def until(self, expression, wanted):
        end = time.monotonic() + 30
        while (value := self.ask(expression)) != wanted and time.monotonic() < end:
            self.page.wait_for_timeout(20)  # between two looks at the condition
        assert value == wanted

    def rest(self):
        """Wait until every message of the outputs is answered, and every output has heard it and is drawn."""
        outputs = [frame for frame in self.page.frames if frame.url.endswith("/output")]
        for _ in range(2):  # a message may be answered once
            self.ask("1")
            self.page.wait_for_function("sent.size === 0")
            for output in outputs:
                output.evaluate(MARK)
            self.page.evaluate("frames.forEach((frame) => frame.post({op: 'mark'}))")
            for output in outputs:
                output.evaluate("marked")
        settle(self.page)

    def show(self, code, cell=None):
        """Run a cell with output, a new one or one again; return its frame."""
        sections = self.page.locator("section")
        section = sections.nth(sections.count() if cell is None else cell)
        self.do(code, sections.count() if cell is None else cell)
        section.scroll_into_view_if_needed()
        return section.locator("iframe").first.content_frame

    def cell_of(self, frame):
        """The number of the cell with this frame."""
        inside = "frame => [...document.querySelectorAll('section')].indexOf(frame.parentElement)"
        return frame.owner.evaluate(inside)


def settled(frame):
    """Wait until nothing is on its way, and put the output at the top; return the view."""
    frame.locator(".aw-root > *").first.wait_for(timeout=60_000)
    expect(frame.locator(".aw-root [data-awaited]")).to_have_count(0, timeout=60_000)
    # A menu that opens below the window's edge is in another frame, where nothing scrolls to it.
    frame.owner.evaluate("frame => frame.scrollIntoView()")
    return frame.locator(".aw-root").first


@pytest.fixture(scope="module")
def scripts(root, tmp_path_factory):
    """The manager, bundled, and the front end of the kernel's anywidget."""
    tool = root / "js" / "node_modules" / ".bin" / "esbuild"
    if not tool.exists() or not (HERE / "node_modules").exists():
        pytest.skip("the stand-in for Colab needs its npm packages (make browser installs them)")
    folder = tmp_path_factory.mktemp("colab")
    options = [
        "--bundle",
        "--format=esm",
        "--loader:.css=text",
        "--external:/anywidget.js",
        "--log-level=error",
    ]
    subprocess.run([tool, HERE / "manager.js", *options, f"--outfile={folder / 'manager.js'}"], check=True)
    find = "import anywidget; print(anywidget.__path__[0])"
    result = subprocess.run([PYTHON, "-c", find], check=True, capture_output=True, text=True).stdout.strip()
    (folder / "anywidget.js").write_bytes((Path(result) / "nbextension" / "index.js").read_bytes())
    return folder


@pytest.fixture(scope="module")
def colab(scripts, kernel_environment, open_page_for_all):
    port = free_port()
    paths = os.pathsep.join([str(HERE), kernel_environment["PYTHONPATH"]])
    log = scripts / "server.log"
    with log.open("wb") as out:
        server = subprocess.Popen(
            [sys.executable, HERE / "server.py", str(port), json.dumps(connection()), PYTHON, scripts],
            # Bars of ipywidgets 8 need a class that Colab's controls lack: no bar is drawn.
            env={**kernel_environment, "PYTHONPATH": paths, "TQDM_DISABLE": "1"},
            stdout=out,
            stderr=out,
        )
    address = f"http://127.0.0.1:{port}"
    await_server(server, log, 180, lambda: urllib.request.urlopen(address, timeout=20))
    page = open_page_for_all(address)
    page.evaluate("ready")
    made = Colab(page)
    made.do(SETUP)
    yield made
    server.terminate()
    server.wait(60)
    assert [said for said in made.errors if said.startswith("attnwidgets:")] == []


@pytest.mark.parametrize("name", every_view())
def test_every_view_is_drawn_with_its_numbers(colab, screenshot, name):
    frame = colab.show(f"view = shown({name!r})\nview")
    view = settled(frame)
    assert frame.get_by_role("alert").count() == 0, view.inner_text()
    assert frame.get_by_text("did not arrive").count() == 0
    assert view.bounding_box()["height"] > 20
    screenshot(colab.page.locator("section").last, f"colab-{name}.png")
    colab.do("", colab.page.locator("section").count() - 1)  # its output goes


@pytest.fixture(scope="module")
def linked(colab):
    """An Explorer and, in the next cell, a Heatmap of the same trace."""
    explorer = colab.show("explorer = aw.Explorer(trace, layer=0, head=0)\nexplorer")
    settled(explorer)
    heatmap = colab.show("heatmap = aw.Heatmap(aw.attention(trace))\nheatmap")
    settled(heatmap)
    return explorer, heatmap


def readout(frame):
    return frame.locator(".aw-footer > .aw-readout").first


def test_a_pin_is_seen_in_python_and_in_the_other_cell(colab, linked):
    explorer, heatmap = linked
    heatmap.locator(".aw-plot").first.click()
    colab.until("len(explorer.selection.pins)", 1)
    query, key = colab.ask("list(explorer.selection.pinned)")
    exact = colab.ask(f"float(aw.attention(trace).matrix(0, 0)[{query}, {key}])")
    readout(heatmap).get_by_text(re.compile(r"= ?\d")).wait_for()  # the exact number has come
    assert number(readout(heatmap).inner_text()) == pytest.approx(exact, abs=6e-4)
    colab.page.mouse.move(2, 2)
    explorer.locator(".aw-readout").get_by_text(
        readout(heatmap).inner_text().split(" · ")[0]
    ).first.wait_for()
    colab.page.wait_for_function("sent.size === 0")  # every message is answered, and none goes round


def test_a_slider_moves_the_other_cell_and_never_jumps_back(colab, linked):
    explorer, heatmap = linked
    slider = explorer.locator("input[aria-label=layer]")
    slider.evaluate(
        """(slider) => {
          window.seen = [];
          const {get, set} = Object.getOwnPropertyDescriptor(HTMLInputElement.prototype, 'value');
          const note = function (value) { seen.push(Number(value)); set.call(this, value); };
          Object.defineProperty(slider, 'value', {get, set: note});
        }"""
    )
    slider.focus()
    for _ in range(5):
        colab.page.keyboard.press("ArrowRight")
    colab.until("heatmap.selection.layer", 5)
    heatmap.get_by_text("layer 5").first.wait_for()
    colab.rest()
    seen = explorer.locator("body").evaluate("() => seen")
    assert seen == sorted(seen), "no layer of before comes back"
    assert slider.input_value() == "5"


def test_python_moves_both_cells(colab, linked):
    explorer, heatmap = linked
    colab.do("explorer.selection.layer = 2; explorer.selection.head = 4")
    heatmap.get_by_text("layer 2").first.wait_for()
    expect(heatmap.get_by_role("combobox", name="head").first).to_have_value("4")
    expect(explorer.locator("input[aria-label=layer]")).to_have_value("2")


def test_a_view_that_is_shown_later_opens_where_the_reader_is(colab, linked):
    explorer, _ = linked
    explorer.locator("input[aria-label=layer]").press("End")
    colab.until("explorer.selection.layer", 5)
    later = colab.show("aw.Heatmap(aw.attention(trace))")
    settled(later)
    later.get_by_text("layer 5").first.wait_for()
    assert later.get_by_text("layer 0").count() == 0


def test_a_head_is_knocked_out_with_the_numbers_of_python(colab, linked):
    explorer, _ = linked
    explorer.locator(".aw-headgrid [aria-busy=false]").first.wait_for()
    explorer.locator(".aw-grid-plot").focus()
    colab.page.keyboard.press("k")
    compared = explorer.locator(".aw-chips[data-compared]")
    compared.wait_for()
    result = shares(compared.locator(".aw-chip"))
    colab.do("from attnwidgets.intervene.preview import preview")
    change = "preview(trace, *explorer.interventions())"
    for i, when in enumerate(("before", "after")):
        wanted = dict(colab.ask(f"[[p.label, 100 * p.probability] for p in {change}.{when}]"))
        assert {label: pair[i] for label, pair in result.items()} == pytest.approx(wanted, abs=0.06)
    view = colab.show("intervention = aw.InterventionView(trace)\nintervention")
    settled(view)
    view.get_by_text("knocked out").first.wait_for()  # in another cell
    view.get_by_role("button", name="undo").click()
    colab.until("explorer.selection.interventions", [])
    compared.wait_for(state="detached")


def test_a_method_is_computed_on_demand(colab, linked):
    explorer, _ = linked
    choose(explorer, "method", "rollout")
    colab.until("explorer.selection.method", "rollout")
    colab.do("explorer.selection.clear()")
    settled(explorer).locator(".aw-heatmap .aw-plot").first.click()
    colab.until("len(explorer.selection.pins)", 1)
    colab.page.mouse.move(2, 2)  # the cell under the pointer is read out after the pin
    readout(explorer).get_by_text(re.compile(r"= ?\d")).wait_for()
    pinned = "aw.rollout(trace).matrix(explorer.selection.layer)[explorer.selection.pinned]"
    assert number(readout(explorer).inner_text()) == pytest.approx(colab.ask(f"float({pinned})"), abs=6e-4)
    assert explorer.get_by_role("alert").count() == 0


def test_a_job_reports_its_progress_and_can_be_stopped(colab):
    frame = colab.show("busy = aw.Explorer(aw.trace(model, tokenizer, 'A wonderful film. ' * 14))\nbusy")
    hears = colab.ask("hasattr(get_ipython().kernel, 'msg_queue')")  # ipykernel 6, as in Colab
    choose(settled(frame), "method", "hidden token attribution")
    # An Explorer also explains its predictions: another job, whose progress is shown in the same line.
    work = frame.locator(".aw-work:visible").filter(has_text="hidden token attribution")
    work.get_by_text(re.compile(r"^[1-9]\d* of \d+$")).wait_for()
    if hears:
        work.get_by_role("button", name="Cancel").click()
    else:  # without a subshell, ipykernel 7 hears no message until the job is done
        colab.page.evaluate("interrupt()")
    work.wait_for(state="hidden")
    colab.until("busy.selection.method", "attention")
    settled(frame)
    assert "hidden_token_attribution" not in colab.ask("[source.method for source in busy.store.sources()]")


def test_nothing_in_a_text_is_executed(colab):
    frame = colab.show(
        f"bad = aw.from_attentions(np.full((1, 1, 4, 4), 0.25, 'float32'), {HOSTILE!r})\naw.Explorer(bad)"
    )
    settled(frame)
    frame.locator(".aw-heatmap .aw-plot").hover()
    other = colab.show("aw.TokenStrip(bad)")
    settled(other)
    other.get_by_text("<img src=x", exact=False).first.wait_for()
    assert [item.evaluate("window.hacked") for item in colab.page.frames] == [None] * len(colab.page.frames)


def test_a_cell_that_is_run_again_shows_one_view_that_follows(colab, linked):
    explorer, heatmap = linked
    again = colab.show("heatmap = aw.Heatmap(aw.attention(trace))\nheatmap", colab.cell_of(heatmap))
    assert again.locator(".aw-root").count() <= 1
    settled(again)
    explorer.locator("input[aria-label=layer]").press("Home")
    again.get_by_text("layer 0").first.wait_for()
    colab.until("heatmap.selection.layer", 0)


def test_several_widgets_in_a_box(colab, linked, screenshot):
    explorer, _ = linked
    views = "[aw.LayerSlider(trace), aw.TokenStrip(aw.attention(trace)), ipywidgets.IntSlider()]"
    frame = colab.show(f"display(ipywidgets.VBox({views}))")
    settled(frame)
    assert frame.locator(".aw-root").count() == 2
    frame.locator("input[aria-label=layer]").press("End")
    colab.until("explorer.selection.layer", 5)
    expect(explorer.locator("input[aria-label=layer]")).to_have_value("5")
    screenshot(frame.locator(".aw-root").first, "colab-box.png")


def test_a_page_in_a_frame(colab):
    page = colab.show("heatmap.frame()").frame_locator("iframe")
    page.locator(".aw-heatmap canvas").first.wait_for()
    assert page.locator(".aw-heatmap canvas").first.bounding_box()["height"] > 50


def test_the_heights_of_outputs_settle(colab, linked):
    count = "frames.map(({heights}) => heights.length)"
    colab.rest()
    for output in colab.page.locator("iframe").all():
        if not output.bounding_box()["height"]:
            continue
        output.scroll_into_view_if_needed()  # the browser draws no frame of another site out of sight
        inside = output.element_handle().content_frame()
        settle(inside)
        before = colab.page.evaluate(count)
        inside.evaluate(TEN_FRAMES)  # where a height brings the next, every frame has another
        assert colab.page.evaluate(count) == before
    assert max(colab.page.evaluate("frames.map(({heights}) => heights.at(-1))")) < 1500


def test_a_reader_who_turned_widgets_off_is_told_how_to_turn_them_on(colab, screenshot):
    colab.do("google.colab.output.disable_custom_widget_manager()")
    frame = colab.show("aw.Heatmap(given())")
    frame.get_by_text("output.enable_custom_widget_manager()").wait_for()
    frame.locator("img").wait_for()
    screenshot(colab.page.locator("section").last, "colab-off.png")
    colab.do("from google.colab import output; output.enable_custom_widget_manager()")
    assert settled(colab.show("aw.Heatmap(given())")).locator("canvas").count() > 0


# -- front ends and networks that do less than they should -----------------------------------------

NO_BUFFERS = """(message, deliver) =>
  deliver(message.data?.method === 'custom' ? {...message, buffers: []} : message)"""
LATE = "(message, deliver) => setTimeout(() => deliver(message), 2500)"
FIRST_LOST = """(() => { let lost = 0; return (message, deliver) =>
  message.data?.content?.kind === 'tile' && lost++ < 1 ? undefined : deliver(message); })()"""


@pytest.fixture
def passing(colab):
    yield lambda how: colab.page.evaluate(f"() => {{ window.pass = {how}; }}")
    colab.page.evaluate(
        "Object.assign(window, {pass: (message, deliver) => deliver(message), several: 1, reversed: false})"
    )


COLD = """big = np.random.default_rng(0).dirichlet(np.ones(150), (6, 12, 150)).astype("float32")
big_view = aw.Heatmap(aw.from_attentions(big, [f"t{i}" for i in range(150)]), layer=0, head=0)
big_view"""


def last_layer_of_a_map(colab, passing, how):
    """Show a map and go to its last layer, which was not fetched ahead, over messages that pass so."""
    frame = colab.show(COLD)
    settled(frame)
    passing(how)
    frame.locator(".aw-plot").first.focus()
    colab.page.keyboard.press("End")
    return frame


@pytest.mark.parametrize("how", [LATE, FIRST_LOST], ids=["late", "lost"])
def test_late_and_lost_messages_are_waited_for(colab, passing, how):
    frame = last_layer_of_a_map(colab, passing, how)
    frame.get_by_text("layer 5").first.wait_for()
    settled(frame)
    assert frame.get_by_role("alert").count() == 0


def test_without_binary_buffers_the_reader_is_told_what_to_do(colab, passing, screenshot):
    frame = last_layer_of_a_map(colab, passing, NO_BUFFERS)
    told = frame.get_by_text("end it with view.frame()").first
    told.wait_for()
    assert told.bounding_box()["height"] > 0
    screenshot(colab.page.locator("section").last, "colab-no-buffers.png")


def test_buffers_of_the_other_kinds(colab, passing):
    colab.page.evaluate("window.reversed = true")
    frame = colab.show("trace2 = aw.trace(model, tokenizer, 'A dull film.')\naw.Explorer(trace2)")
    settled(frame)
    frame.locator("input[aria-label=layer]").press("End")
    settled(frame)
    profile = colab.show("aw.views.LayerProfile(trace2)")
    settled(profile)
    assert [item.get_by_role("alert").count() for item in (frame, profile)] == [0, 0]


def test_two_managers_in_one_page_follow_each_other(colab, passing):
    colab.page.evaluate("window.several = 2")
    frame = colab.show("twice = aw.Heatmap(given(), layer=0)\ntwice")
    settled(frame)
    frame.locator(".aw-root").nth(1).locator("canvas").first.wait_for()
    frame.locator(".aw-plot").first.focus()
    colab.page.keyboard.press("End")
    colab.until("twice.selection.layer", 1)
    for i in range(2):
        frame.locator(".aw-root").nth(i).get_by_text("layer 1").first.wait_for()
    assert frame.locator(".aw-root").count() == 2


def test_a_question_is_answered_in_its_view(colab, passing, screenshot, tmp_path):
    colab.do(f"import os; os.chdir({str(tmp_path)!r})")  # the folder of its answers
    frame = colab.show("q = aw.ask.head('Which head?', view=aw.Explorer(trace, height=400), id='colab')\nq")
    settled(frame)
    frame.get_by_role("textbox", name="answer").first.fill("2.3")
    frame.get_by_role("button", name="Submit").click()
    colab.until("q.answer", [2, 3])
    frame.locator(".aw-question-note", has_text="saved in answers.json").wait_for()
    screenshot(colab.page.locator("section").last, "colab-asking.png")
    colab.do("q.selection.layer = 1; q.selection.head = 5")
    frame.get_by_role("button", name="Change").click()
    frame.get_by_role("button", name="Clear").click()
    colab.until("q.answer", None)
