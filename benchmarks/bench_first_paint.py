"""Measure the CPU seconds of a saved Explorer up to its first picture, beside an empty page, in turns.

    python benchmarks/bench_first_paint.py --turns 7 --tokens 128 --beside before.html

A page is opened in a fresh browser each time; `--beside` adds pages that another checkout wrote with
`--write before.html`. CPU is that of all browser processes. On a busy machine it grows with what others do:
compare the rows of one run.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"

from bench_peers import PIXELS, text_of
from browser import opened

EMPTY = '<!doctype html><html lang="en"><meta charset="utf-8"><title>empty</title><h1>empty</h1></html>'
HEADING = "() => document.querySelector('h1')"


def explorer(tokens: int, path: Path) -> Path:
    """Write an Explorer of the attention of MiniLM over a text of so many tokens."""
    import attnwidgets as aw

    model, tokenizer = aw.demo_model("encoder")
    attention = aw.attention(aw.trace(model, tokenizer, text_of(tokenizer, tokens)))
    return aw.Explorer(attention).to_html(path)


def measured(pages: dict[str, tuple[Path, str]], turns: int) -> dict[str, list[tuple[float, float]]]:
    """Return CPU and wall seconds of every turn, by the page's name."""
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in pages}
    for turn in range(turns):
        for name in sorted(pages, reverse=bool(turn % 2)):
            path, mark = pages[name]
            with opened(path, mark, {}, 60) as page:
                found[name].append((page.paint.cpu, page.paint.seconds))
    return found


def table(pages: dict[str, tuple[Path, str]], found: dict[str, list[Any]]) -> str:
    """Return medians and least CPU, beside the first page's."""
    lines = [
        "| page | MB | CPU: median | least | relative to empty | wall |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    empty = median(cpu for cpu, _ in found["empty"])
    for name, costs in found.items():
        cpu, wall = ([cost[i] for cost in costs] for i in (0, 1))
        size = pages[name][0].stat().st_size / 1e6
        relative = f"{median(cpu) / empty:.1f}"
        times = f"{median(cpu):.2f} s | {min(cpu):.2f} s | {relative} | {median(wall) * 1000:.0f} ms"
        lines.append(f"| {name} | {size:.1f} | {times} |")
    return "\n".join(lines)


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--tokens", type=int, nargs="+", default=[128])
    parser.add_argument("--beside", type=Path, nargs="+", default=[], help="pages to measure as well")
    parser.add_argument("--write", type=Path, help="only write the page of the first length")
    asked = parser.parse_args()
    if asked.write:
        explorer(asked.tokens[0], asked.write)
        return
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        (folder / "empty.html").write_text(EMPTY)
        pages = {"empty": (folder / "empty.html", HEADING)}
        for tokens in asked.tokens:
            pages[f"{tokens} tokens"] = explorer(tokens, folder / f"{tokens}.html"), PIXELS
        pages |= {path.stem: (path, PIXELS) for path in asked.beside}
        print(table(pages, measured(pages, asked.turns)))


if __name__ == "__main__":
    main()
