"""Measure attnwidgets beside bertviz, CircuitsVis, Inspectus and attnview on all-MiniLM-L6-v2, in one run.

    python benchmarks/bench_peers.py                    prints the tables
    python benchmarks/bench_peers.py --write            and writes them into benchmarks/README.md

Those that are installed are measured, and the others are named: bertviz 1.4.1, circuitsvis 1.43.3,
inspectus 0.2.0 (its maps need none of its dependencies), attnview 0.5.1.

All get the same attention matrices, recorded once, and draw in the same headless Chromium. No token of the
text contains a `#`, with which Inspectus draws nothing. bertviz loads require.js, d3 and jQuery from a CDN;
here they are served from their npm packages. CircuitsVis draws all heads with `attention_heads`, with the
script it embeds for pages without a network. A page that has not painted after `--limit` seconds has
failed, and its tool is not tried on longer texts.
"""

from __future__ import annotations

import argparse
import base64
import datetime as dt
import json
import os
import platform
import tempfile
import time
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

os.environ["HF_HUB_OFFLINE"] = "1"

from browser import Cost, Page, libraries, opened
from pages import write_between

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

HERE = Path(__file__).parent
SENTENCE = "The old student read the paper again before she spoke, and the keys were on it. "

# A page counts as painted when its predicate holds.
LINES = "() => document.querySelector('svg line')"
CANVASES = """() => {
  const maps = [...document.querySelectorAll('canvas')];
  return maps.length > 0 && maps.every((canvas) => canvas.width > 1 && canvas.getContext('2d')
    .getImageData(0, 0, canvas.width, canvas.height).data.some(Boolean)); }"""
LINES_OF_HEADS = "() => document.querySelector('.aw-view svg path, .aw-view svg line')"
SHAPES = """() => [...document.querySelectorAll('svg rect')].length > 0
  || [...document.querySelectorAll('canvas')].some((canvas) => canvas.width > 1)"""
ROWS = "() => document.querySelector('#weights tr')"
PIXELS = """() => {
  const maps = [...document.querySelectorAll('.aw-view .aw-atlas, .aw-view .aw-cells')]
    .filter((canvas) => canvas.checkVisibility());
  return maps.length > 0 && maps.every((canvas) => canvas.width > 1 && canvas.getContext('2d')
    .getImageData(0, 0, canvas.width, canvas.height).data.some(Boolean)); }"""

BEGIN, END = "<!-- measured -->", "<!-- end of measured -->"

AW_LAYER = """() => { const slider = document.querySelector('.aw-view input[aria-label=layer]');
  slider.value = '3'; slider.dispatchEvent(new Event('input', {bubbles: true})); }"""
BERTVIZ_LAYER = """() => { const select = document.querySelector('#layer');
  select.value = '3'; select.dispatchEvent(new Event('change', {bubbles: true})); }"""


ATTNVIEW_LAYER = """() => { const select = document.querySelector('#layer');
  select.value = '3'; select.dispatchEvent(new Event('change', {bubbles: true})); }"""


@dataclass
class Row:
    """The cost of one tool for one text length."""

    tool: str
    tokens: int
    values: int
    sent: int
    python: float
    saved: int
    matrix: float
    """Bytes per value of one matrix that is sent on request."""
    paint: Cost | None = None
    change: Cost | None = None
    nodes: int | None = None
    failure: str = ""


def text_of(tokenizer: Any, tokens: int) -> str:
    """Return a text of exactly this many tokens, including special tokens."""
    ids = tokenizer(SENTENCE * (tokens // 10), add_special_tokens=False, verbose=False)["input_ids"]
    for length in range(tokens - 2, 0, -1):
        text = str(tokenizer.decode(ids[:length]))
        if len(tokenizer(text)["input_ids"]) == tokens:
            return text
    for word in SENTENCE.split():
        if len(tokenizer(f"{text} {word}")["input_ids"]) == tokens:
            return f"{text} {word}"
    raise ValueError(f"no text of exactly {tokens} tokens found")


def in_browser(row: Row, path: Path, mark: str, action: str, scripts: dict[str, bytes], limit: float) -> None:
    """Measure the browser's cost of showing the page and changing the layer, and write it into the row."""
    from playwright.sync_api import Error

    try:
        with opened(path, mark, scripts, limit) as page:
            row.paint, row.nodes = page.paint, page.nodes
            if page.blocked:
                row.failure = f"requested {page.blocked[0]}"
            row.change = change_layer(page, action)
    except Error as error:
        late = "imeout" in type(error).__name__
        row.failure = f"more than {limit:.0f} s" if late else str(error).splitlines()[0]


def change_layer(page: Page, action: str) -> Cost | None:
    """Return the cheaper of two layer changes, there and back, so that a cold start does not count."""
    if not action:
        return None
    costs = [page.act(action), page.act(action.replace("'3'", "'1'"))]
    return min(costs, key=lambda cost: cost.cpu)


def bertviz_row(view: str, tensors: list[Any], tokens: list[str], folder: Path) -> tuple[Row, Path]:
    """Measure bertviz's HTML of the maps, as a cell's output would contain it."""
    import bertviz

    show: Callable[..., Any] = getattr(bertviz, view)
    start = time.perf_counter()
    html = show(tensors, tokens, html_action="return").data
    elapsed = time.perf_counter() - start
    return html_row(f"bertviz {view}", html, elapsed, tensors, folder)


def circuitsvis_row(view: str, tensors: list[Any], tokens: list[str], folder: Path) -> tuple[Row, Path]:
    """Measure CircuitsVis's HTML of all heads for pages without a network, with its script embedded."""
    import circuitsvis
    import torch

    heads = torch.cat([layer[0] for layer in tensors])
    start = time.perf_counter()
    html = getattr(circuitsvis.attention, view)(attention=heads, tokens=tokens).local_src
    elapsed = time.perf_counter() - start
    return html_row(f"CircuitsVis {view}", html, elapsed, tensors, folder)


def inspectus_row(view: str, tensors: list[Any], tokens: list[str], folder: Path) -> tuple[Row, Path]:
    """Measure what Inspectus displays: its script and style, and the matrices."""
    from unittest.mock import patch

    import inspectus

    shown: list[Any] = []
    start = time.perf_counter()
    with patch("IPython.display.display", shown.append):
        getattr(inspectus, view)(tensors, tokens)
    elapsed = time.perf_counter() - start
    html = "".join(str(output.data) for output in shown)
    return html_row(f"Inspectus {view}", html, elapsed, tensors, folder)


def attnview_row(view: str, tensors: list[Any], tokens: list[str], folder: Path) -> tuple[Row, Path]:
    """Measure attnview's page of all layers and heads."""
    import attnview

    start = time.perf_counter()
    patterns = [attnview.AttentionPattern.from_data(layer[0].tolist(), tokens=tokens) for layer in tensors]
    study = attnview.AttentionStudy(tuple(patterns), tuple(f"layer {n}" for n in range(len(patterns))))
    html = getattr(attnview, view)(study)
    elapsed = time.perf_counter() - start
    return html_row(f"attnview {view}", html, elapsed, tensors, folder)


def html_row(tool: str, html: str, elapsed: float, tensors: list[Any], folder: Path) -> tuple[Row, Path]:
    """Return the row of an output that is one piece of HTML, and the page that holds it."""
    tokens = tensors[0].shape[-1]
    path = folder / f"{tool.replace(' ', '-')}-{tokens}.html"
    path.write_text(
        html if html.startswith("<!doctype") else f"<!doctype html><meta charset='utf-8'><body>{html}"
    )
    sent, values = path.stat().st_size, len(tensors) * tensors[0].numel()
    # A notebook file contains the same text as a JSON string.
    saved = len(json.dumps(html)) if sent < 300e6 else sent
    return Row(tool, tokens, values, sent, elapsed, saved, sent / values), path


def installed(name: str) -> bool:
    """Return whether a package is installed."""
    try:
        version(name)
    except PackageNotFoundError:
        return False
    return True


def attnwidgets_row(view: str, attention: Any, options: dict[str, Any], folder: Path) -> tuple[Row, Path]:
    """Measure one of our views of the same maps: what a kernel sends at once, and the standalone page."""
    from ipywidgets.embed import dependency_state

    import attnwidgets as aw

    start = time.perf_counter()
    widget = getattr(aw, view)(attention, **options)
    state = dependency_state([widget], drop_defaults=False)
    elapsed = time.perf_counter() - start
    path = folder / f"{view}-{len(attention.query_labels)}.html"
    widget.to_html(path)
    tokens = len(attention.query_labels)
    values = attention.n_layers * attention.layer(attention.layers[0]).size
    request = {"kind": "tile", "id": 1, "source": widget.sources()[0].id, "layer": 5, "head": 3}
    reply, buffers = widget.store.answer(request)
    matrix = (len(json.dumps(reply)) + sum(map(len, buffers))) / tokens**2
    row = Row(f"attnwidgets {view}", tokens, values, wire_bytes(state), elapsed, state_bytes(state), matrix)
    widget.close()
    return row, path


def state_bytes(state: dict[str, Any]) -> int:
    """Return the bytes of models saved in a notebook: JSON, with buffers in base64."""
    return len(json.dumps(state).encode())


def wire_bytes(state: dict[str, Any]) -> int:
    """Return the bytes of models as a kernel sends them: JSON, with binary buffers."""
    packed = [buffer["data"] for model in state.values() for buffer in model.get("buffers", ())]
    return state_bytes(state) - sum(len(data) - len(base64.b64decode(data)) for data in packed)


def further_view_bytes(attention: Any) -> int:
    """Return the bytes that another view of the same maps adds to a saved notebook."""
    from ipywidgets.embed import dependency_state

    import attnwidgets as aw

    views = [aw.Heatmap(attention), aw.Heatmap(attention)]
    both = state_bytes(dependency_state(views, drop_defaults=False))
    return both - state_bytes(dependency_state(views[:1], drop_defaults=False))


SAVED = (
    "attnwidgets Explorer",
    "bertviz head_view",
    "bertviz model_view",
    "Inspectus attention",
    "attnview render_html",
)
"""Whose saved notebooks are compared."""
PEERS = {
    "bertviz": bertviz_row,
    "CircuitsVis": circuitsvis_row,
    "Inspectus": inspectus_row,
    "attnview": attnview_row,
}


def measure(
    lengths: list[int], limit: float, folder: Path, skipped: Sequence[str] = ()
) -> tuple[list[Row], int]:
    """Return all rows, and the bytes that another view adds to a saved notebook."""
    import torch

    import attnwidgets as aw

    scripts = libraries(folder / "npm")
    model, tokenizer = aw.demo_model("encoder")
    rows: list[Row] = []
    given_up: set[str] = set()
    for tokens in lengths:
        text = text_of(tokenizer, tokens)
        trace = aw.trace(model, tokenizer, text)
        attention = aw.attention(trace)
        tensors = [torch.tensor(attention.layer(n))[None] for n in range(attention.n_layers)]
        for tool, view, mark, action in (
            ("attnwidgets", "Explorer", PIXELS, AW_LAYER),
            ("attnwidgets", "HeadGrid", PIXELS, ""),
            ("attnwidgets", "HeadView", LINES_OF_HEADS, AW_LAYER),
            ("attnwidgets", "Heatmap", PIXELS, ""),
            ("bertviz", "model_view", LINES, ""),
            ("bertviz", "head_view", LINES, BERTVIZ_LAYER),
            ("CircuitsVis", "attention_heads", CANVASES, ""),
            ("Inspectus", "attention", SHAPES, ""),
            ("attnview", "render_html", ROWS, ATTNVIEW_LAYER),
        ):
            if tool != "attnwidgets" and not installed(tool.lower()):
                continue
            if view in skipped:
                continue
            if tool == "attnwidgets":
                # A fresh trace each, so that no view profits from another's cached numbers.
                fresh = aw.attention(aw.trace(model, tokenizer, text))
                options = {} if view == "Explorer" else {"units": ["token"]}
                row, path = attnwidgets_row(view, fresh, options, folder)
            else:
                row, path = PEERS[tool](view, tensors, list(trace.tokens), folder)
            if view in given_up:
                row.failure = "not tried: failed on a shorter text"
            else:
                in_browser(row, path, mark, action, scripts, limit)
                if row.failure:
                    given_up.add(view)
            path.unlink()
            rows.append(row)
            print(table([row]).splitlines()[-1], flush=True)
    return rows, further_view_bytes(attention)


def seconds(value: float) -> str:
    """Return seconds as text with two significant digits."""
    return f"{value * 1000:.0f} ms" if value < 1 else f"{value:.1f} s"


def size(count: float) -> str:
    """Return a number of bytes as text in kB or MB."""
    return f"{count / 1e6:.1f} MB" if count >= 1e6 else f"{count / 1e3:.1f} kB"


def table(rows: list[Row]) -> str:
    """Return the table: one line per length and tool."""
    names = (
        "tokens",
        "view",
        "sent at once",
        "per value",
        "per value, later",
        "Python",
        "first paint (CPU)",
        "layer change (CPU)",
    )
    lines = [f"| {' | '.join(names)} | DOM nodes |", "|---:|---|---:|---:|---:|---:|---:|---:|---:|"]
    for row in rows:
        paint = f"{seconds(row.paint.seconds)} ({seconds(row.paint.cpu)})" if row.paint else row.failure
        change = f"{seconds(row.change.seconds)} ({seconds(row.change.cpu)})" if row.change else ""
        if row.failure and row.paint:
            change = row.failure
        nodes = f"{row.nodes:,}" if row.nodes else ""
        rates = (f"{row.sent / row.values:.2f} B", f"{row.matrix:.2f} B")
        cells = (row.tokens, row.tool, size(row.sent), *rates, seconds(row.python))
        lines.append(f"| {' | '.join(map(str, cells))} | {paint} | {change} | {nodes} |")
    return "\n".join(lines)


def report(rows: list[Row], further: int, options: argparse.Namespace) -> str:
    """Return the text between the marks of benchmarks/README.md."""
    import attnwidgets as aw
    from attnwidgets.views.wire.runtime import COMMON_PARTS

    names = ("attnwidgets", "transformers", "torch", "anywidget", "playwright", *map(str.lower, PEERS))
    versions = ", ".join(f"{name} {version(name)}" for name in names if installed(name))
    missing = [name for name in names if not installed(name)]
    versions += f"; not installed, and left out: {', '.join(missing)}" if missing else ""
    # The code of a notebook with one Explorer: the core, and the parts that this view needs.
    scripts = ("attnwidgets", *aw.Explorer.NEEDS.scripts, *COMMON_PARTS)
    runtime = sum((HERE.parent / "attnwidgets" / "static" / f"{name}.js").stat().st_size for name in scripts)
    by_tool = {(row.tool, row.tokens): row for row in rows}
    tools = [tool for tool in SAVED if any(row.tool == tool for row in rows)]
    lines = "\n".join(
        f"| {tokens} | {' | '.join(size(by_tool[tool, tokens].saved) for tool in tools)} |"
        for tokens in options.lengths
    )
    machine = f"{os.cpu_count()} cores ({platform.machine()}), Python {platform.python_version()}"
    return f"""\
{dt.datetime.now(tz=dt.timezone.utc):%Y-%m-%d}, {machine}; {versions}; a page that has not painted after
{options.limit:.0f} s counts as failed.

{table(rows)}

Bytes of a notebook saved with its widgets, one view:

| tokens | {" | ".join(tools)} |
|---:|{"---:|" * len(tools)}
{lines}

Of ours, {size(runtime)} are the Explorer's code, once per notebook: the core and {len(scripts) - 1} parts.
Another view of the same maps adds {size(further)}; with bertviz, it adds as much as the first."""


def main() -> None:
    """Measure, print, and write with `--write`."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--lengths", type=int, nargs="+", default=[32, 64, 128, 256, 512])
    parser.add_argument("--limit", type=float, default=60, help="seconds a page has to paint")
    parser.add_argument("--skip", nargs="+", default=[], help="functions not to measure, such as model_view")
    parser.add_argument("--write", action="store_true", help="write the tables into benchmarks/README.md")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        rows, further = measure(options.lengths, options.limit, Path(scratch), options.skip)
    text = report(rows, further, options)
    print(text)
    if options.write:
        write_between(HERE / "README.md", BEGIN, END, text)


if __name__ == "__main__":
    main()
