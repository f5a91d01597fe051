"""Measure what a reader of JupyterLab waits for when a cell shows an Explorer, and shows it again.

    python benchmarks/bench_first_view.py

It needs JupyterLab, Playwright and Chromium. Milliseconds of: Python, from sending the cell until its display
message arrives; the outline, from there to the first frame in which the output has its final height; the
picture, from there to the first frame of the view itself. Absolute times depend on the machine, and on how
busy it is: compare the rows.
"""

from __future__ import annotations

from typing import Any

from bench_retrace import serving
from browser import FLAGS, executable

from tests.browser.lab import Lab

LENGTHS = (14, 256)
SETUP = """import attnwidgets as aw
words = "the student read the paper again since its last table did not say what she understood".split()
text = " ".join(words[i % len(words)] for i in range({length} - 2))
trace = aw.trace(*aw.demo_model("classifier"), text)"""
SHOWN = "aw.Explorer(trace)"
# When cells were sent and display messages arrived, and what every frame shows of each output.
WATCH = """() => {
  window.sent = []; window.arrived = []; window.frames = [];
  const Socket = window.WebSocket;
  const text = (data) => typeof data === 'string' ? data : new TextDecoder('latin1').decode(data);
  window.WebSocket = class extends Socket {
    constructor(...given) {
      super(...given);
      this.addEventListener('message', ({data}) => {
        if (data instanceof Blob || (data.byteLength ?? data.length) > 2e6) return;
        const now = performance.now();
        const words = text(data);
        const isDisplay = /"(execute_result|display_data)"/.test(words);
        if (isDisplay && words.includes('widget-view+json')) arrived.push(now);
      });
    }
    send(data) {
      const words = text(data);
      if (words.includes('"execute_request"') && words.includes('aw.Explorer(')) sent.push(performance.now());
      super.send(data);
    }
  };
  const {port1, port2} = new MessageChannel();
  port1.onmessage = () => {
    const outputs = [...document.querySelectorAll('.jp-OutputArea-child')].map((output) => {
      const find = (name) => output.querySelector(name);
      const [outline, view] = ['p[style*=height]', '.aw-framed > *'].map(find);
      return [Boolean(view), (outline ?? view?.parentElement)?.getBoundingClientRect().height ?? 0];
    });
    frames.push([performance.now(), outputs.filter(([, height]) => height > 0)]);
  };
  const next = () => { port2.postMessage(0); requestAnimationFrame(next); };
  next();
}"""
READ = """(number) => {
  const at = arrived[number];
  const of = frames.flatMap(([now, outputs]) => outputs[number] ? [[now, ...outputs[number]]] : []);
  const final = of.at(-1)[2];
  return {
    python: at - sent[number],
    outline: of.find(([, , height]) => Math.abs(height - final) < 1)[0] - at,
    picture: of.find(([, isView]) => isView)[0] - at,
  };
}"""


def measured(lab: Lab, length: int) -> list[dict[str, Any]]:
    """Return the times of the first and the second view of a new session."""
    name = f"first-{length}.ipynb"
    lab.write(name, SETUP.format(length=length), SHOWN, SHOWN)
    page = lab.open(name)
    lab.run_cell(0)
    lab.until("int('trace' in globals())", 1, 120_000)
    page.wait_for_timeout(3000)  # a reader's pause
    found = []
    for number, which in enumerate(("first", "second")):
        lab.run_cell(number + 1)
        page.locator(".aw-framed").nth(number).wait_for(timeout=60_000)
        page.wait_for_timeout(1500)
        times = page.evaluate(READ, number)
        found.append({"tokens": length, "view": which, **times})
    page.close()
    return found


def main() -> None:
    """Print a table."""
    from playwright.sync_api import sync_playwright

    with serving() as served, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable(), args=FLAGS)

        def open_page(address: str, **options: Any) -> Any:
            page = browser.new_page(**options)
            page.add_init_script(f"({WATCH})()")
            page.goto(address)
            return page

        print("| tokens | view | Python | outline | picture |")
        print("|---:|---|---:|---:|---:|")
        for length in LENGTHS:
            for row in measured(Lab(*served, open_page), length):
                times = " | ".join(f"{row[name]:.0f} ms" for name in ("python", "outline", "picture"))
                print(f"| {row['tokens']} | {row['view']} | {times} |", flush=True)
        browser.close()


if __name__ == "__main__":
    main()
