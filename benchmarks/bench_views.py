"""Measure the script time of views in a browser, as the pointer moves and the layer changes, and their nodes.

    python benchmarks/bench_views.py                prints the table
    python benchmarks/bench_views.py --write        and puts it into benchmarks/README.md
    python benchmarks/bench_views.py --tokens 128

Every view is a page of its own, of made-up attention with 12 heads, its matrices present. Script time is from
the event to the end of the frame's callbacks, which are called at once; style, layout and painting by the
browser are not in it. Each number is the least and the median of 50 turns.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

os.environ["HF_HUB_OFFLINE"] = "1"

import numpy as np
from browser import opened

import attnwidgets as aw

if TYPE_CHECKING:
    from collections.abc import Callable

README = Path(__file__).with_name("README.md")
BEGIN, END = "<!-- measured: views -->", "<!-- end of measured: views -->"
LAYERS, HEADS, WIDTH = 3, 12, 12 * 64

# Frames are held back, so that what a frame does is timed with the event that asked for it.
HOLD = """() => {
  let number = 0;
  const held = new Map();
  window.requestAnimationFrame = (callback) => { held.set(++number, callback); return number; };
  window.cancelAnimationFrame = (which) => held.delete(which);
  window.flush = () => {
    const now = [...held.values()];
    held.clear();
    for (const call of now) call(0);
  };
}"""

TURNS = """async (what) => {
  const pause = (ms) => new Promise((done) => setTimeout(done, ms));
  const place = document.querySelector(what.place);
  const slider = document.querySelector("input[aria-label=layer]");
  if (what.kind === "layer" ? !slider : !place) return null;
  const box = place?.getBoundingClientRect();
  const turn = {
    hover: (i) => {
      const x = box.left + box.width * (0.1 + 0.8 * ((i * 7) % 19) / 19);
      const y = box.top + Math.min(box.height, 600) * (0.1 + 0.8 * ((i * 5) % 23) / 23);
      const at = document.elementFromPoint(x, y) ?? place;
      for (const name of ["pointerover", "pointermove"])
        at.dispatchEvent(new PointerEvent(name, { bubbles: true, clientX: x, clientY: y }));
    },
    layer: (i) => {
      slider.value = String(i % 2);
      slider.dispatchEvent(new Event("input", { bubbles: true }));
    },
  }[what.kind];
  const times = [];
  for (let i = 0; i < 60; i += 1) {
    const start = performance.now();
    turn(i);
    for (let k = 0; k < 6; k += 1) await Promise.resolve();
    window.flush();
    times.push(performance.now() - start);
    await pause(25);
    window.flush();
  }
  return times.slice(10);
}"""

VIEWS: dict[str, tuple[Callable[[Any], Any], str]] = {
    "Heatmap": (aw.Heatmap, ".aw-heatmap .aw-plot"),
    "HeadGrid": (aw.HeadGrid, ".aw-view .aw-plot"),
    "TokenStrip": (aw.TokenStrip, ".aw-strip"),
    "HeadView": (aw.HeadView, ".aw-hv-query"),
    "NeuronView": (aw.NeuronView, ".aw-neuron-keys"),
    "CompareView": (aw.compare, ".aw-strip"),
    "LayerProfile": (aw.LayerProfile, ".aw-strip"),
    "FlowView": (aw.FlowView, ".aw-flow-plot"),
    "Explorer": (aw.Explorer, ".aw-heatmap .aw-plot"),
}


def made_up(n: int) -> Any:
    """Return a trace of random attention with several layers."""
    weights = np.random.default_rng(0).dirichlet(np.full(n, 0.1), (LAYERS, HEADS, n)).astype(np.float32)
    return aw.from_attentions(weights, [f"token{i}" for i in range(n)])


def by_hand(n: int) -> Any:
    """Return a trace of one layer with queries and keys."""
    draw = np.random.default_rng(0).normal
    E, W_q, W_k = (draw(size=size).astype(np.float32) for size in ((n, WIDTH), *[(WIDTH, WIDTH)] * 2))
    return aw.from_qkv(E, W_q, W_k, heads=HEADS, tokens=[f"token{i}" for i in range(n)])


def row(name: str, n: int, folder: Path) -> str:
    """Return a line of the table."""
    make, place = VIEWS[name]
    trace = by_hand(n) if name == "NeuronView" else made_up(n)
    views = [make(trace)] if name in ("NeuronView", "Explorer") else [make(trace), aw.LayerSlider(trace)]
    path = aw.to_html(views, folder / f"{name}.html", budget=60_000_000)
    with opened(path, "() => document.querySelector('.aw-root > *')", {}, 60) as page:
        page.handle.wait_for_timeout(2000)
        nodes = page.handle.evaluate("document.querySelector('.aw-root').querySelectorAll('*').length")
        page.handle.evaluate(HOLD)
        found = {}
        for kind in ("layer", "hover"):
            times = page.handle.evaluate(TURNS, {"kind": kind, "place": place})
            found[kind] = f"{min(times):.1f} / {median(times):.1f}" if times else "-"
    for view in views:
        view.close()
    return f"| {name} | {n} | {found['layer']} | {found['hover']} | {nodes:,} |"


def main() -> None:
    """Print the table, or write it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tokens", type=int, nargs="+", default=[128, 512])
    parser.add_argument("--views", nargs="+", choices=list(VIEWS), default=list(VIEWS))
    parser.add_argument("--write", action="store_true", help="put the table into benchmarks/README.md")
    args = parser.parse_args()
    lines = ["| view | tokens | layer change, ms | hover, ms | nodes |", "|---|---:|---:|---:|---:|"]
    with tempfile.TemporaryDirectory() as folder:
        for n in args.tokens:
            for name in args.views:
                lines.append(row(name, n, Path(folder)))
                print(lines[-1], flush=True)
    if args.write:
        text = README.read_text(encoding="utf-8")
        before, after = text.split(BEGIN)[0], text.split(END)[1]
        README.write_text("\n".join([before + BEGIN, *lines, END]) + after, encoding="utf-8")


if __name__ == "__main__":
    main()
