"""Measure live pages in Node.js: the session of small models, and the engine on larger ones.

    python benchmarks/bench_live.py

It needs Node.js and js/node_modules (`make js`). CPU milliseconds of one pass with its predictions, smallest
and median; the first pass also unpacks the weights. The goal is three frames (50 ms) for 64 tokens of a model
with 300,000 parameters. The second table has passes of the engine with all attention, and with AttnLRP; its
goals are 80 ms for MiniLM at 64 tokens, and 200 ms for SmolLM2 at 16.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from statistics import median
from typing import Any

import tested  # noqa: F401 - tests can be imported from here on

import attnwidgets as aw
from attnwidgets.views.page.live.weights import layout_of
from tests.views.live_pages import LivePage, asks, sessions
from tests.views.test_engine import answers

RUNS = 25
ENGINE_RUNS = 7
TEXT = (
    "alice was beginning to get very tired of sitting by her sister on the bank, and of having nothing to "
    "do: once or twice she had peeped into the book"
)


def measure(title: str, made: tuple, text: str, typed: list[str], folder: Path) -> None:
    """Print a line of the table: a model whose page is asked for texts that were not recorded."""
    with sessions(folder) as node:
        page = LivePage(node, folder, aw.Explorer(aw.trace(*made, text)))
        first, *times = [answer.ms for answer in page.answers(*(asks("preview", text=one) for one in typed))]
    parameters = sum(parameter.numel() for parameter in made[0].parameters())
    print(
        f"| {title} | {parameters:,} | {len(typed[0]) + 1} | {first:.0f} | {min(times):.0f} | "
        f"{median(times):.0f} |"
    )


def measure_engine(title: str, model: Any, weights: str, folder: Path) -> None:
    """Print lines of the second table: a model in the worker's script."""
    layout = layout_of(model, weights)
    unchanged = {"outputs": [], "rows": []}
    target = {"row": -1, "plus": 1, "minus": None}
    for length in (16, 64):
        common = {"ids": [1000 + 37 * i for i in range(length)], "edits": unchanged}
        once = {**common, "name": "pass", "outputs": {"logits": "last", "heads": False}}
        back = {**common, "name": "relevance", "target": target, "rule": "lrp"}
        about, *passes = answers(folder, layout, [once] * ENGINE_RUNS + [back] * ENGINE_RUNS)
        times = [answer["ms"] for answer in passes]
        print(
            f"| {title} | {about['backend']} | {length} | {min(times[:ENGINE_RUNS]):.1f} | "
            f"{min(times[ENGINE_RUNS:]):.1f} |"
        )


def variants(text: str, letters: str) -> list[str]:
    """Return texts of the same length, so that nothing is known from an earlier one."""
    return [text, *(letters[k % len(letters)] + text[1:-1] + letters[k // 5] for k in range(RUNS))]


def main() -> None:
    """Print the tables."""
    print(
        "| model | parameters | tokens | first pass, ms | smallest | median |\n|---|---:|---:|---:|---:|---:|"
    )
    with tempfile.TemporaryDirectory() as made:
        folder, alice = Path(made), aw.zoo.trained("alice")
        for length in (63, 143):
            measure("alice", alice, "alice", variants(TEXT[:length], "bcdfg"), folder)
        measure(
            "induction", aw.zoo.induction(), "abcab", variants("abcdefgh" * 3 + "abcdefgh", "ijklm"), folder
        )
        print("\n| model | kernels | tokens | pass, ms | with AttnLRP |\n|---|---|---:|---:|---:|")
        measure_engine("classifier, 8 bits", aw.demo_model("classifier")[0], "int8", folder)
        measure_engine("SmolLM2, exact", aw.demo_model("decoder")[0], "auto", folder)


if __name__ == "__main__":
    main()
