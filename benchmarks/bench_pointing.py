"""How often each method finds the part of a drawn scene that a word of the answer rests on.

    python benchmarks/bench_pointing.py [--scenes 40]

Prints the table of docs/vision.md: of `aw.zoo.trained("scenes")`, whose evidence is known, the scenes
in which the cell with the largest value is the evidence of the colour, the row and the column, and the
share of the other words, which need no picture, that rest on no cell.
"""

from __future__ import annotations

import argparse
import sys
import time
from typing import TYPE_CHECKING, Any

import numpy as np

import attnwidgets as aw
from attnwidgets.zoo.scenes import CELL, SIDE
from attnwidgets.zoo.train.scenes import CONTENT

if TYPE_CHECKING:
    from collections.abc import Iterator

CELLS = slice(1, 1 + SIDE * SIDE)
START = 16  # tokens before the answer
BY = {
    "paint": "`aw.vision.sources`, paint",
    "hide": "`aw.vision.sources`, hide",
    "lrp_pixels": '`aw.lrp(at="input")`, the pixels',
    "lrp": "`aw.lrp`, the tokens",
    "integrated_gradients": "`aw.integrated_gradients` from the mean picture token",
    "chefer": "`aw.chefer`",
    "rollout": "`aw.rollout`",
    "input_x_gradient": "`aw.input_x_gradient`",
}


def by_method(trace: Any, stop: int) -> Iterator[tuple[str, np.ndarray, tuple[Any, ...] | None]]:
    """Yield methods with their values of the nine cells, for the words of the answer [word, cell].

    Also the box that each word rests on most, where the result has one.
    """
    for by, name in BY.items():
        result = aw.vision.sources(trace, (START, stop), by=by)
        yield name, np.asarray(result.scores.values), result.strongest()
    targets = [aw.targets.token(int(trace.input_ids[at]), position=at - 1) for at in range(START, stop)]
    from_zeros = aw.integrated_gradients(trace, target=targets, baseline="zero", steps=20)
    yield "`aw.integrated_gradients` from zeros", np.asarray(from_zeros.values)[:, CELLS], None
    maps = np.asarray(aw.attention(trace, stack="text").mean("head"))[:, START - 1 : stop - 1, CELLS]
    yield "attention of the last layer", maps[-1], None
    yield "attention, mean of layers", maps.mean(0), None


def main(arguments: list[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scenes", type=int, default=40)
    count = parser.parse_args(arguments).scenes
    model, processor = aw.zoo.trained("scenes")
    hits: dict[str, dict[str, int]] = {}
    empty: dict[str, float] = {}
    began = time.perf_counter()
    for number in range(count):
        scene = model.truth.scene(1_000 + number)
        top, left, *_ = scene.evidence
        cell = top // CELL * SIDE + left // CELL
        trace = aw.trace(model, processor, f"{scene.text} {scene.answer}", image=scene.image)
        for name, values, strongest in by_method(trace, START + len(scene.answer.split())):
            of = hits.setdefault(name, dict.fromkeys(CONTENT, 0))
            if strongest is not None:
                others = [box for at, box in enumerate(strongest) if at not in CONTENT.values()]
                empty[name] = empty.get(name, 0) + sum(box is None for box in others) / len(others)
            for word, at in CONTENT.items():
                of[word] += int(np.argmax(values[at])) == cell and bool(values[at].any())
    for name, of in hits.items():
        share = f"{empty[name] / count:.0%}" if name in empty else ""
        cells = (*(f"{of[word]}/{count}" for word in CONTENT), share)
        sys.stdout.write(f"| {' | '.join((name, *cells))} |\n")
    sys.stdout.write(f"{time.perf_counter() - began:.0f} s\n")


if __name__ == "__main__":
    main()
