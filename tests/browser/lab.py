"""Drives JupyterLab and Notebook 7 by command id, and runs code in the kernel outside of cells."""

from __future__ import annotations

import json
import re
import time
from contextlib import contextmanager

import nbformat

from .settling import settle

SESSION = "window.jupyterapp.shell.currentWidget.sessionContext.session"

# JupyterLab sends messages of widgets to a thread of the kernel beside that of the cells, so that code could
# overtake them: it runs when all are handled, and with them those that a model has sent since.
ASK = """async code => {
  const kernel = SESSION.kernel;
  for (;;) {
    const sent = [...kernel._futures.values()].filter(({msg}) => msg.header.msg_type === 'comm_msg');
    if (!sent.length) break;
    await Promise.allSettled(sent.map((future) => future.done));
  }
  const future = kernel.requestExecute({code, silent: false, store_history: false});
  let out = '';
  future.onIOPub = m => {
    if (m.header.msg_type === 'stream') out += m.content.text;
    if (m.header.msg_type === 'error') out += m.content.traceback.join('\\n');
  };
  const reply = await future.done;
  return [reply.content.status, out];
}""".replace("SESSION", SESSION)


VIEWPORT = {"width": 1200, "height": 900}


def offset_of(box, query, key, shown):
    """The middle of a cell in the box of a map that shows these elements: special tokens may stand apart."""
    across, down = shown.index(key) + 0.5, shown.index(query) + 0.5
    return {"x": across * box["width"] / len(shown), "y": down * box["height"] / len(shown)}


def number(readout):
    """The value in a readout such as "read → the ≈ 0.12 · layer 2 · head 2.1"."""
    match = re.findall(r"[=≈<] ?(\d*\.\d+(?:e-?\d+)?)", readout)
    assert match, readout
    return float(match[-1])


def choose(page, menu, name):
    """Choose an item of a view's menu."""
    page.get_by_role("combobox", name=menu).click()
    page.get_by_role("option", name=name, exact=True).click()


def switch(page, view, label, name):
    """Choose among the segments of a view's toolbar, which are a menu where room is short."""
    segment = view.locator(".aw-toolbar .aw-segment", has_text=name)
    if segment.is_visible():
        segment.click()
    else:
        choose(page, label, name)


def shares(chips):
    """Before and after, in percent, by outcome."""
    texts = [[part.inner_text() for part in chip.locator("bdi, span, b").all()] for chip in chips.all()]
    percent = [
        [label, *(float(share[:-2].lstrip("<> ")) for share in (before, after))]
        for _, label, before, _, after, *_ in texts
    ]
    return {label: (before, after) for label, before, after in percent}


def shares_after(compared, kernel, changes):
    """Readings of the comparing chips: percent by outcome after the changes; and Python's."""
    compared.wait_for()
    result = {label: after for label, (_, after) in shares(compared.locator(".aw-chip")).items()}
    said = kernel.ask(f"[[p.label, 100 * p.probability] for p in preview(trace, {changes}).after]")
    return result, dict(said)


class Lab:
    """A server of JupyterLab or Notebook 7; each notebook opens in a new page."""

    def __init__(self, address, token, folder, open_page, path="lab/tree"):
        self.path = path
        self.address = address
        self.token = token
        self.folder = folder
        self._open_page = open_page
        self.page = None

    def write(self, name, *cells):
        """Write a notebook of code cells."""
        notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
        notebook.metadata["kernelspec"] = {
            "name": "python3",
            "display_name": "Python 3",
            "language": "python",
        }
        nbformat.write(notebook, self.folder / name)

    def open(self, name, **options):
        """Open a notebook and wait for its kernel."""
        self.page = self._open_page(f"{self.address}/{self.path}/{name}?token={self.token}&reset", **options)
        self.ready()
        return self.page

    def ready(self):
        """Wait for the kernel of the notebook that is shown."""
        self.page.wait_for_function(
            "() => { const c = window.jupyterapp?.shell?.currentWidget?.sessionContext;"
            " return c?.isReady && c.session?.kernel?.connectionStatus === 'connected'; }",
            timeout=120_000,
        )

    def command(self, name, **arguments):
        self.page.evaluate("([n, a]) => window.jupyterapp.commands.execute(n, a)", [name, arguments])

    def run_all(self):
        self.command("notebook:run-all-cells")

    def run_cell(self, index):
        """Run one cell again and wait for it."""
        self.page.evaluate(
            """async i => {
              const app = window.jupyterapp;
              app.shell.currentWidget.content.activeCellIndex = i;
              await app.commands.execute('notebook:run-cell');
            }""",
            index,
        )

    def ask(self, expression):
        """Return the value of a Python expression in the kernel, passed as JSON."""
        status, out = self.do(f"import json as _j; print(_j.dumps({expression}))")
        assert status == "ok", out
        return json.loads(out.strip().splitlines()[-1])

    def do(self, code):
        """Run code in the kernel, outside of cells; return its status and output."""
        return self.page.evaluate(ASK, code)

    def start(self, code):
        """Run code in the kernel and return at once."""
        self.page.evaluate(
            f"code => {{ {SESSION}.kernel.requestExecute({{code, store_history: false}}); }}", code
        )

    def until(self, expression, wanted, limit=30_000):
        """Wait until an expression has the value `wanted` in the kernel."""
        end = time.monotonic() + limit / 1000
        while (value := self.ask(expression)) != wanted and time.monotonic() < end:
            self.page.wait_for_timeout(20)  # between two looks at the condition
        assert value == wanted, f"{expression} is {value}, not {wanted}"

    def rest(self):
        """Wait until all messages of the views have reached the kernel, and all is drawn."""
        settle(self.page)
        self.ask("1")
        settle(self.page)


# Opens a notebook, or nothing, and closes the open ones without asking.
INSTEAD = """async name => {
  const {shell, commands} = window.jupyterapp;
  const before = [...shell.widgets('main')];
  if (name) await commands.execute('docmanager:open', {path: name, factory: 'Notebook'});
  for (const widget of before) widget.dispose();
}"""


# Prints of the kernel before it is busy come after all earlier messages of the cell.
START = f"""code => {{
  window.isBusy = false;
  const future = {SESSION}.kernel.requestExecute({{code, store_history: false}});
  future.onIOPub = ({{header}}) => {{ window.isBusy ||= header.msg_type === 'stream'; }};
}}"""
# Answered beside a running cell: earlier messages have reached the kernel, too.
BESIDE = f"""async () => {{
  await {SESSION}.kernel.requestDebug({{type: 'request', seq: 1, command: 'debugInfo'}}).done;
}}"""


@contextmanager
def busy(lab, before="", after="", *, pause="time.sleep"):
    """Keep the kernel busy as long as the block runs; its outputs are there when the kernel is free."""
    go = lab.folder / f"go-{time.monotonic_ns()}"
    loop = f"while not Path({str(go)!r}).exists():\n    {pause}(0.01)"
    imports = "import asyncio, time\nfrom pathlib import Path"
    lab.page.evaluate(START, f"{imports}\n{before}\nprint('busy', flush=True)\n{loop}\n{after}")
    try:
        lab.page.wait_for_function("window.isBusy")
        yield
        lab.page.evaluate(BESIDE)
    finally:
        go.touch()
