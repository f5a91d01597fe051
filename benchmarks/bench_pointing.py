"""How often each method finds the part of a drawn scene that a word of the answer rests on.

    python benchmarks/bench_pointing.py [--scenes 40]

Prints the table of docs/vision.md: of `aw.zoo.trained("scenes")`, whose evidence is known, the scenes
in which the cell with the largest value is the evidence of the colour, the row and the column.
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
    from collections.abc import Callable

CELLS = slice(1, 1 + SIDE * SIDE)
START = 16  # tokens before the answer


def by_word(model: Any, processor: Any, scene: Any) -> dict[str, dict[str, np.ndarray]]:
    """Return values of the nine cells: method -> word -> [cell]."""
    answer = scene.answer.split()
    whole = aw.trace(model, processor, f"{scene.text} {scene.answer}", image=scene.image)
    result: dict[str, dict[str, np.ndarray]] = {}
    for by in ("paint", "hide"):
        scores = np.asarray(aw.vision.sources(whole, (START, START + len(answer)), by=by).scores.values)
        result[f"`aw.vision.sources`, {by}"] = {word: scores[at] for word, at in CONTENT.items()}
    for word, at in CONTENT.items():
        trace = aw.trace(model, processor, f"{scene.text} {' '.join(answer[:at])}", image=scene.image)
        target = aw.targets.token(processor.tokenizer.convert_tokens_to_ids(answer[at]))
        for name, method in METHODS.items():
            result.setdefault(name, {})[word] = method(trace, target)
    return result


def _in_text(explained: Any) -> np.ndarray:
    return np.asarray(explained.values, dtype=float).reshape(-1)[CELLS]


def _last_row(weights: Any) -> np.ndarray:
    return np.asarray(weights, dtype=float)[-1, CELLS]


def _from_mean(trace: Any, target: Any) -> np.ndarray:
    """Return integrated gradients from the mean of the picture's tokens; words stay."""
    states: list[Any] = []
    inner = trace.model.model.language_model
    hook = inner.register_forward_pre_hook(
        lambda _, __, options: states.append(options["inputs_embeds"].detach()[0].clone()), with_kwargs=True
    )
    trace.model(**trace.inputs)
    hook.remove()
    baseline = states[0]
    baseline[CELLS] = baseline[CELLS].mean(0)
    return _in_text(aw.integrated_gradients(trace, target=target, baseline=baseline, steps=20))


def _attention(trace: Any, layers: list[int]) -> np.ndarray:
    maps = [np.asarray(aw.attention(trace, stack="text").layer(layer)).mean(0) for layer in layers]
    return _last_row(np.mean(maps, axis=0))


METHODS: dict[str, Callable[[Any, Any], np.ndarray]] = {
    '`aw.lrp(at="input")`, the pixels': lambda t, target: (
        np.asarray(aw.lrp(t, target=target, at="input", unit="pixel").values, dtype=float)
        .reshape(SIDE, CELL, SIDE, CELL)
        .sum((1, 3))
        .ravel()
    ),
    "`aw.lrp`, the tokens": lambda t, target: _in_text(aw.lrp(t, target=target)),
    "`aw.integrated_gradients` from the mean picture token": _from_mean,
    "`aw.integrated_gradients` from zeros": lambda t, target: _in_text(
        aw.integrated_gradients(t, target=target, baseline="zero", steps=20)
    ),
    "`aw.chefer`": lambda t, target: _in_text(aw.chefer(t, target=target, stack="text")),
    "`aw.rollout`": lambda t, _: _last_row(aw.rollout(t, stack="text").layer(-1)),
    "attention of the last layer": lambda t, _: _attention(t, [1]),
    "attention, mean of layers": lambda t, _: _attention(t, [0, 1]),
    "`aw.input_x_gradient`": lambda t, target: _in_text(aw.input_x_gradient(t, target=target)),
}


def main(arguments: list[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scenes", type=int, default=40)
    count = parser.parse_args(arguments).scenes
    model, processor = aw.zoo.trained("scenes")
    hits: dict[str, dict[str, int]] = {}
    began = time.perf_counter()
    for number in range(count):
        scene = model.truth.scene(1_000 + number)
        top, left, *_ = scene.evidence
        cell = top // CELL * SIDE + left // CELL
        for name, words in by_word(model, processor, scene).items():
            for word, values in words.items():
                of = hits.setdefault(name, dict.fromkeys(CONTENT, 0))
                of[word] += int(np.argmax(values)) == cell and bool(values.any())
    for name, of in hits.items():
        sys.stdout.write(f"| {name} | " + " | ".join(f"{of[word]}/{count}" for word in CONTENT) + " |\n")
    sys.stdout.write(f"{time.perf_counter() - began:.0f} s\n")


if __name__ == "__main__":
    main()
