"""Measure the forward pass of a live page, in Node.js, on the bytes of a written page.

    python benchmarks/bench_live.py

It needs Node.js and js/node_modules (`make js`). CPU milliseconds of one pass with its predictions, smallest
and median; the first pass also unpacks the weights. The goal is three frames (50 ms) for 64 tokens of a model
with 300,000 parameters.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from statistics import median

import tested  # noqa: F401 - tests can be imported from here on

import attnwidgets as aw
from tests.views.live_pages import LivePage, asks, session_code

RUNS = 25
TEXT = (
    "alice was beginning to get very tired of sitting by her sister on the bank, and of having nothing to "
    "do: once or twice she had peeped into the book"
)


def measure(title: str, made: tuple, text: str, typed: list[str], folder: Path) -> None:
    """Print a line of the table: a model whose page is asked for texts that were not recorded."""
    page = LivePage(session_code(folder), folder, aw.Explorer(aw.trace(*made, text)))
    first, *times = [answer.ms for answer in page.answers(*(asks("preview", text=one) for one in typed))]
    parameters = sum(parameter.numel() for parameter in made[0].parameters())
    print(
        f"| {title} | {parameters:,} | {len(typed[0]) + 1} | {first:.0f} | {min(times):.0f} | "
        f"{median(times):.0f} |"
    )


def variants(text: str, letters: str) -> list[str]:
    """Return texts of the same length, so that nothing is known from an earlier one."""
    return [text, *(letters[k % len(letters)] + text[1:-1] + letters[k // 5] for k in range(RUNS))]


def main() -> None:
    """Print the table."""
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


if __name__ == "__main__":
    main()
