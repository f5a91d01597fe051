"""Measure how long a typed text takes in JupyterLab, from Enter to the new picture of every linked view.

    python benchmarks/bench_retrace.py

It needs JupyterLab, Playwright and Chromium. For each model of `aw.demo_model`: a plain pass, `aw.trace` of
the same text, and the time from Enter in the Explorer's text line until the Explorer and a linked Heatmap
show it; below, the last words of its progress.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from contextlib import contextmanager, suppress
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import tested
from browser import FLAGS, executable

from tests.browser.lab import Lab

if TYPE_CHECKING:
    from collections.abc import Iterator

MODELS = {"encoder": "MiniLM", "decoder": "SmolLM2"}
FIRST = "The electroencephalographer read the trace before she spoke."
OTHERS = [
    f"The {name} read the trace before {who} spoke." for name in ("nurse", "doctor") for who in ("she", "he")
]
CELLS = (
    """import time, torch, attnwidgets as aw
model, tokenizer = aw.demo_model({kind!r})
trace = aw.trace(model, tokenizer, {first!r})
explorer = aw.Explorer(trace)
explorer""",
    "linked = aw.Heatmap(trace)\nlinked",
)
TIMED = """
def timed(run, rounds=7, clock=time.perf_counter):
    spent = []
    for _ in range(rounds):
        start = clock()
        run()
        spent.append(1e3 * (clock() - start))
    return sorted(spent)[rounds // 2]

def plain(text):
    with torch.inference_mode():
        model(**tokenizer(text, return_tensors="pt"))

def drawing():
    new = iter(f"The {name} read the trace before they spoke." for name in "abcdefg")
    shown = timed(lambda: explorer.show_text(next(new)), clock=time.process_time)
    return shown - timed(lambda: aw.trace(model, tokenizer, explorer.trace.text), clock=time.process_time)
"""
# From Enter until both views show the text: then the frame after.
ENTER = """async text => {
  const frame = () => new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
  const plain = (words) => words.toLowerCase().replace(/[^a-z]/g, "");
  const read = (place) => plain(document.querySelector(place)?.textContent ?? "");
  const field = document.querySelector(".aw-text-field");
  field.value = text;
  const start = performance.now();
  field.dispatchEvent(new KeyboardEvent("keydown", { key: "Enter", bubbles: true, cancelable: true }));
  const progress = new Set();
  const wanted = plain(text);
  const maps = () => [...document.querySelectorAll(".aw-heatmap canvas")].length;
  while (!read(".aw-explorer .aw-reading").includes(wanted) || maps() < 2) {
    const said = document.querySelector(".aw-text-state:not([hidden])")?.textContent;
    if (said) progress.add(said);
    if (performance.now() - start > 60000) throw new Error("nothing came");
    await frame();
  }
  await frame();
  return [performance.now() - start, [...progress].slice(-3)];
}"""


@contextmanager
def serving() -> Iterator[tuple[str, str, Path]]:
    """Run JupyterLab on a scratch folder; yield its address, token and folder."""
    with tempfile.TemporaryDirectory() as scratch:
        names = ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "JUPYTERLAB_SETTINGS_DIR")
        environment = {**os.environ, **dict.fromkeys(names, scratch), "PYTHONPATH": str(tested.ROOT)}
        environment["HF_HUB_OFFLINE"] = "1"
        port = 8000 + os.getpid() % 1000
        command = [
            *(sys.executable, "-m", "jupyterlab", "--allow-root", "--no-browser"),
            *("--ServerApp.ip=127.0.0.1", f"--ServerApp.port={port}", "--IdentityProvider.token=test"),
            *(f"--ServerApp.root_dir={scratch}", "--LabApp.expose_app_in_browser=True"),
        ]
        server = subprocess.Popen(
            command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            address = f"http://127.0.0.1:{port}"
            _wait_for(f"{address}/api/status?token=test")
            yield address, "test", Path(scratch)
        finally:
            server.terminate()
            server.wait(20)


def _wait_for(address: str, seconds: int = 60) -> None:
    for _ in range(4 * seconds):
        with suppress(OSError):
            urllib.request.urlopen(address, timeout=5).close()
            return
        time.sleep(0.25)
    raise TimeoutError(f"JupyterLab did not start within {seconds} s.")


def measured(notebook: Lab, page: Any) -> tuple[float, float, float, float, list[str]]:
    """Return milliseconds (a pass, a trace, Enter to picture, the kernel's CPU) and the progress seen."""
    notebook.run_all()
    page.locator(".aw-heatmap canvas").nth(1).wait_for(state="attached", timeout=180_000)
    page.wait_for_timeout(1500)
    notebook.do(TIMED)
    enters, seen = [], []
    for text in OTHERS:
        page.get_by_role("button", name="type another text").click()
        spent, said = page.evaluate(ENTER, text)
        enters.append(spent)
        seen += said
        page.wait_for_timeout(500)
    passed, traced = (
        notebook.ask(f"timed(lambda: {call})")
        for call in (f"plain({FIRST!r})", f"aw.trace(model, tokenizer, {FIRST!r})")
    )
    return passed, traced, median(enters), notebook.ask("drawing()"), seen


def main() -> None:
    """Print one row for each model."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="*", default=list(MODELS), choices=list(MODELS))
    from playwright.sync_api import sync_playwright

    print(
        "| model | forward pass | `aw.trace` | Enter to picture | beyond the pass | of it CPU of the kernel |"
    )
    print("|---|---:|---:|---:|---:|---:|")
    for kind in parser.parse_args().models:
        with serving() as served, sync_playwright() as driver:
            chromium = driver.chromium.launch(executable_path=executable(), args=FLAGS)

            def open_page(address: str, chromium: Any = chromium, **options: Any) -> Any:
                page = chromium.new_page(viewport={"width": 1200, "height": 1400}, **options)
                page.goto(address)
                return page

            notebook = Lab(*served, open_page)
            notebook.write("retrace.ipynb", *(cell.format(kind=kind, first=FIRST) for cell in CELLS))
            page = notebook.open("retrace.ipynb")
            passed, traced, entered, drawing, seen = measured(notebook, page)
            row = [f"{spent:.0f} ms" for spent in (passed, traced, entered, entered - passed, drawing)]
            print(f"| {MODELS[kind]} | {' | '.join(row)} |", flush=True)
            for words in dict.fromkeys(seen):
                print(f"    {words}")
            chromium.close()


if __name__ == "__main__":
    main()
