"""Measure the nodes of views in a browser, and their script time for pointer moves and layer changes.

    python benchmarks/bench_views.py                prints the table
    python benchmarks/bench_views.py --write        and writes it into benchmarks/README.md
    python benchmarks/bench_views.py --tokens 128

Each view has its own page of made-up attention with 12 heads in each of 12 layers, with all matrices present.
A turn happens in a frame, where browsers deliver pointer moves. Its script time runs from the event to the
end of the callbacks that it requests for the next frame, which are called at once; the browser's own hit
testing, style, layout and painting are not included. The pages take turns in several rounds, so that other
work on the machine affects all of them: each number is the first quartile and the median of all turns except
the first round's.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from pathlib import Path
from statistics import median, quantiles
from typing import TYPE_CHECKING, Any

os.environ["HF_HUB_OFFLINE"] = "1"

import numpy as np
from browser import FLAGS, executable
from pages import write_between

import attnwidgets as aw

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

README = Path(__file__).with_name("README.md")
BEGIN, END = "<!-- measured: views -->", "<!-- end of measured: views -->"
LAYERS, HEADS, WIDTH = 12, 12, 12 * 64
ROUNDS, TURNS_A_ROUND = 5, 24

# Hold frames back, so that a frame's work is timed with the event that requested it.
HOLD = """() => {
  let number = 0;
  const held = new Map();
  const { requestAnimationFrame } = window;
  window.frame = () => new Promise((done) => requestAnimationFrame(done));
  window.requestAnimationFrame = (callback) => { held.set(++number, callback); return number; };
  window.cancelAnimationFrame = (which) => held.delete(which);
  window.flush = () => {
    const now = [...held.values()];
    held.clear();
    for (const call of now) call(0);
  };
}"""

TURNS = """async ({ kind, place, turns }) => {
  const pause = (ms) => new Promise((done) => setTimeout(done, ms));
  const plot = document.querySelector(place);
  const slider = document.querySelector("input[aria-label=layer]");
  if (kind === "layer" ? !slider || slider.hidden : !plot) return null;
  const box = plot?.getBoundingClientRect();
  window.turn ??= 0;
  /** Prepares turn i and returns a function that dispatches its events. */
  const next = {
    hover: (i) => {
      const x = box.left + box.width * (0.1 + 0.8 * ((i * 7) % 19) / 19);
      const y = box.top + Math.min(box.height, 600) * (0.1 + 0.8 * ((i * 5) % 23) / 23);
      const at = document.elementFromPoint(x, y) ?? plot;
      const where = { bubbles: true, clientX: x, clientY: y };
      const events = ["pointerover", "pointermove"].map((name) => new PointerEvent(name, where));
      return () => events.forEach((event) => at.dispatchEvent(event));
    },
    layer: (i) => () => {
      slider.value = String(i % (Number(slider.max) + 1));
      slider.dispatchEvent(new Event("input", { bubbles: true }));
    },
  }[kind];
  const times = [];
  for (let i = 0; i < turns; i += 1) {
    await window.frame();
    const act = next(window.turn++);
    const start = performance.now();
    act();
    for (let k = 0; k < 6; k += 1) await Promise.resolve();
    window.flush();
    times.push(performance.now() - start);
    await pause(10);
    window.flush();
  }
  return times;
}"""

VIEWS: dict[str, tuple[Callable[[Any], Any], str]] = {
    "Heatmap": (aw.Heatmap, ".aw-heatmap .aw-plot"),
    "HeadGrid": (aw.HeadGrid, ".aw-view .aw-plot"),
    "TokenStrip": (aw.TokenStrip, ".aw-strip"),
    "HeadView": (aw.HeadView, ".aw-hv-query"),
    "NeuronView": (aw.NeuronView, ".aw-neuron-keys"),
    "CompareView": (aw.compare, ".aw-strip"),
    "LayerProfile": (aw.views.LayerProfile, ".aw-strip"),
    "FlowView": (aw.FlowView, ".aw-flow-plot"),
    "Explorer": (aw.Explorer, ".aw-heatmap .aw-plot"),
}


def made_up(n: int) -> Any:
    """Return a trace of random attention with LAYERS layers of HEADS heads."""
    weights = np.random.default_rng(0).dirichlet(np.full(n, 0.1), (LAYERS, HEADS, n)).astype(np.float32)
    return aw.from_attentions(weights, [f"token{i}" for i in range(n)])


def by_hand(n: int) -> Any:
    """Return a trace of one layer with queries and keys."""
    draw = np.random.default_rng(0).normal
    E, W_q, W_k = (draw(size=size).astype(np.float32) for size in ((n, WIDTH), *[(WIDTH, WIDTH)] * 2))
    return aw.from_qkv(E, W_q, W_k, heads=HEADS, tokens=[f"token{i}" for i in range(n)])


def page_of(name: str, n: int, folder: Path) -> Path:
    """Write the page of a view, and return its path."""
    make, _ = VIEWS[name]
    trace = by_hand(n) if name == "NeuronView" else made_up(n)
    views = [make(trace)] if name in ("NeuronView", "Explorer") else [make(trace), aw.LayerSlider(trace)]
    path = aw.to_html(views, folder / f"{name}.html", budget=80_000_000)
    for view in views:
        view.close()
    return path


def measured(paths: dict[str, Path]) -> Iterator[list[str]]:
    """Yield the figures of each page, as cells of the table."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable(), args=FLAGS)
        pages = {}
        for name, path in paths.items():
            # Our standalone pages forbid eval, which playwright waits with.
            page = browser.new_context(viewport={"width": 1000, "height": 900}, bypass_csp=True).new_page()
            page.goto(path.resolve().as_uri())
            page.wait_for_function("() => document.querySelector('.aw-root > *')", polling=100)
            page.wait_for_timeout(2000)
            page.evaluate(HOLD)
            pages[name] = page
        times: dict[tuple[str, str], list[float]] = {}
        for number in range(ROUNDS + 1):
            for name, page in pages.items():
                # Chromium delivers frames to the front page only.
                page.bring_to_front()
                page.wait_for_timeout(200)
                for kind in ("layer", "hover"):
                    turns = page.evaluate(
                        TURNS, {"kind": kind, "place": VIEWS[name][1], "turns": TURNS_A_ROUND}
                    )
                    times.setdefault((name, kind), []).extend(turns if turns and number else [])
        for name, page in pages.items():
            cells = [
                f"{quantiles(turns, n=4)[0]:.1f} / {median(turns):.1f}" if turns else "-"
                for turns in (times[name, kind] for kind in ("layer", "hover"))
            ]
            nodes = page.evaluate("document.querySelector('.aw-root').querySelectorAll('*').length")
            yield [name, *cells, f"{nodes:,}"]
        browser.close()


def main() -> None:
    """Print the table, or write it into the page."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tokens", type=int, nargs="+", default=[128, 512])
    parser.add_argument("--views", nargs="+", choices=list(VIEWS), default=list(VIEWS))
    parser.add_argument("--write", action="store_true", help="write the table into benchmarks/README.md")
    args = parser.parse_args()
    lines = ["| view | tokens | layer change, ms | hover, ms | nodes |", "|---|---:|---:|---:|---:|"]
    with tempfile.TemporaryDirectory() as folder:
        for n in args.tokens:
            paths = {name: page_of(name, n, Path(folder)) for name in args.views}
            for name, *cells in measured(paths):
                lines.append("| " + " | ".join([name, str(n), *cells]) + " |")
                print(lines[-1], flush=True)
    caption = (
        f"Milliseconds of script, first quartile / median of {ROUNDS * TURNS_A_ROUND} turns, from the event "
        "to the end of the frame's callbacks, without the browser's own hit testing, layout and painting. "
        f"{LAYERS} layers of {HEADS} heads, matrices present."
    )
    if args.write:
        write_between(README, BEGIN, END, "\n".join([caption, "", *lines]))


if __name__ == "__main__":
    main()
