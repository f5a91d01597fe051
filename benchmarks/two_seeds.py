"""Two trainings of the induction recipe, side by side: the table of docs/training.md.

    python benchmarks/two_seeds.py --write                 trains both (minutes), and writes the table
    python benchmarks/two_seeds.py --folder FOLDER         keeps the checkpoints, or reads them from there

Heads of the second seed are those that attend as the heads of the first do at the end (`run.match`).
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from pages import write_between

import attnwidgets as aw

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from attnwidgets.training.curve import Curve

PAGE = Path(__file__).parents[1] / "docs" / "training.md"
MARKS = ("<!-- measured -->", "<!-- end of measured -->")
EVERY = 20
LAYERS = {"previous": [0], "induction": [1], "cause": [0, 1], "key composition": [1]}
"""The layers whose heads have a row, by curve."""

SMALL = 0.05
"""A change below which nothing is said to be half way."""


def pairs(curves: Sequence[dict[str, Curve]], match: dict) -> Iterator[tuple[str, Curve, Curve]]:
    """Yield the name of a row, and the curve of both seeds."""
    for name in ("behaviour", "in-context loss"):
        yield name, curves[0][name], curves[1][name]
    for name, layers in LAYERS.items():
        earlier = [head for head in match if name == "key composition" and head[0] < min(layers)] or [()]
        for head in (head for head in match if head[0] in layers):
            for before in earlier:
                labels = [(*head, *before), (*match[head], *(match[before] if before else ()))]
                mine, theirs = (seed[name].at(*at) for seed, at in zip(curves, labels, strict=True))
                yield f"{mine.name} ({theirs.name.rpartition('head ')[2]})", mine, theirs


def cells(curve: Curve) -> str:
    """Return the last value of a curve and the step at half way, as cells."""
    first, last = curve.values[[0, -1]]
    when = curve.appeared if abs(last - first) >= SMALL else None
    return f"{last:.2f} | {when.step if when else ''}"


def main() -> None:
    """Measure, print, and perhaps write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    keep = range(0, 1201, EVERY)
    runs = []
    for seed in (0, 1):
        folder = None if options.folder is None else options.folder / f"seed-{seed}"
        runs.append(aw.zoo.train.run("induction", seed, keep=keep, folder=folder))
    curves = [run.curves(["behaviour", "in-context loss", *LAYERS]) for run in runs]
    rows = [
        f"| {name} | {cells(mine)} | {cells(theirs)} |"
        for name, mine, theirs in pairs(curves, runs[0].match(runs[1]))
    ]
    head = "| curve, head of seed 0 (of seed 1) | seed 0, last | half way | seed 1, last | half way |"
    table = "\n".join([head, "|---|---:|---:|---:|---:|", *rows])
    print(table)
    if options.write:
        write_between(PAGE, *MARKS, table)


if __name__ == "__main__":
    main()
